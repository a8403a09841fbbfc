"""The pointer-generator of See et al. (2017): a recurrent decoder whose attention knows what it has covered, and an output layer that mixes
words of the vocabulary with words of the source.

Left out: a fast form. Each attention depends on the one before, so the decoder is a loop over the (few) steps of a summary.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.attention_core import Additive, AttentionWeights, Score, Softmax, attend
from seqloom.nn.basic import Linear
from seqloom.nn.capture import time_loop
from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.embedding import Embedding, Output, OutputLayer, cross_entropy, to_float32
from seqloom.nn.layer import (
    Factory,
    Memory,
    Point,
    Points,
    State,
    add_aux_loss,
    collecting_losses,
    record,
    require,
    where_real,
)
from seqloom.nn.pool import InitFrom
from seqloom.nn.rnn_decoder import AttentiveRNN, AttentiveState, GlobalAttention, GlobalAttentionState


class CoverageAttention(GlobalAttention):
    """c = Σⱼ αⱼ mⱼ,   α = softmaxⱼ uᵀ tanh(W_Q h + W_K mⱼ + w vⱼ)   [F4, T6]

    vⱼ is the attention that the source position j has received before; without it (None), the term is left out.
    """

    def __init__(
        self,
        size: int,
        memory: int,
        score: Factory[Score] = Additive,
        dim: int | None = None,
        weights: Factory[AttentionWeights] = Softmax,
    ):
        super().__init__(size, memory, score, dim, weights)
        require(
            isinstance(self.score, Additive),
            "coverage needs the additive score: set attention.score to Additive",
        )
        self.covered = nn.Parameter(torch.zeros(dim or size))  # w

    def forward(
        self, h: Tensor, state: GlobalAttentionState, coverage: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T, D), (B, S) → the context (B, T, M) and the weights (B, 1, T, S)."""
        keys = state.keys
        if coverage is not None:
            keys = keys + coverage[:, None, :, None] * self.covered  # (B, 1, S, K)
        c, weights = attend(
            self.query(h)[:, None], keys, state.values, self.score, state.visible, weights=self.weights
        )
        return record(self, "", c[:, 0]), weights


class PointerState(NamedTuple):
    """The state of a pointer decoder."""

    decoder: AttentiveState
    coverage: Tensor  # (B, S), the attention that each source position has received


class PointerOutputs(NamedTuple):
    """What a pointer decoder computes at each step."""

    y: Tensor  # (B, T, D)
    switch: Tensor  # (B, T), the logit of p_gen
    weights: Tensor  # (B, T, S)
    state: PointerState


class PointerRNN(AttentiveRNN):
    """A recurrent decoder that attends with coverage, and decides between generating and copying (See et al. 2017)   [T6]

    αₜ = softmaxⱼ uᵀ tanh(W_Q hₜ₋₁ + W_K mⱼ + w vₜⱼ),   vₜ = Σ_{t' < t} α_{t'};   cₜ = Σⱼ αₜⱼ mⱼ
    hₜ = f(hₜ₋₁, W xₜ + C cₜ);   yₜ = tanh(W' [hₜ; cₜ; xₜ]);   p_gen = σ(w_c · cₜ + w_s · hₜ + w_x · xₜ + b)

    In training the coverage loss λ Σⱼ min(αₜⱼ, vₜⱼ), a mean over the steps, keeps it from reading the same words again; λ is
    `coverage_loss`. Without `coverage` there is neither v nor the loss.
    """

    def __init__(
        self,
        size: int,
        memory: int,
        dim: int | None = None,
        cell: Factory[Cell] = LSTM,
        attention: Factory[CoverageAttention] = CoverageAttention,
        dropout: float = 0.0,
        init_from: InitFrom = "mean",
        coverage: bool = True,
        coverage_loss: float = 1.0,
    ):
        query: Literal["previous"] = "previous"
        super().__init__(size, memory, dim, cell, 1, attention, dropout, query, init_from)
        require(coverage_loss >= 0, f"coverage_loss must be at least 0, not {coverage_loss}")
        self.switch = Linear(memory + self.dim + size, 1)  # w_c, w_s, w_x and b
        self.coverage = coverage
        self.coverage_loss = coverage_loss

    def start(self, batch: int, memory: Memory | None = None) -> PointerState:  # type: ignore[override]  # with coverage
        state = super().start(batch, memory)
        keys = state.memory.keys
        return PointerState(state, keys.new_zeros(len(keys), keys.shape[2]))

    def forward(  # type: ignore[override]  # its state has the coverage too
        self, x: Tensor, state: PointerState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, PointerState]:
        outputs = self.forward_with_pointer(x, state or self.start(len(x)), mask)
        return outputs.y, outputs.state

    def forward_with_pointer(
        self, x: Tensor, state: PointerState, mask: Tensor | None = None
    ) -> PointerOutputs:
        """(B, T, size) → the outputs, the logits of p_gen, the attention weights, and the state."""
        decoder, coverage = state
        batch, length = x.shape[:2]
        if not length:
            weights = x.new_zeros(batch, 0, coverage.shape[1])
            return PointerOutputs(x.new_zeros(batch, 0, self.dim), x.new_zeros(batch, 0), weights, state)
        if self.context_proj is None:
            raise NotImplementedError("a pointer decoder attends from the previous state")
        cell = self.cells[0]
        cell_state: State = decoder.cells[0]
        hidden: list[Tensor] = []
        contexts: list[Tensor] = []
        weights_by_step: list[Tensor] = []
        overlaps: list[Tensor] = []
        with time_loop():
            for t, x_proj in enumerate(cell.project_input(x).unbind(1)):
                seen = coverage if self.coverage else None
                c, weights = self.attention(cell_state[0][:, None], decoder.memory, seen)
                alpha = weights[:, 0, 0]  # (B, S)
                new_state = cell.recorded_step(x_proj + self.context_proj(c[:, 0]), cell_state)[0]
                overlaps.append(torch.minimum(alpha, coverage).sum(1))  # (B,)
                hidden.append(new_state[0])
                contexts.append(c[:, 0])
                weights_by_step.append(alpha)
                real = None if mask is None else mask[:, t]
                coverage = coverage + (alpha if real is None else alpha * real[:, None])
                cell_state = new_state if real is None else where_real(real, new_state, cell_state)
        h, c = torch.stack(hidden, 1), torch.stack(contexts, 1)
        self.add_coverage_loss(torch.stack(overlaps, 1), mask)
        features = torch.cat([h, c, x], -1)
        y = self.out_proj(self.dropout(features)).tanh()
        switch = self.switch(torch.cat([c, h, x], -1))[..., 0]
        decoder = AttentiveState(decoder.memory, (cell_state,), decoder.summary)
        state = PointerState(decoder, coverage)
        return PointerOutputs(record(self, "", y), switch, torch.stack(weights_by_step, 1), state)

    def add_coverage_loss(self, overlap: Tensor, mask: Tensor | None) -> None:
        """λ Σⱼ min(αₜⱼ, vₜⱼ), the mean over the real steps: overlap (B, T)."""
        if not (self.coverage and self.coverage_loss and collecting_losses()):
            return
        real = torch.ones_like(overlap) if mask is None else mask.to(overlap.dtype)
        add_aux_loss(self.coverage_loss * (overlap * real).sum() / real.sum().clamp(min=1))


