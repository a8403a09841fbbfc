"""The pages of vectors: geometry, similarity, contexts of a word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqloom.inspect.layer_vectors import Geometry
from seqloom.inspect.pages import heat_table, picture_page
from seqloom.inspect.representation_similarity import Similarity
from seqloom.inspect.vector_geometry import LayerGeometry
from seqloom.inspect.word_contexts import Context, Contexts
from seqloom.report.page import escape, table
from seqloom.report.plots import Series, plot

MOST_TAGS = 80  # points that have their numbers beside them
CUT_ALIKE = "Of a text that is cut, every run reads the same part: the longest that all of them read whole."
MEASURES = {
    "anisotropy": "the mean cosine of vectors of different words; 0 if directions are spread evenly",
    "self_similarity": "the mean cosine of one word's vectors in different texts, minus the anisotropy",
    "intra_sentence_similarity": "the mean cosine of a text's vectors with their mean, minus the anisotropy",
    "variance_explained": "the share of the first principal component, about the mean",
    "origin_variance_explained": "σ₁² / Σσ², about the origin: it counts the mean itself",
}


def measure_title(name: str) -> str:
    """The name of a measure for a reader."""
    titles = {"self_similarity": "self-similarity", "intra_sentence_similarity": "intra-sentence similarity"}
    return titles.get(name, name.replace("_", " "))


def measure(layer: LayerGeometry, name: str) -> float | None:
    """One of the numbers of a layer."""
    value = layer.to_dict()[name]
    return None if value is None else float(value)


def rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def short_names(paths: Sequence[str]) -> list[str]:
    """The names of runs: the last part of their folders, or the whole path where two would be alike."""
    names = [Path(path).name or path for path in paths]
    return [name if names.count(name) == 1 else path for name, path in zip(names, paths, strict=True)]


def geometry_page(found: Sequence[Geometry]) -> str:
    """One plot for each measure, a line for each run, and a table of all numbers."""
    runs = short_names([one.run for one in found])
    longest = max(len(one.layers) for one in found)
    parts = [
        "<h1>Geometry of the vectors</h1>",
        *(
            f"<p class=soft>{escape(run)}: {escape(read_line(one))}</p>"
            for run, one in zip(runs, found, strict=True)
        ),
        f"<p>{escape(CUT_ALIKE)}</p>" if len(found) > 1 and any(one.cut for one in found) else "",
        "<p>Layer 0 is the embedding. The tables name the layers.</p>",
    ]
    for name, meaning in MEASURES.items():
        lines = [
            Series(
                run,
                range(len(one.layers)),
                [measure(layer, name) for layer in one.layers],
                [layer.layer for layer in one.layers],
            )
            for run, one in zip(runs, found, strict=True)
        ]
        title = measure_title(name)
        parts.append(f"<h2>{escape(title.capitalize())}</h2><p class=soft>{escape(meaning)}</p>")
        parts.append(plot(lines, "layer", title, names=[str(index) for index in range(longest)]))
    heads = ["layer", *map(measure_title, MEASURES)]
    for run, one in zip(runs, found, strict=True):
        rows = [
            [f"{index} {layer.layer}", *(rounded(measure(layer, name)) for name in MEASURES)]
            for index, layer in enumerate(one.layers)
        ]
        parts.append(f"<h2>{escape(run)}</h2>{table(heads, rows)}")
    return picture_page("Geometry", "\n".join(parts))


def similarity_page(found: Similarity, first: str, second: str) -> str:
    """CKA of each pair of layers."""
    body = f"""<h1>Similarity of layers</h1>
<p class=soft>rows: {escape(first)}, columns: {escape(second)}; {
        escape(compared_line(found, first, second))
    }</p>
<p>CKA with the {escape(found.kernel)} kernel, {escape(found.estimate)} estimate, over the mean vectors of {
        found.examples:,} texts.
1 means that one layer is a rotation and scaling of the other. {
        "The biased estimate is near 1 for anything if there are few texts."
        if found.estimate == "biased"
        else "The debiased estimate may be a little below 0."
    }</p>
{heat_table(list(found.rows), list(found.columns), found.cka, "CKA", 1)}"""
    return picture_page("Similarity", body)


def read_line(one: Geometry) -> str:
    """What a run read, in one line."""
    cut = f", {one.cut:,} of them cut" if one.cut else ""
    return f"{one.texts:,} texts{cut}, {one.tokens:,} tokens"


def compared_line(found: Similarity, first: str, second: str) -> str:
    """What the two runs of a comparison read, in one line."""
    cut = f", {found.cut:,} of them cut to the part that both runs read whole" if found.cut else ""
    tokens = [f"{run} {count:,}" for run, count in zip((first, second), found.tokens, strict=False)]
    return f"{found.examples:,} texts{cut}" + (f"; tokens: {', '.join(tokens)}" if tokens else "")


def left_out_line(found: Contexts) -> str:
    """How many occurrences are not shown; nothing if all are."""
    if not found.left_out:
        return ""
    are = "occurrence is" if found.left_out == 1 else "occurrences are"
    return f"{found.left_out:,} more {are} not read whole, because the text is cut there, and left out"


def contexts_page(found: Contexts) -> str:
    """The occurrences on a map, marked by a word that they share, and a table of them with the nearest other occurrence."""
    groups: dict[str, list[int]] = {}
    for number, one in enumerate(found.contexts):
        groups.setdefault(one.neighbour, []).append(number)
    order = sorted(groups, key=lambda name: (name == "other", -len(groups[name])))
    points = [
        Series(
            name if name == "other" else f"with “{name}”",
            [found.contexts[number].x for number in groups[name]],
            [found.contexts[number].y for number in groups[name]],
            [f"{number + 1}: {found.contexts[number].text}" for number in groups[name]],
            [str(number + 1) for number in groups[name]] if len(found.contexts) <= MOST_TAGS else (),
        )
        for name in order
    ]
    first, second = found.variance_explained
    rows = [
        [
            number + 1,
            excerpt(one),
            one.neighbour,
            one.nearest + 1,
            f"{one.nearest_cosine:.3f}",
            excerpt(found.contexts[one.nearest]),
        ]
        for number, one in enumerate(found.contexts)
    ]
    body = f"""<h1>“{escape(found.word)}” in {len(found.contexts):,} contexts</h1>
<p class=soft>{escape(found.run)}, layer {escape(found.layer)}</p>
<p>Mean cosine of two occurrences: {found.static_mean_cosine:.3f} at {escape(found.static_layer)}, where the vector is static;
{found.mean_cosine:.3f} at {escape(found.layer)}, where the context is in it.</p>
{f"<p class=note>{escape(left_out_line(found))}.</p>" if found.left_out else ""}
{plot(points, f"first component, {100 * first:.0f} % of the variance", f"second, {100 * second:.0f} %", lines=False)}
<p class=soft>Markers: a word near it that other contexts have too; numbers are those of the table. The static vector would be one point.</p>
{table(["", "text", "group", "nearest", "cosine", "its text"], rows, "every context, and the one whose vector is nearest", (1, 5))}"""
    return picture_page(f"Contexts of {found.word}", body)


def excerpt(one: Context, around: int = 60) -> str:
    """The text around the word."""
    before, after = one.text[: one.start], one.text[one.end :]
    left = before if len(before) <= around else "…" + before[-around:]
    right = after if len(after) <= around else after[:around] + "…"
    return f"{left}{one.text[one.start : one.end]}{right}"
