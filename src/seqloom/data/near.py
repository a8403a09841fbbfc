"""Finds texts of a test set that are in a stream of training texts, word for word or with a few words changed.

The test texts are indexed and the training texts pass by in blocks, so the memory depends on the test texts and the block, not on
the training data. Two texts are *near* if d edits of words (insert, delete, replace) make one of the other,

    d ≤ n / 5,        n the words of the test text.

Each edit changes at most two pairs of neighbouring words (shingles of two), so near texts share at least s - 2d of the s different pairs of the
test text (Ukkonen 1992), and therefore three of the 2d + 3 pairs that are rarest in the test set. Only these are looked up; of what shares three
all pairs are counted, and what shares enough is compared word by word. Nothing is estimated: every near text is found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

# A word, or one character of a script that puts no spaces between words.
NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORDS = re.compile(rf"[{NO_SPACES}]|[^\W_{NO_SPACES}]+")
EDITS = 5  # one edit for so many words
CONTAINED = 13  # a test text of at least so many words is also found inside a longer one
PIECE = 64  # words of a test text that are compared at once
WINDOW = 2 * PIECE  # words of a training text; windows begin every PIECE words, so each piece is inside one
RARE = 3  # rare pairs that a candidate shares, or all if fewer are needed
MAX_PAIRS = 1 << 20  # candidates that are counted at a time
MAX_CELLS = 1 << 22  # of an edit distance at a time

EXACT, EQUAL_WORDS, NEAR, NOT_FOUND = 0, 1, 2, 3


class Words(NamedTuple):
    """The words of several texts as hashes, (N,) int64; text i has those from starts[i] to starts[i + 1]."""

    hashes: np.ndarray
    starts: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)


def hash_words(texts: Sequence[str]) -> Words:
    """The words of texts without case and punctuation."""
    found = [WORDS.findall(text.casefold()) for text in texts]
    starts = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(words) for words in found], out=starts[1:])
    hashes = np.fromiter(map(hash, chain.from_iterable(found)), np.int64, int(starts[-1]))
    return Words(hashes, starts)


def cut(words: Words, size: int, step: int) -> tuple[Words, np.ndarray]:
    """Texts of more than `size` words as windows of `size` that begin every `step` words, and the number of the text of each."""
    lengths = words.lengths
    counts = np.where(lengths > size, -(-(lengths - size) // step) + 1, 1)
    owner, within = numbered(counts)
    begins = words.starts[:-1][owner] + within * step
    picked, starts = ranges(begins, np.minimum(begins + size, words.starts[1:][owner]))
    return Words(words.hashes[picked], starts), owner


def divide(words: Words, size: int) -> tuple[Words, np.ndarray]:
    """Texts of more than `size` words as pieces of at most `size`, all about as long, and the number of the text of each."""
    lengths = words.lengths
    counts = np.maximum(-(-lengths // size), 1)
    owner, within = numbered(counts)
    begins = words.starts[:-1][owner] + lengths[owner] * within // counts[owner]
    return Words(words.hashes, np.append(begins, words.starts[-1])), owner


def numbered(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For counts (2, 3): the groups (0, 0, 1, 1, 1) and the numbers within them (0, 1, 0, 1, 2)."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


def ranges(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The integers of several ranges one after the other, and where each range begins among them."""
    lengths = ends - begins
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths), starts


