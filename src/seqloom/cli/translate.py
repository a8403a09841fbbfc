"""Verbs: translate lines, documents, PO and TMX files; align existing translations; split a pronouncing dictionary."""

from __future__ import annotations

import json as jsons
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from seqloom.cli.app import Count, Kind, Threads, app, need_text, open_run, print_result, stdin_lines

if TYPE_CHECKING:
    from seqloom.inference.translation import Translation

Runs = Annotated[list[Path] | None, Parameter(consume_multiple=True)]


@app.command
def translate(
    run: Path,
    file: Path | None = None,
    /,
    *,
    beam: Count = 5,
    penalty: float = 0.6,
    nbest: Count = 1,
    coverage: float = 0.0,
    ensemble: Runs = None,
    align: bool = False,
    unk: Literal["ban", "replace"] = "ban",
    lexicon: Path | None = None,
    why: str | None = None,
    source: str | None = None,
    target: str | None = None,
    out: Path | None = None,
    quantize: Kind | None = None,
    workers: Count = 1,
    threads: Threads = None,
    json: bool = False,
) -> None:
    """Translate a text line by line, a PO catalogue or a TMX memory; without a file, stdin to stdout. Tags and placeholders are kept.

    Parameters
    ----------
    run
        The run folder.
    file
        Plain text, .po or .tmx; - or nothing is stdin.
    beam
        Width of the beam search; 1 is greedy.
    penalty
        Length penalty of the beam.
    nbest
        How many translations of each line, separated by tabs.
    coverage
        Coverage penalty of the beam: above 0 it prefers translations that attend to all of the source; 0.2 is usual.
    ensemble
        More runs with the same tokenizer: their probabilities are averaged.
    align
        Add which source word each word comes from, as in ||| 0-0 1-2, read from attention.
    unk
        replace: unknown words are generated and replaced by the source word they attend to, or by the lexicon's word for it.
    lexicon
        A file with a word, a tab and its translation on each line; means --unk replace.
    why
        A translation of the one input line: explain why the search did not choose it.
    source
        Source language of a TMX file (its header's by default).
    target
        Target language of a TMX file.
    out
        The file to write; stdout by default.
    quantize
        int8: one byte per weight, faster to read.
    workers
        How many workers share the lines, one thread each: faster than more threads if there are many lines.
    threads
        CPU threads.
    json
        One JSON object for each line, with scores.
    """
    from seqloom import files
    from seqloom.inference import po_tmx
    from seqloom.inference.generation import ensemble as join_runs
    from seqloom.inference.lexicon import read_lexicon
    from seqloom.inference.search_report import explain_translation
    from seqloom.inference.translation import TranslateOptions, translate_stream, translate_with

    words = read_lexicon(lexicon) if lexicon else {} if unk == "replace" else None
    options = TranslateOptions(beam, penalty, nbest, coverage, align, words, workers)
    loaded = join_runs([open_run(folder, threads, quantize) for folder in (run, *(ensemble or []))])
    if why is not None:
        if coverage or words is not None:
            raise ValueError("--why supports neither --coverage nor --unk replace: drop them")
        need_text([why], "--why")
        text = " ".join(line.rstrip("\r\n") for line in read(file)).strip()
        report, lines = explain_translation(loaded, text, why, beam, penalty)
        print(jsons.dumps(report, ensure_ascii=False) if json else "\n".join(lines))
        return

    def translate_texts(texts: list[str]) -> list[str]:
        best = translate_with(loaded, texts, options._replace(n=1, align=False))
        return [translations[0].text for translations in best]

    suffix = file.suffix.lower() if file else ""
    if file is not None and suffix in (".po", ".tmx"):
        if suffix == ".po":
            written = po_tmx.po(file, translate_texts)
        elif target:
            written = po_tmx.tmx(file, translate_texts, source, target)
        else:
            raise ValueError(f"{file}: no language to add: pass it as in --target de")
        if out:
            files.write_atomic(out, written)
        else:
            print(written, end="")
        return

    def output_lines() -> Iterator[str]:
        for line, translations in translate_stream(loaded, read(file), options):
            if json:
                reports = [report_of(translation) for translation in translations]
                yield jsons.dumps({"source": line, "translations": reports}, ensure_ascii=False)
            else:
                yield "\t".join(line_of(translation) for translation in translations)

    if out:
        files.write_atomic(out, "".join(f"{line}\n" for line in output_lines()))
        return
    for line in output_lines():
        print(line, flush=True)


@app.command
def align(
    run: Path,
    source: Path,
    target: Path,
    /,
    *,
    lexicon: Path | None = None,
    ensemble: Runs = None,
    threads: Threads = None,
    json: bool = False,
) -> None:
    """Align two files of translations line by line, by a run's attention: source word-target word, as in 0-0 1-2.

    Parameters
    ----------
    run
        The run folder.
    source
        The source lines.
    target
        Their translations.
    lexicon
        Write each source word with the target word that comes from it most often to this file, for `translate --lexicon`; prints nothing.
    ensemble
        More runs with the same tokenizer.
    threads
        CPU threads.
    json
        One JSON object for each line, with tokens.
    """
    from seqloom import files
    from seqloom.inference.alignment import align_stream, format_pairs
    from seqloom.inference.generation import ensemble as join_runs
    from seqloom.inference.lexicon import learn_lexicon
    from seqloom.text.corpus import Parallel

    loaded = join_runs([open_run(folder, threads) for folder in (run, *(ensemble or []))])
    if loaded.model.continues:
        raise ValueError(
            f"{run}: the run is a language model; align with a run of transformer, rnnsearch or the like"
        )
    records = Parallel([source, target])
    if lexicon:
        words = learn_lexicon(loaded, records)
        files.write_atomic(lexicon, "".join(f"{word}\t{other}\n" for word, other in words.items()))
        print(f"{len(words):,} words: {lexicon}", file=sys.stderr)
        return
    for aligned in align_stream(loaded, records):
        if json:
            report = {"source": aligned.source, "target": aligned.target, **aligned.json()}
            print(jsons.dumps(report, ensure_ascii=False))
        else:
            print(format_pairs(aligned.words()))


@app.command
def dictionary(file: Path, /, *, out: Path = Path("data/g2p"), json: bool = False) -> None:
    """Cut a pronouncing dictionary by word into train.dict, valid.dict and test.dict, to train g2p on.

    Parameters
    ----------
    file
        The CMU dictionary in either of its formats, or a similar one; .gz is read too.
    out
        The folder to write to.
    json
        Print the counts as JSON.
    """
    from seqloom.text.dictionary import split

    counts = split(file, out)
    print_result(
        {"folder": str(out), "words": counts},
        [f"{count:8,} words: {out / name}.dict" for name, count in counts.items()],
        json,
    )


def report_of(translation: Translation) -> dict[str, Any]:
    """A translation as JSON."""
    report = {
        "text": translation.text,
        "log_probability": translation.log_probability,
        "score": translation.score,
        "finished": translation.finished,
    }
    return {**report, "alignment": translation.alignment.json()} if translation.alignment else report


def line_of(translation: Translation) -> str:
    """A translation as text, with its alignment if it has one."""
    from seqloom.inference.alignment import format_pairs

    if translation.alignment is None:
        return translation.text
    return f"{translation.text} ||| {format_pairs(translation.alignment.words())}"


def read(file: Path | None) -> Iterator[str]:
    """The lines of a file (.gz too), or of stdin as they come."""
    from seqloom.text.lines import lines

    if file is None or str(file) == "-":
        yield from stdin_lines()
    else:
        yield from lines(file)
