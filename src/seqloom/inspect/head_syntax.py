"""Heads read as dependency edges   [K7, W8]

Attention between words: that to a word of several tokens is the sum over them, that from it the mean (Clark et al.). Special tokens and the
word itself do not count. A head predicts the syntactic head of a word by its largest weight, read from the dependent, or by the word that
attends to the dependent most, read from the head. Beside each relation is the best fixed offset, such as "the next word": a head that does
not beat it has learnt a distance, not syntax.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from seqloom.errors import DataError, RunError
from seqloom.inference.mask_filling import encode as encode_masked
from seqloom.inspect.reading import read
from seqloom.inspect.removed_edges import attention_layers
from seqloom.nn.capture import capture
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run import Run
from seqloom.text.annotated import conllu_sentences

DIRECTIONS = ("from the dependent", "from the head")
LEFT_OUT = ("root", "punct")


class ParsedSentence(NamedTuple):
    """The words of a sentence, the place of each word's head (-1 for the root) and its relation."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class RelationScore(Result):
    """A relation: how often it occurs, the head that finds it best, and the best fixed offset."""

    relation: str
    count: int
    head: str
    direction: str
    accuracy: float
    offset: int  # place of the head minus place of the dependent
    offset_accuracy: float


@dataclass(frozen=True)
class HeadRelation(Result):
    """The relation in which a head gains most over the best fixed offset."""

    head: str
    relation: str
    direction: str
    accuracy: float
    gain: float


@dataclass(frozen=True)
class Syntax(Result):
    """All relations, most frequent first, and for each head its best relation."""

    sentences: int
    words: int
    skipped: int  # sentences that are too long, or whose tokens are not those of its words
    relations: tuple[RelationScore, ...]
    heads: tuple[HeadRelation, ...] = field(repr=False)


def parsed_sentences(path: str | Path, most: int | None = None) -> list[ParsedSentence]:
    """The sentences of a CoNLL-U file."""
    return list(islice(iterate_parsed(path), most))


def iterate_parsed(path: str | Path) -> Iterator[ParsedSentence]:
    for location, _, rows in conllu_sentences(path):
        places = {cells[0]: place for place, cells in enumerate(rows)}
        heads = []
        for cells in rows:
            if cells[6] != "0" and cells[6] not in places:
                raise DataError(
                    f"{location}: the head of {cells[1]!r} is {cells[6]!r}, which is not a word of the sentence; repair it"
                )
            heads.append(places.get(cells[6], -1))
        yield ParsedSentence(
            tuple(cells[1] for cells in rows),
            tuple(heads),
            tuple(cells[7].partition(":")[0] for cells in rows),
        )


def word_tokens(run: Run, sentence: ParsedSentence) -> tuple[int, list[list[int]]] | None:
    """How many tokens the model reads, and the places of each word's; None if they cannot be told apart."""
    if run.model.task == "masked language modelling":
        ids = list(encode_masked(run, sentence.text))
    else:
        ids = run.encode([sentence.text], as_prompt=run.model.continues)[0][0].tolist()
    plain = run.tokenizer.encode(sentence.text, add_special_tokens=False)
    starts = [
        start
        for start in range(len(ids) - len(plain.ids) + 1)
        if ids[start : start + len(plain.ids)] == plain.ids
    ]
    if not starts:
        return None
    ends = np.cumsum([len(word) + 1 for word in sentence.words])  # the place after each word and its space
    found: list[list[int]] = [[] for _ in sentence.words]
    for place, (first, last) in enumerate(plain.offsets):
        if last > first:
            found[int(np.searchsorted(ends, last - 1, side="right"))].append(starts[0] + place)
    return (len(ids), found) if all(found) else None


def word_weights(weights: np.ndarray, tokens: Sequence[Sequence[int]]) -> np.ndarray:
    """The weights (…, T, T) between tokens as weights between words, -1 from a word to itself."""
    between = np.stack([weights[..., list(one)].sum(-1) for one in tokens], -1)  # (…, T, words)
    between = np.stack([between[..., list(one), :].mean(-2) for one in tokens], -2)
    index = np.arange(len(tokens))
    between[..., index, index] = -1
    return between


