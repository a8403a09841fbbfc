"""The page of the gradients that a training has written down: how they change from evaluation to evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from seqloom.inspect.gradient_norms import WatchedGradients
from seqloom.inspect.pages import picture_page
from seqloom.report.page import escape, table
from seqloom.report.plots import Series, plot
from seqloom.train.gradient_watch import WatchedStep

LINES = 6  # steps that are drawn: more lines cannot be told apart


def watched_page(found: WatchedGradients) -> str:
    """A plot of each value's curves at several steps, the norms by depth, the spectral radii and the norms of the weights' gradients."""
    chosen = some_steps(found.steps)
    shown = f"; drawn are {len(chosen)} of them" if len(chosen) < len(found.steps) else ""
    parts = [
        f"<h1>Gradients during training</h1><p class=soft>{escape(found.run)}: {len(found.steps)} evaluations, step "
        f"{found.steps[0].step:,} to {found.steps[-1].step:,}{shown}</p>"
    ]
    for index, curve in enumerate(found.steps[-1].curves):
        at_steps = [(one.step, one.curves[index].norms) for one in chosen]
        back = "steps back" if curve.loss == "of one position" else "steps before the last"
        ks = shown_distances(len(curve.norms))
        rows = [
            [one.step, *(f"{one.curves[index].norms[k]:.3g}" for k in ks)]
            for one in found.steps
            if len(one.curves[index].norms) == len(curve.norms)
        ]
        parts += [
            f"<h2>{escape(curve.value)}: loss {escape(curve.loss)}</h2>",
            plot(
                [Series(f"step {step:,}", range(len(norms)), norms) for step, norms in at_steps],
                f"k, {back}",
                "norm of the gradient",
                log=True,
            ),
            table(["step", *(f"k = {k}" for k in ks)], rows, "mean norm at k"),
        ]
    layers = [layer.layer for layer in found.steps[-1].layers]
    parts += [
        "<h2>By depth</h2>",
        plot(
            [
                Series(f"step {one.step:,}", range(len(layers)), [layer.norm for layer in one.layers], layers)
                for one in chosen
            ],
            "layer",
            "mean norm over positions",
            names=[str(index) for index in range(len(layers))],
            log=True,
        ),
        table(
            ["step", *layers],
            [[one.step, *(f"{layer.norm:.4g}" for layer in one.layers)] for one in found.steps],
            "mean norm of the gradient at the output of each layer",
        ),
    ]
    return picture_page("Gradients during training", "\n".join([*parts, *over_steps(found.steps)]))


def over_steps(steps: Sequence[WatchedStep]) -> list[str]:
    """What has one number at each step: the spectral radii, and the gradients of all weights before and after clipping."""
    parts = []
    xs = [one.step for one in steps]
    if matrices := steps[-1].matrices:
        names = [f"{matrix.cell} {matrix.gate}" for matrix in matrices]
        radii = [[matrix.spectral_radius for matrix in one.matrices] for one in steps]
        parts += [
            "<h2>Spectral radius of the matrices that multiply h</h2>",
            plot(
                [Series(name, xs, [row[index] for row in radii]) for index, name in enumerate(names[:LINES])],
                "step",
                "largest |λ|",
            ),
            table(
                ["step", *names],
                [[x, *(f"{radius:.3f}" for radius in row)] for x, row in zip(xs, radii, strict=True)],
            ),
        ]
    clips = [one.clip for one in steps if one.clip is not None]
    if len(clips) == len(steps):
        parts += [
            f"<h2>Gradients of all weights</h2><p class=soft>{escape(clips[0].kind)}, limit {clips[0].limit:g}</p>",
            plot(
                [
                    Series("before clipping", xs, [clip.norm for clip in clips]),
                    Series("after clipping", xs, [clip.clipped_norm for clip in clips]),
                ],
                "step",
                "norm",
            ),
            table(
                ["step", "before clipping", "after clipping"],
                [
                    [x, f"{clip.norm:.4g}", f"{clip.clipped_norm:.4g}"]
                    for x, clip in zip(xs, clips, strict=True)
                ],
            ),
        ]
    return parts


def some_steps(steps: Sequence[WatchedStep]) -> list[WatchedStep]:
    """At most LINES of the steps, evenly spaced, the first and the last among them."""
    if len(steps) <= LINES:
        return list(steps)
    return [steps[round(index * (len(steps) - 1) / (LINES - 1))] for index in range(LINES)]


def shown_distances(length: int) -> list[int]:
    """The k of a table: 0, the powers of two, and the last."""
    return [k for k in range(length) if k & (k - 1) == 0 or k == length - 1]


def watched_lines(found: WatchedGradients) -> list[str]:
    """The last evaluation in lines, with the first beside it."""
    first, last = found.steps[0], found.steps[-1]
    lines = [f"{len(found.steps)} evaluations, step {first.step:,} to {last.step:,}"]
    for before, after in zip(first.curves, last.curves, strict=True):
        ks = [k for k in shown_distances(len(after.norms)) if k < len(before.norms)]
        lines.append(
            f"{after.value}, loss {after.loss}, by steps back: "
            + ", ".join(f"{k}: {before.norms[k]:.2e} → {after.norms[k]:.2e}" for k in ks)
        )
    for old, new in zip(first.layers, last.layers, strict=True):
        lines.append(f"{new.layer}: {old.norm:.4g} → {new.norm:.4g} by depth")
    for was, now in zip(first.matrices, last.matrices, strict=True):
        lines.append(
            f"{now.cell} {now.gate}: spectral radius {was.spectral_radius:.3f} → {now.spectral_radius:.3f}"
        )
    if first.clip and last.clip:
        lines.append(
            f"gradients of all weights: norm {first.clip.norm:.4g} → {last.clip.norm:.4g}, after {last.clip.kind} with limit "
            f"{last.clip.limit:g}: {first.clip.clipped_norm:.4g} → {last.clip.clipped_norm:.4g}"
        )
    return lines
