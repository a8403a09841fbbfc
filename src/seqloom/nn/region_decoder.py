"""The decoder of Show, Attend and Tell: gated attention over the regions of a picture, and the regulariser of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.fused.dispatch import plain
from seqloom.nn.attention_core import Additive, AttentionWeights, Score, Softmax
from seqloom.nn.basic import Linear
from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.layer import Factory, Memory, Point, Points, add_aux_loss, collecting_losses, record, require
from seqloom.nn.pool import InitFrom, summarize
from seqloom.nn.rnn_decoder import AttentiveRNN, AttentiveState, GlobalAttention, GlobalAttentionState


class GatedAttention(GlobalAttention):
    """c = β Σⱼ αⱼ mⱼ,   β = σ(w·h + b),   α = softmaxⱼ s(W_Q h, W_K mⱼ)   (Xu et al. 2015, section 4.2.1)

    The gate β decides how much of the picture the next word needs; a word such as "of" follows from the words before it.
    """

    points: ClassVar[Points] = {"gate": Point("β", "BTD"), "": Point("c", "BTD")}

    def __init__(
        self,
        size: int,
        memory: int,
        score: Factory[Score] = Additive,
        dim: int | None = None,
        weights: Factory[AttentionWeights] = Softmax,
        project: bool = True,
    ):
        super().__init__(size, memory, score, dim, weights, project)
        self.gate = Linear(size, 1)

    def forward(self, h: Tensor, state: GlobalAttentionState) -> tuple[Tensor, Tensor | None]:
        c, weights = super().forward(h, state)
        return c * record(self, "gate", self.gate(h).sigmoid()), weights


class RegionRNN(AttentiveRNN):
    """cₜ = β Σⱼ αₜⱼ mⱼ from hₜ₋₁;   hₜ = f(hₜ₋₁, W xₜ + C cₜ);   yₜ = tanh(W' [hₜ; cₜ; xₜ])   [L10, T8]

    h₀ = tanh(W₀ mean(m)), and the LSTM's c₀ likewise. In training the regulariser λ Σⱼ (1 - Σₜ αₜⱼ)² asks the caption to look
    at every region about equally often (doubly stochastic attention, Xu et al. 2015, equation 14).
    """

    def __init__(
        self,
        size: int,
        memory: int,
        dim: int | None = None,
        cell: Factory[Cell] = LSTM,
        layers: int = 1,
        attention: Factory[GlobalAttention] = GatedAttention,
        dropout: float = 0.0,
        init_from: InitFrom = "mean",
        regularizer: float = 0.0,
    ):
        query: Literal["previous"] = "previous"
        super().__init__(size, memory, dim, cell, layers, attention, dropout, query, init_from)
        require(regularizer >= 0, f"the regularizer is {regularizer}: give a number of at least 0")
        self.regularizer = regularizer
        start = self.cells[0].start(1)
        self.cell_proj = nn.ModuleList(Linear(memory, self.dim) for _ in start[1:])

    def start(self, batch: int, memory: Memory | None = None) -> AttentiveState:
        state = super().start(batch, memory)
        if memory is None:
            raise ConfigError("a decoder of regions needs a memory: start it with the encoder's outputs")
        summary = summarize(memory, self.init_from)
        others = [proj(summary).tanh() for proj in self.cell_proj]
        cells = tuple(replace_cell_state(cell, others) for cell in state.cells)
        return AttentiveState(state.memory, cells, state.summary)

    def forward_with_weights(
        self, x: Tensor, state: AttentiveState, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, AttentiveState]:
        regularizes = self.regularizer > 0 and self.training and collecting_losses()
        with plain() if regularizes else nullcontext():  # the plain form returns the weights
            y, weights, state = super().forward_with_weights(x, state, mask)
        if regularizes and weights is not None:
            add_aux_loss(self.regularizer * attention_spread_penalty(weights, mask))
        return y, weights, state


def replace_cell_state(state: Sequence[Tensor], others: Sequence[Tensor]) -> Sequence[Tensor]:
    """The state of a cell with all but its h replaced."""
    made: Sequence[Tensor] = type(state)(state[0], *others)  # type: ignore[call-arg]  # every state is a NamedTuple
    return made


def attention_spread_penalty(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Σⱼ (1 - Σₜ αₜⱼ)² over the rows, divided by the number of their words.

    α is (B, 1, T, S), the mask of the words (B, T). An auxiliary loss is a mean over words.
    """
    words = weights.new_ones(weights.shape[0], weights.shape[2], dtype=torch.bool) if mask is None else mask
    attention_received = (weights[:, 0] * words[..., None].to(weights.dtype)).sum(1)  # (B, S)
    real = words.any(1, keepdim=True)
    return (((1 - attention_received) ** 2) * real).sum() / words.sum().clamp(min=1)
