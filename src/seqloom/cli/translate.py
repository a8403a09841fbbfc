"""Translate lines, documents, PO and TMX files."""

from __future__ import annotations

import json as jsons
import sys
from collections.abc import Iterator
from pathlib import Path

from seqloom.cli.app import app, opened


@app.command
def translate(
    run: Path,
    file: Path | None = None,
    /,
    *,
    beam: int = 5,
    penalty: float = 0.6,
    nbest: int = 1,
    why: str | None = None,
    source: str | None = None,
    target: str | None = None,
    out: Path | None = None,
    threads: int | None = None,
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
    why
        A translation of the one line given: say why it is not the answer.
    source
        Source language of a TMX file (its header's by default).
    target
        Target language of a TMX file.
    out
        The file to write; stdout by default.
    threads
        CPU threads.
    json
        One JSON object for each line, with scores.
    """
    from seqloom import files
    from seqloom.translate import formats, reason, stream
    from seqloom.translate import translate as work

    loaded = opened(run, threads)
    if why is not None:
        text = " ".join(line.rstrip("\r\n") for line in read(file)).strip()
        report, lines = reason(loaded, text, why, beam, penalty)
        print(jsons.dumps(report, ensure_ascii=False) if json else "\n".join(lines))
        return
    kind = file.suffix.lower() if file else ""
    if kind in (".po", ".tmx"):

        def whole(texts: list[str]) -> list[str]:
            return [found[0].text for found in work(loaded, texts, beam, penalty)]

        if kind == ".tmx" and not target:
            raise ValueError(f"{file}: say which language to add, as in --target de")
        written = formats.po(file, whole) if kind == ".po" else formats.tmx(file, whole, source, target)
        if out:
            files.write_whole(out, written)
        else:
            print(written, end="")
        return

    def shown() -> Iterator[str]:
        for line, found in stream(loaded, read(file), beam, penalty, nbest):
            if json:
                yield jsons.dumps({"source": line, "translations": [one._asdict() for one in found]}, ensure_ascii=False)
            else:
                yield "\t".join(one.text for one in found)

    if out:
        files.write_whole(out, "".join(f"{line}\n" for line in shown()))
        return
    for line in shown():
        print(line, flush=True)


def read(file: Path | None) -> Iterator[str]:
    """The lines of a file (.gz too), or of stdin as they come."""
    from seqloom.text.lines import lines

    if file is None or str(file) == "-":
        try:
            yield from sys.stdin
        except UnicodeDecodeError as error:
            raise ValueError(f"stdin: byte {error.start} is not UTF-8; convert the text to UTF-8") from None
    else:
        yield from lines(file)
