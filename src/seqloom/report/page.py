"""The frame, tables and figures of every page. Plotly's script is written into the page, so that it works offline."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

GENERATOR = '<meta name="generator" content="seqloom">'
STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5b6b7b; --line: #d9e0e7; --paper: #ffffff; --wash: #f4f7fa; --mark: #0b6bcb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf0; --soft: #9aa8b5; --line: #34404c; --paper: #12181f; --wash: #1a222b; --mark: #6db3ff; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
       font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
p, li { max-width: 60rem; } .soft, caption { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .3rem 0; font-size: .9rem; white-space: normal; max-width: calc(100vw - 3rem); }
th, td { padding: .4rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; white-space: nowrap; }
th { font-weight: 600; color: var(--soft); font-size: .88rem; } th:first-child, td:first-child, .text { text-align: left; }
td.text { white-space: normal; min-width: 14rem; } table.prose td:first-child { width: 8rem; color: var(--soft); }
table.prose { margin-bottom: 1rem; } tbody tr:hover { background: var(--wash); }
code { font: .9em ui-monospace, SFMono-Regular, Menlo, monospace; background: var(--wash); padding: .1em .3em; border-radius: 4px; }
.best { color: var(--mark); font-weight: 600; }
"""


def escape(value: object) -> str:
    """The value as text that is safe in HTML."""
    return html.escape(str(value))


def shown_token(token: str) -> str:
    """A token as a reader sees it: one that is only spaces as ␣."""
    return token if token.strip() or not token else token.replace("\n", "⏎").replace(" ", "␣")


def page(title: str, body: str, script: str = "", style: str = "") -> str:
    """A complete HTML document; `script` comes last in the body, `style` after the common style."""
    script_tag = f"<script>{script}</script>" if script else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{GENERATOR}<title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}{style}</style></head>\n"
        f"<body>\n{body}\n{script_tag}</body></html>\n"
    )


def table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "", text: Sequence[int] = ()
) -> str:
    """A table of escaped cells; the columns in `text` hold prose. A head of empty strings is left out."""

    def cell(tag: str, column: int, value: Any) -> str:
        return f"<{tag}{' class=text' if column in text else ''}>{escape(value)}</{tag}>"

    def line(tag: str, values: Sequence[Any]) -> str:
        return "".join(cell(tag, column, value) for column, value in enumerate(values))

    opening = f"<table{' class=prose' if text else ''}>"
    caption_tag = f"<caption>{escape(caption)}</caption>" if caption else ""
    head_cells = line("th", head) if any(head) else ""
    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return (
        f"<div class=wide>{opening}{caption_tag}<thead><tr>{head_cells}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def figure(
    curves: Mapping[str, tuple[Sequence[Any], Sequence[float]]],
    x: str,
    y: str,
    first: bool,
    log: bool = False,
) -> str:
    """Lines by name over one axis; `first` is for the first figure of a page, which includes plotly's script."""
    import plotly.graph_objects as go

    num_points = max((len(xs) for xs, _ in curves.values()), default=0)
    mode = "lines+markers" if num_points < 40 else "lines"
    lines = [go.Scatter(x=list(xs), y=list(ys), name=name, mode=mode) for name, (xs, ys) in curves.items()]
    plot = go.Figure(lines)
    transparent = "rgba(0,0,0,0)"
    plot.update_layout(
        height=420,
        margin={"l": 60, "r": 10, "t": 10, "b": 50},
        paper_bgcolor=transparent,
        plot_bgcolor=transparent,
        font={"color": "#7a8794"},
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "y": -0.2},
        modebar={"bgcolor": transparent, "color": "#9aa8b5"},
    )
    grid = {"gridcolor": "rgba(128,140,152,.25)", "zeroline": False}
    plot.update_xaxes(title=x, type="log" if log else None, **grid)
    plot.update_yaxes(title=y, **grid)
    return plot.to_html(
        full_html=False, include_plotlyjs=first, config={"displaylogo": False, "responsive": True}
    )
