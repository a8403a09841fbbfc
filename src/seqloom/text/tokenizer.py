"""A tokenizer whose tokens are what a regular expression matches: letters on one side and phonemes on the other, atoms of a molecule, and so on."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from seqloom.files import write_atomic
from seqloom.text.lines import lines
from seqloom.text.special_tokens import BOS, EOS, MASK, PAD, SPECIALS, UNK, SpecialTokens, special_tokens  # noqa: F401  some find them here
from seqloom.text.tokenizer_file import load, parse


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


SAMPLE = 100_000_000  # characters a tokenizer learns from

# Oniguruma's and Rust's idea of white space; Python's \s has four control characters more.
SPACE = r" \t-\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# A word with the space before it, a number, or punctuation: pieces never cross a word boundary. Marks (\p{M}) belong to
# their letters, or scripts such as Devanagari would fall apart. Text between brackets never forms one piece with them,
# which is why "<eos>" cannot be learnt as a piece.
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
    """One token per character (Unicode code point) seen in `texts`, all of which are read; others become <unk>. Lossless."""
    seen: set[str] = set()
    for text in _require_text(texts):
        seen.update(text)
    vocabulary = {token: index for index, token in enumerate([*SPECIALS, *sorted(seen)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=False))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def Words(
    texts: Iterable[str], size: int | None = None, lowercase: bool = False, extra_words: str | None = None
) -> Tokenizer:
    """Words between white space, for text that is already tokenised: the `size` most frequent, or all of them.

    Counts words in the first 100 million characters. A literal `<unk>` is UNK; decoding joins words with one space.
    `extra_words` is a file whose lines begin with additional words, or a folder of word vectors: words that have a vector
    need not occur in the text.
    """
    if size is not None:
        _check(size, len(SPECIALS) + 1, "the special tokens and one word")
    normalizer = normalizers.Sequence([normalizers.Lowercase(), LITERALS]) if lowercase else LITERALS
    counts = _count(texts, normalizer)
    counts.pop("<unk>", None)
    words = sorted(counts, key=lambda word: (-counts[word], word))[
        : None if size is None else size - len(SPECIALS)
    ]
    if extra_words is not None:
        place = Path(extra_words) / "words.txt" if Path(extra_words).is_dir() else Path(extra_words)
        more = (line.split(maxsplit=1)[0] for line in lines(place) if line.strip())
        words = list(dict.fromkeys([*words, *(normalizer.normalize_str(word) for word in more)]))
    known = dict.fromkeys([*SPECIALS, *words])
    tokenizer = Tokenizer(
        models.WordLevel({token: index for index, token in enumerate(known)}, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def BPE(texts: Iterable[str], size: int = 8000) -> Tokenizer:
    """Byte-pair encoding over bytes: any text, newlines included, comes back exactly; pieces stay inside words (A15).

    Learns from the first 100 million characters.
    """
    return _bytes(
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
    """The unigram language model over bytes: the likeliest pieces; any text comes back exactly. Pieces stay inside words (A15).

    Learns from the first 100 million characters. Learning twice gives slightly different pieces: the library adds up in random order.
    """
    return _bytes(
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
    """BERT's subwords: white space is dropped, punctuation stands alone, `##` marks a piece inside a word (A15).

    Learns from the first 100 million characters. A word with a character never seen is <unk>.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase() if lowercase else None
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    counts: Counter[str] = Counter()
    for word, count in _count(texts, tokenizer.normalizer).items():
        for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(word):
            counts[piece] += count
    # The trainer breaks ties by the order in which it met "##" characters, which is random: give them an order first.
    inside = sorted({f"##{character}" for word in counts for character in word[1:]})
    _check(
        size,
        len(SPECIALS) + len(inside) + len(set().union(*counts)),
        "the special tokens and the characters of the text",
    )
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=2, special_tokens=[*SPECIALS, *inside], show_progress=False
    )
    return _train(
        tokenizer, (part for word in sorted(counts) for part in _repeat(word, counts[word])), trainer
    )


