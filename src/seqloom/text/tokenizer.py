"""Tokenizers: characters, words, byte-pair encoding, unigram,
WordPiece or a regular expression; and the ids of their special tokens.

Each function trains a tokenizer of the `tokenizers` library on texts. The names are the types of the config
section `tokenizer`. Our own tokenizers use ids 0–4 for `<pad> <unk> <bos> <eos> <mask>` (A16). A tokenizer that
came with a checkpoint keeps its own ids: its tokenizer.json stores them among the special tokens of the template
that frames a text, as seqloom:eos and so on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from seqloom.errors import DataError
from seqloom.files import write_atomic
from seqloom.text.lines import lines

SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>", "<mask>")
PAD, UNK, BOS, EOS, MASK = range(5)
NAMES = ("pad", "unk", "bos", "eos", "mask")
PREFIX = "seqloom:"  # of names in tokenizer.json; part of the file format

MAX_TRAINING_CHARACTERS = 100_000_000

# White space as Oniguruma and Rust define it; Python's \s has four more control characters.
SPACE = r" \t-\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# A word with the space before it, a number, or punctuation: pieces never cross a word boundary. Marks (\p{M})
# belong to their letters; otherwise the words of scripts such as Devanagari would be divided. Text between
# brackets never forms one piece with them, so "<eos>" cannot become a piece.
PATTERN = (
    r"'(?:s|t|re|ve|m|ll|d)(?![\p{L}\p{M}])| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
)
BYTES = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)
LITERALS = normalizers.Replace(Regex(r"(?<!\S)<(?:pad|bos|eos|mask)>(?!\S)"), "<unk>")


def Characters(texts: Iterable[str]) -> Tokenizer:
    """One token for each character (Unicode code point) of `texts`,
    which are read in full; others are <unk>. Lossless."""
    characters: set[str] = set()
    for text in _require_text(texts):
        characters.update(text)
    vocabulary = {token: index for index, token in enumerate([*SPECIALS, *sorted(characters)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=False))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def Words(
    texts: Iterable[str],
    size: int | None = None,
    lowercase: bool = False,
    extra_words: str | None = None,
    punctuation: bool = False,
) -> Tokenizer:
    """Words separated by white space, for text that is already
    tokenised: the `size` most frequent, or all of them. With `punctuation`,
    for any text: each punctuation mark is a word of its own.

    Counts words in the first 100 million characters. A literal `<unk>` is UNK; decoding joins words with one
    space. `extra_words` is a file whose lines begin with additional words, or a folder of word vectors: words
    that have a vector need not occur in the text.
    """
    if size is not None:
        _check_size(size, len(SPECIALS) + 1, "the special tokens and one word")
    normalizer = normalizers.Sequence([normalizers.Lowercase(), LITERALS]) if lowercase else LITERALS
    counts = _count_words(texts, normalizer)
    splitter = pre_tokenizers.BertPreTokenizer() if punctuation else pre_tokenizers.WhitespaceSplit()
    if punctuation:
        pieces: Counter[str] = Counter()
        for text, count in counts.items():
            for piece, _ in splitter.pre_tokenize_str(text):
                pieces[piece] += count
        counts = pieces
    counts.pop("<unk>", None)
    max_words = None if size is None else size - len(SPECIALS)
    words = sorted(counts, key=lambda word: (-counts[word], word))[:max_words]
    if extra_words is not None:
        path = Path(extra_words)
        rows = lines(path / "words.txt" if path.is_dir() else path)
        extra = (row.split(maxsplit=1)[0] for row in rows if row.strip())
        words = list(dict.fromkeys([*words, *(normalizer.normalize_str(word) for word in extra)]))
    tokenizer = Tokenizer(_word_level(dict.fromkeys([*SPECIALS, *words])))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    if punctuation:
        tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def Pattern(texts: Iterable[str], pattern: str = r"\S", lowercase: bool = False) -> Tokenizer:
    """One token for each distinct match of the regular expression
    `pattern` (Oniguruma's syntax) in `texts`, read in full, in lower case if asked.

    Text between matches is dropped, and a match that is not in `texts` is <unk>. Decoding joins tokens with
    one space. It serves letters on one side and phonemes on the other, atoms of molecules, and so on.
    """
    try:
        splitter = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    except Exception as error:
        raise DataError(
            f"tokenizer.pattern: {pattern!r} is not a regular expression ({error}); correct it"
        ) from None
    normalizer = normalizers.Lowercase() if lowercase else None
    counts: Counter[str] = Counter()
    for text in texts:
        normalized = normalizer.normalize_str(text) if normalizer else text
        counts.update(token for token, _ in splitter.pre_tokenize_str(normalized))
    words = sorted(set(counts) - set(SPECIALS), key=lambda token: (-counts[token], token))
    if not words:
        raise DataError(f"tokenizer.pattern: {pattern!r} matches nothing in the text; correct it")
    tokenizer = Tokenizer(_word_level([*SPECIALS, *words]))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    return tokenizer


def BPE(texts: Iterable[str], size: int = 8000) -> Tokenizer:
    """Byte-pair encoding over bytes: decoding restores any text
    exactly, with newlines; pieces stay inside words (A15).

    Trains on the first 100 million characters.
    """
    return _train_on_bytes(
        models.BPE(),
        texts,
        trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=2,
            special_tokens=list(SPECIALS),
            initial_alphabet=_alphabet(size),
            show_progress=False,
        ),
    )


def Unigram(texts: Iterable[str], size: int = 8000) -> Tokenizer:
    """The unigram language model over bytes: decoding restores
    any text exactly; pieces stay inside words (A15).

    Trains on the first 100 million characters. Two trainings give
    slightly different pieces: the library sums in random order.
    """
    return _train_on_bytes(
        models.Unigram(),
        texts,
        trainers.UnigramTrainer(
            vocab_size=size,
            special_tokens=list(SPECIALS),
            unk_token="<unk>",
            initial_alphabet=_alphabet(size),
            show_progress=False,
        ),
    )


def WordPiece(texts: Iterable[str], size: int = 8000, lowercase: bool = False) -> Tokenizer:
    """BERT's subwords: white space is dropped, punctuation
    is separate, `##` marks a piece inside a word (A15).

    Trains on the first 100 million characters. A word with a character that is not in them is <unk>.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase() if lowercase else None
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    counts: Counter[str] = Counter()
    for word, count in _count_words(texts, tokenizer.normalizer).items():
        for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(word):
            counts[piece] += count
    # The trainer breaks ties by the order in which it first sees "##" characters, which is random: pass them
    # in fixed order.
    inside = sorted({f"##{character}" for word in counts for character in word[1:]})
    min_size = len(SPECIALS) + len(inside) + len(set().union(*counts))
    _check_size(size, min_size, "the special tokens and the characters of the text")
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=2, special_tokens=[*SPECIALS, *inside], show_progress=False
    )
    repeated = (text for word in sorted(counts) for text in _repeat(word, counts[word]))
    return _train(tokenizer, repeated, trainer)


