"""A tokenizer whose tokens are what a regular expression matches: letters on one side and phonemes on the other, atoms of a molecule, and so on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from seqloom.text.tokenizer import SPECIALS


def Pattern(texts: Iterable[str], pattern: str = r"\S") -> Tokenizer:
    """Each match of `pattern` (Oniguruma's syntax) in `texts`, all of which are read, is a token; what lies between is dropped, and a match never
    seen is <unk>. Decoding joins tokens with one space."""
    try:
        cut = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    except Exception as error:
        raise ValueError(
            f"tokenizer.pattern: {pattern!r} is no regular expression ({error}); correct it"
        ) from None
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(token for token, _ in cut.pre_tokenize_str(text))
    words = sorted(set(counts) - set(SPECIALS), key=lambda token: (-counts[token], token))
    if not words:
        raise ValueError(f"tokenizer.pattern: {pattern!r} matches nothing in the text; correct it")
    tokenizer = Tokenizer(
        models.WordLevel({token: index for index, token in enumerate([*SPECIALS, *words])}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = cut
    return tokenizer
