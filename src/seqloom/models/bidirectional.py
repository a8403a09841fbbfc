"""The bidirectional language model: two language models, one for each direction, over one embedding and one output  [I10]."""

from __future__ import annotations

from torch import Tensor

from seqloom.models.base import Model
from seqloom.nn.basic import Dropout
from seqloom.nn.deep_rnn import SeparateBiRNN
from seqloom.nn.embedding import Embedding, Output
from seqloom.nn.layer import Factory, State


class BiLanguageModel(Model):
    """P→(wₜ | w₁ … wₜ₋₁) = softmax(output(h→ₜ₋₁)),   P←(wₜ | wₜ₊₁ … w_T) = softmax(output(h←ₜ₊₁))   [I10]

    ELMo. Other models use its `vectors`: a mixture of every layer of both directions, whose weights they learn; here they stay at their initial
    values. Its left-to-right half is an ordinary language model, which also generates text.
    """

    task = "language modelling"
    generates = continues = predicts_tokens = embeds_text = True

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[SeparateBiRNN] = SeparateBiRNN,
        embedding: Factory[Embedding] = Embedding,
        tied: bool = True,
        dropout: float = 0.0,
        output: Factory[Output] = Output,
    ):
        super().__init__()
        self.embedding = embedding(vocabulary, dim)
        self.stack = stack(dim)
        self.stack.mix.requires_grad_(False)
        self.context = None
        self.output = output(dim, vocabulary, self.embedding if tied else None)
        self.dropout = Dropout(dropout)

    def start(self, batch: int) -> State:
        """The state of the left-to-right direction before the first token."""
        return self.stack.start(batch)[0]

    def prepare_prompt(
        self, ids: Tensor, mask: Tensor | None, first_id: int
    ) -> tuple[Tensor, State, Tensor | None]:
        return ids, None, mask

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """(B, T) → what the output layer reads to predict the next token, (B, T, D), and the state."""
        x = self.dropout(self.embedding(ids))
        levels, state = self.stack.run_direction(
            self.stack.forward_layers, x, state or self.start(len(ids)), mask
        )
        return self.dropout(levels[-1]), state

    def backward_features(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → what the output layer reads to predict the token before each position, (B, T, D)."""
        x = self.dropout(self.embedding(ids))
        levels, _ = self.stack.run_direction(
            self.stack.backward_layers, x, self.stack.start(len(ids))[1], mask
        )
        return self.dropout(levels[-1])

    def vectors(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → the mixture of all layers of both directions, (B, T, 2 D)."""
        return self.stack(self.embedding(ids), None, mask)[0]

    def forward(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """(B, T) → logits of the next token (B, T, V) and the state."""
        h, state = self.features(ids, state, mask)
        return self.output(h), state
