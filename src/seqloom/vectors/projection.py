"""The map of a vocabulary: one HTML page that needs nothing else, with search, zoom, and neighbours on a click  [A14].

Places are principal components, and t-SNE on request; colours are k-means clusters of the whole vectors, so that what lies together by
accident of the projection can be told from what belongs together. Left out: plotly, which would make the page twenty times as large.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from seqloom.files import write_atomic
from seqloom.measure import make_signature
from seqloom.vectors.vectors import Vectors

TEMPLATE = Path(__file__).with_name("map.html")
GRID = 10_000  # places are whole numbers from 0 to this


def write_map(
    vectors: Vectors,
    path: str | Path,
    most: int = 2000,
    tsne: bool = False,
    clusters: int = 10,
    near: int = 10,
    seed: int = 0,
) -> dict[str, object]:
    """Write the page of the first `most` words and give back what is on it."""
    shown = vectors.first(most)
    units = np.concatenate([rows for _, rows in shown.blocks()]) / shown.norms[:, None]
    if len(shown) < 3:
        raise ValueError(f"a map needs three words or more, not {len(shown)}")
    flat, share = pca(units)
    layouts = {"principal components": flat}
    if tsne:
        layouts["t-SNE"] = tsne_layout(units, seed)
    rows, scores = shown.neighbours(units, min(near, len(shown) - 1), [[row] for row in range(len(shown))])
    report = {"words": len(shown), "of": len(vectors), "layouts": list(layouts), "variance": share}
    data = {
        "words": list(shown.words),
        "layouts": {name: _grid(places) for name, places in layouts.items()},
        "clusters": kmeans_labels(units, clusters, seed).tolist(),
        "near": rows.tolist(),
        "cosines": np.round(scores * 100).astype(int).tolist(),
        "about": make_signature(
            "map",
            {
                "shown": len(shown),
                "variance in two components": f"{share:.1%}",
                "seed": seed,
                **vectors.facts(),
            },
        ),
    }
    filled = (
        json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
    )
    write_atomic(path, TEMPLATE.read_text("utf-8").replace("/*DATA*/", filled))
    return report


def pca(units: np.ndarray) -> tuple[np.ndarray, float]:
    """Y = (X − μ) [u₁ u₂], the two directions of largest variance, and the share of the variance that they hold."""
    centred = units - units.mean(0)
    values, directions = np.linalg.eigh(centred.T.astype(np.float64) @ centred)  # ascending
    leading = directions[:, ::-1][:, :2]
    leading = leading * np.sign(
        leading[np.abs(leading).argmax(0), range(leading.shape[1])]
    )  # one sign, whatever the solver gave
    places = centred @ leading
    if places.shape[1] < 2:
        places = np.column_stack([places, np.zeros(len(places))])
    return places, float(values[::-1][:2].sum() / max(values.sum(), 1e-30))


def tsne_layout(units: np.ndarray, seed: int) -> np.ndarray:
    """t-SNE: places whose neighbours are those of the whole vectors (van der Maaten and Hinton 2008)."""
    from sklearn.manifold import TSNE

    places = pca(units)[0]
    start = places / max(places[:, 0].std(), 1e-12) * 1e-4
    perplexity = min(30.0, (len(units) - 1) / 3)
    return TSNE(perplexity=perplexity, init=start.astype(np.float32), random_state=seed).fit_transform(units)


def kmeans_labels(units: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """The k-means cluster of each row, the cluster of the first row first."""
    from sklearn.cluster import KMeans

    if clusters < 1:
        raise ValueError(f"a map has one cluster or more, not {clusters}")
    found = KMeans(min(clusters, len(units)), n_init=1, random_state=seed).fit_predict(units)
    _, first, which = np.unique(found, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which]


def _grid(places: np.ndarray) -> list[list[int]]:
    """Places on a square of GRID steps, their proportions kept."""
    low, high = places.min(0), places.max(0)
    span = max(float((high - low).max()), 1e-12)
    return np.round((places - (low + high) / 2) / span * GRID + GRID / 2).astype(int).tolist()
