"""Line plots and scatter plots as SVG: small, offline, in the page's colours; series differ in dashes and markers too, not in colour alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from seqloom.report.page import escape

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 46
DASHES = ("", "6 4", "2 3", "9 3 2 3", "1 4", "12 4")
MARKERS = "●■▲◆▼✚"
MOST_MARKERS, LINE_MARKERS = 40, 10  # points of a line that have a marker each; markers of a longer line
PLOT_STYLE = """
:root { --s0: #0b6bcb; --s1: #b3470b; --s2: #1d7a46; --s3: #8a3ab0; --s4: #6b6210; --s5: #b01e5b; }
@media (prefers-color-scheme: dark) {
  :root { --s0: #6db3ff; --s1: #ff9a5c; --s2: #62d394; --s3: #cf97f0; --s4: #d9cc57; --s5: #ff86b3; }
}
svg.plot { width: 100%; max-width: 46rem; height: auto; display: block; }
svg.plot text { fill: var(--soft); font: 12px system-ui, sans-serif; } svg.plot text.marker { text-anchor: middle; dominant-baseline: central; }
svg.plot text.tag { font-size: 9px; }
@media (max-width: 600px) { svg.plot text { font-size: 15px; } svg.plot text.tag { font-size: 12px; } }
svg.plot .grid { stroke: var(--line); stroke-width: 1; } svg.plot text.legend { fill: var(--ink); }
"""


class Series(NamedTuple):
    """One line or one group of points; `labels` are shown when the pointer rests on a point, `tags` beside it."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]  # None leaves a gap
    labels: Sequence[str] = ()
    tags: Sequence[str] = ()


class PlotPoint(NamedTuple):
    """One point of a series, with its words."""

    x: float
    y: float
    label: str
    tag: str


class Axis(NamedTuple):
    """The range of an axis, and how a value becomes a coordinate."""

    low: float
    high: float
    start: float
    length: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        position = math.log10(max(value, self.low)) if self.log else value
        return self.start + self.length * (position - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round values in the range, five or so; powers of ten on a logarithmic axis."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1, max(1, (last - first) // 5))]
        raw = (self.high - self.low) / 5
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw * 0.999)
        start = math.ceil(self.low / step - 1e-9)
        return [index * step for index in range(start, math.floor(self.high / step + 1e-9) + 1)]


def axis(values: Sequence[float], start: float, length: float, log: bool = False) -> Axis:
    """An axis over the values, with a little room around them; a logarithmic one from power to power of ten."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if log:
        return Axis(
            10.0 ** math.floor(math.log10(low)),
            10.0 ** (math.floor(math.log10(high)) + 1),
            start,
            length,
            True,
        )
    room = 0.04 * (high - low) or abs(high) or 1.0
    return Axis(low - room, high + room, start, length)


def number(value: float) -> str:
    return f"{value:.0e}" if value and (abs(value) < 1e-3 or abs(value) >= 1e5) else f"{value:.4g}"


def plot(
    series: Sequence[Series],
    x: str,
    y: str,
    *,
    lines: bool = True,
    log: bool = False,
    names: Sequence[str] = (),
    circle: bool = False,
) -> str:
    """The series over one pair of axes, as lines with markers or as points; `log` for the y-axis, which then leaves out values of 0.

    `names` are the ticks of the x-axis 0, 1, …; `circle` draws the unit circle, with equal scales.
    """
    kept = [
        [
            PlotPoint(a, b, *(words[index] if index < len(words) else "" for words in (one.labels, one.tags)))
            for index, (a, b) in enumerate(zip(one.xs, one.ys, strict=True))
            if b is not None and math.isfinite(b) and (b > 0 or not log)
        ]
        for one in series
    ]
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    xs = [point.x for points in kept for point in points]
    ys = [point.y for points in kept for point in points]
    if circle:
        reach = 1.08 * max(1.0, max(map(abs, [*xs, *ys]), default=1.0))
        across = Axis(-reach * width / height, reach * width / height, LEFT, width)
        up = Axis(-reach, reach, TOP + height, -height)
    else:
        across = axis(xs or [0.0, 1.0], LEFT, width)
        up = axis(ys or [1.0], TOP + height, -height, log)
    parts = [frame(across, up, x, y, names)]
    if circle:
        parts.append(
            f'<circle class=grid fill=none cx="{across(0):.1f}" cy="{up(0):.1f}" r="{across(1) - across(0):.1f}"/>'
        )
    for index, points in enumerate(kept):
        parts.append(draw(points, across, up, index, lines))
    legend_lines = legend(series, lines) if len(series) > 1 else ""
    extra = 18 * math.ceil(len(series) / 2) if len(series) > 1 else 0
    label = escape(f"{y} against {x}: {', '.join(one.name for one in series)}")
    return (
        f'<svg class=plot role=img aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT + extra}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}{legend_lines}</svg>'
    )


def frame(across: Axis, up: Axis, x: str, y: str, names: Sequence[str]) -> str:
    """The grid, the ticks and the names of the axes."""
    parts = []
    bottom = HEIGHT - BOTTOM
    for value in up.ticks():
        parts.append(
            f'<path class=grid d="M{LEFT} {up(value):.1f}H{WIDTH - RIGHT}"/>'
            f'<text x="{LEFT - 6}" y="{up(value) + 4:.1f}" text-anchor=end>{number(value)}</text>'
        )
    if names:
        every = max(1, math.ceil(max(map(len, names)) * len(names) / 52))
        ticks = [(float(index), name) for index, name in enumerate(names) if index % every == 0]
    else:
        ticks = [(value, number(value)) for value in across.ticks()]
    for value, name in ticks:
        parts.append(
            f'<text x="{across(value):.1f}" y="{bottom + 16}" text-anchor=middle>{escape(name)}</text>'
        )
    parts.append(
        f'<text x="{LEFT + (WIDTH - LEFT - RIGHT) / 2}" y="{bottom + 34}" text-anchor=middle>{escape(x)}</text>'
    )
    middle = TOP + (bottom - TOP) / 2
    parts.append(
        f'<text x="12" y="{middle}" text-anchor=middle transform="rotate(-90 12 {middle})">{escape(y)}</text>'
    )
    return "".join(parts)


def draw(points: list[PlotPoint], across: Axis, up: Axis, index: int, lines: bool) -> str:
    """One series: its line, and a marker for each point, or for some of them on a long line."""
    colour, marker = f"var(--s{index % 6})", MARKERS[index % 6]
    parts = []
    if lines and points:
        path = "L".join(f"{across(point.x):.1f} {up(point.y):.1f}" for point in points)
        dash = f' stroke-dasharray="{DASHES[index % 6]}"' if DASHES[index % 6] else ""
        parts.append(f'<path d="M{path}" fill=none stroke-width=2 style="stroke:{colour}"{dash}/>')
    every = len(points) // LINE_MARKERS if lines and len(points) > MOST_MARKERS else 1
    for place, point in enumerate(points):
        if (place - index) % every:  # on long lines each series has its markers at other places
            continue
        title = f"<title>{escape(point.label or f'{number(point.x)}: {number(point.y)}')}</title>"
        x, y = across(point.x), up(point.y)
        parts.append(
            f'<text class=marker x="{x:.1f}" y="{y:.1f}" style="fill:{colour}">{marker}{title}</text>'
        )
        if point.tag:
            parts.append(f'<text class=tag x="{x + 6:.1f}" y="{y - 5:.1f}">{escape(point.tag)}</text>')
    return "".join(parts)


def legend(series: Sequence[Series], lines: bool) -> str:
    """The names of the series in two columns below the plot."""
    parts = []
    for index, one in enumerate(series):
        x = LEFT - 40 + (index % 2) * (WIDTH - 20) / 2
        y = HEIGHT + 6 + 18 * (index // 2)
        dash = f' stroke-dasharray="{DASHES[index % 6]}"' if DASHES[index % 6] else ""
        line = (
            f'<path d="M{x} {y}h24" fill=none stroke-width=2 style="stroke:var(--s{index % 6})"{dash}/>'
            if lines
            else ""
        )
        name = one.name if len(one.name) <= 30 else "…" + one.name[-29:]
        parts.append(
            f'{line}<text class=marker x="{x + 12}" y="{y}" style="fill:var(--s{index % 6})">{MARKERS[index % 6]}</text>'
            f'<text class=legend x="{x + 30}" y="{y + 4}">{escape(name)}</text>'
        )
    return "".join(parts)
