"""The vectors of each layer for each token of many texts: how they lie, and which layers are alike   [K1, K2, K4]"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import overload

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.inference.completion import length_groups
from seqloom.inspect.given_texts import check_texts
from seqloom.inspect.refusals import refusal
from seqloom.inspect.representation_similarity import Estimate, Kernel, Similarity, compare_layers
from seqloom.inspect.shared_texts import SharedTexts, share, token_limit
from seqloom.inspect.vector_geometry import LayerGeometry, LayerSums, WordTable
from seqloom.nn.capture import capture
from seqloom.nn.layer_outputs import layer_names, outermost
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run import Run, RunLike, as_run

CHUNK = 1024  # texts among which those of similar length are computed together
BATCH_TOKENS = 2048
MAX_TOKENS = 512  # of a longer text the first are read
logger = logging.getLogger("seqloom.inspect")


@dataclass(frozen=True)
class TextVectors:
    """The vectors of one batch of texts: `index` says which texts, `ids` has the tokens of each, and `layers` the vectors (N, D) of all
    their tokens, one text after the other. Of `cut` texts only the beginning is read."""

    index: list[int]
    ids: list[np.ndarray]
    layers: dict[str, np.ndarray]
    cut: int = 0

    def split(self, layer: str) -> list[np.ndarray]:
        """The vectors (T, D) of each text at a layer."""
        return np.split(self.layers[layer], np.cumsum([len(ids) for ids in self.ids])[:-1])


@dataclass(frozen=True)
class Geometry(Result):
    """The geometry of every layer of a run."""

    run: str
    texts: int
    tokens: int
    cut: int  # texts of which only the beginning was read
    layers: tuple[LayerGeometry, ...] = field(repr=False)


@dataclass(frozen=True)
class GeometryOfRuns(Result):
    """The geometry of several runs on the same texts, which are cut alike for all."""

    runs: tuple[Geometry, ...]


def text_vectors(
    run: Run, texts: Iterable[str], max_tokens: int = MAX_TOKENS, verb: str = "geometry"
) -> Iterator[TextVectors]:
    """The vectors of every layer for each token of each text, in batches of texts of similar length; one batch is in memory at a time."""
    require_vectors(run, verb)
    limit = token_limit(run, max_tokens)
    rest = iter(texts)
    names: list[str] = []
    start = cut = 0
    while chunk := list(islice(rest, CHUNK)):
        ids, mask = run.encode(chunk)
        long = mask.sum(1) > limit
        cut += int(long.sum())
        ids, mask = ids[:, :limit], mask[:, :limit]
        names = names or computed_layers(run, ids[:1])
        lengths = mask.sum(1)
        for rows in length_groups(lengths, BATCH_TOKENS, CHUNK):
            longest = int(lengths[rows].max())
            found = batch_vectors(
                run, [start + row for row in rows], ids[rows, :longest], mask[rows, :longest], names
            )
            yield replace(found, cut=int(long[rows].sum()))
        start += len(chunk)
    if cut:
        logger.warning("%s: %d of %d texts are cut at %d tokens", run.folder, cut, start, limit)


def require_vectors(run: Run, verb: str = "geometry") -> None:
    """Raises if the run has no vectors of texts."""
    if not run.model.embeds_text and run.model.task not in ("translation", "summarization"):
        kind = type(run.model).__name__
        raise refusal(
            run,
            verb,
            f"needs vectors of texts, which come from a language model, an encoder or a translator, not from a {kind}",
        )


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


@overload
def geometry(  # type: ignore[overload-overlap]  # a text is a sequence of texts
    run: RunLike, texts: Sequence[str], *, progress: ProgressOption = False
) -> Geometry: ...
@overload
def geometry(
    run: Sequence[RunLike], texts: Sequence[str], *, progress: ProgressOption = False
) -> GeometryOfRuns: ...
def geometry(
    run: RunLike | Sequence[RunLike], texts: Sequence[str], *, progress: ProgressOption = False
) -> Geometry | GeometryOfRuns:
    """Anisotropy, self-similarity, intra-sentence similarity and variance explained of each layer. A word is a token of the run. Several
    runs read the same: of a text that one of them cannot read to its end, the part that all read whole.

    >>> seqloom.inspect.geometry(run, ["the cat sees a king", "a king hears the river"]).tokens
    12
    """
    texts = check_texts(texts)
    if isinstance(run, Run | str | os.PathLike):
        return geometry_of(as_run(run), texts, progress)
    if not isinstance(run, Sequence) or not run:
        raise DataError(f"the runs are {run!r}; give a run, or a list of runs")
    runs = [as_run(one) for one in run]
    for one in runs:
        require_vectors(one, "geometry")
    shared = shared_texts(runs, texts)
    found = [geometry_of(one, shared.texts, progress) for one in runs]
    return GeometryOfRuns(tuple(replace(one, cut=max(one.cut, shared.cut)) for one in found))


def shared_texts(runs: Sequence[Run], texts: Sequence[str]) -> SharedTexts:
    """The part of each text that every run reads whole; says how many texts are cut, and because of which runs."""
    shared = share(runs, texts, MAX_TOKENS)
    if shared.cut:
        limits = {str(run.folder): token_limit(run, MAX_TOKENS) for run in runs}
        logger.warning(
            "%d of %d texts are cut to the part that every run reads whole (%s)",
            shared.cut,
            len(texts),
            ", ".join(f"{folder}: {limit} tokens" for folder, limit in limits.items()),
        )
    return shared


def geometry_of(run: Run, texts: Sequence[str], progress: ProgressOption) -> Geometry:
    """The geometry of one run."""
    require_vectors(run, "geometry")
    words = WordTable()
    layers: dict[str, LayerSums] = {}
    tokens = cut = 0
    with Reporter("texts", len(texts), progress) as report:
        for batch in text_vectors(run, texts):
            rows = words.find(np.concatenate(batch.ids))
            sentences = np.repeat(np.arange(len(batch.ids)), [len(ids) for ids in batch.ids])
            for name, vectors in batch.layers.items():
                layers.setdefault(name, LayerSums(name)).add(vectors, rows, sentences)
            tokens += len(rows)
            cut += batch.cut
            report.advance(len(batch.ids))
    found = tuple(sums.geometry() for sums in layers.values())
    return Geometry(str(run.folder), len(texts), tokens, cut, found)


def similarity(
    first: RunLike,
    second: RunLike,
    texts: Sequence[str],
    *,
    estimate: Estimate = "debiased",
    kernel: Kernel = "linear",
    progress: ProgressOption = False,
) -> Similarity:
    """CKA of each layer of one run with each layer of another, over the mean vector of each text. Both read the same: of a text that one
    of them cannot read to its end, the part that both read whole.

    >>> texts = ["the cat sees a king", "a king hears the river", "the river finds a red river", "the queen sees a cat"]
    >>> seqloom.inspect.similarity(gpt, run, texts).rows
    ('embedding', 'stack.input', 'stack.blocks.0')
    """
    texts = check_texts(texts, least=0)
    if len(texts) < 4:
        raise DataError(f"similarity compares layers over many texts, not {len(texts)}; give at least 4")
    runs = [as_run(first), as_run(second)]
    for run in runs:
        require_vectors(run, "similarity")
    shared = shared_texts(runs, texts)
    with Reporter("texts", 2 * len(texts), progress) as report:
        (rows, *read), (columns, *others) = (mean_vectors(run, shared.texts, report) for run in runs)
    found = compare_layers(rows, columns, estimate, kernel)
    return replace(found, tokens=(read[0], others[0]), cut=shared.cut)


def mean_vectors(run: Run, texts: Sequence[str], report: Reporter) -> tuple[dict[str, np.ndarray], int]:
    """The mean vector of each text at each layer, (texts, D), and the number of tokens read."""
    means: dict[str, np.ndarray] = {}
    tokens = 0
    for batch in text_vectors(run, texts):
        tokens += sum(map(len, batch.ids))
        for name, vectors in batch.layers.items():
            mean = means.setdefault(name, np.zeros((len(texts), vectors.shape[1])))
            mean[batch.index] = [rows.mean(0) for rows in batch.split(name)]
        report.advance(len(batch.ids))
    return means, tokens