def File(texts: Iterable[str], path: str) -> Tokenizer:
    """The tokenizer of the tokenizer.json at `path`; nothing is learnt from `texts`.

    A file that does not begin with our special tokens gets them: its own ids move up by five. One that says which of its own tokens are
    special, as those of imported runs do, stays as it is.
    """
    tokenizer = load(path)
    if special_tokens(tokenizer) != SpecialTokens() or [
        tokenizer.id_to_token(index) for index in range(len(SPECIALS))
    ] == list(SPECIALS):
        return tokenizer
    taken = [token for token in SPECIALS if tokenizer.token_to_id(token) is not None]
    if taken:
        raise ValueError(
            f"{path}: {taken[0]} has id {tokenizer.token_to_id(taken[0])}, but {' '.join(SPECIALS)} must be ids 0 to 4; "
            "rename it in the file, or leave it out"
        )
    return parse(json.dumps(_shift_ids(json.loads(tokenizer.to_str()))), path)


def save(tokenizer: Tokenizer, path: str | Path) -> None:
    """Write `tokenizer` as JSON, whole or not at all."""
    write_atomic(path, tokenizer.to_str(pretty=True))


def signature(tokenizer: Tokenizer) -> str:
    """Sixteen hexadecimal digits that name exactly this tokenizer."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]


def decode(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """The text of `ids`, without special tokens."""
    known = special_tokens(tokenizer)
    hidden = {*known.banned, *known.stop_ids}
    if known == SpecialTokens():  # a foreign tokenizer that does not say what its ids are hides none of them
        hidden = {index for index in hidden if tokenizer.id_to_token(index) == SPECIALS[index]}
    numbers = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    return tokenizer.decode([index for index in numbers if index not in hidden], skip_special_tokens=True)


def _alphabet(size: int) -> list[str]:
    _check(size, len(SPECIALS) + 256, "the special tokens and the 256 bytes")
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _check(size: int, least: int, what: str) -> None:
    if size < least:
        raise ValueError(f"size {size} is too small: {what} alone are {least}; give size {least} or more")


def _require_text(texts: Iterable[str]) -> Iterator[str]:
    """`texts`, of which at least one is not empty."""
    stream = iter(texts)
    for first in stream:
        if first:
            return chain([first], stream)
    raise ValueError("there is no text to learn a tokenizer from: the corpus is empty; give a text")


def _sample(texts: Iterable[str]) -> Iterator[str]:
    def head(stream: Iterator[str]) -> Iterator[str]:
        left = SAMPLE
        for text in stream:
            yield text[:left]
            left -= len(text)
            if left <= 0:
                return

    return head(_require_text(texts))


def _count(texts: Iterable[str], normalizer: normalizers.Normalizer | None) -> Counter[str]:
    """How often each word between white space occurs."""
    counts: Counter[str] = Counter()
    split = re.compile(f"[^{SPACE}]+").findall
    for text in _sample(texts):
        counts.update(split(normalizer.normalize_str(text) if normalizer else text))
    if not counts:
        raise ValueError(
            "there is no word to learn a tokenizer from: the text is all white space; give a text with words"
        )
    return counts


def _repeat(word: str, count: int) -> Iterator[str]:
    """`word` `count` times, in texts of bounded length."""
    most = max(1, 100_000 // (len(word) + 1))
    for done in range(0, count, most):
        yield f"{word} " * min(most, count - done)


def _bytes(model: models.Model, texts: Iterable[str], trainer: trainers.Trainer) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = BYTES
    tokenizer.decoder = decoders.ByteLevel()
    return _train(tokenizer, _sample(texts), trainer)


def _train(tokenizer: Tokenizer, texts: Iterable[str], trainer: trainers.Trainer) -> Tokenizer:
    tokenizer.train_from_iterator(texts, trainer)
    # Training registers the special tokens as added tokens, which are searched for in every text: forget that.
    return Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | {"added_tokens": []}))


def _shift_ids(parts: dict) -> dict:
    """The JSON of a foreign tokenizer with every id five higher and our special tokens before them."""
    model, more = parts["model"], len(SPECIALS)
    if isinstance(model["vocab"], dict):
        model["vocab"] = dict(zip(SPECIALS, range(more), strict=True)) | {
            token: index + more for token, index in model["vocab"].items()
        }
    else:
        model["vocab"] = [[token, 0.0] for token in SPECIALS] + model["vocab"]
        model["unk_id"] = None if model["unk_id"] is None else model["unk_id"] + more
    for token in parts["added_tokens"]:
        token["id"] += more
    return parts | {"post_processor": None}
