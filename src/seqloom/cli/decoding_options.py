"""The options of a generation, as the verbs that generate share them. What is not given is the run's own."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from seqloom.cli.options import DECODING, Count, CountOrNone, parse_escapes
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.decoding import DecodingOptions


@dataclass(frozen=True)
class Search:
    """The search for the best text."""

    max_tokens: Count | None = None
    """Most new tokens of a text; default: the run's own, 200."""
    beam: Count | None = None
    """Width of the beam search; default: the run's own, 5 for translators, 1 for language models."""
    length_penalty: float | None = None
    """α of the beam's length penalty, GNMT's; default: the run's own, 0.6."""

    def options(self, seed: int = 0) -> DecodingOptions:
        """Those options that are given, as `Decoding` takes them."""
        options: DecodingOptions = {"seed": seed}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name not in ("greedy", "stop"):
                options[field.name] = value  # type: ignore[literal-required]  # the fields are those of Decoding
        return options


@dataclass(frozen=True)
class Sampling(Search):
    """How texts are generated: by sampling, greedily, or by beam search."""

    n: Count = 1
    """Texts of each prompt: samples, or the best of the beam."""
    temperature: float | None = None
    """Below 1 sharpens the choice, above 1 flattens it, 0 is greedy; default: the run's own, 1 for language models."""
    top_k: CountOrNone | None = None
    """Choose among the k most probable tokens only; 0 switches it off."""
    top_p: float | None = None
    """Choose among the most probable tokens that together reach p (nucleus)."""
    min_p: float | None = None
    """Choose among the tokens that are at least p times as probable as the most probable one."""
    greedy: bool = False
    """Always take the most probable token; the same as --temperature 0. With --beam above 1 it is the beam search."""
    repetition_penalty: float | None = None
    """Above 1, tokens of the prompt and the text so far are less likely to be repeated; 1.2 is usual."""
    stop: list[str] | None = None
    r"""A text ends before this string; repeat the option for several. \n, \t and \\ are a newline, a tab and a backslash."""

    def options(self, seed: int = 0) -> DecodingOptions:
        options = super().options(seed)
        if self.greedy:
            if self.temperature:
                raise UserError("--greedy is --temperature 0: drop one of them")
            options["temperature"] = 0.0
        if self.stop:
            from seqloom.text.corpus import is_valid_unicode

            if not all(is_valid_unicode(string) for string in self.stop):
                raise UserError("--stop: the string is not UTF-8; convert it to UTF-8")
            options["stop"] = tuple(parse_escapes(string) for string in self.stop)
        return options


@dataclass(frozen=True)
class Answering(Sampling):
    """How a chat is answered."""

    n: Count = 1
    """Answers to each message: samples, or the best of the beam."""
    temperature: float | None = None
    """Below 1 sharpens the choice, above 1 flattens it, 0 is greedy; default: the run's own, or 0.7 if that is 1."""


@dataclass(frozen=True)
class Translating(Search):
    """How texts are translated."""

    n: Count = 1
    """Translations of each text, the best first."""
    coverage_penalty: float | None = None
    """β of the beam's coverage penalty: above 0 it prefers translations that attend to all of the source; 0.2 is usual."""


@dataclass(frozen=True)
class Captioning(Translating):
    """How pictures are described."""

    beam: Count | None = None
    """Width of the beam search; default: the run's own, usually 5."""
    n: Count = 1
    """Captions of each picture, the best first."""
    coverage_penalty: float | None = None
    """β of the beam's coverage penalty: above 0 it prefers captions that attend to all of the picture; 0.2 is usual."""


SearchOptions = Annotated[Search, Parameter(name="*", group=DECODING)]
AnsweringOptions = Annotated[Answering, Parameter(name="*", group=DECODING)]
SamplingOptions = Annotated[Sampling, Parameter(name="*", group=DECODING)]
TranslatingOptions = Annotated[Translating, Parameter(name="*", group=DECODING)]
CaptioningOptions = Annotated[Captioning, Parameter(name="*", group=DECODING)]
