"""Attention itself, in four small things: the score of a query and a key, the weights that scores become, the weighted average, and which
keys each query may see.

Three plans compute the same outputs: `DenseAttention` follows the equation, `SDPAttention` calls torch's kernel, and `BandedAttention` works
in chunks where visibility depends on distance alone. Only the first returns attention weights. Causality, window, padding and position bias are
combined into a plan once for all layers of a stack (`VisibilityRule.build`).
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.fused.dispatch import fused_enabled
from seqloom.fused.sdpa import BandedAttention, SDPAttention, SingleQueryMask
from seqloom.nn.layer import (
    Choice,
    HasPoints,
    Memo,
    Point,
    Points,
    add_choice,
    causal_mask,
    concat_masks,
    masked_softmax,
    next_power_of_two,
    none_if_full,
    real_positions,
    record,
    require,
    right_padded,
)
from seqloom.nn.position import Position, Positions


class Score(HasPoints):
    """s = score(q, k):  (B, H, T, K), (B, H, S, K) → (B, H, T, S).

    `scale` is set if s = scale · project_query(q)·k, which fused attention can compute.
    """

    points: ClassVar[Points] = {"": Point("s", "BHTS")}
    scale: float | None = None

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def project_query(self, q: Tensor) -> Tensor:
        """The query that is multiplied by k."""
        return q


class Dot(Score):
    """s(q, k) = q · k   [F8]"""

    scale = 1.0

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhtk,bhsk->bhts", q, k)


class ScaledDot(Score):
    """s(q, k) = q · k / √K   [F8, D-10]

    With K independent terms of variance 1 the score keeps variance 1, and the softmax its slope.
    """

    scale: float

    def __init__(self, dim: int):
        super().__init__(dim)
        self.scale = 1 / math.sqrt(dim)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhtk,bhsk->bhts", q * self.scale, k)  # scales q, the smaller of the two


class Bilinear(Score):
    """s(q, k) = qᵀ W k   [F8]: the general score of Luong et al., with one W for all heads"""

    scale = 1.0

    def __init__(self, dim: int):
        super().__init__(dim)
        self.weight = nn.Parameter(torch.empty(dim, dim).uniform_(-1, 1) / math.sqrt(dim))

    def project_query(self, q: Tensor) -> Tensor:
        return q @ self.weight

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhti,ij,bhsj->bhts", q, self.weight, k)


class Additive(Score):
    """s(q, k) = uᵀ tanh(q + k)   [F8]. The W of uᵀ tanh(W [q; k]) is the projection that makes q and k."""

    def __init__(self, dim: int):
        super().__init__(dim)
        self.vector = nn.Parameter(torch.empty(dim).uniform_(-1, 1) / math.sqrt(dim))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (q.unsqueeze(-2) + k.unsqueeze(-3)).tanh() @ self.vector  # (B, H, T, S, K) → (B, H, T, S)


class AttentionWeights(HasPoints):
    """α = weights(s) over the visible keys:  (B, H, T, S) → (B, H, T, S), 0 where a key is not visible.

    May overwrite `scores`. `in_sdpa` says whether torch's scaled_dot_product_attention computes these
    weights.
    """

    points: ClassVar[Points] = {"": Point("α", "BHTS")}
    in_sdpa = False

    def __init__(self) -> None:
        super().__init__()  # a signature without sizes, which configs read

    def forward(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        raise NotImplementedError


class Softmax(AttentionWeights):
    """αⱼ = exp(sⱼ) / Σ exp(s)   [F9, D-9]: a distribution; all zeros if nothing is visible"""

    in_sdpa = True

    def forward(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        return masked_softmax(scores, visible)


class Raw(AttentionWeights):
    """αⱼ = sⱼ   [F5, D-9]: the scores themselves, which do not sum to 1"""

    def forward(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        return scores if visible is None else scores.masked_fill(~visible, 0)


class Hard(AttentionWeights):
    """α = one-hot(j),   j ~ softmax(s) in training, j = argmax s afterwards   (hard attention, Xu et al. 2015, section 4.1)

    One key is looked at. The draw has no gradient: the objective `translation` learns from ln P(j) by REINFORCE
    (objectives/reinforce.py). `entropy` is the weight of the entropy of softmax(s), which keeps it from settling too early.
    """

    def __init__(self, entropy: float = 0.01):
        super().__init__()
        require(entropy >= 0, f"the weight of the entropy is {entropy}: give a number of at least 0")
        self.entropy = entropy

    def forward(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        chances = masked_softmax(scores.clone(), visible)
        if scores.shape[-1] == 0:  # no keys
            return chances
        if self.training:
            flat = chances.detach().flatten(0, 2)
            seen = flat.sum(-1, keepdim=True) > 0  # all zeros if nothing is visible
            chosen = torch.multinomial(torch.where(seen, flat, 1.0), 1).view(*scores.shape[:3], 1)
        else:
            chosen = chances.argmax(-1, keepdim=True)
        logs = chances.clamp(min=torch.finfo(chances.dtype).tiny).log()
        add_choice(Choice(logs.gather(-1, chosen)[..., 0], -self.entropy * (chances * logs).sum(-1)))
        picked = torch.zeros_like(chances).scatter(-1, chosen, 1.0)
        return picked * (chances.detach().sum(-1, keepdim=True) > 0)


SOFTMAX = Softmax()


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Score,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    weights: AttentionWeights = SOFTMAX,
) -> tuple[Tensor, Tensor | None]:
    """yₜ = Σⱼ αₜⱼ vⱼ,   αₜ = weightsⱼ(s(qₜ, kⱼ) + biasₜⱼ) over the visible j   [F9]

    q (B, H, T, K), k (B, G, S, K), v (B, G, S, K') → y (B, H, T, K') and, in the plain form, α (B, H, T, S);
    G divides H. `visible` and `bias` broadcast to (B, H, T, S). The output of a query that sees no key is 0.
    `causal` limits query i to keys up to i, for T = S.
    """
    fused = can_use_sdpa(score, weights)
    if causal and not (fused and visible is None and bias is None):
        not_later = causal_mask(q.shape[2], k.shape[2], q.device)
        visible = combine_visible(visible, not_later)
        causal = False
    plan: AttentionPlan = DenseAttention(visible, bias)
    if fused:
        plan = SDPAttention.create(visible, bias, causal)
    return run_plan(plan, q, k, v, score, weights)


def can_use_sdpa(score: Score, weights: AttentionWeights) -> bool:
    """Whether torch's kernel computes this score and these weights."""
    return fused_enabled() and score.scale is not None and weights.in_sdpa


