"""Heads of a tagger: from a score for each token and label to a distribution over sequences of labels.

Both heads read `scores` (B, T, K), `tags` (B, T) and `mask` (B, T); padding may be anywhere and hold anything. Higher
orders and semi-Markov segments are left out, since no lecture has them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused import crf as fused
from seqloom.nn import mask as masks
from seqloom.nn.layer import require
from seqloom.nn.mask import gather_steps, left_align

FORBIDDEN = -1e4  # the score of a forbidden transition: probability 0, without NaN in sums
TransitionScores = tuple[Tensor, Tensor, Tensor]
"""The scores of a step from label to label (K, K), of a beginning (K,) and of an end (K,)."""


class TagHead(nn.Module):
    """P(y₁ … y_T) over all sequences of labels, from scores sₜ[k].

    `allowed` says which label may follow which: (K, K), or (K + 1, K + 1) with the sentence's border last, its row for what may begin and
    its column for what may end. With `spans` the labels mark spans (BIO, BIOES, BILOU), and their names say it: `set_labels`.
    """

    def __init__(self, labels: int, allowed: Tensor | None = None, spans: bool = False):
        super().__init__()
        require(labels > 0, f"labels are chosen from at least one, not {labels}")
        self.labels, self.spans = labels, spans
        if allowed is not None:
            shape, fits = tuple(allowed.shape), ((labels, labels), (labels + 1, labels + 1))
            require(
                shape in fits,
                f"the allowed steps of {labels} labels are a square of {labels} or {labels + 1}, not {shape}",
            )
            allowed = F.pad(allowed.bool(), (0, labels + 1 - shape[0]) * 2, value=True)
        self.register_buffer("allowed", allowed, persistent=False)

    def set_labels(self, names: Sequence[str]) -> None:
        """Tells the names of the labels; where they mark spans, they say which may follow which."""
        if self.spans:
            self.allowed = allowed_transitions(names)

    def nll(self, scores: Tensor, tags: Tensor, mask: Tensor | None = None) -> Tensor:
        """-ln P(tags) of each row, 0 where it has no token: (B,)."""
        raise NotImplementedError

    def decode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """The most probable sequence of each row among those allowed, 0 at padding: (B, T)."""
        raise NotImplementedError

    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """P(yₜ = k), 0 at padding: (B, T, K)."""
        raise NotImplementedError

    def apply_constraints(self, steps: TransitionScores) -> TransitionScores:
        """The same where allowed, and never elsewhere."""
        if self.allowed is None:
            return steps
        rules = self.allowed[:-1, :-1], self.allowed[-1, :-1], self.allowed[:-1, -1]
        return tuple(score.masked_fill(~rule, FORBIDDEN) for score, rule in zip(steps, rules, strict=True))


class SoftmaxHead(TagHead):
    """P(y₁ … y_T) = Πₜ softmax(sₜ)[yₜ]   [T1]

    Each label by itself; `allowed` restricts the best sequence alone.
    """

    def nll(self, scores: Tensor, tags: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = full_mask(scores, mask)
        losses = F.cross_entropy(scores[mask], tags[mask], reduction="none")  # (N,)
        return losses.new_zeros(mask.shape).masked_scatter(mask, losses).sum(1)

    @torch.no_grad()
    def decode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.allowed is None:
            return scores.argmax(-1).masked_fill(~full_mask(scores, mask), 0)
        none = scores.new_zeros(self.labels)
        return viterbi(scores, mask, self.apply_constraints((torch.diag(none), none, none)))

    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        return scores.softmax(-1).masked_fill(~full_mask(scores, mask)[..., None], 0)


class CRF(TagHead):
    """P(y₁ … y_T) = exp(s(y)) / Σ_y' exp(s(y')),   s(y) = b[y₁] + Σₜ sₜ[yₜ] + Σₜ A[yₜ₋₁, yₜ] + e[y_T]   [T1]

    A linear-chain conditional random field (Lafferty et al.): A scores the steps, b the beginning, e the end. The sum over all sequences
    is αₜ[k] = sₜ[k] + ln Σⱼ exp(αₜ₋₁[j] + A[j, k]), from left to right; the best sequence is the same with max (Viterbi). The compiled loops of
    lattice.py are the fast form.
    """

    def __init__(self, labels: int, allowed: Tensor | None = None, spans: bool = False):
        super().__init__(labels, allowed, spans)
        self.transitions = nn.Parameter(torch.zeros(labels, labels))
        self.start_transitions, self.end_transitions = (
            nn.Parameter(torch.zeros(labels)),
            nn.Parameter(torch.zeros(labels)),
        )

    def transition_scores(self) -> TransitionScores:
        return self.apply_constraints((self.transitions, self.start_transitions, self.end_transitions))

    def nll(self, scores: Tensor, tags: Tensor, mask: Tensor | None = None) -> Tensor:
        scores, mask, tags, _ = left_align_tags(scores, mask, tags)
        if not scores.shape[1]:
            return scores.new_zeros(len(scores))
        steps, first, last = scored = self.transition_scores()
        total = fused.log_partition(scores, masks.lengths(mask), scored)
        if total is None:
            total = (forward_scores(scores, mask, steps, first)[-1] + last).logsumexp(1)
        end = tags.gather(1, (masks.lengths(mask) - 1).clamp(min=0)[:, None])[:, 0]
        own = scores.gather(2, tags[..., None])[..., 0].masked_fill(~mask, 0).sum(1)
        between = steps[tags[:, :-1], tags[:, 1:]].masked_fill(~mask[:, 1:], 0).sum(1)
        return (total - own - between - first[tags[:, 0]] - last[end]).masked_fill(~mask[:, 0], 0)

    @torch.no_grad()
    def decode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        return viterbi(scores, mask, self.transition_scores())

    @torch.no_grad()
    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """P(yₜ = k) = exp(αₜ[k] + βₜ[k] - ln Z),   βₜ₋₁[j] = ln Σₖ exp(A[j, k] + sₜ[k] + βₜ[k])"""
        scores, mask, _, back = left_align_tags(scores, mask)
        if not scores.shape[1]:
            return torch.zeros_like(scores)
        steps, first, last = scored = self.transition_scores()
        found = fused.marginals(scores, masks.lengths(mask), scored)
        if found is not None:
            return gather_steps(found, back)
        after = [last.expand(len(scores), -1)]  # β, from right to left
        for score, here in zip(scores.unbind(1)[:0:-1], mask.unbind(1)[:0:-1], strict=True):
            after.append(
                torch.where(here[:, None], (steps + (score + after[-1])[:, None]).logsumexp(2), after[-1])
            )
        both = torch.stack(forward_scores(scores, mask, steps, first), 1) + torch.stack(
            after[::-1], 1
        )  # (B, T, K)
        return gather_steps(both.softmax(-1).masked_fill(~mask[..., None], 0), back)


def full_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones(scores.shape[:2], dtype=torch.bool, device=scores.device) if mask is None else mask


def left_align_tags(
    scores: Tensor, mask: Tensor | None, tags: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Scores, mask and tags with each row's real tokens first and zeros at padding, and the order that turns results back."""
    mask = full_mask(scores, mask)
    if tags is not None:
        tags = left_align(tags[..., None], mask)[0][..., 0]
    scores, mask, back = left_align(scores, mask)
    return (
        scores.masked_fill(~mask[..., None], 0),
        mask,
        None if tags is None else tags.masked_fill(~mask, 0),
        back,
    )


