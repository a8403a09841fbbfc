"""The vectors of each layer for each token of many texts, and what they are alike and how they lie   [K1, K2, K4]"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from seqloom.errors import DataError, RunError
from seqloom.inspect.reading import pieces
from seqloom.inspect.representation_similarity import Estimate, Similarity, linear_cka
from seqloom.inspect.vector_geometry import LayerGeometry, layer_geometry
from seqloom.nn.capture import capture
from seqloom.nn.convolution import ByteNetBlock, GatedBlock
from seqloom.nn.embedding import Embedding
from seqloom.nn.mixing import MixerBlock
from seqloom.nn.recurrent import UnrolledCell
from seqloom.nn.transformer import Block, Transformer
from seqloom.progress import ProgressOption, Reporter
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run

BATCH = 32  # texts that are computed together
LAYERS = (Embedding, Block, MixerBlock, ByteNetBlock, GatedBlock, UnrolledCell)


@dataclass(frozen=True)
class TextVectors:
    """The tokens of one text, and their vectors by layer, each (T, D)."""

    tokens: tuple[str, ...]
    layers: dict[str, np.ndarray]


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


def layer_names(model: torch.nn.Module) -> list[str]:
    """The values that are the outputs of layers: the embedding, the input of a Transformer, then each block or cell."""
    names = []
    for path, part in model.named_modules():
        if isinstance(part, Transformer):
            names.append(f"{path}.input")
        elif isinstance(part, LAYERS):
            names.append(path)
    return names


def token_vectors(run: Run, texts: Iterable[str], max_tokens: int = 512) -> Iterator[TextVectors]:
    """The vectors of every layer for each token of each text, in order; a block of texts is in memory at a time."""
    translates = run.model.task == "translation"
    if not run.model.embeds_text and not translates:
        raise RunError(
            f"{run.folder}: vectors of texts come from a language model, an encoder or a translator, not from a {type(run.model).__name__}"
        )
    wanted = layer_names(run.model)
    context = run.model.source_context if translates else run.model.context
    limit = max_tokens if context is None else min(max_tokens, context)
    block: list[str] = []
    for text in texts:
        block.append(text)
        if len(block) == BATCH:
            yield from block_vectors(run, block, wanted, limit)
            block = []
    if block:
        yield from block_vectors(run, block, wanted, limit)


def block_vectors(run: Run, texts: list[str], wanted: list[str], limit: int) -> Iterator[TextVectors]:
    ids, mask = run.encode(texts)
    ids, mask = ids[:, :limit], mask[:, :limit]
    with torch.no_grad(), capture(run.model) as captured:
        if run.model.task == "translation":  # its encoder reads the text
            run.model.prepare_prompt(ids, mask, run.specials.first_id)
        else:
            run.model.features(ids, None, mask)
    values = captured.all()
    for row, length in enumerate(mask.sum(1).tolist()):
        layers = {name: values[name][row, :length].numpy() for name in wanted if name in values}
        yield TextVectors(pieces(run, ids[row, :length].tolist()), layers)


def geometry(
    run: RunLike, texts: Sequence[str], *, pairs: int = 1000, seed: int = 0, progress: ProgressOption = False
) -> Geometry:
    """Anisotropy, self-similarity, intra-sentence similarity and variance explained of each layer.

    >>> seqloom.inspect.geometry(run, ["the cat sees a king", "a king hears the river"]).tokens
    12
    """
    run = as_run(run)
    found = []
    with Reporter("texts", len(texts), progress) as report:
        for vectors in token_vectors(run, texts):
            found.append(vectors)
            report.advance()
    if not found:
        raise DataError("no texts: give at least one")
    words = [vectors.tokens for vectors in found]
    layers = tuple(
        layer_geometry(name, [vectors.layers[name] for vectors in found], words, pairs, seed)
        for name in found[0].layers
    )
    return Geometry(str(run.folder), len(found), sum(map(len, words)), layers)


def similarity(
    first: RunLike, second: RunLike, texts: Sequence[str], *, estimate: Estimate = "debiased"
) -> Similarity:
    """CKA of each layer of one run with each layer of another, over the mean vector of each text.

    >>> texts = ["the cat sees a king", "a king hears the river", "the river finds a red river", "the queen sees a cat"]
    >>> seqloom.inspect.similarity(gpt, run, texts).rows
    ('embedding', 'stack.input', 'stack.blocks.0')
    """
    if len(texts) < 2:
        raise DataError(f"similarity compares layers over many texts, not {len(texts)}; give at least 4")
    means = []
    for run in (as_run(first), as_run(second)):
        found = list(token_vectors(run, texts))
        means.append(
            {name: np.stack([one.layers[name].mean(0) for one in found]) for name in found[0].layers}
        )
    matrix = np.array([[linear_cka(x, y, estimate) for y in means[1].values()] for x in means[0].values()])
    return Similarity(tuple(means[0]), tuple(means[1]), matrix, estimate, "linear", len(texts))
