"""The verbs `inspect heads`, `gradients` and `coreference`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from seqloom.cli.inputs import check_texts, open_run
from seqloom.cli.inspect import Open, finish, inspect, run_texts
from seqloom.cli.options import (
    Common,
    CommonOptions,
    Count,
    Files,
    Machine,
    MachineOptions,
    PagePath,
    RunPath,
)
from seqloom.cli.tables import table
from seqloom.errors import UserError


@inspect.command
def heads(
    run: RunPath,
    /,
    *texts: str,
    file: Files = None,
    data: Path | None = None,
    order: Literal["ablation", "gradient"] = "ablation",
    prune: int = 0,
    max_texts: Count = 50,
    max_tokens: Count = 128,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Rank heads: how alike, how far they look, what they do.

    Importance is the rise of the loss without a head, and the size of its gradient. Then heads are removed one after the other.

    Examples:
      seqloom inspect heads runs/gpt-input --file valid.txt
      seqloom inspect heads runs/bert --data dev.conllu
      seqloom inspect heads runs/demo --file valid.tsv --prune 4 --out runs/less

    Parameters
    ----------
    run
        Run folder.
    texts
        Texts to read; of a translator, a source, a tab and a translation. Of a model of pictures or sounds, files.
    file
        Files of such lines; - or nothing is stdin.
    data
        A CoNLL-U file: which dependency relations each head follows. Its sentences are read if there are no other texts.
    order
        Importance by which heads are removed, the least first.
    prune
        How many heads to cut out; --out is then the folder of the smaller run.
    max_texts
        Texts that are read at most.
    max_tokens
        Tokens of a longer text that are read.
    out
        Page to write; default: RUN/reports/heads.html. With --prune: the run to write.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.head_pages import heads_page, number, pruning_lines, syntax_lines
    from seqloom.inspect.head_syntax import parsed_sentences
    from seqloom.inspect.head_values import heads as find

    if prune < 0 or (prune and out is None):
        raise UserError("--prune N cuts N heads out and writes a smaller run: give its folder with --out")
    loaded = open_run(run, machine.threads)
    sentences = [] if data is None else parsed_sentences(data, max_texts)
    if sentences and not texts and not file:
        chosen = [sentence.text for sentence in sentences]
    else:
        chosen = run_texts(loaded, texts, file, "seqloom inspect heads RUN --file texts.txt", max_texts)
    found = find(
        loaded,
        chosen,
        order=order,
        max_tokens=max_tokens,
        seed=machine.seed,
        sentences=sentences,
        remove=prune,
        out=out if prune else None,
        progress=common.progress,
    )
    lines = [f"loss {found.loss:.4f} on {found.texts} texts, {found.targets} targets ({found.score})"]
    rows = [
        [
            one.name,
            number(one.distance, 1),
            number(one.entropy, 2),
            f"{one.ablation:+.4f}",
            number(one.gradient),
            f"{one.nearest} {one.nearest_distance:.3f}" if one.nearest else "",
        ]
        for one in sorted(found.heads, key=lambda head: -head.ablation)
    ]
    lines += table(["head", "distance", "entropy", "ablation", "gradient", "most alike (JS distance)"], rows)
    marks = sorted({0, *(len(found.removed) * part // 4 for part in (1, 2, 3, 4))})
    losses = ", ".join(f"{count}: {found.losses[count]:.4f}" for count in marks)
    lines.append(f"loss after removing the least important by {found.order}: {losses}")
    if found.syntax is not None:
        lines += syntax_lines(found.syntax)
    if found.pruned is not None:
        lines += pruning_lines(found.pruned)
        out = None
    finish(loaded, "heads", found, heads_page(found), lines, out, show, common.json)


@inspect.command
def gradients(
    run: RunPath,
    /,
    *texts: str,
    file: Files = None,
    max_texts: Count = 20,
    max_tokens: Count = 64,
    positions: Count = 8,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Show how far back and how deep gradients reach.

    The norm of the gradient of a word's loss k steps back; by depth; the eigenvalues of the matrices that multiply h. Without texts: what a
    training with train.watch=gradients has written down, also while it runs.

    Examples:
      seqloom inspect gradients runs/lstm-lm-input --file valid.txt
      seqloom inspect gradients runs/gpt-input "To be, or not to be"
      seqloom inspect gradients runs/lstm-lm-input@2000 --file valid.txt --json

    Parameters
    ----------
    run
        Run folder, or a checkpoint of it such as RUN@2000.
    texts
        Texts to read; of a translator, a source, a tab and a translation. Of a model of pictures or sounds, files.
    file
        Files of such lines; - is stdin, and so is nothing if the training was not watched.
    max_texts
        Texts that are read at most.
    max_tokens
        Tokens of a longer text that are read.
    positions
        Words of each text whose loss is followed back, from its second half.
    out
        Page to write; default: RUN/reports/gradients.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.gradient_norms import gradients as find
    from seqloom.inspect.gradient_norms import watched_gradients
    from seqloom.inspect.head_pages import gradients_page
    from seqloom.inspect.watch_pages import watched_lines, watched_page
    from seqloom.run_files import GRADIENTS_FILE

    if not texts and not file and (run / GRADIENTS_FILE).exists():
        watched = watched_gradients(run)
        page = watched_page(watched)
        finish(run, "gradients", watched, page, watched_lines(watched), out, show, common.json)
        return

    loaded = open_run(run, machine.threads)
    chosen = run_texts(loaded, texts, file, "seqloom inspect gradients RUN --file texts.txt", max_texts)
    found = find(loaded, chosen, max_tokens=max_tokens, positions=positions, progress=common.progress)
    lines = [f"{found.texts} texts, {found.tokens} tokens"]
    if found.cut:
        lines.append(
            f"{found.cut} of the texts are longer: their first {max_tokens} tokens are read, or as many as the model takes"
        )
    for curve in found.curves:
        ks = [k for k in (0, 1, 2, 4, 8, 16, 32) if k < len(curve.norms)]
        shown = ", ".join(f"{k}: {curve.norms[k]:.2e}" for k in ks)
        lines.append(f"{curve.value}, loss {curve.loss}, by steps back: {shown}")
    lines += [f"{layer.layer}: {layer.norm:.4g} by depth" for layer in found.layers]
    lines += [
        f"{one.cell} {one.gate}: spectral radius {one.spectral_radius:.3f}, largest singular value {one.largest_singular_value:.3f}"
        for one in found.matrices
    ]
    if found.clip is not None:
        lines.append(
            f"gradients of all weights: norm {found.clip.norm:.4g}, after {found.clip.kind} with limit {found.clip.limit:g}: "
            f"{found.clip.clipped_norm:.4g}"
        )
    finish(loaded, "gradients", found, gradients_page(found), lines, out, show, common.json)


@inspect.command
def coreference(
    run: RunPath,
    /,
    *texts: str,
    pairs: Count = 50,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Ask a translator what "it" is: il or elle.

    Sentences of the built-in world, two by two: only the adjective differs. Hidden edges of attention show what carries the decision.

    Examples:
      seqloom inspect coreference runs/demo
      seqloom inspect coreference runs/demo --pairs 200 --json
      seqloom inspect coreference runs/demo --out it.html --open

    Parameters
    ----------
    run
        Run folder of a translator of the world, such as that of seqloom demo.
    texts
        Sentences of the world with "it"; default: the animal that did not cross the street.
    pairs
        Pairs of sentences on which accuracy is measured.
    out
        Page to write; default: RUN/reports/coreference.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.coreference_probe import EXAMPLES
    from seqloom.inspect.coreference_probe import coreference as find
    from seqloom.inspect.head_pages import coreference_page

    check_texts(texts, has_file=False)
    loaded = open_run(run, machine.threads)
    found = find(loaded, texts or EXAMPLES, pairs=pairs, seed=machine.seed, progress=common.progress)
    lines = []
    for number, one in enumerate(found.decisions[: len(texts or EXAMPLES)]):
        lines += [
            one.english,
            f"  {one.french} … {one.right} {one.right_logprob:.3f}, {one.wrong} {one.wrong_logprob:.3f}: "
            f"{'right' if one.correct else 'wrong'}, it is the {one.meant}",
        ]
        some = [layer for layer in found.layers if layer.sentence == number]
        for layer in sorted(some, key=lambda layer: -abs(layer.effect))[:3]:
            asking = "it" if layer.reads == "source" else one.right
            lines.append(
                f"  without {asking} → {layer.key} in {layer.layer}: this preference changes by {layer.effect:+.3f}"
            )
    lines.append(f"right: {found.accuracy:.1%} of {len(found.decisions)} sentences")
    if found.pair_accuracy is not None:
        lines.append(f"both of a pair right: {found.pair_accuracy:.1%} of {found.pairs} pairs")
    finish(loaded, "coreference", found, coreference_page(found), lines, out, show, common.json)