def mix(values: np.ndarray) -> np.ndarray:
    """A hash of uint64 (the last step of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def text_keys(words: Words) -> np.ndarray:
    """A hash of all words of each text in order, (texts,) uint64; 0 for a text without words."""
    positions = np.arange(len(words.hashes)) - np.repeat(words.starts[:-1], words.lengths)
    mixed = mix(words.hashes.astype(np.uint64) + mix(positions.astype(np.uint64) + np.uint64(1)))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    return sums[words.starts[1:]] - sums[words.starts[:-1]]


class WordPairs(NamedTuple):
    """The different pairs of neighbouring words of each text, sorted by text: their keys, the text of each, where each text begins."""

    keys: np.ndarray
    texts: np.ndarray
    starts: np.ndarray


def word_pairs(words: Words) -> WordPairs:
    count = len(words.starts) - 1
    owner = np.repeat(np.arange(count), words.lengths)
    hashes = words.hashes.astype(np.uint64)
    keys = mix(mix(hashes[:-1]) + hashes[1:]) if len(hashes) else hashes
    inside = owner[:-1] == owner[1:]
    keys, texts = keys[inside], owner[:-1][inside]
    order = np.lexsort((keys, texts))
    keys, texts = keys[order], texts[order]
    first = np.ones(len(keys), bool)
    first[1:] = (keys[1:] != keys[:-1]) | (texts[1:] != texts[:-1])
    keys, texts = keys[first], texts[first]
    return WordPairs(keys, texts, np.searchsorted(texts, np.arange(count + 1)))


class NearIndex:
    """Texts that are looked for in blocks of other texts. `level` says how each was found so far: EXACT, EQUAL_WORDS, NEAR, NOT_FOUND;
    `source` is the number of the training text, counted over all blocks. In running text (`stream`) records have no borders, so a
    text that is inside another counts as equal to it."""

    def __init__(self, texts: Sequence[str], stream: bool = False):
        self.stream = stream
        whole = hash_words(texts)
        self.raw_keys = np.fromiter(map(hash, map(str.strip, texts)), np.int64, len(texts))
        self.keys = text_keys(whole)
        self.words, self.owner = divide(whole, PIECE)
        self.pairs = word_pairs(self.words)
        self.edits = self.words.lengths // EDITS
        distinct = np.diff(self.pairs.starts)
        self.needed = np.maximum(distinct - 2 * self.edits, 1)
        self.needed_rare = np.minimum(self.needed, RARE)
        self.rare_keys, self.rare_pieces = self.rarest_pairs(distinct)
        self.level = np.full(len(texts), NOT_FOUND, np.int8)
        self.source = np.full(len(texts), -1, np.int64)
        self.piece_level = np.full(len(self.words.starts) - 1, NOT_FOUND, np.int8)
        self.piece_source = np.full(len(self.piece_level), -1, np.int64)
        self.seen = 0

    def rarest_pairs(self, distinct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each piece the pairs of which a near text has at least `needed_rare`, sorted by key."""
        _, inverse, counts = np.unique(self.pairs.keys, return_inverse=True, return_counts=True)
        order = np.lexsort((counts[inverse], self.pairs.texts))
        position = np.arange(len(order)) - np.repeat(self.pairs.starts[:-1], distinct)
        chosen = order[position < (distinct - self.needed + self.needed_rare)[self.pairs.texts[order]]]
        by_key = chosen[np.argsort(self.pairs.keys[chosen], kind="stable")]
        return self.pairs.keys[by_key], self.pairs.texts[by_key]

    def search(self, texts: Sequence[str]) -> None:
        """Looks the next training texts up."""
        whole = hash_words(texts)
        raw_keys = np.fromiter(map(hash, map(str.strip, texts)), np.int64, len(texts))
        self.mark_equal(self.raw_keys, raw_keys, EXACT)
        self.mark_equal(self.keys, text_keys(whole), EQUAL_WORDS)
        windows, owner = cut(whole, WINDOW, PIECE)
        pieces, found = self.candidates(windows)
        edits = self.distances(windows, pieces, found)
        near = edits <= self.edits[pieces]
        levels = np.where((edits == 0) & self.stream, EQUAL_WORDS, NEAR)[near]
        pieces, sources = pieces[near], self.seen + owner[found[near]]
        better = levels < self.piece_level[pieces]
        for level in (NEAR, EQUAL_WORDS):  # the better one last
            chosen = pieces[better & (levels == level)]
            self.piece_level[chosen] = level
            self.piece_source[chosen] = sources[better & (levels == level)]
        self.seen += len(texts)
        self.mark_near()

    def mark_equal(self, keys: np.ndarray, others: np.ndarray, level: int) -> None:
        """Marks the texts whose key is among the others."""
        order = np.argsort(others, kind="stable")
        place = np.searchsorted(others[order], keys).clip(max=max(len(others) - 1, 0))
        if not len(others):
            return
        found = order[place]
        equal = (others[found] == keys) & (self.level > level) & (self.words_of_texts() > 0)
        self.level[equal] = level
        self.source[equal] = self.seen + found[equal]

    def words_of_texts(self) -> np.ndarray:
        """The words of each text."""
        return np.bincount(self.owner, self.words.lengths, minlength=len(self.level))

    def mark_near(self) -> None:
        """Marks the texts at least half of whose pieces were found: a level is that of the worst of these."""
        total = np.bincount(self.owner, minlength=len(self.level))
        for level in (EQUAL_WORDS, NEAR):
            hits = self.piece_level <= level
            counts = np.bincount(self.owner[hits], minlength=len(self.level))
            enough = (2 * counts >= total) & (counts > 0) & (self.level > level)
            last = np.zeros(len(self.level), np.int64)
            last[self.owner[hits]] = self.piece_source[hits]
            self.level[enough] = level
            self.source[enough] = last[enough]

    def candidates(self, windows: Words) -> tuple[np.ndarray, np.ndarray]:
        """Pieces and windows that share as many pairs as near texts do."""
        pairs = word_pairs(windows)
        left = np.searchsorted(self.rare_keys, pairs.keys, "left")
        right = np.searchsorted(self.rare_keys, pairs.keys, "right")
        hits = np.flatnonzero(right > left)
        kept_pieces: list[np.ndarray] = []
        kept_windows: list[np.ndarray] = []
        codes = np.sort(mix(pairs.keys + mix(pairs.texts.astype(np.uint64))))
        num_pieces = len(self.piece_level)
        # All hits of so many windows at a time that their pairs fit.
        before = np.cumsum(right[hits] - left[hits]) // MAX_PAIRS
        groups = before[np.searchsorted(pairs.texts[hits], pairs.texts[hits])]
        for group in np.unique(groups):
            chosen = hits[groups == group]
            picked, _ = ranges(left[chosen], right[chosen])
            pieces = self.rare_pieces[picked]
            found = np.repeat(pairs.texts[chosen], right[chosen] - left[chosen])
            size = windows.lengths[found] - self.words.lengths[pieces]
            possible = (size >= -self.edits[pieces]) & (self.level[self.owner[pieces]] == NOT_FOUND)
            possible &= (size <= self.edits[pieces]) | self.may_be_inside(pieces)
            both, counts = np.unique(found[possible] * num_pieces + pieces[possible], return_counts=True)
            both = both[counts >= self.needed_rare[both % num_pieces]]
            found, pieces = both // num_pieces, both % num_pieces
            enough = self.shared(codes, pieces, found) >= self.needed[pieces]
            kept_pieces.append(pieces[enough])
            kept_windows.append(found[enough])
        none = np.empty(0, np.int64)
        return np.concatenate([none, *kept_pieces]), np.concatenate([none, *kept_windows])

    def may_be_inside(self, pieces: np.ndarray) -> np.ndarray:
        """Whether a piece is also looked for inside longer texts: all of running text, else long ones."""
        return (self.words.lengths[pieces] >= CONTAINED) | self.stream

    def shared(self, codes: np.ndarray, pieces: np.ndarray, found: np.ndarray) -> np.ndarray:
        """How many pairs each piece shares with its window; `codes` are the sorted hashes of (pair, window)."""
        counts = np.zeros(len(pieces), np.int64)
        begins, ends = self.pairs.starts[:-1][pieces], self.pairs.starts[1:][pieces]
        groups = np.cumsum(ends - begins) // MAX_PAIRS
        for group in np.unique(groups):
            chosen = np.flatnonzero(groups == group)
            picked, starts = ranges(begins[chosen], ends[chosen])
            windows = np.repeat(found[chosen], np.diff(starts)).astype(np.uint64)
            wanted = mix(self.pairs.keys[picked] + mix(windows))
            place = np.searchsorted(codes, wanted).clip(max=len(codes) - 1)
            sums = np.concatenate([[0], np.cumsum(codes[place] == wanted)])
            counts[chosen] = sums[starts[1:]] - sums[starts[:-1]]
        return counts

    def distances(self, windows: Words, pieces: np.ndarray, found: np.ndarray) -> np.ndarray:
        """The edits between each piece and its window, or the nearest part of the window."""
        result = np.zeros(len(pieces), np.int64)
        step = max(1, MAX_CELLS // (WINDOW + 1))
        for start in range(0, len(pieces), step):
            part = slice(start, start + step)
            result[part] = edit_distances(
                padded(self.words, pieces[part], -1),
                padded(windows, found[part], -2),
                self.words.lengths[pieces[part]],
                windows.lengths[found[part]],
                self.may_be_inside(pieces[part]),
            )
        return result


def near_groups(texts: Sequence[str]) -> np.ndarray:
    """The group of each text, (texts,): texts of two groups are not near each other, nor is a long one inside another. A text is in the
    group of every text that is near it, and a group has the number of its first text.

    >>> near_groups(["Add 2 and 3, please.", "Who wrote Hamlet?", "Add 7 and 3, please."]).tolist()
    [0, 1, 0]
    """
    index = NearIndex(texts)
    whole = hash_words(texts)
    windows, owner = cut(whole, WINDOW, PIECE)
    pieces, found = index.candidates(windows)
    near = index.distances(windows, pieces, found) <= index.edits[pieces]
    _, first, inverse = np.unique(text_keys(whole), return_index=True, return_inverse=True)
    ends = np.concatenate([np.arange(len(texts)), index.owner[pieces[near]]])
    others = np.concatenate([first[inverse], owner[found[near]]])
    groups = np.arange(len(texts))
    while True:  # each round gives the smallest number of its neighbours to a text, then that of the text with this number
        before = groups.copy()
        np.minimum.at(groups, ends, before[others])
        np.minimum.at(groups, others, before[ends])
        groups = groups[groups]
        if (groups == before).all():
            return groups


def padded(words: Words, texts: np.ndarray, fill: int) -> np.ndarray:
    """The words of the given texts as rows, (B, longest)."""
    lengths = words.lengths[texts]
    columns = np.arange(int(lengths.max(initial=0)))
    inside = columns < lengths[:, None]
    index = np.where(inside, words.starts[:-1][texts][:, None] + columns, 0)
    return np.where(inside, words.hashes[index], fill)


def edit_distances(
    first: np.ndarray, second: np.ndarray, n: np.ndarray, m: np.ndarray, inside: np.ndarray
) -> np.ndarray:
    """The edit distance of rows of words, or, where `inside`, that of the first to the nearest part of the second (Sellers 1980).

    D[0, j] = j, or 0 inside;  D[i, j] = min(D[i-1, j] + 1, D[i-1, j-1] + (aᵢ ≠ bⱼ), D[i, j-1] + 1)

    The last term runs along a row: min over k ≤ j of (D[i, k] - k), plus j.
    """
    columns = np.arange(second.shape[1] + 1)
    row = np.where(inside[:, None], 0, columns)  # (B, M + 1)
    result = np.zeros(len(n), np.int64)
    outside = columns > m[:, None]
    for i in range(first.shape[1] + 1):
        if i:
            above = row + 1
            above[:, 1:] = np.minimum(above[:, 1:], row[:, :-1] + (second != first[:, i - 1, None]))
            row = np.minimum.accumulate(above - columns, axis=1) + columns
        ends = n == i
        if ends.any():
            at_end = np.take_along_axis(row, m[:, None], axis=1)[:, 0]
            anywhere = np.where(outside, len(columns) + i, row).min(axis=1)
            result[ends] = np.where(inside, anywhere, at_end)[ends]
    return result
