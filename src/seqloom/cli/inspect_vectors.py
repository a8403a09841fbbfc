"""The verbs `inspect tokens`, `geometry`, `similarity` and `contexts`: tokens and vectors of texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seqloom.cli.app import print_result
from seqloom.cli.inputs import open_run
from seqloom.cli.inspect import Open, finish, inspect, open_text, some_texts
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

if TYPE_CHECKING:
    from seqloom.run import Run


@inspect.command
def tokens(
    run: RunPath,
    text: str,
    /,
    *,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Show a text as the tokens that a run reads.

    Examples:
      seqloom inspect tokens runs/demo "A man sleeps."
      seqloom inspect tokens runs/gpt-input "To be"
      seqloom inspect tokens runs/bert-wiki "unbelievable" --json

    Parameters
    ----------
    run
        Run folder.
    text
        Text to cut; of a translator, a source.
    """
    from seqloom.inspect.token_list import tokens as find

    loaded, text = open_text(run, text, machine)
    found = find(loaded, text)
    rows = [
        [str(index), str(one.id), one.piece, one.text, "" if one.start is None else f"{one.start}–{one.end}"]
        for index, one in enumerate(found.tokens)
    ]
    lines = table(["", "id", "piece", "text", "characters"], rows, 0)
    if found.unknown:
        lines.append(f"{found.unknown} of {len(rows)} tokens are unknown to the run")
    print_result(found.to_dict(), lines, common.json)


@inspect.command
def geometry(
    run: RunPath,
    /,
    *runs: Path,
    file: Files = None,
    max_texts: Count = 5000,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Measure the geometry of vectors, layer by layer.

    Anisotropy, self-similarity, intra-sentence similarity and the variance that the first component explains, by layer.

    Examples:
      seqloom inspect geometry runs/gpt-input --file valid.txt
      seqloom inspect geometry runs/elmo runs/bert runs/gpt --file valid.txt
      seqloom inspect geometry runs/demo --file world/valid.en --json

    Parameters
    ----------
    run
        Run folder.
    runs
        More runs, drawn into the same plots.
    file
        Files of texts, one on each line; - or nothing is stdin.
    max_texts
        Texts that are read at most.
    out
        Page to write; default: RUN/reports/geometry.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.layer_vectors import geometry as find
    from seqloom.inspect.vector_pages import (
        CUT_ALIKE,
        MEASURES,
        geometry_page,
        measure,
        measure_title,
        read_line,
        rounded,
    )

    loaded = open_embedding((run, *runs), "geometry", machine)
    texts = some_texts((), file, "seqloom inspect geometry RUN --file texts.txt", max_texts)
    found = find(loaded, texts, progress=common.progress)
    lines = []
    for one in found.runs:
        lines.append(f"{one.run}: {read_line(one)}")
        rows = [[layer.layer, *(rounded(measure(layer, name)) for name in MEASURES)] for layer in one.layers]
        lines += table(["layer", *map(measure_title, MEASURES)], rows)
    if len(loaded) > 1 and any(one.cut for one in found.runs):
        lines.append(CUT_ALIKE)
    finish(loaded[0], "geometry", found, geometry_page(found.runs), lines, out, show, common.json)


@inspect.command
def similarity(
    first: Path,
    second: Path,
    /,
    *,
    file: Files = None,
    estimate: Literal["biased", "debiased"] = "debiased",
    kernel: Literal["linear", "rbf"] = "linear",
    max_texts: Count = 1000,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Compare the layers of two runs, or of one, by CKA.

    Both runs read the same texts; their tokens and sizes may differ, since the mean vectors of texts are compared.

    Examples:
      seqloom inspect similarity runs/gpt runs/llama --file valid.txt
      seqloom inspect similarity runs/gpt runs/gpt --file valid.txt
      seqloom inspect similarity runs/a runs/b --file t.txt --estimate biased

    Parameters
    ----------
    first
        Run folder; its layers are the rows.
    second
        Run folder; its layers are the columns.
    file
        Files of texts, one on each line; - or nothing is stdin.
    estimate
        Estimate of HSIC: biased and debiased are different numbers.
    kernel
        linear, or rbf: Gaussian, of half the median distance.
    max_texts
        Texts that are read at most.
    out
        Page to write; default: FIRST/reports/similarity.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.layer_vectors import similarity as find
    from seqloom.inspect.vector_pages import compared_line, similarity_page

    one, other = open_embedding((first, second), "similarity", machine)
    texts = some_texts((), file, "seqloom inspect similarity A B --file texts.txt", max_texts)
    found = find(one, other, texts, estimate=estimate, kernel=kernel, progress=common.progress)
    numbers = [str(index) for index in range(len(found.columns))]
    read = compared_line(found, str(first), str(second))
    lines = [f"CKA, {found.kernel} kernel, {found.estimate} estimate, {read}"]
    lines += [f"column {index}: {name}" for index, name in enumerate(found.columns)]
    rows = [
        [name, *(f"{value:.3f}" for value in row)] for name, row in zip(found.rows, found.cka, strict=True)
    ]
    lines += table(["", *numbers], rows)
    page = similarity_page(found, str(first), str(second))
    finish(one, "similarity", found, page, lines, out, show, common.json)


@inspect.command
def contexts(
    run: RunPath,
    word: str,
    /,
    *,
    file: Files = None,
    layer: str | None = None,
    limit: Count = 200,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Show one word's vectors in many contexts.

    At the embedding the word has one vector; above it, as many as contexts.

    Examples:
      seqloom inspect contexts runs/demo bank --file world/valid.en
      seqloom inspect contexts runs/gpt king --file plays.txt --limit 100
      seqloom inspect contexts runs/gpt king --file plays.txt --json

    Parameters
    ----------
    run
        Run folder.
    word
        Word to look for, in any case.
    file
        Files of texts, one on each line; - or nothing is stdin.
    layer
        Layer whose vectors are drawn; default: the last.
    limit
        Contexts that are read at most.
    out
        Page to write; default: RUN/reports/contexts.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.vector_pages import contexts_page, excerpt, left_out_line
    from seqloom.inspect.word_contexts import contexts as find

    [loaded] = open_embedding((run,), "contexts", machine)
    texts = some_texts((), file, "seqloom inspect contexts RUN bank --file texts.txt", 1_000_000)
    found = find(loaded, word, texts, layer=layer, limit=limit, progress=common.progress)
    lines = [
        f"{len(found.contexts)} contexts of {found.word!r}; mean cosine of two: {found.static_mean_cosine:.3f} at "
        f"{found.static_layer} (static), {found.mean_cosine:.3f} at {found.layer}"
    ]
    if found.left_out:
        lines.append(left_out_line(found))
    for one in found.contexts[:5]:
        lines.append(f"{excerpt(one, 30)}  is nearest to  {excerpt(found.contexts[one.nearest], 30)}")
    finish(loaded, "contexts", found, contexts_page(found), lines, out, show, common.json)


def open_embedding(folders: Iterable[Path], verb: str, machine: Machine) -> list[Run]:
    """The runs, all of which have vectors of texts."""
    from seqloom.inspect.layer_vectors import require_vectors

    found = [open_run(folder, machine.threads) for folder in folders]
    for run in found:
        require_vectors(run, verb)
    return found
