"""The world's voice on disk: sentences as WAV files, and a table of them with the time of every word."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from seqloom.files import draft_folder
from seqloom.world.voice import speak

SIZES = {"train": 800, "valid": 60, "test": 100}  # sentences
SPEAKERS = {
    "train": (0, 40),
    "valid": (40, 50),
    "test": (50, 60),
}  # the numbers of the voices: no voice is in two parts
MAX_CHARACTERS = 48
TABLE = "recordings.tsv"


def write_recordings(folder: Path, sentences: Mapping[str, list[str]], seed: int = 0) -> None:
    """Writes `folder`/{train,valid,test}/ with a WAV file for each sentence and recordings.tsv: file, text, and the times of the words
    as start-end in seconds."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with draft_folder(folder.parent) as place:
        draft = place / folder.name
        for part, texts in sentences.items():
            (draft / part).mkdir(parents=True)
            first, last = SPEAKERS[part]
            rows = ["file\ttext\ttimes"]
            for index, text in enumerate(texts):
                speech = speak(text, seed, first + index % (last - first))
                name = f"{index:05}.wav"
                (draft / part / name).write_bytes(speech.wav())
                times = " ".join(f"{word.start:g}-{word.end:g}" for word in speech.words)
                rows.append(f"{name}\t{speech.text}\t{times}")
            (draft / part / TABLE).write_text("\n".join(rows) + "\n", encoding="utf-8")
        os.replace(draft, folder)


def short_sentences(lines: list[str], count: int) -> list[str]:
    """The first `count` lines that are short."""
    return [line for line in lines if len(line) <= MAX_CHARACTERS][:count]
