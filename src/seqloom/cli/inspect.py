"""The verbs `inspect …`: what a trained run does inside, as lines and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from seqloom.cli.app import LOOK, add_group, json_text
from seqloom.cli.inputs import check_texts, open_run, read_texts
from seqloom.cli.options import (
    OUTPUT,
    Common,
    CommonOptions,
    Count,
    Machine,
    MachineOptions,
    PagePath,
    RunPath,
)
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.results import Result
    from seqloom.run import Run

inspect = add_group("inspect", "Look inside a run: attention, gates, every value.", LOOK)
Open = Annotated[bool, Parameter(name="--open", group=OUTPUT)]


@inspect.command
def attention(
    run: RunPath,
    text: str,
    /,
    *,
    target: str | None = None,
    edges: Count = 500,
    max_tokens: Count = 128,
    window: Count = 1,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Show every head's attention, and what its edges do.

    Each weight is shown with its effect: how the model's scores change when that word is hidden from that head.

    Examples:
      seqloom inspect attention runs/demo "The animal was tired."
      seqloom inspect attention runs/gpt-input "To be, or not to be" --edges 2000
      seqloom inspect attention runs/show-attend-tell photo.jpg

    Parameters
    ----------
    run
        Run folder.
    text
        Text to read, - for stdin; a tab separates the texts of a pair. For a model of pictures or sounds, a file.
    target
        Translation, caption or label to look at; default: the run's own.
    edges
        How many of the strongest edges to remove one at a time, and as many drawn at random.
    max_tokens
        Tokens of a longer text that are read at once.
    window
        Which part of a longer text is read, from 1.
    out
        Page to write; default: RUN/reports/attention.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.attention_maps import attention as find
    from seqloom.inspect.pages import attention_page, describe, warning
    from seqloom.report.page import shown_token

    loaded = open_run(run, machine.threads)
    if loaded.model.task == "captioning":
        from seqloom.inference.caption_attention import caption_attention
        from seqloom.inspect.picture_attention import picture_page, summary

        looks = caption_attention(loaded, text, target)
        finish(loaded, "attention", looks, picture_page(looks), summary(looks), out, show, common.json)
        return
    text = single_text(text) if loaded.model.reads == "text" else text
    found = find(
        loaded,
        text,
        target,
        edges=edges,
        seed=machine.seed,
        max_tokens=max_tokens,
        window=window,
        progress=common.progress,
    )
    lines = [describe(found)]
    for edge in sorted(found.edges, key=lambda edge: -abs(edge.effect))[:5]:
        one = next(one for one in found.maps if (one.layer, one.head) == (edge.layer, edge.head))
        queries, keys = found.names(one)
        lines.append(
            f"{edge.layer} {edge.head}: {shown_token(queries[edge.query]).strip()} → {shown_token(keys[edge.key]).strip()} "
            f"{edge.weight:.2f}, "
            f"removing this edge changes {found.score} by {edge.effect:+.3f}"
        )
    lines.append(warning(found))
    finish(loaded, "attention", found, attention_page(found, text), lines, out, show, common.json)


@inspect.command
def gates(
    run: RunPath,
    text: str,
    /,
    *,
    target: str | None = None,
    max_tokens: Count = 512,
    window: Count = 1,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Show what recurrent cells keep, write and read.

    The carry of a word is the share of its memory that is left when the text is read.

    Examples:
      seqloom inspect gates runs/lstm-lm-input "To be, or not to be"
      seqloom inspect gates runs/rnnsearch-world "A man sleeps." --out gates.html
      seqloom inspect gates runs/tagger-news "John sleeps" --json

    Parameters
    ----------
    run
        Run folder.
    text
        Text to read, - for stdin; a tab separates the texts of a pair. For a model of pictures or sounds, a file.
    target
        Translation, transcript or label to look at; default: the run's own.
    max_tokens
        Tokens of a longer text that are read at once, or frames of a sound.
    window
        Which part of a longer text is read, from 1.
    out
        Page to write; default: RUN/reports/gates.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.gate_values import gates as find
    from seqloom.inspect.pages import gates_page

    loaded, text = open_text(run, text, machine)
    found = find(loaded, text, target, max_tokens=max_tokens, window=window)
    lines = [found.window] if found.window else []
    for cell in found.cells:
        means = ", ".join(f"{one.name} {one.values.mean():.2f}" for one in cell.gates if one.role != "value")
        first, share = ("last", -1) if cell.reads_backward else ("first", 0)
        kept = ""
        if cell.carry is not None:
            kept = f"; {cell.carry[share].mean():.3f} of the {first} {found.word} is left when all are read"
        declared = any(one.symbol for one in cell.gates)
        nothing = "no gates" if declared else "no gate is declared; give its points a role in the class"
        lines.append(f"{cell.kind} {cell.cell}: {means or nothing}{kept}")
    finish(loaded, "gates", found, gates_page(found, text), lines, out, show, common.json)


@inspect.command
def activations(
    run: RunPath,
    text: str | None = None,
    /,
    *,
    target: str | None = None,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """List every named value of a run, with its shape.

    The names are those that capture and change take in Python.

    Examples:
      seqloom inspect activations runs/gpt-input
      seqloom inspect activations runs/gpt-input "To be"
      seqloom inspect activations runs/demo "A man sleeps." --json

    Parameters
    ----------
    run
        Run folder.
    text
        Text to read; default: a short one. For a model of pictures or sounds, a file.
    target
        Translation, caption or label to look at; default: the run's own.
    """
    from seqloom.cli.app import print_result
    from seqloom.inspect.named_values import EXAMPLE
    from seqloom.inspect.named_values import activations as find

    loaded, given = open_text(run, EXAMPLE if text is None else text, machine)
    found = find(loaded, given, target)
    width = max(len(value.name) for value in found.values)
    lines = [
        f"{value.name:{width}}  {' × '.join(map(str, value.shape)):18} {value.axes:5} {value.part}: {value.symbol}"
        for value in found.values
    ]
    if found.window:
        lines.insert(0, found.window)
    print_result(found.to_dict(), lines, common.json)


@inspect.command
def patch(
    run: RunPath,
    clean: str,
    corrupted: str,
    /,
    *,
    points: str = "",
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Show which value, moved over, restores an answer.

    Two texts of equal length have different next words. One value after the other of the first is put into the second.

    Examples:
      seqloom inspect patch runs/gpt-input "the q" "the r"
      seqloom inspect patch runs/gpt "he wa" "we we" --points "*.attention"
      seqloom inspect patch runs/lstm-lm-input "you th" "you ar" --json

    Parameters
    ----------
    run
        Run folder of a language model.
    clean
        Text whose answer is to be restored.
    corrupted
        Text with another answer and the same number of tokens.
    points
        Names of the values, * allowed; default: the residual path, or the states of cells.
    out
        Page to write; default: RUN/reports/patch.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.pages import patch_page
    from seqloom.inspect.patching import patch as find

    loaded, clean = open_text(run, clean, machine)
    if loaded.model.reads == "text":
        check_texts([corrupted], has_file=False)
    found = find(loaded, clean, corrupted, points)
    lines = [f"clean: {found.answers[0]!r}, corrupted: {found.answers[1]!r}"]
    for row, name in enumerate(found.points):
        best = int(found.restored[row].argmax())
        lines.append(
            f"{name}: {found.restored[row, best]:.2f} restored at {found.corrupted[best]!r} (position {best})"
        )
    title = f"{clean} / {corrupted}"
    finish(loaded, "patch", found, patch_page(found, title), lines, out, show, common.json)


def single_text(text: str) -> str:
    """The text of the command line, or all of stdin for -."""
    from seqloom.cli.inputs import stdin_lines

    if text == "-":
        text = "\n".join(stdin_lines())
    check_texts([text], has_file=False)
    return text


def open_text(run: Path, text: str, machine: Machine) -> tuple[Run, str]:
    """The run, and the text after it is checked; a model of pictures or sounds reads a file of that name."""
    loaded = open_run(run, machine.threads)
    return loaded, single_text(text) if loaded.model.reads == "text" else text


def run_texts(
    run: Run, texts: tuple[str, ...], files: list[str] | None, example: str, most: int
) -> list[str]:
    """As `some_texts`; the texts of a model of pictures or sounds are names of files."""
    if run.model.reads != "text" and texts and not files:
        return list(texts[:most])
    return some_texts(texts, files, example, most)


def some_texts(texts: tuple[str, ...], files: list[str] | None, example: str, most: int) -> list[str]:
    """The texts of the command line, or the lines of files or stdin that are not empty, at most so many."""
    from itertools import islice

    found = list(islice((line for line in read_texts(texts, files, example) if line.strip()), most))
    if not found:
        raise UserError("no texts: the input has no line with a word")
    return found


def finish(
    run: Run | Path,
    name: str,
    found: Result,
    page: str,
    lines: list[str],
    out: Path | None,
    show: bool,
    json: bool,
) -> None:
    """Writes the page, by default into the folder of the run, which may still be in training, and prints the finding."""
    from seqloom.files import write_atomic
    from seqloom.inspect.pages import report_path

    path = out or report_path(run if isinstance(run, Path) else run.folder, name)
    if out is None:
        path.parent.mkdir(exist_ok=True)
    write_atomic(path, page)
    if json:
        print(json_text({**found.to_dict(), "page": str(path)}), flush=True)
    else:
        print("\n".join([*lines, f"page: {path}"]), flush=True)
    if show:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