class PointerFeatures(NamedTuple):
    """What the mixture is computed from, at each position; joined in one tensor, so that positions can be selected."""

    h: Tensor  # (…, D)
    switch: Tensor  # (…,)
    weights: Tensor  # (…, S)
    words: Tensor  # (…, S), the id of each source position in the extended vocabulary

    def joined(self) -> Tensor:
        """(…, D + 1 + 2 S). Ids are exact in float32 up to 16 million."""
        parts = [self.h, self.switch[..., None], self.weights, self.words]
        dtype = torch.promote_types(self.h.dtype, torch.float32)
        return torch.cat([part.to(dtype) for part in parts], -1)

    @classmethod
    def split(cls, joined: Tensor, size: int) -> PointerFeatures:
        """The inverse of `joined`, for h of that size."""
        h, switch, rest = joined.split([size, 1, joined.shape[-1] - size - 1], -1)
        weights, words = rest.chunk(2, -1)
        return cls(h, switch[..., 0], weights, words.long())


class PointerOutput(OutputLayer):
    """P(w) = p_gen P_vocab(w) + (1 - p_gen) Σ_{j: xⱼ = w} αⱼ,   P_vocab = softmax(E h)   [T6]

    w is a word of the vocabulary, or of the source: word V + j is the one at the source position j. h is `PointerFeatures.joined`.
    """

    points: ClassVar[Points] = {"": Point("logits", "BTW")}

    def __init__(self, size: int, vocabulary: int, tied: Embedding | None = None, bias: bool | None = None):
        super().__init__()
        self.size = size
        self.vocabulary = vocabulary
        self.words = Output(size, vocabulary, tied, bias)

    def forward(self, h: Tensor) -> Tensor:
        """(…, D + 1 + 2 S) → ln P of the V words of the vocabulary and of those at the S source positions, (…, V + S)."""
        features = PointerFeatures.split(h, self.size)
        generated = (
            to_float32(self.words(features.h)).log_softmax(-1) + F.logsigmoid(features.switch)[..., None]
        )
        sources = features.weights.shape[-1]
        generated = F.pad(generated, (0, sources), value=-torch.inf)  # (…, V + S)
        copied = torch.zeros_like(generated).scatter_add(-1, features.words, features.weights)
        copied = copied.log() + F.logsigmoid(-features.switch)[..., None]
        return record(self, "", torch.logaddexp(generated, copied))

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        """-ln P(w), without the probabilities of the other words."""
        features = PointerFeatures.split(h, self.size)
        logits = to_float32(self.words(features.h))
        nll, _ = cross_entropy(logits, targets.clamp(max=self.vocabulary - 1))
        floor = torch.finfo(nll.dtype).min
        generated = (F.logsigmoid(features.switch) - nll).masked_fill(targets >= self.vocabulary, floor)
        same = features.words == targets[..., None]
        copied = (features.weights * same).sum(-1).clamp(min=torch.finfo(nll.dtype).tiny).log()
        return -torch.logaddexp(generated, copied + F.logsigmoid(-features.switch))

    def smoothed_nll(self, h: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        require(
            not smoothing,
            "a pointer mixes probabilities and has no label smoothing: set objective.smoothing=0",
        )
        return super().smoothed_nll(h, targets)
