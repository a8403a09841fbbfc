"""Verb: describe pictures."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from seqloom.cli.app import USE, app, json_text
from seqloom.cli.decoding_options import Captioning, CaptioningOptions
from seqloom.cli.inputs import open_run
from seqloom.cli.options import (
    Common,
    CommonOptions,
    Kind,
    Machine,
    MachineOptions,
    OutPath,
    Overwrite,
    RunPath,
)
from seqloom.cli.outputs import check_output, write_pieces
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.inference.captioning import Caption
    from seqloom.run import Run

logger = logging.getLogger("seqloom.cli")
Runs = Annotated[list[Path] | None, Parameter(consume_multiple=False, metavar="RUN")]
PICTURES = 64  # pictures that are described together


@app.command(group=USE)
def caption(
    run: RunPath,
    /,
    *pictures: str,
    decoding: CaptioningOptions = Captioning(),
    ensemble: Runs = None,
    rank: Path | None = None,
    out: OutPath = None,
    overwrite: Overwrite = False,
    quantize: Kind | None = None,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Describe pictures, or find the caption of a picture.

    Each line is a file, a tab and its caption; with --n the next best captions follow, between tabs.

    Examples:
      seqloom caption runs/show-attend-tell photo.jpg
      seqloom caption runs/show-attend-tell photo.jpg scan.png --beam 5 --n 3
      seqloom caption runs/show-attend-tell photo.jpg --rank captions.txt --json

    Parameters
    ----------
    run
        The run folder.
    pictures
        Picture files: JPEG, PNG, GIF, BMP, WEBP, TIFF or PPM.
    ensemble
        Another run with the same tokenizer, whose probabilities are averaged with the first; may be repeated.
    rank
        A file with a caption on each line: they are ranked by ln P(caption | picture) instead of writing one.
    out
        The file to write; stdout by default.
    overwrite
        Replace the file that is already there.
    quantize
        int8: one byte per weight, faster to read.
    """
    from seqloom.inference.captioning import check_captions
    from seqloom.inference.derived_runs import ensemble as join_runs

    check_output(out, overwrite)
    if not pictures:
        raise UserError("no picture to describe; give files, as in: seqloom caption RUN photo.jpg")
    loaded = join_runs(*(open_run(folder, machine.threads, quantize) for folder in (run, *(ensemble or []))))
    check_captions(loaded)
    if rank is not None:
        pieces = rank_lines(loaded, pictures, rank, common.json)
    else:
        pieces = caption_lines(loaded, pictures, decoding, machine.seed, common.json)
    write_pieces(pieces, out, "captioning", common.progress)


def caption_lines(
    run: Run, pictures: Sequence[str], options: Captioning, seed: int, json: bool
) -> Iterator[str]:
    """A line for each picture. All pictures are checked to be there before the first is described."""
    from seqloom.decoding import Decoding
    from seqloom.inference.captioning import caption_pictures

    plan = Decoding().with_options(options.options(seed)).plan(run.decoding)
    check_files(pictures)
    empty = 0
    for start in range(0, len(pictures), PICTURES):
        for found in caption_pictures(run, plan, pictures[start : start + PICTURES]):
            empty += not found.text.strip()
            yield format_caption(found, json) + "\n"
    if empty:
        logger.warning(
            "%s: %d of %d captions are empty: the model ends them at once; train it longer, or try --beam 1",
            run.folder,
            empty,
            len(pictures),
        )


def rank_lines(run: Run, pictures: Sequence[str], file: Path, json: bool) -> Iterator[str]:
    """For each picture, the captions of a file, the most probable first."""
    from seqloom.inference.captioning import rank_captions
    from seqloom.text.lines import lines

    captions = [line for line in lines(file) if line.strip()]
    check_files(pictures)
    for picture in pictures:
        ranked = rank_captions(run, picture, captions)
        if json:
            yield json_text({"file": picture, "captions": [found.to_dict() for found in ranked]}) + "\n"
        else:
            yield from (f"{picture}\t{found.logprob:.4f}\t{found.text}\n" for found in ranked)


def check_files(pictures: Sequence[str]) -> None:
    """Raises if one of the files does not exist."""
    for picture in pictures:
        if not Path(picture).exists():
            raise UserError(f"{picture}: there is no such file; give a picture that exists")


def format_caption(found: Caption, json: bool) -> str:
    """A picture with its captions as JSON, or between tabs."""
    if json:
        return json_text(found.to_dict())
    return "\t".join([found.file, *(output.text for output in found.outputs)])
