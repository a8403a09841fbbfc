"""The verbs `inspect beam`, `inspect alignment` and `inspect sound`: how a text was found, and which words or sounds it comes from."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from seqloom.cli.app import json_text
from seqloom.cli.inputs import check_texts, open_run
from seqloom.cli.inspect import Open, finish, inspect, open_text
from seqloom.cli.options import (
    DECODING,
    Common,
    CommonOptions,
    Count,
    Machine,
    MachineOptions,
    PagePath,
    RunPath,
)
from seqloom.cli.outputs import write_pieces

Runs = Annotated[list[Path] | None, Parameter(consume_multiple=False, negative=())]
logger = logging.getLogger("seqloom.cli")


@inspect.command
def beam(
    run: RunPath,
    text: str,
    /,
    *,
    why: str | None = None,
    beam: Annotated[Count | None, Parameter(group=DECODING)] = None,
    length_penalty: Annotated[float | None, Parameter(group=DECODING)] = None,
    max_tokens: Annotated[Count | None, Parameter(group=DECODING)] = None,
    branches: Count = 10,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Show the search tree, and why a text was not found.

    Examples:
      seqloom inspect beam runs/demo "A man sleeps."
      seqloom inspect beam runs/demo "A man sleeps." --why "Un homme dort."
      seqloom inspect beam runs/gpt-input "To be" --beam 3 --max-tokens 20

    Parameters
    ----------
    run
        Run folder of a translator or a language model.
    text
        Text to translate, or to continue.
    why
        A text that the search did not choose: where it was dropped, and whether the search or the model is the cause.
    beam
        Width of the beam; default: the run's own, or 5.
    length_penalty
        α of the length penalty; default: the run's own, 0.6 as a rule.
    max_tokens
        Most tokens of the result; default: the run's own, or 40 for a language model.
    branches
        Continuations of each step that are shown, the pruned ones among them.
    out
        Page to write; default: RUN/reports/beam.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.search_pages import beam_page
    from seqloom.inspect.search_tree import beam as find

    if why is not None:
        check_texts([why], "--why", has_file=False)
    loaded, text = open_text(run, text, machine)
    found = find(
        loaded,
        text,
        why,
        beam=beam,
        length_penalty=length_penalty,
        max_tokens=max_tokens,
        branches=branches,
    )
    lines = list(found.why_lines) or [f"answer  {found.score:9.4f}  {found.answer!r}"]
    pruned = sum(one.status == "pruned" for step in found.steps for one in step)
    lines.append(f"{len(found.steps)} steps with a beam of {found.beam}; {pruned} pruned branches are shown")
    finish(loaded, "beam", found, beam_page(found), lines, out, show, common.json)


@inspect.command
def alignment(
    run: RunPath,
    source: Path,
    target: Path,
    /,
    *,
    format: Literal["pharaoh", "lexicon"] = "pharaoh",
    lexicon: Annotated[Path | None, Parameter(show=False)] = None,
    ensemble: Runs = None,
    out: PagePath = None,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Align two files of translations by a run's attention.

    Prints for each pair of lines which source word each target word comes from, as in 0-0 1-2.

    Examples:
      seqloom inspect alignment runs/demo test.en test.fr
      seqloom inspect alignment runs/demo test.en test.fr --json
      seqloom inspect alignment runs/demo a.en a.fr --format lexicon --out a.tsv

    Parameters
    ----------
    run
        Run folder of a translator.
    source
        File of the source lines.
    target
        File of their translations.
    format
        pharaoh: 0-0 1-2; lexicon: each source word, a tab, the target word that comes from it most often, for translate --lexicon.
    ensemble
        Another run with the same tokenizer; may be repeated.
    out
        The file to write; stdout by default.
    """
    from seqloom.inference.alignment import align_stream, format_pairs
    from seqloom.inference.derived_runs import ensemble as join_runs
    from seqloom.inference.lexicon import learn_lexicon
    from seqloom.inference.translation import check_translates
    from seqloom.text.corpus import Parallel

    if lexicon is not None:
        logger.warning("--lexicon FILE is now --format lexicon --out FILE")
        format, out = "lexicon", lexicon
    loaded = join_runs(*(open_run(folder, machine.threads) for folder in (run, *(ensemble or []))))
    check_translates(loaded, "inspect alignment")
    records = Parallel([source, target])

    def pieces() -> Iterator[str]:
        if format == "lexicon":
            words = learn_lexicon(loaded, records)
            logger.info("%s words", f"{len(words):,}")
            if common.json:
                yield json_text(words) + "\n"
                return
            yield from (f"{word}\t{other}\n" for word, other in words.items())
            return
        for aligned in align_stream(loaded, records):
            report = {"source": aligned.source, "target": aligned.target, **aligned.to_dict()}
            yield f"{json_text(report) if common.json else format_pairs(aligned.words())}\n"

    write_pieces(pieces(), out, "aligning", common.progress)


@inspect.command
def sound(
    run: RunPath,
    file: str,
    /,
    *,
    target: str | None = None,
    out: PagePath = None,
    show: Open = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Show when a recognizer hears each word.

    The page is the spectrogram of a recording, with the words and letters of the most probable alignment beneath.

    Examples:
      seqloom inspect sound runs/ctc-blstm a.wav
      seqloom inspect sound runs/ctc-blstm a.wav --target "the dog sleeps"
      seqloom inspect sound runs/ctc-blstm a.wav --json

    Parameters
    ----------
    run
        Run folder of a recognizer with CTC.
    file
        Sound file, or a file of ready features.
    target
        Text to align; default: the run's own.
    out
        Page to write; default: RUN/reports/sound.html.
    show
        Open the page in the browser.
    """
    from seqloom.inspect.sound_alignment import sound as find
    from seqloom.inspect.sound_alignment import sound_page, summary

    loaded = open_run(run, machine.threads)
    found = find(loaded, file, target)
    finish(loaded, "sound", found, sound_page(found), summary(found), out, show, common.json)
