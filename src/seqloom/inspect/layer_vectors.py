"""The vectors of each layer for each token of many texts: how they lie, and which layers are alike   [K1, K2, K4]"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import DataError, RunError
from seqloom.inference.completion import length_groups
from seqloom.inspect.representation_similarity import Estimate, Kernel, Similarity, compare_layers
from seqloom.inspect.vector_geometry import LayerGeometry, LayerSums, WordTable
from seqloom.nn.capture import capture
from seqloom.nn.layer_outputs import layer_names, outermost
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run import Run, RunLike, as_run

CHUNK = 1024  # texts among which those of similar length are computed together
BATCH_TOKENS = 2048
logger = logging.getLogger("seqloom.inspect")


@dataclass(frozen=True)
class TextVectors:
    """The vectors of one batch of texts: `index` says which texts, `ids` has the tokens of each, and `layers` the vectors (N, D) of all
    their tokens, one text after the other."""

    index: list[int]
    ids: list[np.ndarray]
    layers: dict[str, np.ndarray]

    def split(self, layer: str) -> list[np.ndarray]:
        """The vectors (T, D) of each text at a layer."""
        return np.split(self.layers[layer], np.cumsum([len(ids) for ids in self.ids])[:-1])


@dataclass(frozen=True)
class Geometry(Result):
    """The geometry of every layer of a run."""

    run: str
    texts: int
    tokens: int
    layers: tuple[LayerGeometry, ...] = field(repr=False)


@dataclass(frozen=True)
class GeometryOfRuns(Result):
    """The geometry of several runs on the same texts."""

    runs: tuple[Geometry, ...]


def text_vectors(run: Run, texts: Iterable[str], max_tokens: int = 512) -> Iterator[TextVectors]:
    """The vectors of every layer for each token of each text, in batches of texts of similar length; one batch is in memory at a time."""
    translates = run.model.task in ("translation", "summarization")
    if not run.model.embeds_text and not translates:
        raise RunError(
            f"{run.folder}: vectors of texts come from a language model, an encoder or a translator, not from a {type(run.model).__name__}"
        )
    context = run.model.source_context if translates else run.model.context
    limit = max_tokens if context is None else min(max_tokens, context)
    rest = iter(texts)
    names: list[str] = []
    start = cut = 0
    while chunk := list(islice(rest, CHUNK)):
        ids, mask = run.encode(chunk)
        cut += int((mask.sum(1) > limit).sum())
        ids, mask = ids[:, :limit], mask[:, :limit]
        names = names or computed_layers(run, ids[:1])
        lengths = mask.sum(1)
        for rows in length_groups(lengths, BATCH_TOKENS, CHUNK):
            longest = int(lengths[rows].max())
            yield batch_vectors(
                run, [start + row for row in rows], ids[rows, :longest], mask[rows, :longest], names
            )
        start += len(chunk)
    if cut:
        logger.warning("%d of %d texts are cut at %d tokens", cut, start, limit)


def read_vectors(run: Run, ids: Tensor, mask: Tensor | None) -> None:
    """Computes the vectors of a batch; of a translator, those of its encoder."""
    if run.model.task in ("translation", "summarization"):
        run.model.prepare_prompt(ids, mask, run.specials.first_id)
    else:
        run.model.vectors(ids, mask)


def computed_layers(run: Run, ids: Tensor) -> list[str]:
    """The layers whose outputs are computed for a text, in order."""
    with torch.no_grad(), capture(run.model) as captured:
        read_vectors(run, ids, None)
    return outermost([name for name in layer_names(run.model) if name in captured.all()])


def batch_vectors(run: Run, index: list[int], ids: Tensor, mask: Tensor, names: list[str]) -> TextVectors:
    """The vectors of one padded batch."""
    with torch.no_grad(), capture(run.model, *names) as captured:
        read_vectors(run, ids, None if mask.all() else mask)
    values = captured.all()
    return TextVectors(
        index,
        [row[: int(real.sum())].numpy() for row, real in zip(ids, mask, strict=True)],
        {name: values[name][mask].float().numpy() for name in names},
    )


def geometry(run: RunLike, texts: Sequence[str], *, progress: ProgressOption = False) -> Geometry:
    """Anisotropy, self-similarity, intra-sentence similarity and variance explained of each layer. A word is a token of the run.

    >>> seqloom.inspect.geometry(run, ["the cat sees a king", "a king hears the river"]).tokens
    12
    """
    run = as_run(run)
    if not texts:
        raise DataError("no texts: give at least one")
    words = WordTable()
    layers: dict[str, LayerSums] = {}
    tokens = 0
    with Reporter("texts", len(texts), progress) as report:
        for batch in text_vectors(run, texts):
            rows = words.find(np.concatenate(batch.ids))
            sentences = np.repeat(np.arange(len(batch.ids)), [len(ids) for ids in batch.ids])
            for name, vectors in batch.layers.items():
                layers.setdefault(name, LayerSums(name)).add(vectors, rows, sentences)
            tokens += len(rows)
            report.advance(len(batch.ids))
    return Geometry(str(run.folder), len(texts), tokens, tuple(sums.geometry() for sums in layers.values()))


def similarity(
    first: RunLike,
    second: RunLike,
    texts: Sequence[str],
    *,
    estimate: Estimate = "debiased",
    kernel: Kernel = "linear",
    progress: ProgressOption = False,
) -> Similarity:
    """CKA of each layer of one run with each layer of another, over the mean vector of each text.

    >>> texts = ["the cat sees a king", "a king hears the river", "the river finds a red river", "the queen sees a cat"]
    >>> seqloom.inspect.similarity(gpt, run, texts).rows
    ('embedding', 'stack.input', 'stack.blocks.0')
    """
    if len(texts) < 4:
        raise DataError(f"similarity compares layers over many texts, not {len(texts)}; give at least 4")
    one, other = as_run(first), as_run(second)
    with Reporter("texts", 2 * len(texts), progress) as report:
        return compare_layers(
            mean_vectors(one, texts, report), mean_vectors(other, texts, report), estimate, kernel
        )


def mean_vectors(run: Run, texts: Sequence[str], report: Reporter) -> dict[str, np.ndarray]:
    """The mean vector of each text at each layer: (texts, D)."""
    means: dict[str, np.ndarray] = {}
    for batch in text_vectors(run, texts):
        for name, vectors in batch.layers.items():
            mean = means.setdefault(name, np.zeros((len(texts), vectors.shape[1])))
            mean[batch.index] = [rows.mean(0) for rows in batch.split(name)]
        report.advance(len(batch.ids))
    return means
