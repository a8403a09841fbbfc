"""The base class of models: what the rest of the package may ask of any of them, whatever its task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.nn.embedding import OutputLayer
from seqloom.nn.layer import State


class Model(nn.Module):
    """Ids in, features, logits or scores out.

    The class attributes say what a model can do; a method that does not apply to its task raises an error that says so. Consumers read these
    attributes and never ask for a class or for the presence of a method.
    """

    task: ClassVar[str]
    generates: ClassVar[bool] = False  # writes text: `prepare_prompt`, `features` and `output` work
    continues: ClassVar[bool] = (
        False  # the text it writes continues its input; otherwise it answers it, as a translation does
    )
    predicts_tokens: ClassVar[bool] = False  # has an output layer over the vocabulary
    predicts_labels: ClassVar[bool] = (
        False  # labels, numbers or spans for records: a module of inference/ does it
    )
    copies: ClassVar[bool] = (
        False  # writes words of its source that its vocabulary does not have, as V + position
    )
    has_critic: ClassVar[bool] = False  # `values(h)` estimates the reward that is still to come
    embeds_text: bool = False  # `features(ids, None, mask)` gives a vector for each token of a text
    reads: ClassVar[str] = "text"  # the kind of field that it reads: text, image or audio
    grid: tuple[int, int] | None = None  # rows and columns of the regions of a picture that it attends to
    context: int | None = None  # the most positions it can take; None is any number
    source_context: int | None = None  # the same for the source of a sequence-to-sequence model
    output: OutputLayer  # of models that predict tokens

    def prepare_prompt(
        self, ids: Tensor, mask: Tensor | None, first_id: int
    ) -> tuple[Tensor, State, Tensor | None]:
        """What generation begins with, for the input `ids` (B, T): the ids to read, the state before them, their mask."""
        raise self.unsupported("generate text")

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """(B, T) → what the output layer reads, (B, T, D), and the state."""
        raise self.unsupported("compute features of tokens")

    def vectors(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → the vectors of the tokens that other models may use, (B, T, D)."""
        return self.features(ids, None, mask)[0]

    def features_with_attention(
        self, ids: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, State]:
        """As `features`, with the attention weights over the source, (B, heads, T, S); None if the model attends to no source."""
        h, state = self.features(ids, state, mask)
        return h, None, state

    def values(self, h: Tensor) -> Tensor:
        """Features (B, T, D) → the reward that is still to come at each token, (B, T)."""
        raise self.unsupported("estimate rewards: set model.type=ActorCritic")

    def memory_mask(self, source: Tensor, mask: Tensor | None) -> Tensor | None:
        """Which of the encoder's outputs are real, (B, S), for the sources and their mask."""
        return mask

    def example_state(self, ids: Tensor) -> State:
        """The state before `ids` when the costs of a pass are counted: after a source, if the model reads one."""
        return None

    def run_example(self, ids: Tensor) -> None:
        """One pass over as many positions as `ids` (1, T) has, when the costs of a pass are counted."""
        self(ids, self.example_state(ids))

    def next_segment_logits(self, h: Tensor) -> Tensor:
        """Features of a pair of segments (B, T, D) → logits of "does not follow" and "follows", (B, 2)."""
        raise ConfigError(
            f"batches.pairs needs a masked language model with model.pooler=Pooler, not a {type(self).__name__}"
        )

    def set_labels(self, labels: Sequence[str]) -> None:
        """Tell the model the names of its labels; most models need only their number."""

    def set_unk_id(self, unk_id: int | None) -> None:
        """Tell the model the id of <unk>, None if the tokenizer has none; most models do not use it."""

    @property
    def reads_characters(self) -> bool:
        """Whether the model reads words by their characters too, so that a word unknown to the tokenizer still says something."""
        return False

    def unsupported(self, action: str) -> ConfigError:
        return ConfigError(f"a {type(self).__name__} cannot {action}")
