"""The map of a vocabulary: one self-contained HTML page with search, zoom and neighbours, or a drawing as SVG  [A14].

Positions are principal components, and t-SNE on request. Colours are k-means clusters of the full vectors, so
that words that the projection puts together by accident can be distinguished from words that are similar.
Left out: plotly, which would make the page twenty times as large, and PNG, which needs a program that draws fonts.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.errors import DataError, UserError
from seqloom.files import write_atomic
from seqloom.measure.number import make_signature
from seqloom.results import Result
from seqloom.vectors.formats import load, require_absent
from seqloom.vectors.vectors import Vectors

TEMPLATE = Path(__file__).with_name("map.html")
ENDINGS = (".html", ".svg")
GRID = 10_000  # positions are integers from 0 to this
SVG_SIZE = 1000
SVG_WIDTH = SVG_SIZE + 120
SVG_MARGIN = 20
CONTROL = re.compile(r"[\x00-\x1f\x7f\ufffe\uffff]")  # characters that XML does not have


@dataclass(frozen=True)
class WordMap(Result):
    """What a map shows."""

    page: Path
    words: int
    total: int  # words that have a vector
    layouts: list[str]
    variance: float  # the share of two principal components


def write_map(
    vectors: Vectors | str | PathLike[str],
    out: str | PathLike[str],
    limit: int = 2000,
    tsne: bool = False,
    clusters: int = 10,
    num_neighbors: int = 10,
    seed: int = 0,
    overwrite: bool = False,
) -> WordMap:
    """Draws the first `limit` words, as a page (.html) or as a picture (.svg).

    >>> import tempfile
    >>> vectors = Vectors(["man", "king", "woman", "queen"], np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_map(vectors, f"{folder}/map.svg", clusters=2).words
    4
    """
    out = Path(out)
    check_map_name(out)
    require_absent(out, overwrite)
    if not isinstance(vectors, Vectors):
        vectors = load(vectors)
    if limit < 3 or len(vectors) < 3:
        raise DataError(f"a map needs three words or more, not {min(limit, len(vectors))}")
    shown = vectors.first(limit)
    units = np.concatenate([rows for _, rows in shown.blocks()]) / shown.norms[:, None]
    components, variance = pca(units)
    layouts = {"principal components": components}
    if tsne:
        layouts["t-SNE"] = tsne_layout(units, seed)
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
        "about": make_signature("map", conditions),
    }
    if out.suffix == ".svg":
        content = _draw_svg(data)
    else:
        count = min(num_neighbors, len(shown) - 1)
        rows, scores = shown.neighbours(units, count, [[row] for row in range(len(shown))])
        content = _fill_page(
            {**data, "near": rows.tolist(), "cosines": np.round(scores * 100).astype(int).tolist()}
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, content)
    return WordMap(out, len(shown), len(vectors), list(layouts), variance)


def check_map_name(out: Path) -> None:
    """Raises for a name whose ending is not that of a map."""
    if out.suffix not in ENDINGS:
        ending = out.suffix or "no ending"
        raise UserError(f"{out}: a map is not written as {ending}; end its name in {' or '.join(ENDINGS)}")


def _fill_page(data: dict[str, Any]) -> str:
    script = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    script = script.replace("<", "\\u003c").replace("\u2028", "\\u2028")
    return TEMPLATE.read_text("utf-8").replace("/*DATA*/", script)


def _draw_svg(data: dict[str, Any]) -> str:
    """The last layout: a dot for each word, and the words themselves, the most frequent first, where there is space."""
    name, positions = list(data["layouts"].items())[-1]
    count = max(data["clusters"]) + 1
    scale = (SVG_SIZE - 2 * SVG_MARGIN) / GRID
    dots: list[str] = []
    labels: list[str] = []
    boxes: list[tuple[float, float, float, float]] = []
    for word, (x, y), cluster in zip(data["words"], positions, data["clusters"], strict=True):
        left, top = SVG_MARGIN + x * scale, SVG_SIZE - SVG_MARGIN - y * scale
        color = f"hsl({round(360 * cluster / count + 12)} 58% 40%)"
        dots.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="2" fill="{color}"/>')
        text = escape(CONTROL.sub(" ", word))
        width = 7 * len(word)
        start = (
            left + 4 if left + 4 + width < SVG_WIDTH else left - 4 - width
        )  # beyond the edge: to the left of its dot
        box = (start, top - 7, start + width, top + 5)
        if all(box[0] > b[2] or b[0] > box[2] or box[1] > b[3] or b[1] > box[3] for b in boxes):
            boxes.append(box)
            labels.append(f'<text x="{start:.1f}" y="{top + 4:.1f}" fill="{color}">{text}</text>')
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SVG_WIDTH} {SVG_SIZE + 24}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>Map of words: {escape(name)}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *dots,
        *labels,
        f'<text x="{SVG_MARGIN}" y="{SVG_SIZE + 10}" font-size="9" fill="#6b7079">{escape(CONTROL.sub(" ", data["about"]))}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


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
        raise DataError(f"a map has one cluster or more, not {clusters}")
    labels = KMeans(min(clusters, len(units)), n_init=1, random_state=seed).fit_predict(units)
    _, first, which = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which]


def _to_grid(positions: np.ndarray) -> list[list[int]]:
    """Positions as integers on a square of GRID steps; both axes have the same scale."""
    low, high = positions.min(0), positions.max(0)
    span = max(float((high - low).max()), 1e-12)
    return np.round((positions - (low + high) / 2) / span * GRID + GRID / 2).astype(int).tolist()
