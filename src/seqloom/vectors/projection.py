"""The map of a vocabulary: one self-contained HTML page with search, zoom and neighbours  [A14].

Positions are principal components, and t-SNE on request. Colours are k-means clusters of the full vectors, so
that words that the projection puts together by accident can be distinguished from words that are similar.
Left out: plotly, which would make the page twenty times as large.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.files import write_atomic
from seqloom.measure.number import make_signature
from seqloom.vectors.vectors import Vectors

TEMPLATE = Path(__file__).with_name("map.html")
GRID = 10_000  # positions are integers from 0 to this


def write_map(
    vectors: Vectors,
    path: str | Path,
    max_words: int = 2000,
    tsne: bool = False,
    clusters: int = 10,
    num_neighbors: int = 10,
    seed: int = 0,
) -> dict[str, Any]:
    """Writes the page of the first `max_words` words; returns a summary of its content."""
    shown = vectors.first(max_words)
    units = np.concatenate([rows for _, rows in shown.blocks()]) / shown.norms[:, None]
    if len(shown) < 3:
        raise ValueError(f"a map needs three words or more, not {len(shown)}")
    components, variance = pca(units)
    layouts = {"principal components": components}
    if tsne:
        layouts["t-SNE"] = tsne_layout(units, seed)
    count = min(num_neighbors, len(shown) - 1)
    rows, scores = shown.neighbours(units, count, [[row] for row in range(len(shown))])
    report = {"words": len(shown), "of": len(vectors), "layouts": list(layouts), "variance": variance}
    conditions = {
        "shown": len(shown),
        "variance in two components": f"{variance:.1%}",
        "seed": seed,
        **vectors.conditions(),
    }
    data = {
        "words": list(shown.words),
        "layouts": {name: _to_grid(positions) for name, positions in layouts.items()},
        "clusters": kmeans_labels(units, clusters, seed).tolist(),
        "near": rows.tolist(),
        "cosines": np.round(scores * 100).astype(int).tolist(),
        "about": make_signature("map", conditions),
    }
    script = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    script = script.replace("<", "\\u003c").replace("\u2028", "\\u2028")
    write_atomic(path, TEMPLATE.read_text("utf-8").replace("/*DATA*/", script))
    return report


def pca(units: np.ndarray) -> tuple[np.ndarray, float]:
    """Y = (X − μ) [u₁ u₂] with the two directions of largest variance, and their fraction of the variance."""
    centred = units - units.mean(0)
    values, directions = np.linalg.eigh(centred.T.astype(np.float64) @ centred)  # ascending
    leading = directions[:, ::-1][:, :2]
    # The solver's sign is arbitrary: make the largest entry of each direction positive.
    leading = leading * np.sign(leading[np.abs(leading).argmax(0), range(leading.shape[1])])
    positions = centred @ leading
    if positions.shape[1] < 2:
        positions = np.column_stack([positions, np.zeros(len(positions))])
    return positions, float(values[::-1][:2].sum() / max(values.sum(), 1e-30))


def tsne_layout(units: np.ndarray, seed: int) -> np.ndarray:
    """t-SNE: positions whose neighbours are those of the full vectors (van der Maaten and Hinton 2008)."""
    from sklearn.manifold import TSNE

    components = pca(units)[0]
    start = components / max(components[:, 0].std(), 1e-12) * 1e-4
    perplexity = min(30.0, (len(units) - 1) / 3)
    return TSNE(perplexity=perplexity, init=start.astype(np.float32), random_state=seed).fit_transform(units)


def kmeans_labels(units: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """The k-means cluster of each row; clusters are numbered in the order of their first row."""
    from sklearn.cluster import KMeans

    if clusters < 1:
        raise ValueError(f"a map has one cluster or more, not {clusters}")
    labels = KMeans(min(clusters, len(units)), n_init=1, random_state=seed).fit_predict(units)
    _, first, which = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which]


def _to_grid(positions: np.ndarray) -> list[list[int]]:
    """Positions as integers on a square of GRID steps; both axes have the same scale."""
    low, high = positions.min(0), positions.max(0)
    span = max(float((high - low).max()), 1e-12)
    return np.round((positions - (low + high) / 2) / span * GRID + GRID / 2).astype(int).tolist()