def combine_visible(first: Tensor | None, second: Tensor) -> Tensor:
    """The keys that are visible in both masks; None hides nothing."""
    return second if first is None else first & second


class DenseAttention(NamedTuple):
    """The plain form: computes all scores and weights."""

    visible: Tensor | None
    bias: Tensor | None

    def single_query(self, keys: int) -> SingleQueryMask | None:
        """None: the plain form does not use the decode kernel."""
        return None

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, score: Score, weights: AttentionWeights
    ) -> tuple[Tensor, Tensor]:
        group_size = q.shape[1] // k.shape[1]  # query heads that share keys and values
        if group_size > 1:
            k = k.repeat_interleave(group_size, 1)
            v = v.repeat_interleave(group_size, 1)
        scores = score(q, k)
        scores = record(score, "", scores if self.bias is None else scores + self.bias)
        alpha = record(weights, "", weights(scores, self.visible))
        return torch.einsum("bhts,bhsk->bhtk", alpha, v), alpha


AttentionPlan = DenseAttention | SDPAttention | BandedAttention


def run_plan(
    plan: AttentionPlan, q: Tensor, k: Tensor, v: Tensor, score: Score, weights: AttentionWeights
) -> tuple[Tensor, Tensor | None]:
    """Attends as planned: the outputs, and the weights in the plain form."""
    if isinstance(plan, DenseAttention):
        return plan.attend(q, k, v, score, weights)
    return plan.attend(score.project_query(q), k, v, score.scale), None


CHUNK = 256  # queries per chunk: the block size of torch's kernel; smaller chunks save nothing


class Visibility(NamedTuple):
    """What the layers of a stack share in one call."""

    key_mask: Tensor | None  # (B, S), True = real token; None if all are real
    positions: Positions  # of the queries
    plan: AttentionPlan


