"""The options of a generation: what a user sets (`Decoding`), and what the search does (`DecodingPlan`).

settings = Decoding(top_p=0.9)          # all else is the run's own
plan = settings.plan(run.decoding)      # nothing is left open
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TypedDict, TypeVar

from seqloom.decoding.sampling import Greedy, RandomSampler, Sampler
from seqloom.errors import UserError

Value = TypeVar("Value")
# Options of other libraries, and ours.
PEER_NAMES = {
    "max_new_tokens": "max_tokens",
    "max_length": "max_tokens",
    "length": "max_tokens",
    "num_beams": "beam",
    "beam_size": "beam",
    "beam_width": "beam",
    "width": "beam",
    "num_return_sequences": "n",
    "num_hypotheses": "n",
    "samples": "n",
    "nbest": "n",
    "stop_strings": "stop",
    "do_sample": "temperature (0 is greedy)",
    "penalty": "length_penalty",
    "repetition": "repetition_penalty",
    "coverage": "coverage_penalty",
}


MAX_PENALTY = 100  # the exponent of a length


class DecodingOptions(TypedDict, total=False):
    """The fields of `Decoding` as keyword arguments."""

    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    beam: int | None
    length_penalty: float | None
    coverage_penalty: float | None
    repetition_penalty: float | None
    n: int
    stop: str | Sequence[str]
    seed: int


def given(value: Value | None) -> Value:
    """A value of resolved settings, which is never None."""
    if value is None:
        raise TypeError("the defaults of a run leave no decoding option open")
    return value


@dataclass(frozen=True)
class Decoding:
    """How texts are generated. None is the run's own value, `run.decoding`.

    `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 switch these off. A `beam` above 1 or a `coverage_penalty` above
    0 means beam search, which does not sample: with `temperature` 0 it is the beam search, another temperature is refused.
    `length_penalty` is α of its lp(Y) = ((5 + |Y|) / 6)^α, the GNMT paper's. `n` is the number of texts of each prompt: n samples, or
    the n best of the beam. A text ends before the first of the strings `stop`. The same `seed` gives a prompt the same samples, alone or
    beside any others.

    >>> Decoding(top_p=0.9).plan(run.decoding).sampler
    RandomSampler(temperature=1.0, top_k=None, top_p=0.9, min_p=None)
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    beam: int | None = None
    length_penalty: float | None = None
    coverage_penalty: float | None = None
    repetition_penalty: float | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", stop_strings(self.stop))
        for option, kind in NUMBERS.items():
            value = getattr(self, option)
            if value is not None or option not in INHERITED:
                object.__setattr__(self, option, number(option, value, kind))

    def with_options(self, options: DecodingOptions) -> Decoding:
        """These settings with some of them replaced."""
        for name in options:
            if name not in DecodingOptions.__annotations__:
                hint = (
                    f"here it is {PEER_NAMES[name]}" if name in PEER_NAMES else f"choose from {OPTION_NAMES}"
                )
                raise TypeError(f"no decoding option {name!r}; {hint}")
        return dataclasses.replace(self, **options)  # type: ignore[arg-type]  # __post_init__ takes a str for stop

    def resolve(self, defaults: Decoding) -> Decoding:
        """These settings with the defaults of a run for what they leave open. The kind of search that is asked for decides which
        defaults apply: sampling options turn off a run's beam, and a beam turns off a run's sampling."""
        filters = (self.top_k or None, None if self.top_p == 1 else self.top_p, self.min_p or None)
        asks_for_beam = self.searches
        asks_for_samples = bool(self.temperature) or any(value is not None for value in filters)
        if asks_for_beam and asks_for_samples:
            raise UserError(
                "beam search does not sample: drop temperature, top_k, top_p and min_p, or use a beam of 1"
            )
        if self.temperature == 0 and asks_for_samples:
            raise UserError("temperature 0 is greedy and does not sample: drop top_k, top_p and min_p")
        if asks_for_beam:
            defaults = dataclasses.replace(
                defaults, temperature=0.0, top_k=None, top_p=None, min_p=None, repetition_penalty=1.0
            )
        elif asks_for_samples or self.temperature == 0 or self.beam == 1:
            defaults = dataclasses.replace(defaults, beam=1, coverage_penalty=0.0)
        if asks_for_samples and not defaults.temperature:
            defaults = dataclasses.replace(defaults, temperature=1.0)
        values = {name: getattr(self, name) for name in INHERITED}
        resolved = dataclasses.replace(
            self,
            **{name: getattr(defaults, name) if value is None else value for name, value in values.items()},
        )
        if self.length_penalty is not None and not resolved.searches:
            raise UserError("length_penalty is for beam search: add a beam, such as 5, or drop it")
        return resolved

    def plan(self, defaults: Decoding | None = None, allow_unk: bool = False) -> DecodingPlan:
        """What the search does: these settings over the defaults of a run (those of a language model if None)."""
        resolved = self.resolve(LANGUAGE_MODEL if defaults is None else defaults)
        temperature = given(resolved.temperature)
        sampler: Sampler = Greedy()
        if temperature != 0:
            sampler = RandomSampler(
                temperature,
                resolved.top_k or None,
                None if resolved.top_p == 1 else resolved.top_p,
                None if resolved.min_p == 0 else resolved.min_p,
            )
        plan = DecodingPlan(
            max_tokens=given(resolved.max_tokens),
            sampler=sampler,
            beam=given(resolved.beam),
            length_penalty=given(resolved.length_penalty),
            coverage_penalty=given(resolved.coverage_penalty),
            repetition_penalty=given(resolved.repetition_penalty),
            n=resolved.n,
            stop=resolved.stop,
            seed=resolved.seed,
            allow_unk=allow_unk,
        )
        if plan.n > 1 and not plan.searches and temperature == 0:
            raise UserError(f"greedy search finds one text, not {plan.n}: use a beam of {plan.n}, or sample")
        return plan

    @property
    def searches(self) -> bool:
        """Whether this is beam search."""
        return (self.beam is not None and self.beam > 1) or bool(self.coverage_penalty)


def number(option: str, value: object, kind: type[int] | type[float]) -> int | float:
    """The number that an option is given, a whole one if its kind is int; raises if it is none."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if kind is float and is_number:
        return value  # type: ignore[return-value]  # a Real computes as a float does
    if is_number and value == value // 1:  # type: ignore[operator]  # 5.0 and numpy's integers too
        return int(value)
    raise UserError(f"{option} is {value!r}: give a {'number' if kind is float else 'whole number'}")


def stop_strings(stop: object) -> tuple[str, ...]:
    """The strings that end a text: one, or several."""
    strings = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, Sequence) else (stop,)
    if not all(isinstance(string, str) for string in strings):
        raise UserError(f"stop is {stop!r}: give a str, or a list of them")
    return strings


NUMBERS: dict[str, type[int] | type[float]] = {  # the option: what kind of number it is
    **dict.fromkeys(("max_tokens", "top_k", "beam", "n", "seed"), int),
    **dict.fromkeys(("temperature", "top_p", "min_p"), float),
    **dict.fromkeys(("length_penalty", "coverage_penalty", "repetition_penalty"), float),
}
INHERITED = tuple(name for name in Decoding.__annotations__ if name not in ("n", "stop", "seed"))
OPTION_NAMES = ", ".join(DecodingOptions.__annotations__)
LANGUAGE_MODEL = Decoding(200, 1.0, None, None, None, 1, 0.6, 0.0, 1.0)
TRANSLATOR = dataclasses.replace(LANGUAGE_MODEL, temperature=0.0, beam=5)


@dataclass(frozen=True)
class DecodingPlan:
    """How texts are generated, with nothing left open. A `beam` above 1 or a `coverage_penalty` above 0 means beam search.

    `n` is the number of texts of each prompt: the best n of the beam, or n samples.
    """

    max_tokens: int = 200
    sampler: Sampler = field(default_factory=Greedy)
    beam: int = 1
    length_penalty: float = 0.6  # α of beam search
    coverage_penalty: float = 0.0  # β of beam search
    repetition_penalty: float = 1.0  # above 1, tokens of the prompt and the text become less probable
    n: int = 1
    stop: tuple[str, ...] = ()
    seed: int = 0
    allow_unk: bool = False  # whether <unk> may be generated; the text leaves it out, `ids` contain it

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UserError(f"n is {self.n}: ask for at least 1 text")
        if self.max_tokens < 1:
            raise UserError(f"max_tokens is {self.max_tokens}: give at least 1")
        if self.beam < 1:
            raise UserError(f"beam is {self.beam}: give a width of at least 1")
        for name in ("length_penalty", "coverage_penalty"):
            value = getattr(self, name)
            if not abs(value) <= MAX_PENALTY:
                raise UserError(
                    f"{name} is {value:g}: give a number between -{MAX_PENALTY} and {MAX_PENALTY}"
                )
        if self.searches and (self.repetition_penalty != 1 or self.stop):
            raise UserError(
                "beam search supports neither repetition_penalty nor stop: use a beam of 1 or drop them"
            )
        if self.searches and self.n > self.beam:
            raise UserError(f"{self.n} texts need a beam at least as wide: use a beam of {self.n}")

    @property
    def searches(self) -> bool:
        """Whether this is beam search."""
        return self.beam > 1 or self.coverage_penalty != 0

    @property
    def signature(self) -> str:
        """The search in the signature of a metric: `greedy`, `beam5-0.6` with the length penalty, or `sampled`."""
        if self.searches:
            coverage = f"-coverage{self.coverage_penalty}" if self.coverage_penalty else ""
            return f"beam{self.beam}-{self.length_penalty}{coverage}"
        return "greedy" if isinstance(self.sampler, Greedy) else f"sampled-seed{self.seed}"
