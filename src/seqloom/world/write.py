"""The world on disk: parallel text, tags and scenes, whole or not at all.

Held-out sentences never occur in train, nor test sentences in valid: a scene whose English was already used is dropped and the next one
is drawn, so the sizes are as asked. Rare sentences are therefore a little commoner in valid and test than in the language itself; the
floor to set beside a model's loss is the mean of the scenes' own log-probabilities, which scenes.jsonl holds.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from seqloom.world.scene import Scene, scene


def write(folder: Path, train: int, valid: int, test: int, seed: int = 0) -> None:
    """Write {train,valid,test}.{en,fr,tags} and scenes.jsonl into a new folder; .tags is CoNLL-U for the English."""
    folder = Path(folder)
    if min(train, valid, test) < 0:
        raise ValueError(
            f"world: sizes must not be negative, got train={train}, valid={valid}, test={test}; ask for 0 or more of each"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: exists and is not an empty folder; give a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        os.chmod(draft, 0o755)  # mkdtemp keeps others out
        with open(draft / "scenes.jsonl", "w", encoding="utf-8") as record:
            for name, found in splits(train, valid, test, seed):
                _write_split(draft, name, found, record)
        os.replace(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def splits(train: int, valid: int, test: int, seed: int = 0) -> Iterator[tuple[str, Iterator[Scene]]]:
    """The three splits, to be consumed in order; only the first may repeat itself."""
    used: set[str] = set()
    place = 0

    def take(count: int, fresh: bool) -> Iterator[Scene]:
        nonlocal place
        mine: set[str] = set()
        while count:
            found = scene(seed, place)
            place += 1
            if fresh and (found.english in used or found.english in mine):
                continue
            mine.add(found.english)
            count -= 1
            yield found
        used.update(mine)

    for name, count in (("train", train), ("valid", valid), ("test", test)):
        yield name, take(count, name != "train")


def conllu(scene: Scene) -> str:
    """A sentence in CoNLL-U: form and universal tag; the columns this world does not know stay empty."""
    lines = [f"# text = {scene.english}"]
    for i, (word, tag) in enumerate(zip(scene.words, scene.tags, strict=True)):
        form = word[0].upper() + word[1:] if i == 0 else word
        glued = i + 1 < len(scene.words) and scene.words[i + 1] in ("n't", ".")
        lines.append(
            "\t".join(
                (str(i + 1), form, "_", tag, "_", "_", "_", "_", "_", "SpaceAfter=No" if glued else "_")
            )
        )
    return "\n".join(lines) + "\n\n"


def _write_split(folder: Path, name: str, found: Iterator[Scene], record) -> None:
    with (
        open(folder / f"{name}.en", "w", encoding="utf-8") as english,
        open(folder / f"{name}.fr", "w", encoding="utf-8") as french,
        open(folder / f"{name}.tags", "w", encoding="utf-8") as tags,
    ):
        for one in found:
            english.write(one.english + "\n")
            french.write(one.french + "\n")
            tags.write(conllu(one))
            record.write(json.dumps({"split": name, **one._asdict()}, ensure_ascii=False) + "\n")