def syntax(
    run: Run, sentences: Sequence[ParsedSentence], max_tokens: int = 128, progress: ProgressOption = False
) -> Syntax:
    """How well each head of self-attention finds each relation."""
    hits: dict[str, np.ndarray] = {}  # (heads, 2)
    offsets: dict[str, Counter[int]] = {}
    names: list[str] = []
    used = words = 0
    with Reporter("sentences", len(sentences), progress) as report, torch.no_grad():
        for sentence in sentences:
            report.advance(1)
            found = word_tokens(run, sentence) if len(sentence.words) > 1 else None
            if found is None or found[0] > max_tokens:
                continue
            maps = self_attention(run, sentence.text, found[0])
            if maps is None:
                continue
            names = [name for name, _ in maps]
            between = word_weights(np.stack([one for _, one in maps]), found[1])  # (heads, words, words)
            best = np.stack([between.argmax(-1), between.argmax(-2)], -1)  # (heads, words, 2)
            used += 1
            words += len(sentence.words)
            for word, (head, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True)):
                if head < 0 or relation in LEFT_OUT:
                    continue
                hits.setdefault(relation, np.zeros((len(names), 2)))
                hits[relation] += best[:, word] == head
                offsets.setdefault(relation, Counter())[head - word] += 1
    if not used:
        raise RunError(
            f"{run.folder}: no sentence could be read word by word; syntax needs self-attention over the text's own tokens"
        )
    return summary(names, hits, offsets, used, words, len(sentences) - used)


def self_attention(run: Run, text: str, length: int) -> list[tuple[str, np.ndarray]] | None:
    """The weights of each head that reads the text itself, by name."""
    target = "." if run.model.task in ("translation", "summarization") else None
    reading = read(run, text, target)
    layers = [
        layer
        for layer in attention_layers(run.model, bool(reading.source))
        if layer.reads in ("text", "source")
    ]
    if not layers:
        raise RunError(f"{run.folder}: the model has no self-attention over a text, so no syntax of heads")
    with capture(run.model, *(f"{layer.path}.weights" for layer in layers)) as captured:
        reading.scores(1)
    maps = [
        (f"{layer.path}.{head}", weights.double().numpy())
        for layer in layers
        for head, weights in enumerate(captured[f"{layer.path}.weights"][0])
    ]
    return maps if all(one.shape == (length, length) for _, one in maps) else None


def summary(
    names: list[str],
    hits: dict[str, np.ndarray],
    offsets: dict[str, Counter[int]],
    used: int,
    words: int,
    skipped: int,
) -> Syntax:
    """The best head of each relation, and the best relation of each head."""
    order = sorted(hits, key=lambda relation: (-offsets[relation].total(), relation))
    relations = []
    gains = []
    for relation in order:
        count = offsets[relation].total()
        offset, at_offset = min(offsets[relation].items(), key=lambda item: (-item[1], abs(item[0]), item[0]))
        accuracy = hits[relation] / count
        head, direction = np.unravel_index(int(accuracy.argmax()), accuracy.shape)
        relations.append(
            RelationScore(
                relation,
                count,
                names[head],
                DIRECTIONS[direction],
                float(accuracy[head, direction]),
                offset,
                at_offset / count,
            )
        )
        gains.append(accuracy - at_offset / count)
    frequent = [row for row, one in enumerate(relations) if one.count >= max(1, words // 100)] or list(
        range(len(relations))
    )
    heads = []
    for number, name in enumerate(names):
        of_head = np.stack([gains[row][number] for row in frequent])  # (relations, 2)
        row, direction = np.unravel_index(int(of_head.argmax()), of_head.shape)
        chosen = relations[frequent[row]]
        gain = float(of_head[row, direction])
        heads.append(
            HeadRelation(name, chosen.relation, DIRECTIONS[direction], gain + chosen.offset_accuracy, gain)
        )
    return Syntax(used, words, skipped, tuple(relations), tuple(heads))
