"""The verb transcribe: texts of recordings, with the time of each word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from seqloom.cli.app import USE, app, json_text
from seqloom.cli.inputs import open_run
from seqloom.cli.options import (
    Common,
    CommonOptions,
    Count,
    Kind,
    Machine,
    MachineOptions,
    OutPath,
    Overwrite,
    RunPath,
    complete_run,
)
from seqloom.cli.outputs import check_output, write_pieces
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.run import Run

LIVE_SECONDS = 0.5  # of a piece with --live


@app.command(group=USE)
def transcribe(
    run: RunPath,
    /,
    *files: str,
    format: Literal["txt", "srt", "vtt"] = "txt",
    timestamps: Literal["word"] | None = None,
    beam: Count | None = None,
    lm: Annotated[Path | None, Parameter(completer=complete_run)] = None,
    lm_weight: float = 0.5,
    bonus: float = 0.0,
    n: Count = 1,
    live: bool = False,
    out: OutPath = None,
    overwrite: Overwrite = False,
    quantize: Kind | None = None,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Transcribe recordings, with the time of each word.

    WAV, FLAC, Ogg, AIFF, MP3, or ready features as .npy and .npz. Long recordings are cut at quiet places.

    Examples:
      seqloom transcribe runs/ctc-blstm a.wav b.flac
      seqloom transcribe runs/ctc-blstm talk.wav --format srt --out talk.srt
      seqloom transcribe runs/ctc-blstm a.wav --lm runs/lstm-lm --beam 16

    Parameters
    ----------
    run
        The run folder of a recognizer.
    files
        Sound files, or files of ready features.
    format
        Text, or subtitles.
    timestamps
        word: each word with its time.
    beam
        Prefixes of texts that the search keeps; 1 is the best alignment, 16 with a language model.
    lm
        A language model of any kind, whose run counts in the search.
    lm_weight
        How often ln P of the language model counts.
    bonus
        What every token adds to the score of a text.
    n
        Transcripts of each recording, best first.
    live
        Print the text so far after every half second of sound, as a recognizer does that hears somebody speak.
    out
        The file to write; stdout by default.
    overwrite
        Replace the file that is already there.
    quantize
        int8: one byte per weight, faster to read.
    """
    from seqloom.inference.subtitles import format_transcript
    from seqloom.inference.transcription import make_job, transcribe_all

    check_output(out, overwrite)
    if not files:
        raise UserError("no recordings: give sound files, as in: seqloom transcribe RUN a.wav")
    opened = open_run(run, machine.threads, quantize)
    language_model = None if lm is None else open_run(lm, machine.threads)
    if live:
        write_pieces(live_lines(opened, files, common.json), out, "transcribing", common.progress)
        return
    needs_times = format != "txt" or timestamps is not None or common.json
    if n > 1 and (format != "txt" or timestamps):
        raise UserError("--n: subtitles and times are those of one text; drop --n, or take --format txt")
    job = make_job(opened, beam, language_model, lm_weight, bonus, n, needs_times)
    found = transcribe_all(opened, job, files)
    pieces = (
        json_text(transcript.to_dict()) + "\n"
        if common.json
        else format_transcript(transcript, format, timestamps == "word")
        for transcript in found
    )
    write_pieces(pieces, out, "transcribing", common.progress)


def live_lines(run: Run, files: tuple[str, ...], json: bool) -> Iterator[str]:
    """The text so far, line by line."""
    from seqloom.inference.live_transcription import check_streams, live_texts
    from seqloom.inference.transcription import features_of
    from seqloom.media.sounds import read_blocks

    check_streams(run)
    for file in files:
        for text in live_texts(run, read_blocks(file, features_of(run).rate, LIVE_SECONDS)):
            yield (
                json_text({"file": file, **text.to_dict()}) + "\n"
                if json
                else f"{text.seconds:8.2f}  {text.text}\n"
            )
