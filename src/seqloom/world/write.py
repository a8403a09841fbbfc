"""The world on disk: parallel text, tags and scenes, written atomically.

Held-out sentences never occur in train, nor test sentences in valid: a scene whose English was already used
is dropped and the next one is drawn, so that the sizes are exact. Rare sentences are therefore a little more
frequent in valid and test than in the language itself; compare a model's loss with the mean of the scenes'
own log-probabilities, which are in scenes.jsonl.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from seqloom.errors import DataError
from seqloom.files import draft_folder
from seqloom.world.scene import Scene, scene


def write(folder: Path, train: int, valid: int, test: int, seed: int = 0) -> None:
    """Writes {train,valid,test}.{en,fr,tags} and scenes.jsonl
    into a new folder; .tags is the English in CoNLL-U.

    >>> from pathlib import Path
    >>> seqloom.world.write(Path("world"), train=20, valid=5, test=5)
    >>> len(Path("world/train.en").read_text("utf-8").splitlines())
    20
    """
    folder = Path(folder)
    if min(train, valid, test) < 0:
        raise DataError(
            f"world: sizes must not be negative, got train={train}, valid={valid}, test={test}; give 0 or more for each"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder}: exists and is not an empty folder; give a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with draft_folder(folder.parent) as place:
        draft = place / folder.name
        draft.mkdir()
        with open(draft / "scenes.jsonl", "w", encoding="utf-8") as scenes_file:
            for name, scenes in splits(train, valid, test, seed):
                _write_split(draft, name, scenes, scenes_file)
        os.replace(draft, folder)


def splits(train: int, valid: int, test: int, seed: int = 0) -> Iterator[tuple[str, Iterator[Scene]]]:
    """Yields the three splits, to be consumed in order; only train may contain a sentence twice."""
    used: set[str] = set()
    index = 0

    def draw(count: int, unique: bool) -> Iterator[Scene]:
        nonlocal index
        drawn: set[str] = set()
        while count:
            candidate = scene(seed, index)
            index += 1
            if unique and (candidate.english in used or candidate.english in drawn):
                continue
            drawn.add(candidate.english)
            count -= 1
            yield candidate
        used.update(drawn)

    for name, count in (("train", train), ("valid", valid), ("test", test)):
        yield name, draw(count, name != "train")


def conllu(scene: Scene) -> str:
    """Returns a sentence in CoNLL-U: form and universal tag; the other columns are empty."""
    lines = [f"# text = {scene.english}"]
    for i, (word, tag) in enumerate(zip(scene.words, scene.tags, strict=True)):
        form = word[0].upper() + word[1:] if i == 0 else word
        has_no_space_after = i + 1 < len(scene.words) and scene.words[i + 1] in ("n't", ".")
        misc = "SpaceAfter=No" if has_no_space_after else "_"
        lines.append("\t".join((str(i + 1), form, "_", tag, "_", "_", "_", "_", "_", misc)))
    return "\n".join(lines) + "\n\n"


def _write_split(folder: Path, name: str, scenes: Iterator[Scene], scenes_file: TextIO) -> None:
    with (
        open(folder / f"{name}.en", "w", encoding="utf-8") as english,
        open(folder / f"{name}.fr", "w", encoding="utf-8") as french,
        open(folder / f"{name}.tags", "w", encoding="utf-8") as tags,
    ):
        for scene in scenes:
            english.write(scene.english + "\n")
            french.write(scene.french + "\n")
            tags.write(conllu(scene))
            scenes_file.write(json.dumps({"split": name, **scene._asdict()}, ensure_ascii=False) + "\n")
