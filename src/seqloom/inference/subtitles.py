"""Transcripts as subtitles: SubRip (.srt) and WebVTT (.vtt)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from seqloom.errors import UserError
from seqloom.inference.transcription import SpokenWord, Transcript

SubtitleFormat = Literal["txt", "srt", "vtt"]
MAX_CHARACTERS = 42  # of a subtitle
MAX_SECONDS = 6.0
MAX_PAUSE = 1.0  # seconds between two words of one subtitle


def format_transcript(transcript: Transcript, form: SubtitleFormat, timestamps: bool = False) -> str:
    """A transcript as a line of text, or as subtitles; with `timestamps` one word to a line or subtitle."""
    if form == "txt":
        if not timestamps:
            return "\t".join(output.text for output in transcript.outputs) + "\n"
        return "".join(
            f"{clock(start)}\t{clock(end)}\t{word.text}\n" for word, start, end in timed(transcript)
        )
    groups = [[item] for item in timed(transcript)] if timestamps else list(cues(timed(transcript)))
    comma = form == "srt"
    lines = [] if comma else ["WEBVTT", ""]
    for number, group in enumerate(groups, 1):
        span = f"{clock(group[0][1], comma)} --> {clock(group[-1][2], comma)}"
        text = " ".join(word.text for word, _, _ in group)
        lines += [*([str(number)] if comma else []), span, text, ""]
    return "\n".join(lines) + ("\n" if lines else "")


Timed = tuple[SpokenWord, float, float]


def timed(transcript: Transcript) -> list[Timed]:
    """The words with their times; raises if the model has none."""
    words: list[Timed] = []
    for word in transcript.words:
        if word.start is None or word.end is None:
            raise UserError(
                f"{transcript.file}: this model gives words no times; use a run of ctc-blstm, ctc-lstm or recognizer-transformer"
            )
        words.append((word, word.start, word.end))
    return words


def cues(words: Sequence[Timed]) -> Iterator[list[Timed]]:
    """Words in groups that are read together: short, and without a pause inside."""
    group: list[Timed] = []
    for item in words:
        if group:
            characters = sum(len(word.text) + 1 for word, _, _ in group) + len(item[0].text)
            too_long = characters > MAX_CHARACTERS or item[2] - group[0][1] > MAX_SECONDS
            if too_long or item[1] - group[-1][2] > MAX_PAUSE:
                yield group
                group = []
        group.append(item)
    if group:
        yield group


def clock(seconds: float, comma: bool = False) -> str:
    """Seconds as 00:01:02.345."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours:02}:{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"
    return text.replace(".", ",") if comma else text
