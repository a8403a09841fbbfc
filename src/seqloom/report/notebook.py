"""What notebooks show: a page in a frame without network, and a small curve as inline SVG."""

from __future__ import annotations

import html
from collections.abc import Sequence

MAX_BYTES = 2_000_000  # a notebook that holds more is slow to open


def frame(page: str, height: int = 480) -> str:
    """A page inside a notebook: its scripts run apart from the notebook's, and it loads nothing."""
    if len(page.encode()) > MAX_BYTES:
        return "<p>The page is larger than 2 MB: write it to a file with to_html(), and open that.</p>"
    style = f"width:100%;height:{height}px;border:1px solid #8884;border-radius:6px"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(page)}"></iframe>'


def curve(points: Sequence[tuple[float, float]], title: str, width: int = 360, height: int = 120) -> str:
    """A line through points (x, y), with the least and the greatest value of both axes; empty if there are fewer than two."""
    if len(points) < 2:
        return ""
    xs, ys = zip(*points, strict=True)
    left, bottom, top = 52, 18, 8
    x_range, y_range = max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 1.0

    def place(x: float, y: float) -> str:
        across = left + (x - min(xs)) / x_range * (width - left - 8)
        down = top + (max(ys) - y) / y_range * (height - top - bottom)
        return f"{across:.1f},{down:.1f}"

    line = " ".join(place(x, y) for x, y in points)
    text = 'font-size="10" fill="currentColor" opacity=".7"'
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{html.escape(title)}">'
        f'<polyline points="{line}" fill="none" stroke="#3a6ea5" stroke-width="1.5"/>'
        f'<text x="{left - 6}" y="{top + 8}" text-anchor="end" {text}>{max(ys):.4g}</text>'
        f'<text x="{left - 6}" y="{height - bottom}" text-anchor="end" {text}>{min(ys):.4g}</text>'
        f'<text x="{left}" y="{height - 4}" {text}>{min(xs):,.0f}</text>'
        f'<text x="{width - 8}" y="{height - 4}" text-anchor="end" {text}>{max(xs):,.0f}</text>'
        f'<text x="{(width + left) / 2:.0f}" y="{height - 4}" text-anchor="middle" {text}>{html.escape(title)}</text></svg>'
    )