def forward_scores(scores: Tensor, mask: Tensor, steps: Tensor, first: Tensor) -> list[Tensor]:
    """αₜ for each t, (B, K) each; padding repeats the one before."""
    found = [first + scores[:, 0]]
    into = steps.T  # [k, j]: the sum runs over the last axis
    for score, here in zip(scores.unbind(1)[1:], mask.unbind(1)[1:], strict=True):
        found.append(torch.where(here[:, None], (found[-1][:, None] + into).logsumexp(2) + score, found[-1]))
    return found


def viterbi(scores: Tensor, mask: Tensor | None, scored: TransitionScores) -> Tensor:
    """argmax_y s(y): the best score of a path that ends in k at t, and where it came from; then back from the best end."""
    scores, mask, _, back = left_align_tags(scores, mask)
    tags = torch.zeros(scores.shape[:2], dtype=torch.long, device=scores.device)
    if not scores.shape[1]:
        return tags
    found = fused.viterbi(scores, masks.lengths(mask), scored)
    if found is not None:
        return gather_steps(found[..., None], back)[..., 0]
    steps, first, last = scored
    into, best, came = steps.T.contiguous(), first + scores[:, 0], []
    stay = torch.arange(len(first), device=scores.device)
    for score, here in zip(scores.unbind(1)[1:], mask.unbind(1)[1:], strict=True):
        value, origin = (best[:, None] + into).max(2)  # (B, K)
        best = torch.where(here[:, None], value + score, best)
        came.append(torch.where(here[:, None], origin, stay))
    path = [(best + last).argmax(1, keepdim=True)]
    for origin in reversed(came):
        path.append(origin.gather(1, path[-1]))
    tags = torch.cat(path[::-1], 1).masked_fill(~mask, 0)
    return gather_steps(tags[..., None], back)[..., 0]


def allowed_transitions(labels: Sequence[str]) -> Tensor:
    """Which label may follow which in BIO, BIOES or BILOU, border last: (K + 1, K + 1). A label is `O`, a mark and a kind (`B-PER`), or anything
    else, which follows and is followed by all.

    I and E (or L) go on a span of their own kind, which B opens. Where the labels can close a span (E or L), an open one must be closed.
    """
    split = [
        label.partition("-")[::2] if label[1:2] == "-" and label[0] in "BIESLU" else ("O", "")
        for label in labels
    ] + [("O", "")]
    closes = any(mark in "EL" for mark, _ in split)
    table = torch.ones(len(split), len(split), dtype=torch.bool)
    for before, (mark, kind) in enumerate(split):
        for after, (next_mark, next_kind) in enumerate(split):
            open_before, goes_on = mark in "BI", next_mark in "IEL"
            fits = open_before and kind == next_kind
            table[before, after] = fits if goes_on else not (closes and open_before)
    return table
