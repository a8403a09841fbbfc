"""Which source word a written word comes from, read from attention  [F14, K6].

Tokens are placed in their texts by the characters they cover, so that pieces of a line join and words follow from tokens.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from seqloom.decoding import forced_attention
from seqloom.run import Run
from seqloom.text.special_tokens import special_tokens

Span = tuple[int, int]
TOKENS = 4096  # source tokens worked on together


class AlignedSegment(NamedTuple):
    """A stretch of source and its translation: where their tokens stand in the line, and α (T, S) between them."""

    source: list[Span]
    target: list[Span]
    weights: np.ndarray

    def moved(self, source: int, target: int) -> AlignedSegment:
        """The same, so many characters further on."""
        return AlignedSegment(
            [(a + source, b + source) for a, b in self.source],
            [(a + target, b + target) for a, b in self.target],
            self.weights,
        )


class Aligned(NamedTuple):
    """A line, its translation, and the blocks that they are made of."""

    source: str
    target: str
    blocks: list[AlignedSegment]

    def tokens(self) -> list[tuple[int, int]]:
        """(source token, target token): for each target token the source token it looked at most."""
        found, before, after = [], 0, 0
        for source, target, weights in self.blocks:
            if source:
                found += [(before + int(best), after + t) for t, best in enumerate(weights.argmax(1))]
            before, after = before + len(source), after + len(target)
        return found

    def words(self) -> list[tuple[int, int]]:
        """(source word, target word): for each target word the source word that its tokens looked at most, all together."""
        sources, targets = word_of_char(self.source), word_of_char(self.target)
        seen: dict[int, Counter[int]] = defaultdict(Counter)
        for source, target, weights in self.blocks:
            words = [sources[b - 1] if b else -1 for _, b in source]
            for (_, end), row in zip(target, weights, strict=True):
                written = targets[end - 1] if end else -1
                for word, weight in zip(words, row.tolist(), strict=True):
                    if word >= 0 and written >= 0:
                        seen[written][word] += weight
        return [
            (max(counts, key=lambda word: (counts[word], -word)), written)
            for written, counts in sorted(seen.items())
        ]

    def json(self) -> dict[str, Any]:
        """Words and tokens as `source-target` pairs, and the tokens that they count."""
        return {
            "words": format_pairs(self.words()),
            "tokens": format_pairs(self.tokens()),
            "source tokens": [self.source[a:b] for block in self.blocks for a, b in block.source],
            "target tokens": [self.target[a:b] for block in self.blocks for a, b in block.target],
        }


def format_pairs(found: Iterable[tuple[int, int]]) -> str:
    """0-0 1-2 …, as alignment tools write it."""
    return " ".join(f"{source}-{target}" for source, target in found)


def word_of_char(text: str) -> list[int]:
    """The word that each character belongs to, counted from 0; -1 for white space."""
    found = [-1] * len(text)
    for number, match in enumerate(re.finditer(r"\S+", text)):
        found[match.start() : match.end()] = [number] * (match.end() - match.start())
    return found


def identity_segment(text: str) -> AlignedSegment:
    """What is kept: each word is its own translation."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    return AlignedSegment(spans, spans, np.eye(len(spans), dtype=np.float32))


def decode_with_spans(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[Span]]:
    """The text of ids, an unknown token standing as <unk>, and the characters of each; a letter of several tokens belongs to the last."""
    known = special_tokens(tokenizer)
    hidden = {*known.banned, *known.stop_ids} - {known.unk}
    shown = [[index for index in ids[: count + 1] if index not in hidden] for count in range(len(ids))]
    texts = [tokenizer.decode(some, skip_special_tokens=False) for some in shown]
    whole = texts[-1] if texts else ""
    ends = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, whole, strict=False)))
        for text in texts
    ]
    return whole, list(pairwise([0, *ends]))


def align_segments(
    run: Run, sources: Sequence[str], targets: Sequence[Sequence[int]], spans: Sequence[list[Span]]
) -> list[AlignedSegment]:
    """For each source and the ids of a translation of it, whose tokens cover `spans`: what each token looked at, the source's frame left out."""
    ids, mask = run.encode(list(sources))
    offsets = [
        encoding.offsets for encoding in run.tokenizer.encode_batch(list(sources), add_special_tokens=False)
    ]
    begin = len(run.specials.before)
    lengths = mask.sum(1)
    order, found = lengths.argsort(stable=True).tolist(), {}
    while order:
        rows = [order.pop()]
        while order and (len(rows) + 1) * int(lengths[rows[0]]) <= TOKENS:
            rows.append(order.pop())
        longest = int(lengths[rows[0]])
        with torch.inference_mode():
            first, state, _ = run.model.prepare_prompt(
                ids[rows, :longest], mask[rows, :longest], run.specials.bos
            )
        for row, alpha in zip(
            rows, forced_attention(run.model, first, [targets[row] for row in rows], state), strict=True
        ):
            size = len(offsets[row])
            weights = (
                alpha[:, begin : begin + size].float().numpy()
                if len(alpha)
                else np.zeros((0, size), dtype=np.float32)
            )
            found[row] = AlignedSegment(list(offsets[row]), spans[row], weights)
    return [found[row] for row in range(len(sources))]


def align_stream(run: Run, records: Iterable[tuple[str, str]]) -> Iterator[Aligned]:
    """As `align`, for any number of pairs."""
    stream = iter(records)
    while some := list(islice(stream, 256)):
        yield from align(run, *zip(*some, strict=True))


def align(run: Run, sources: Sequence[str], targets: Sequence[str]) -> list[Aligned]:
    """Given translations, aligned by the run's attention as it would write them."""
    encodings = run.tokenizer.encode_batch(list(targets), add_special_tokens=False)
    made = align_segments(
        run, sources, [one.ids for one in encodings], [list(one.offsets) for one in encodings]
    )
    return [Aligned(*texts) for texts in zip(sources, targets, ([block] for block in made), strict=True)]