class SpecialTokens(NamedTuple):
    """The special ids of one tokenizer. Each of `stop_ids` ends a
    text; the template puts `before` and `after` around a text.

    If texts have no end, there are no stop ids, and `eos` is the id that texts begin with.
    """

    pad: int | None = PAD
    unk: int | None = UNK
    bos: int | None = BOS
    eos: int = EOS
    mask: int | None = MASK
    stop_ids: tuple[int, ...] = (EOS,)
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def banned(self) -> tuple[int, ...]:
        """The ids that a generated text must not contain."""
        ids = {
            special_id for special_id in (self.pad, self.unk, self.bos, self.mask) if special_id is not None
        }
        return tuple(sorted(ids - {self.eos, *self.stop_ids}))

    @property
    def without_text(self) -> frozenset[int]:
        """The ids that are no text: padding, beginning, end and mask."""
        found = {self.pad, self.bos, self.eos, self.mask, *self.stop_ids}
        return frozenset(index for index in found if index is not None)

    @property
    def first_id(self) -> int:
        """The id before the first token of a text."""
        return self.before[-1] if self.before else self.eos

    def frame(self, adds_eos: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the ids before and after a text: those of
        the template, and <eos> at the end if records end."""
        return self.before, self.after or ((self.eos,) if adds_eos else ())


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """Returns the special ids of a tokenizer."""
    if tokenizer.post_processor is None:
        return SpecialTokens()
    template = template_of(json.loads(tokenizer.post_processor.__getstate__()))
    if template is None:
        return SpecialTokens()
    ids = {name: tuple(token["ids"]) for name, token in template["special_tokens"].items()}
    roles = {name: (ids.get(PREFIX + name) or (None,))[0] for name in NAMES}
    if roles["eos"] is None and roles["bos"] is None:
        return SpecialTokens()
    roles["eos"] = roles["bos"] if roles["eos"] is None else roles["eos"]
    before: list[int] = []
    after: list[int] = []
    side = before
    for piece in template["single"]:
        if "Sequence" in piece:
            side = after
        else:
            side.extend(ids[piece["SpecialToken"]["id"]])
    return SpecialTokens(
        **roles, stop_ids=ids.get(f"{PREFIX}eos", ()), before=tuple(before), after=tuple(after)
    )


def template_of(processor: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the template inside a post-processor's dict[str, Any], or None."""
    if processor["type"] == "TemplateProcessing":
        return processor
    templates = (template_of(inner) for inner in processor.get("processors", []))
    return next((template for template in templates if template is not None), None)


def save(tokenizer: Tokenizer, path: str | Path) -> None:
    """Writes `tokenizer` as JSON, atomically."""
    write_atomic(path, tokenizer.to_str(pretty=True))


def signature(tokenizer: Tokenizer) -> str:
    """Returns sixteen hexadecimal digits that identify this tokenizer."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]


def decode(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """Returns the text of `ids`, without special tokens."""
    specials = special_tokens(tokenizer)
    hidden = {*specials.banned, *specials.stop_ids}
    if (
        specials == SpecialTokens()
    ):  # of a foreign tokenizer that does not declare its special ids, no id is hidden
        hidden = {index for index in hidden if tokenizer.id_to_token(index) == SPECIALS[index]}
    return tokenizer.decode(
        [int(index) for index in ids if int(index) not in hidden], skip_special_tokens=True
    )


def _word_level(tokens: Iterable[str]) -> models.Model:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return models.WordLevel(vocabulary, unk_token="<unk>")


def _alphabet(size: int) -> list[str]:
    _check_size(size, len(SPECIALS) + 256, "the special tokens and the 256 bytes")
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _check_size(size: int, min_size: int, contents: str) -> None:
    if size < min_size:
        raise DataError(
            f"size {size} is too small: {contents} alone are {min_size}; give size {min_size} or more"
        )


def _require_text(texts: Iterable[str]) -> Iterator[str]:
    """Returns `texts`; raises if all of them are empty."""
    stream = iter(texts)
    for first in stream:
        if first:
            return chain([first], stream)
    raise DataError("there is no text to train a tokenizer on: the corpus is empty; give a text")


def _sample(texts: Iterable[str]) -> Iterator[str]:
    """Returns the first `MAX_TRAINING_CHARACTERS` of the texts; raises if all of them are empty."""

    def head(stream: Iterator[str]) -> Iterator[str]:
        remaining = MAX_TRAINING_CHARACTERS
        for text in stream:
            yield text[:remaining]
            remaining -= len(text)
            if remaining <= 0:
                return

    return head(_require_text(texts))


def _count_words(texts: Iterable[str], normalizer: normalizers.Normalizer | None) -> Counter[str]:
    """Counts the words that white space separates."""
    counts: Counter[str] = Counter()
    split = re.compile(f"[^{SPACE}]+").findall
    for text in _sample(texts):
        counts.update(split(normalizer.normalize_str(text) if normalizer else text))
    if not counts:
        raise DataError(
            "there is no word to train a tokenizer on: the text is all white space; give a text with words"
        )
    return counts


def _repeat(word: str, count: int) -> Iterator[str]:
    """Yields `word` `count` times, in texts of bounded length."""
    max_repeats = max(1, 100_000 // (len(word) + 1))
    for done in range(0, count, max_repeats):
        yield f"{word} " * min(max_repeats, count - done)


def _train_on_bytes(model: models.Model, texts: Iterable[str], trainer: trainers.Trainer) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = BYTES
    tokenizer.decoder = decoders.ByteLevel()
    return _train(tokenizer, _sample(texts), trainer)


def _train(tokenizer: Tokenizer, texts: Iterable[str], trainer: trainers.Trainer) -> Tokenizer:
    tokenizer.train_from_iterator(texts, trainer)
    # Training registers the special tokens as added tokens, which would be searched for in every text: remove
    # them.
    return Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | {"added_tokens": []}))