class VisibilityRule(NamedTuple):
    """Query t sees key j for j ≤ t if `causal`, and |t - j| < `window` if there is one [F13]. The position
    scheme adds its bias.
    """

    position: Position
    causal: bool
    window: int | None
    memo: Memo

    def build(
        self,
        x: Tensor,
        past_length: int,
        past_mask: Tensor | None,
        mask: Tensor | None,
        visible: Tensor | None,
        fused: bool,
    ) -> Visibility:
        """The visibility for x (B, T, D) after `past_length` positions with the mask `past_mask`; `visible`
        (…, T, S) hides more keys.
        """
        batch, length, _ = x.shape
        total = past_length + length
        key_mask = concat_masks(
            past_mask, past_length, none_if_full(mask), batch, length, x.device
        )  # (B, S) or None
        pads_right = key_mask is not None and right_padded(key_mask)
        context = self.position.context
        row_positions: Tensor | None = None  # (B, S), if the rows count differently
        if key_mask is not None and not (pads_right and (context is None or total <= context)):
            row_positions = real_positions(key_mask)
        positions: Positions = slice(past_length, total)
        if row_positions is not None:
            positions = row_positions[:, past_length:]
        needs_causal = self.causal and length > 1
        if fused and visible is None and length and (key_mask is None or (pads_right and self.causal)):
            banded = self.shift_invariant_plan(x, past_length, total, needs_causal)
            return Visibility(key_mask, positions, banded)
        if key_mask is not None:
            visible = combine_visible(visible, key_mask[:, None, None])  # (B, 1, 1, S)
        if needs_causal:
            visible = combine_visible(visible, causal_mask(length, total, x.device))
        keys = torch.arange(total, device=x.device) if row_positions is None else row_positions
        queries = keys[..., past_length:]
        if self.window is not None:
            visible = combine_visible(visible, in_window(queries, keys, self.window))
        bias = self.position.bias(queries, keys)
        bias = None if bias is None else bias.to(x.dtype)
        plan: AttentionPlan = DenseAttention(visible, bias)
        if fused:
            plan = SDPAttention.create(visible, bias, False)
        return Visibility(key_mask, positions, plan)

    def shift_invariant_plan(
        self, x: Tensor, past_length: int, total: int, needs_causal: bool
    ) -> SDPAttention | BandedAttention:
        """The plan without a padding mask: visibility and bias depend on t - j alone."""
        length = total - past_length
        biased = type(self.position).bias is not Position.bias
        if not biased and self.window is None and (not needs_causal or not past_length):
            return SDPAttention(None, needs_causal, None)
        reach = None if self.window is None else self.window - 1
        visible_range = (reach, 0 if self.causal else reach)
        chunk = 1 if length == 1 else CHUNK
        left = next_power_of_two(past_length + length) if reach is None else reach
        if self.causal:
            right = chunk
        else:
            right = next_power_of_two(length) if reach is None else chunk + reach
        if length == 1 and self.causal and not biased:
            return BandedAttention(None, left, chunk, past_length, visible_range)
        key = (chunk, left, right, x.dtype, x.device)
        table = self.memo(key, lambda: self.bias_table(*key))
        return BandedAttention(table, left, chunk, past_length, visible_range)

    def bias_table(
        self, chunk: int, left: int, right: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """The bias of the queries left … left + chunk over the keys 0 … left + right, -inf at hidden keys:
        (1, H or 1, chunk, left + right).
        """
        queries = torch.arange(left, left + chunk, device=device)
        keys = torch.arange(left + right, device=device)
        bias = self.position.bias(queries, keys)
        bias = torch.zeros(1, 1, chunk, left + right, device=device) if bias is None else bias
        if self.causal:
            bias = bias.masked_fill(keys > queries[:, None], float("-inf"))
        if self.window is not None:
            bias = bias.masked_fill(~in_window(queries, keys, self.window), float("-inf"))
        return bias.to(dtype)


def in_window(queries: Tensor, keys: Tensor, window: int) -> Tensor:
    """Whether |t - j| < window: positions (T,), (S,) → (T, S), or (B, T), (B, S) → (B, 1, T, S)."""
    near = (queries[..., :, None] - keys[..., None, :]).abs() < window
    return near if near.dim() == 2 else near[:, None]
