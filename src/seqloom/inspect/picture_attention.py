"""The page of a captioner's attention: the picture once for each word, bright where the model looks   [K6, X23]."""

from __future__ import annotations

import base64

import numpy as np

from seqloom.inference.caption_attention import CaptionAttention
from seqloom.media.images import encode_png
from seqloom.report import escape, page

SIDE = 220  # of a picture on the page
STYLE = """
.words{display:flex;flex-wrap:wrap;gap:14px}
.words figure{margin:0;width:220px}
.words figcaption{font-weight:600;margin-top:4px}
.words svg{display:block;image-rendering:pixelated;border-radius:4px;background:#000}
"""
EXPLANATION = (
    "Each picture shows one word: the brighter a region, the larger its weight α when the model computes the probability of "
    "that word after the words before it. The weights of a word sum to 1, with that of the class token if the encoder has one; "
    "the brightest region of each picture has the weight that is written below it. A weight says where the model reads, not "
    "whether the word depends on it."
)


def picture_page(found: CaptionAttention) -> str:
    """The page of one caption."""
    data = base64.b64encode(encode_png(found.pixels)).decode()
    figures = [figure(data, found.pixels.shape, None, "the picture as the model reads it", "")]
    for word, weights in zip(found.words, found.weights, strict=True):
        row, column = np.unravel_index(int(weights.argmax()), weights.shape)
        place = f"{weights.max():.2f} in row {row + 1}, column {column + 1} of {weights.shape[0]} × {weights.shape[1]}"
        figures.append(figure(data, found.pixels.shape, weights, word, place))
    body = (
        f"<h1>{escape(found.caption)}</h1><p>{escape(found.file)}</p><p>{EXPLANATION}</p>"
        f"<div class=words>{''.join(figures)}</div>"
    )
    return page(f"Attention: {found.caption}", body, style=STYLE)


def figure(data: str, shape: tuple[int, ...], weights: np.ndarray | None, word: str, note: str) -> str:
    """A picture with its regions darkened by how little weight they have."""
    height = round(SIDE * shape[0] / shape[1])
    shades = "" if weights is None else "".join(shade(weights, height))
    label = escape(f"{word}: {note}" if note else word)
    return (
        f'<figure><svg width="{SIDE}" height="{height}" viewBox="0 0 {SIDE} {height}" role="img" aria-label="{label}">'
        f'<image href="data:image/png;base64,{data}" width="{SIDE}" height="{height}" preserveAspectRatio="none"/>{shades}</svg>'
        f"<figcaption>{escape(word)}</figcaption><small>{escape(note)}</small></figure>"
    )


def shade(weights: np.ndarray, height: int) -> list[str]:
    """A dark rectangle over each region, clear where the weight is largest."""
    rows, columns = weights.shape
    strength = weights / max(float(weights.max()), 1e-12)
    across, down = SIDE / columns, height / rows
    return [
        f'<rect x="{column * across:.2f}" y="{row * down:.2f}" width="{across + 0.3:.2f}" height="{down + 0.3:.2f}" '
        f'fill="#000" fill-opacity="{0.85 * (1 - float(strength[row, column])):.3f}"/>'
        for row in range(rows)
        for column in range(columns)
    ]


def summary(found: CaptionAttention) -> list[str]:
    """The caption, and the region with the largest weight of each word, as lines."""
    lines = [f"{found.file}: {found.caption}"]
    for word, weights in zip(found.words, found.weights, strict=True):
        row, column = np.unravel_index(int(weights.argmax()), weights.shape)
        lines.append(f"  {word:<16} row {row + 1}, column {column + 1}  {weights.max():.2f}")
    return lines
