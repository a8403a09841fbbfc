"""Attention of every head and layer on one text, and what removing an edge changes   [K6, F14]

A weight says how much of a value is read, not whether reading it matters. So each weight has the effect of its edge beside it: the change of
the model's scores when that one key is hidden from that one query of that one head. The rank correlation of weight and |effect| over edges drawn at
random says how far the weights may be read as explanations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from seqloom.inspect.reading import Reading, read
from seqloom.inspect.removed_edges import AttentionLayer, BlockEdges, attention_layers, hidden, no_attention
from seqloom.nn.capture import capture
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run import RunLike, as_run

BATCH_TOKENS = 1024  # positions that are computed together


@dataclass(frozen=True)
class AttentionMap(Result):
    """The weights of one head: a row for each query, a column for each key."""

    layer: str
    head: int
    reads: str  # text, source, or target: self-attention of a text, of an encoder, of a decoder; cross: a decoder's of its source
    weights: np.ndarray = field(repr=False)  # (T, S)


@dataclass(frozen=True)
class Edge(Result):
    """One weight, and the change of all scores, and of the score of the query's own target, when it is removed."""

    layer: str
    head: int
    query: int
    key: int
    weight: float
    effect: float
    target_effect: float | None
    drawn: bool  # whether it was drawn at random; the others are among the strongest


@dataclass(frozen=True)
class Attention(Result):
    """All maps of a text, and the effects of some edges."""

    tokens: tuple[str, ...]
    source: tuple[str, ...]
    targets: tuple[str, ...]
    score: str
    maps: tuple[AttentionMap, ...] = field(repr=False)
    edges: tuple[Edge, ...] = field(repr=False)
    correlation: float | None  # Spearman's, of weight and |effect| over the drawn edges
    window: str | None = None  # which tokens of a long text were read
    unit: str = "tokens"  # what the tokens are: tokens, regions of a picture, or frames of a sound

    def names(self, found: AttentionMap) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tokens of a map's queries and keys."""
        queries = self.source if found.reads == "source" else self.tokens
        return queries, self.source if found.reads in ("source", "cross") else self.tokens


def attention(
    run: RunLike,
    text: str,
    target: str | None = None,
    *,
    edges: int = 500,
    seed: int = 0,
    max_tokens: int = 128,
    window: int = 1,
    progress: ProgressOption = False,
) -> Attention:
    """The weights of every head on a text, and the effect of the `edges` strongest and of as many drawn with the seed.

    >>> found = seqloom.inspect.attention(translator, "the cat sees a king", target="eht tac")
    >>> found.maps[0].layer, found.maps[0].weights.shape
    ('decoder.attention', (3, 6))
    """
    run = as_run(run)
    reading = read(run, text, target, max_tokens, window)
    layers = attention_layers(run.model, bool(reading.source))
    if not layers:
        raise no_attention(run, "attention")
    with torch.no_grad():
        with capture(run.model, *(f"{layer.path}.weights" for layer in layers)) as captured:
            reading.scores(1)
        maps = tuple(
            AttentionMap(layer.path, head, layer.reads, weights.numpy())
            for layer in layers
            for head, weights in enumerate(captured[f"{layer.path}.weights"][0])
        )
        found = edge_effects(run.model, reading, layers, maps, edges, seed, progress)
    drawn = [edge for edge in found if edge.drawn]
    return Attention(
        reading.tokens,
        reading.source,
        reading.targets,
        reading.score,
        maps,
        found,
        rank_correlation(drawn),
        reading.window and str(reading.window),
        reading.unit,
    )


def choose_edges(maps: tuple[AttentionMap, ...], count: int, seed: int) -> tuple[np.ndarray, set[int]]:
    """Rows (map, query, key) of the strongest edges and of those drawn, each once; and which rows were drawn.

    A query that sees one key only has no edge to remove.
    """
    rows, values = [], []
    for index, found in enumerate(maps):
        visible = found.weights > 0
        queries, keys = np.nonzero(visible & (visible.sum(1, keepdims=True) > 1))
        rows.append(np.stack([np.full(len(queries), index), queries, keys], 1))
        values.append(found.weights[queries, keys])
    every = np.concatenate(rows)
    strongest = np.argsort(-np.concatenate(values), kind="stable")[:count].tolist()
    drawn = set(np.random.default_rng(seed).permutation(len(every))[:count].tolist())
    chosen = [*strongest, *sorted(drawn.difference(strongest))]
    return every[chosen], {row for row, edge in enumerate(chosen) if edge in drawn}


def edge_effects(
    model: torch.nn.Module,
    reading: Reading,
    layers: list[AttentionLayer],
    maps: tuple[AttentionMap, ...],
    count: int,
    seed: int,
    progress: ProgressOption,
) -> tuple[Edge, ...]:
    """The effects of the chosen edges, layer by layer, many copies of the text at a time."""
    chosen, drawn = choose_edges(maps, count, seed)
    unchanged = reading.scores(1)[0].double()
    size = max(1, BATCH_TOKENS // max(1, len(reading.tokens) + len(reading.source)))
    effects = np.zeros((len(chosen), len(unchanged)))
    paths = np.array([maps[index].layer for index, _, _ in chosen])
    blocks = BlockEdges.create(model, reading, layers)
    with Reporter("edges", len(chosen), progress) as report:
        for layer in layers:
            rows = np.flatnonzero(paths == layer.path)
            edges = np.array([(maps[index].head, query, key) for index, query, key in chosen[rows]])
            if not len(rows):
                continue
            block = blocks.get(layer.path)
            for start in range(0, len(rows), size):
                part = edges[start : start + size]
                with hidden(model, layer, part) if block is None else block.without(part):
                    scores = reading.scores(len(part)).double()
                effects[rows[start : start + size]] = (scores - unchanged).numpy()
                report.advance(len(part))
    found = []
    for row, (index, query, key) in enumerate(chosen.tolist()):
        of_query = maps[index].reads != "source" and effects.shape[1] == len(reading.tokens)
        found.append(
            Edge(
                maps[index].layer,
                maps[index].head,
                query,
                key,
                float(maps[index].weights[query, key]),
                float(effects[row].sum()),
                float(effects[row, query]) if of_query else None,
                row in drawn,
            )
        )
    return tuple(found)


def rank_correlation(edges: list[Edge]) -> float | None:
    """Spearman's correlation of weight and |effect|; None for fewer than three edges, or if all are equal."""
    weights = mean_ranks(np.array([edge.weight for edge in edges]))
    effects = mean_ranks(np.array([abs(edge.effect) for edge in edges]))
    if len(edges) < 3 or weights.min() == weights.max() or effects.min() == effects.max():
        return None
    return float(np.corrcoef(weights, effects)[0, 1])


def mean_ranks(values: np.ndarray) -> np.ndarray:
    """The ranks of values, from 1; equal values share their mean rank. (scipy.stats has it too, but takes half a second to import.)"""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[which]
