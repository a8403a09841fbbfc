"""The heads of a run on many texts: how alike they are, how far they look, and what the loss is without them   [K2, K3]

- similarity: the Jensen-Shannon distance of two heads' weights, √JS in base 2, mean over the queries: 0 alike, 1 disjoint (Clark et al.);
- distance: the mean of |query - key| under the weights;
- importance by ablation: the loss without the head minus the loss;
- importance by gradient: the mean over texts of |Σ head ⊙ ∂L/∂head|, divided by its norm in the layer (Michel et al.);
- pruning: heads removed one after the other, the least important first, and the loss after each.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import RunError
from seqloom.inspect.attention_maps import BATCH_TOKENS
from seqloom.inspect.given_texts import check_texts
from seqloom.inspect.head_pruning import Pruned, RemoveHeads, choose_heads, compare, prune
from seqloom.inspect.head_syntax import ParsedSentence, Syntax, syntax
from seqloom.inspect.reading import Reading, read_given, report_own_targets
from seqloom.inspect.removed_edges import AttentionLayer, attention_layers, no_attention
from seqloom.nn.capture import KeepSteps, StepChange, capture, change
from seqloom.nn.layer import HasPoints
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run import Run, RunLike, as_run

Importance = Literal["ablation", "gradient"]
logger = logging.getLogger("seqloom.inspect")
HeadIndex = tuple[int, int]  # number of the layer, number of the head


@dataclass(frozen=True)
class Head(Result):
    """One head over all texts."""

    layer: str
    head: int
    reads: str
    distance: float | None  # None if it reads another text than its own
    entropy: float  # of its weights, in bits, mean over the queries
    ablation: float  # how much the loss rises without it
    gradient: float | None  # None for an encoder, whose score is at its maximum
    nearest: str | None  # the head that is most alike
    nearest_distance: float | None

    @property
    def name(self) -> str:
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True)
class Heads(Result):
    """All heads of a run, and the loss as more and more of them are removed."""

    run: str
    texts: int
    targets: int
    score: str
    loss: float
    heads: tuple[Head, ...] = field(repr=False)
    js_distances: np.ndarray = field(
        repr=False
    )  # (heads, heads); None in JSON where maps have different keys
    order: str  # by which importance heads are removed
    removed: tuple[str, ...] = field(repr=False)  # the least important first
    losses: tuple[float, ...] = field(repr=False)  # without the first 0, 1, 2, … of them
    syntax: Syntax | None = None
    pruned: Pruned | None = None


def heads(
    run: RunLike,
    texts: Sequence[str],
    *,
    order: Importance = "ablation",
    max_tokens: int = 128,
    seed: int = 0,
    sentences: Sequence[ParsedSentence] = (),
    remove: int = 0,
    out: str | os.PathLike[str] | None = None,
    progress: ProgressOption = False,
) -> Heads:
    """Similarity, distance, importance and pruning of every head on the texts. A text of a translator is `source<tab>translation`.

    >>> len(seqloom.inspect.heads(gpt, ["the cat sees a king"]).heads)
    2
    """
    run = as_run(run)
    texts = check_texts(texts)
    report_own_targets(run, texts)
    readings = [read_given(run, text, max_tokens, seed) for text in texts]
    if cut := [reading.window.stop for reading in readings if reading.window]:
        logger.warning("%d of %d texts are cut at %d tokens", len(cut), len(texts), cut[0])
    layers = attention_layers(run.model, bool(readings[0].source))
    if not layers:
        raise no_attention(run, "heads")
    maps = Maps(layers)
    for reading in readings:
        with torch.no_grad(), capture(run.model, *(f"{layer.path}.weights" for layer in layers)) as captured:
            reading.scores(1)
        maps.add([captured[f"{layer.path}.weights"][0].double().numpy() for layer in layers])
    indices = maps.indices
    values = {layer.path: head_value(run, layer) for layer in layers}
    sensitivity = (
        None if readings[0].targets == ("sentence",) else gradient_importance(run, readings, layers, values)
    )
    if order == "gradient" and sensitivity is None:
        raise RunError(
            f"{run.folder}: an encoder has no loss, so no gradients of it; order heads by ablation"
        )
    singles: list[list[HeadIndex]] = [[], *([index] for index in indices)]
    losses = losses_without(run, readings, layers, values, singles, "heads", progress)
    rises = losses[1:] - losses[0]
    ranks = np.argsort(
        sensitivity if order == "gradient" and sensitivity is not None else rises, kind="stable"
    )
    steps = [[indices[number] for number in ranks[:count]] for count in range(len(indices) + 1)]
    curve = losses_without(run, readings, layers, values, steps, "pruning", progress)
    distances = maps.distances()
    found = []
    for number, (layer, head) in enumerate(indices):
        others = np.where(
            np.arange(len(indices)) == number, np.inf, np.nan_to_num(distances[number], nan=np.inf)
        )
        best = int(others.argmin())
        alike = np.isfinite(others[best])
        found.append(
            Head(
                layers[layer].path,
                head,
                layers[layer].reads,
                None if layers[layer].reads == "cross" else maps.mean(maps.reach, number),
                maps.mean(maps.entropy, number),
                float(rises[number]),
                None if sensitivity is None else float(sensitivity[number]),
                f"{layers[indices[best][0]].path}.{indices[best][1]}" if alike else None,
                float(others[best]) if alike else None,
            )
        )
    pruned = None
    if remove:
        if out is None:
            raise RunError("removing heads writes a smaller run: give the folder to write it to")
        counts = Counter(one.layer for one in found)
        chosen = choose_heads([found[number].name for number in ranks], remove, counts)
        view = Run(run.folder, run.config, run.tokenizer, run.model, run.labels)
        again = [read_given(view, text, max_tokens, seed) for text in texts]
        pruned = compare(view, prune(run, chosen, Path(out)), again, chosen)
    return Heads(
        str(run.folder),
        len(texts),
        sum(len(reading.targets) for reading in readings),
        readings[0].score,
        float(losses[0]),
        tuple(found),
        distances,
        order,
        tuple(found[number].name for number in ranks),
        tuple(map(float, curve)),
        syntax(run, sentences, max_tokens, progress) if sentences else None,
        pruned,
    )


class Maps:
    """Sums over the queries of all texts: distance and entropy of each head, Jensen-Shannon distance of each pair."""

    def __init__(self, layers: list[AttentionLayer]):
        self.layers = layers
        self.indices: list[HeadIndex] = []

    def add(self, weights: list[np.ndarray]) -> None:
        """The weights of each layer on one text, (H, T, S)."""
        if not self.indices:
            self.indices = [(layer, head) for layer, one in enumerate(weights) for head in range(len(one))]
            size = len(self.indices)
            self.reach, self.entropy, self.queries = np.zeros(size), np.zeros(size), np.zeros(size)
            self.sums, self.counts = np.zeros((size, size)), np.zeros((size, size))
        every = [weights[layer][head] for layer, head in self.indices]
        for number, one in enumerate(every):
            positions = np.abs(np.arange(one.shape[0])[:, None] - np.arange(one.shape[1])[None])
            self.reach[number] += (one * positions).sum()
            self.entropy[number] += bits(one).sum()
            self.queries[number] += len(one)
            alike = [
                other
                for other in range(number, len(every))
                if every[other].shape == one.shape and self.reads(other) == self.reads(number)
            ]
            roots = js_distance(one[None], np.stack([every[other] for other in alike]))  # (N, T)
            self.sums[number, alike] += roots.sum(1)
            self.counts[number, alike] += roots.shape[1]

    def reads(self, number: int) -> str:
        return self.layers[self.indices[number][0]].reads

    def mean(self, sums: np.ndarray, number: int) -> float:
        """A sum over queries as their mean."""
        return float(sums[number] / max(1.0, self.queries[number]))

    def distances(self) -> np.ndarray:
        """The mean distance of each pair of heads, NaN for pairs that read different texts."""
        with np.errstate(invalid="ignore"):
            upper = self.sums / self.counts
        return np.where(np.isnan(upper), upper.T, upper)


def bits(weights: np.ndarray) -> np.ndarray:
    """-Σ p log₂ p over the last axis."""
    return -(weights * np.log2(np.maximum(weights, 1e-300))).sum(-1)


def js_distance(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """√(H(m) - (H(p) + H(q)) / 2), m = (p + q) / 2, over the last axis."""
    divergence = bits((p + q) / 2) - (bits(p) + bits(q)) / 2
    return np.sqrt(np.maximum(divergence, 0))


def head_value(run: Run, layer: AttentionLayer) -> tuple[str, bool]:
    """The value that holds what the heads of a layer have read, and whether it has an axis of heads."""
    part = run.model.get_submodule(layer.path)
    points = part.points if isinstance(part, HasPoints) else {}
    name = next((name for name in ("head", "context") if name in points), "")
    return ".".join(filter(None, (layer.path, name))), "H" in points[name].axes


def losses_without(
    run: Run,
    readings: Sequence[Reading],
    layers: list[AttentionLayer],
    values: dict[str, tuple[str, bool]],
    variants: Sequence[Sequence[HeadIndex]],
    what: str,
    progress: ProgressOption,
) -> np.ndarray:
    """The loss of the run without the heads of each variant: minus the mean score of all targets; many copies of a text at a time."""
    sums = np.zeros(len(variants))
    targets = 0
    with Reporter(what, len(readings) * len(variants), progress) as report, torch.no_grad():
        for reading in readings:
            targets += len(reading.targets)
            size = max(1, BATCH_TOKENS // max(1, len(reading.tokens) + len(reading.source)))
            for start in range(0, len(variants), size):
                part = variants[start : start + size]
                changes: dict[str, StepChange] = {}
                for number, layer in enumerate(layers):
                    rows = [(copy, head) for copy, one in enumerate(part) for at, head in one if at == number]
                    if rows:
                        name, has_heads = values[layer.path]
                        changes[name] = RemoveHeads(np.array(rows), has_heads)
                with change(run.model, changes):
                    sums[start : start + len(part)] -= reading.scores(len(part)).double().sum(1).numpy()
                report.advance(len(part))
    return sums / targets


def gradient_importance(
    run: Run, readings: Sequence[Reading], layers: list[AttentionLayer], values: dict[str, tuple[str, bool]]
) -> np.ndarray:
    """The mean over texts of |Σ head ⊙ ∂L/∂head| for each head, each layer scaled to norm 1."""
    sums: list[np.ndarray] = []
    for reading in readings:
        kept = {values[layer.path][0]: KeepSteps() for layer in layers}
        with torch.enable_grad(), change(run.model, kept):
            loss = -reading.scores(1).mean()
        tensors = [step for keep in kept.values() for step in keep.steps]
        gradients = iter(torch.autograd.grad(loss, tensors, allow_unused=True))
        for number, layer in enumerate(layers):
            name, has_heads = values[layer.path]
            total: Tensor | float = 0.0
            for step in kept[name].steps:
                gradient = next(gradients)
                if gradient is not None:
                    product = (step * gradient).detach().double()[0]
                    total = total + (product.flatten(1).sum(1) if has_heads else product.sum()[None])
            found = np.abs(np.asarray(total))
            if len(sums) <= number:
                sums.append(found)
            else:
                sums[number] = sums[number] + found
    return np.concatenate([one / max(float(np.linalg.norm(one)), 1e-30) for one in sums])
