"""The pages of heads, gradients and the coreference probe."""

from __future__ import annotations

import numpy as np

from seqloom.inspect.coreference_probe import Coreference
from seqloom.inspect.gradient_norms import Gradients
from seqloom.inspect.head_pruning import Pruned
from seqloom.inspect.head_syntax import Syntax
from seqloom.inspect.head_values import Heads
from seqloom.inspect.pages import heat_table, picture_page
from seqloom.report.page import escape, table
from seqloom.report.plots import Series, plot

MOST_EDGES = 40  # of a table


def number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


KINDS = {
    "text": "Self-attention",
    "source": "Self-attention of the encoder",
    "target": "Self-attention of the decoder",
    "cross": "Attention of the decoder to the source",
}


def heads_page(found: Heads) -> str:
    """Importance by layer and head, the map of similar heads, the pruning curve, and a table of all heads."""
    layers = list(dict.fromkeys(one.layer for one in found.heads))
    most = max(one.head for one in found.heads) + 1
    parts = [
        f"<h1>Heads</h1><p class=soft>{escape(found.run)}: {len(found.heads)} heads on {found.texts:,} texts</p>",
        f"<p>Loss: {found.loss:.4f} (minus the mean of {escape(found.score)}, {found.targets:,} targets).</p>",
        "<h2>Importance</h2><p class=soft>How much the loss rises without the head, divided by the largest rise or fall.</p>",
        importance_table(found, layers, most),
        "<h2>Pruning</h2><p class=soft>Heads are removed one after the other, the least important first (by "
        f"{escape(found.order)}); no weight is trained again.</p>",
        plot(
            [Series("loss", range(len(found.losses)), found.losses, ["all heads", *found.removed])],
            "heads removed",
            "loss",
        ),
        "<h2>Which heads are alike</h2><p class=soft>The nearer, the smaller the Jensen–Shannon distance of their weights "
        "(classical scaling to two dimensions). Heads of a layer share a marker; the number is the head's. The table of every head below "
        "names the most alike one.</p>",
        similar_heads(found, layers),
    ]
    rows = [
        [
            one.name,
            one.reads,
            number(one.distance, 1),
            number(one.entropy, 2),
            f"{one.ablation:+.4f}",
            number(one.gradient),
            one.nearest or "",
            number(one.nearest_distance),
        ]
        for one in found.heads
    ]
    head = [
        "head",
        "reads",
        "distance",
        "entropy (bits)",
        "ablation",
        "gradient",
        "most alike",
        "JS distance",
    ]
    parts.append("<h2>Every head</h2>" + table(head, rows))
    steps = [
        [index, name, f"{loss:.4f}"]
        for index, (name, loss) in enumerate(zip(["none", *found.removed], found.losses, strict=True))
    ]
    parts.append(
        "<h2>The pruning curve as a table</h2>" + table(["removed", "last one removed", "loss"], steps)
    )
    if found.syntax is not None:
        parts.insert(-2, syntax_section(found.syntax))
    if found.pruned is not None:
        parts[1] += "".join(f"<p>{escape(line)}</p>" for line in pruning_lines(found.pruned))
    return picture_page("Heads", "\n".join(parts))


SYNTAX_HEAD = ["relation", "edges", "best head", "read", "accuracy", "best offset", "its accuracy", "gain"]


def syntax_rows(found: Syntax) -> list[list[str]]:
    return [
        [
            one.relation,
            f"{one.count:,}",
            one.head,
            one.direction,
            f"{one.accuracy:.1%}",
            f"{one.offset:+d}",
            f"{one.offset_accuracy:.1%}",
            f"{one.accuracy - one.offset_accuracy:+.1%}",
        ]
        for one in found.relations
    ]


def syntax_lines(found: Syntax, most: int = 12) -> list[str]:
    """The most frequent relations, for the terminal."""
    lines = [
        f"syntax on {found.sentences:,} sentences, {found.words:,} words ({found.skipped} sentences left out); "
        "accuracy of the best head beside that of the best fixed offset:"
    ]
    for one in found.relations[:most]:
        lines.append(
            f"  {one.relation:10} {one.count:6,} edges  {one.head} {one.direction}: {one.accuracy:.1%}; "
            f"offset {one.offset:+d}: {one.offset_accuracy:.1%}"
        )
    return lines


def syntax_section(found: Syntax) -> str:
    """The best head of each relation, and the best relation of each head."""
    heads = [
        [one.head, one.relation, one.direction, f"{one.accuracy:.1%}", f"{one.gain:+.1%}"]
        for one in sorted(found.heads, key=lambda head: -head.gain)
    ]
    return (
        "<h2>Syntax</h2><p class=soft>Attention between words read as dependency edges: how often a word's largest weight falls on its "
        "syntactic head (read from the dependent), or the word that attends to it most is its head (read from the head). A head that "
        "does not beat the best fixed offset has learnt a distance.</p>"
        + table(SYNTAX_HEAD, syntax_rows(found), f"{found.sentences:,} sentences, {found.words:,} words")
        + "<details><summary>The best relation of each head</summary>"
        + table(["head", "relation", "read", "accuracy", "gain over the best offset"], heads)
        + "</details>"
    )


