"""A text as the tokens that a run's model reads: ids, pieces, and the characters that each covers   [N8]"""

from __future__ import annotations

from dataclasses import dataclass

from seqloom.inspect.given_texts import check_text
from seqloom.inspect.reading import pieces
from seqloom.inspect.refusals import require_text
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run


@dataclass(frozen=True)
class TextToken(Result):
    """One token: its id, its piece as the vocabulary writes it, its text, and its characters in the text, None for a token that the
    template adds."""

    id: int
    piece: str
    text: str
    start: int | None
    end: int | None


@dataclass(frozen=True)
class Tokens(Result):
    """The tokens of a text, with the special tokens that the model expects around it."""

    text: str
    tokens: tuple[TextToken, ...]
    unknown: int  # tokens that stand for characters or words outside the vocabulary


def tokens(run: RunLike, text: str) -> Tokens:
    """The tokens that the run's model reads for a text; of a translator, those of its source.

    >>> [token.id for token in seqloom.inspect.tokens(run, "the cat sees a king").tokens]
    [6, 13, 11, 5, 15, 3]
    """
    run = as_run(run)
    require_text(run, "tokens", "a text as tokens")
    check_text(text)
    spans = framed_spans(run, text)
    ids = run.encode([text])[0][0].tolist()
    names = zip(ids, pieces(run, ids), spans, strict=True)
    found = tuple(
        TextToken(
            token,
            str(run.tokenizer.id_to_token(token)),
            piece if span is None else text[span[0] : span[1]],
            *(span or (None, None)),
        )
        for token, piece, span in names
    )
    return Tokens(text, found, sum(token.id == run.specials.unk for token in found))


def framed_spans(run: Run, text: str) -> list[tuple[int, int] | None]:
    """The characters (start, end) of each token that `run.encode` gives; None for the tokens that it adds around the text."""
    before, after = run.specials.frame(run.adds_eos)
    offsets = run.tokenizer.encode(text, add_special_tokens=False).offsets
    return [*[None] * len(before), *offsets, *[None] * len(after)]
