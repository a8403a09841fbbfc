"""Which source word a generated word comes from, read from attention  [F14, K6].

Tokens are located in their texts by the characters they cover, so that pieces of a line can be joined and words follow
from tokens.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from seqloom.decoding import forced_attention
from seqloom.errors import UserError
from seqloom.inference.completion import length_groups, prepare_prompt
from seqloom.inference.one_or_many import require_texts
from seqloom.results import Result
from seqloom.run import Run
from seqloom.text.tokenizer import special_tokens

CharSpan = tuple[int, int]
BATCH_TOKENS = 4096  # source tokens per batch
PAIRS_PER_BLOCK = 256


class AlignedSegment(NamedTuple):
    """A segment of a line and its translation: the characters that each token covers in the line, and α (T, S)."""

    source: list[CharSpan]
    target: list[CharSpan]
    weights: np.ndarray

    def shifted(self, source: int, target: int) -> AlignedSegment:
        """The same segment, moved by so many characters."""
        return AlignedSegment(
            [(start + source, end + source) for start, end in self.source],
            [(start + target, end + target) for start, end in self.target],
            self.weights,
        )


@dataclass(frozen=True)
class Aligned(Result):
    """A line, its translation, and the segments that they consist of."""

    source: str
    target: str
    segments: list[AlignedSegment] = field(repr=False, compare=False)  # arrays have no truth value

    def tokens(self) -> list[tuple[int, int]]:
        """(source token, target token): for each target token the source token with the largest weight."""
        pairs: list[tuple[int, int]] = []
        source_offset = 0
        target_offset = 0
        for source, target, weights in self.segments:
            if source:
                best = weights.argmax(1).tolist()
                pairs += [(source_offset + s, target_offset + t) for t, s in enumerate(best)]
            source_offset += len(source)
            target_offset += len(target)
        return pairs

    def words(self) -> list[tuple[int, int]]:
        """(source word, target word): for each target word the source word with the largest weight, summed over tokens."""
        source_words = word_of_char(self.source)
        target_words = word_of_char(self.target)
        sums: dict[int, Counter[int]] = defaultdict(Counter)
        for source, target, weights in self.segments:
            words = [source_words[end - 1] if end else -1 for _, end in source]
            for (_, end), row in zip(target, weights, strict=True):
                target_word = target_words[end - 1] if end else -1
                for word, weight in zip(words, row.tolist(), strict=True):
                    if word >= 0 and target_word >= 0:
                        sums[target_word][word] += weight
        return [
            (max(weight_of, key=lambda word: (weight_of[word], -word)), target_word)
            for target_word, weight_of in sorted(sums.items())
        ]

    def to_dict(self) -> dict[str, Any]:
        """Words and tokens as `source-target` pairs, and the texts of the tokens."""
        return {
            "words": format_pairs(self.words()),
            "tokens": format_pairs(self.tokens()),
            "source_tokens": [self.source[a:b] for segment in self.segments for a, b in segment.source],
            "target_tokens": [self.target[a:b] for segment in self.segments for a, b in segment.target],
        }


def format_pairs(pairs: Iterable[tuple[int, int]]) -> str:
    """0-0 1-2 …, as alignment tools write it."""
    return " ".join(f"{source}-{target}" for source, target in pairs)


def word_of_char(text: str) -> list[int]:
    """The index of the word that each character belongs to; -1 for white space."""
    words = [-1] * len(text)
    for index, match in enumerate(re.finditer(r"\S+", text)):
        words[match.start() : match.end()] = [index] * (match.end() - match.start())
    return words


def identity_segment(text: str) -> AlignedSegment:
    """The alignment of a text that is kept: each word is its own translation."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    return AlignedSegment(spans, spans, np.eye(len(spans), dtype=np.float32))


def decode_with_spans(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[CharSpan]]:
    """The text of ids, in which an unknown token is <unk>, and the characters that each token covers; a character of several
    tokens belongs to the last."""
    specials = special_tokens(tokenizer)
    hidden = {*specials.banned, *specials.stop_ids} - {specials.unk}
    prefixes = [[token for token in ids[: count + 1] if token not in hidden] for count in range(len(ids))]
    texts = [tokenizer.decode(prefix, skip_special_tokens=False) for prefix in prefixes]
    full_text = texts[-1] if texts else ""
    ends = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, full_text, strict=False)))
        for text in texts
    ]
    return full_text, list(pairwise([0, *ends]))


def align_segments(
    run: Run, sources: Sequence[str], targets: Sequence[Sequence[int]], spans: Sequence[list[CharSpan]]
) -> list[AlignedSegment]:
    """For each source and the ids of its translation, whose tokens cover `spans`: the weights of each token over the source,
    without the tokens that the template adds around it."""
    ids, mask = run.encode(list(sources))
    encodings = run.tokenizer.encode_batch(list(sources), add_special_tokens=False)
    first = len(run.specials.before)
    lengths = mask.sum(1)
    segments: dict[int, AlignedSegment] = {}
    for rows in length_groups(lengths, BATCH_TOKENS, len(ids)):
        max_length = int(lengths[rows[0]])
        prompt, state, _ = prepare_prompt(run, ids[rows, :max_length], mask[rows, :max_length])
        attention = forced_attention(run.model, prompt, [targets[row] for row in rows], state)
        for row, alpha in zip(rows, attention, strict=True):
            offsets = encodings[row].offsets
            weights = np.zeros((0, len(offsets)), dtype=np.float32)
            if len(alpha):
                weights = alpha[:, first : first + len(offsets)].float().numpy()
            segments[row] = AlignedSegment(list(offsets), spans[row], weights)
    return [segments[row] for row in range(len(sources))]


def align_stream(run: Run, records: Iterable[tuple[str, str]]) -> Iterator[Aligned]:
    """As `align`, for any number of pairs."""
    stream = iter(records)
    while block := list(islice(stream, PAIRS_PER_BLOCK)):
        yield from align(run, [source for source, _ in block], [target for _, target in block])


def align(run: Run, sources: Sequence[str], targets: Sequence[str]) -> list[Aligned]:
    """Existing translations, aligned by the run's attention as if it generated them.

    >>> seqloom.inspect.alignment(translator, ["the cat sees"], ["eht tac sees"])[0].to_dict()["words"]
    '0-0 0-1 0-2'
    """
    for name, texts in (("sources", sources), ("targets", targets)):
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise UserError(f"the {name} are of type {type(texts).__name__}; give a list of texts")
        require_texts(list(texts), name[:-1])
    if len(sources) != len(targets):
        raise UserError(f"{len(sources)} sources and {len(targets)} targets; give one target for each source")
    encodings = run.tokenizer.encode_batch(list(targets), add_special_tokens=False)
    segments = align_segments(
        run,
        sources,
        [encoding.ids for encoding in encodings],
        [list(encoding.offsets) for encoding in encodings],
    )
    return [
        Aligned(source, target, [segment])
        for source, target, segment in zip(sources, targets, segments, strict=True)
    ]