def pruning_lines(found: Pruned) -> list[str]:
    """The smaller run beside the old one."""
    before, after = found.seconds
    return [
        f"without {len(found.removed)} heads: {found.folder}",
        f"loss {found.loss:.6f}, with the same heads masked {found.masked_loss:.6f}; largest difference of a score "
        f"{found.largest_difference:.1e}",
        f"parameters {found.parameters[0]:,} → {found.parameters[1]:,}; file {found.bytes[0]:,} → {found.bytes[1]:,} bytes; "
        f"these texts {1000 * before:.1f} → {1000 * after:.1f} ms",
    ]


def importance_table(found: Heads, layers: list[str], most: int) -> str:
    """Layers by heads; layers with fewer heads have empty cells."""
    values = np.full((len(layers), most), np.nan)
    for one in found.heads:
        values[layers.index(one.layer), one.head] = one.ablation
    largest = float(np.nanmax(np.abs(values))) or 1.0
    columns = [f"head {index}" for index in range(most)]
    return heat_table(layers, columns, values / largest, f"1.00 is {largest:.4f}", 1)


def similar_heads(found: Heads, layers: list[str]) -> str:
    """The heads of each kind of attention on a map of their own."""
    plots = []
    for reads in dict.fromkeys(one.reads for one in found.heads):
        chosen = [index for index, one in enumerate(found.heads) if one.reads == reads]
        if len(chosen) < 3:
            continue
        places = scaling(found.js_distances[np.ix_(chosen, chosen)])
        here = [layer for layer in layers if any(found.heads[index].layer == layer for index in chosen)]
        points = []
        for layer in here:
            rows = [row for row, index in enumerate(chosen) if found.heads[index].layer == layer]
            points.append(
                Series(
                    layer,
                    places[rows, 0].tolist(),
                    places[rows, 1].tolist(),
                    [found.heads[chosen[row]].name for row in rows],
                    [str(found.heads[chosen[row]].head) for row in rows],
                )
            )
        plots.append(
            f"<h3>{escape(KINDS.get(reads, reads))}</h3>{plot(points, 'first dimension', 'second', lines=False)}"
        )
    return "".join(plots) or "<p>There are too few heads to draw.</p>"


def scaling(distances: np.ndarray) -> np.ndarray:
    """Classical multidimensional scaling to two dimensions: (N, N) → (N, 2)."""
    squares = np.square(np.nan_to_num(distances, nan=1.0))
    centred = squares - squares.mean(0) - squares.mean(1, keepdims=True) + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    return vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0))


def gradients_page(found: Gradients) -> str:
    """The curves before and after clipping, the norms by depth, the eigenvalues in the complex plane, and the tables."""
    parts = [
        f"<h1>Gradients</h1><p class=soft>{escape(found.run)}: {found.texts:,} texts, {found.tokens:,} tokens</p>"
    ]
    factor = 1.0 if found.clip is None else found.clip.factor
    if found.clip is not None:
        parts.append(
            f"<p>Norm of the gradients of all weights: {found.clip.norm:.4g}; after the run's own clipping "
            f"({escape(found.clip.kind)}, limit {found.clip.limit:g}): {found.clip.clipped_norm:.4g}, that is × {factor:.3f}.</p>"
        )
    for loss in dict.fromkeys(curve.loss for curve in found.curves):
        chosen = [curve for curve in found.curves if curve.loss == loss]
        lines = [Series(curve.value, range(len(curve.norms)), curve.norms) for curve in chosen]
        back = "steps back" if loss == "of one position" else "steps before the last"
        parts.append(
            f"<h2>Loss {escape(loss)}: how far its gradient reaches</h2>"
            + plot(lines, f"k, {back}", "norm of the gradient", log=True)
        )
        if factor < 1:
            clipped = [
                Series(one.name, one.xs, [None if y is None else factor * y for y in one.ys]) for one in lines
            ]
            parts.append(
                f"<h3>After clipping, × {factor:.3f}</h3>"
                + plot(clipped, f"k, {back}", "norm after clipping", log=True)
            )
        longest = max(len(curve.norms) for curve in chosen)
        ks = [k for k in range(longest) if k < 8 or k & (k - 1) == 0 or k == longest - 1]
        rows = [
            [curve.value, *(f"{curve.norms[k]:.3g}" if k < len(curve.norms) else "" for k in ks)]
            for curve in chosen
        ]
        if factor < 1:
            rows += [
                [
                    f"{curve.value}, clipped",
                    *(f"{factor * curve.norms[k]:.3g}" if k < len(curve.norms) else "" for k in ks),
                ]
                for curve in chosen
            ]
        parts.append(table(["k", *map(str, ks)], rows, "mean norm at k"))
    if found.layers:
        parts.append(
            "<h2>By depth</h2>"
            + plot(
                [
                    Series(
                        "norm",
                        range(len(found.layers)),
                        [layer.norm for layer in found.layers],
                        [layer.layer for layer in found.layers],
                    )
                ],
                "layer",
                "mean norm over positions",
                names=[str(index) for index in range(len(found.layers))],
            )
            + table(
                ["layer", "norm"],
                [[f"{index} {layer.layer}", f"{layer.norm:.4g}"] for index, layer in enumerate(found.layers)],
            )
        )
    parts += eigenvalue_parts(found)
    return picture_page("Gradients", "\n".join(parts))


