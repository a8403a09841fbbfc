"""Attention of every head and layer on one text, and what removing an edge changes   [K6, F14]

A weight says how much of a value is read, not whether reading it matters. So beside the weights stands the effect of an edge: the change of
the model's scores when that one key is hidden from that one query of that one head. The rank correlation of weight and |effect| over edges drawn at
random says how far the weights may be read as explanations.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import RunError
from seqloom.inspect.reading import Reading, read
from seqloom.nn.attention import SelfAttention
from seqloom.nn.attention_core import AttentionWeights, Softmax
from seqloom.nn.capture import HasPoints, StepChange, capture, change
from seqloom.nn.transformer import Block, Transformer, resume
from seqloom.progress import ProgressOption, Reporter
from seqloom.results import Result
from seqloom.run import RunLike, as_run

BATCH_TOKENS = 2048  # positions that are computed together


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

    def names(self, found: AttentionMap) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tokens of a map's queries and keys."""
        queries = self.source if found.reads == "source" else self.tokens
        return queries, self.source if found.reads in ("source", "cross") else self.tokens


class AttentionLayer(NamedTuple):
    """A part that attends: its path, and whether its weights are a softmax."""

    path: str
    reads: str
    softmax: bool


def attention_layers(model: torch.nn.Module, has_source: bool) -> list[AttentionLayer]:
    """The parts of a model that attend, in the order of its modules."""
    found = []
    for path, part in model.named_modules():
        if isinstance(part, HasPoints) and isinstance(
            weights := dict(part.named_children()).get("weights"), AttentionWeights
        ):
            reads = "cross" if part.reads_memory else "source" if path.startswith("encoder") else "target"
            found.append(AttentionLayer(path, reads if has_source else "text", isinstance(weights, Softmax)))
    return found


class HideEdges(StepChange):
    """Hides one key from one query of one head in each copy of a text; `edges` has a row (copy, head, query, key) for each."""

    def __init__(self, edges: np.ndarray, value: float):
        self.edges = edges
        self.value = value

    def at(self, value: Tensor, step: int) -> Tensor:
        copies, heads, queries, keys = self.edges.T
        if value.shape[2] == 1 and (queries.max(initial=0) > 0 or step):  # one step of a loop over time
            now = queries == step
            copies, heads, queries, keys = copies[now], heads[now], 0 * queries[now], keys[now]
        changed = value.clone()
        changed[copies, heads, queries, keys] = self.value
        return changed


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
        raise RunError(
            f"{run.folder}: a {type(run.model).__name__} of this config has no attention; inspect its gates or activations"
        )
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
    )


def choose_edges(maps: tuple[AttentionMap, ...], count: int, seed: int) -> tuple[np.ndarray, set[int]]:
    """Rows (map, query, key) of the strongest edges and of those drawn, each once; and which rows were drawn.

    A query that sees one key only has no edge to remove.
    """
    rows = []
    for index, found in enumerate(maps):
        visible = found.weights > 0
        queries, keys = np.nonzero(visible & (visible.sum(1, keepdims=True) > 1))
        rows.append(np.stack([np.full(len(queries), index), queries, keys], 1))
    every = np.concatenate(rows)
    weights = np.array([maps[index].weights[query, key] for index, query, key in every])
    strongest = np.argsort(-weights, kind="stable")[:count].tolist()
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
    with Reporter("edges", len(chosen), progress) as report:
        for layer in layers:
            rows = np.flatnonzero(paths == layer.path)
            edges = np.array([(maps[index].head, query, key) for index, query, key in chosen[rows]])
            if not len(rows):
                continue
            block = BlockEdges.create(model, reading, layer)
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


def hidden(model: torch.nn.Module, layer: AttentionLayer, edges: np.ndarray) -> AbstractContextManager[None]:
    """Inside, copy i of the text lacks edge i of the layer, (head, query, key): for attention of any kind."""
    rows = np.concatenate([np.arange(len(edges))[:, None], edges], 1)
    name, value = ("score", float("-inf")) if layer.softmax else ("weights", 0.0)
    return change(model, {f"{layer.path}.{name}": HideEdges(rows, value)})


@dataclass(frozen=True)
class BlockEdges:
    """Edges of self-attention in a Transformer. Without one, only the query's own position of that block differs: it is computed from the
    values of the unchanged text, and the model goes on after the block, in its fast form."""

    stack: Transformer
    number: int  # of the block
    values: Mapping[str, Tensor]  # of the unchanged text

    @classmethod
    def create(cls, model: torch.nn.Module, reading: Reading, layer: AttentionLayer) -> BlockEdges | None:
        """None if the layer is no self-attention of a Transformer without cross-attention."""
        path, _, name = layer.path.rpartition(".")
        stack_path, _, number = path.rpartition(".blocks.")
        stack = model.get_submodule(stack_path) if number.isdigit() else None
        if not isinstance(stack, Transformer) or name != "attention" or not layer.softmax:
            return None
        block = stack.typed_blocks()[int(number)]
        if type(block) is not Block or type(block.attention) is not SelfAttention or block.cross is not None:
            return None
        before = f"{stack_path}.input" if number == "0" else f"{stack_path}.blocks.{int(number) - 1}"
        names = {"x": before, "y": path, "a": layer.path}
        names |= {one: f"{layer.path}.{one}" for one in ("score", "v", "head")}
        with capture(model, *names.values()) as captured:
            reading.scores(1)
        return cls(stack, int(number), {short: captured[full][0] for short, full in names.items()})

    def without(self, edges: np.ndarray) -> AbstractContextManager[None]:
        """Inside, copy i of the text lacks edge i: (head, query, key)."""
        block = self.stack.typed_blocks()[self.number]
        heads, queries, keys = torch.from_numpy(edges).T
        copies = torch.arange(len(edges))
        scores = self.values["score"][heads, queries]  # (N, S)
        scores[copies, keys] = float("-inf")
        shared = block.attention.shape.heads // block.attention.shape.kv_heads
        values = self.values["v"][heads // shared]  # (N, S, K)
        head = torch.einsum("ns,nsk->nk", scores.softmax(-1), values)
        every = self.values["head"][:, queries].transpose(0, 1).clone()  # (N, H, K)
        every[copies, heads] = head
        a = block.attention.out_proj(every.flatten(1)[:, None])  # (N, 1, D)
        x = block.add(self.values["x"][queries][:, None], a, block.attention_norm)
        y = block.feedforward(block.feedforward_norm(x) if block.order == "pre" else x)
        outputs = self.values["y"].expand(len(edges), -1, -1).clone()
        outputs[copies, queries] = block.add(x, y, block.feedforward_norm)[:, 0]
        return resume(self.stack, self.number + 1, outputs)


def rank_correlation(edges: list[Edge]) -> float | None:
    """Spearman's correlation of weight and |effect|; None for fewer than three edges, or if all are equal."""
    from scipy.stats import spearmanr

    weights = [edge.weight for edge in edges]
    effects = [abs(edge.effect) for edge in edges]
    if len(edges) < 3 or len(set(weights)) == 1 or len(set(effects)) == 1:
        return None
    return float(spearmanr(weights, effects).statistic)
