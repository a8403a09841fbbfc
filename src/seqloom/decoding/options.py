"""The options of a generation, in one value that can be passed on and compared."""

from __future__ import annotations

from dataclasses import dataclass, field

from seqloom.decoding.sampling import Greedy, Sampler


@dataclass(frozen=True)
class Decoding:
    """How texts are generated. A `beam` above 1 or a `coverage_penalty` above 0 means beam search, which does not sample.

    `n` is the number of texts per prompt: the best n of the beam, or n samples. The same `seed` gives a prompt the same
    samples, alone or beside any others.
    """

    max_tokens: int = 200
    sampler: Sampler = field(default_factory=Greedy)
    beam: int = 1
    length_penalty: float = 0.6  # α of beam search
    coverage_penalty: float = 0.0  # β of beam search
    repetition_penalty: float = (
        1.0  # above 1, tokens of the prompt and the text become less probable; 1 changes nothing
    )
    n: int = 1
    stop: tuple[str, ...] = ()  # a text ends before the first of these strings
    seed: int = 0
    allow_unk: bool = False  # whether <unk> may be generated; the text leaves it out, `ids` contain it

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"n is {self.n}: ask for at least 1 text")
        if self.searches and (self.repetition_penalty != 1 or self.stop):
            raise ValueError(
                "beam search supports neither --repetition nor --stop: use --beam 1 or drop them"
            )

    @property
    def searches(self) -> bool:
        """Whether this is beam search."""
        return self.beam > 1 or self.coverage_penalty != 0