def eigenvalue_parts(found: Gradients) -> list[str]:
    """The eigenvalues of each cell in the complex plane with the unit circle, and the spectral radii."""
    if not found.matrices:
        return []
    parts = [
        "<h2>Eigenvalues of the matrices that multiply h</h2><p class=soft>Inside the circle |λ| &lt; 1: a product of many such factors "
        "vanishes. Gates and tanh shrink it further.</p>"
    ]
    for cell in dict.fromkeys(matrix.cell for matrix in found.matrices):
        chosen = [matrix for matrix in found.matrices if matrix.cell == cell]
        points = [
            Series(matrix.gate, matrix.eigenvalues[:, 0].tolist(), matrix.eigenvalues[:, 1].tolist())
            for matrix in chosen
        ]
        parts.append(
            f"<h3>{escape(cell)}</h3>{plot(points, 'real part', 'imaginary part', lines=False, circle=True)}"
        )
    rows = [
        [
            f"{matrix.cell} {matrix.gate}",
            f"{matrix.spectral_radius:.4f}",
            f"{matrix.largest_singular_value:.4f}",
        ]
        for matrix in found.matrices
    ]
    parts.append(table(["matrix", "spectral radius", "largest singular value"], rows))
    return parts


def coreference_page(found: Coreference) -> str:
    """The decisions, and for the first sentences the layers and edges that carry them."""
    rows = [
        [
            one.english,
            one.meant,
            f"{one.right} {one.right_logprob:.3f}",
            f"{one.wrong} {one.wrong_logprob:.3f}",
            "right" if one.correct else "wrong",
        ]
        for one in found.decisions
    ]
    pairs = (
        "" if found.pair_accuracy is None else f"; both of a pair: {found.pair_accuracy:.1%} of {found.pairs}"
    )
    parts = [
        f"<h1>What is “it”?</h1><p class=soft>{escape(found.run)}</p>",
        f"<p>Right: {found.accuracy:.1%} of {len(found.decisions)} sentences{pairs}.</p>",
    ]
    for number_, one in enumerate(found.decisions):
        layers = [layer for layer in found.layers if layer.sentence == number_]
        edges = sorted(
            (edge for edge in found.edges if edge.sentence == number_), key=lambda edge: -abs(edge.effect)
        )
        if not layers:
            continue
        d = one.right_logprob - one.wrong_logprob
        parts.append(
            f"<h2>{escape(one.english)}</h2><p>“it” is the {escape(one.meant)}: d = ln P({escape(one.right)}) − "
            f"ln P({escape(one.wrong)}) = {d:+.3f} after “{escape(one.french)}”.</p>"
        )
        reach = max((abs(layer.effect) for layer in layers), default=0.0) or 1.0  # one scale for both tables
        for reads, who in (
            ("source", "from “it” in the encoder"),
            ("cross", "from the place of the pronoun"),
        ):
            some = [layer for layer in layers if layer.reads == reads]
            names = list(dict.fromkeys(layer.layer for layer in some))
            if not names:
                continue
            keys = [layer.key for layer in some if layer.layer == names[0]]
            values = np.array([[layer.effect for layer in some if layer.layer == name] for name in names])
            caption = f"change of d if all heads of a layer lose their edges {who} to this word"
            parts.append(heat_table(names, keys, values, caption, reach))
        parts.append(
            table(
                ["head", "edge", "weight", "change of d"],
                [
                    [f"{e.layer}.{e.head}", f"{e.query} → {e.key}", f"{e.weight:.2f}", f"{e.effect:+.3f}"]
                    for e in edges[:MOST_EDGES]
                ],
                f"the {min(MOST_EDGES, len(edges))} edges of {len(edges)} that change d most",
            )
        )
    parts.append(
        "<h2>Every sentence</h2>" + table(["sentence", "it", "ln P right", "ln P wrong", ""], rows, text=(0,))
    )
    return picture_page("Coreference", "\n".join(parts))
