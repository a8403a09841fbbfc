"""The verb `inspect trace`: one text through one model, every number."""

from __future__ import annotations

from pathlib import Path

from seqloom.cli.inspect import Open, finish, inspect, open_text, single_text
from seqloom.cli.options import Common, CommonOptions, Count, Machine, MachineOptions, PagePath, RunPath
from seqloom.errors import UserError


@inspect.command
def trace(
    run: RunPath,
    text: str,
    /,
    *,
    target: str | None = None,
    layer: int | None = None,
    beam: int = 0,
    max_tokens: Count = 16,
    window: Count = 1,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Show every number of one text: q · k, softmax, sum.

    Each value is computed again from its operands, here in double precision, and on the page from the numbers that it shows.

    Examples:
      seqloom inspect trace runs/gpt-input "To be, or not to be"
      seqloom inspect trace runs/demo "A man sleeps." --beam 3
      seqloom inspect trace vectors/cbow "the professor is scribbling"

    Parameters
    ----------
    run
        Run folder, or a folder of word vectors that CBOW learnt.
    text
        Text to read; - is stdin. A tab separates the texts of a pair.
    target
        Translation to look at; default: the run's own.
    layer
        The only layer on the page, counted from 0; default: all, or the first if they are too many for 2 MB.
    beam
        Width of a beam whose probabilities are traced too.
    max_tokens
        Tokens that are read.
    window
        Which part of a longer text is read, from 1.
    out
        Page to write; default: RUN/reports/trace.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.trace_pages import (
        check_layer,
        describe,
        describe_page,
        select,
        trace_page,
        worked_example,
    )
    from seqloom.inspect.trace_values import trace as find

    folder = Path(run)
    if (folder / "vectors.npy").is_file():
        from seqloom.inspect.trace_search import trace_cbow
        from seqloom.vectors.formats import load

        text = single_text(text)
        vectors = load(folder)
        if (method := vectors.meta.get("method", "cbow")) != "cbow":
            raise UserError(
                f"{folder}: these word vectors are of {method}; trace shows CBOW: seqloom vectors train FILE --method cbow"
            )
        width = vectors.meta.get("window")
        found = trace_cbow(vectors.words, vectors.matrix, text, window=width if isinstance(width, int) else 5)
    else:
        loaded, text = open_text(run, text, machine)
        folder = loaded.folder
        found = find(loaded, text, target, beam=beam, max_tokens=max_tokens, window=window)
    check_layer(found, layer)
    lines = [describe(found), *worked_example(found), describe_page(found, select(found, layer))]
    lines += [f"differs: {name}" for name in found.wrong]
    finish(folder, "trace", found, trace_page(found, text, layer), lines, out, show, common.json)
