"""The pictures of the built-in world as files: what `--data world` stands for if a model reads pictures."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

from seqloom.files import cache_folder, draft_folder
from seqloom.world.drawing import Drawing, drawing

PICTURES = {"train": 8_000, "valid": 300, "test": 500}


def world_pictures(kinds: tuple[str, ...], split: str = "train") -> list[str]:
    """The list of the world's pictures with captions, or of those of one thing with its name as label; written when it is
    first used. Captions of valid and test with two things do not occur in train."""
    folder = cache_folder() / "world-pictures"
    if not folder.exists():
        write_pictures(folder)
    return [str(folder / f"{split}.{'labels' if kinds[-1] == 'label' else 'captions'}.tsv")]


def write_pictures(folder: Path, sizes: dict[str, int] = PICTURES, seed: int = 0) -> None:
    """Writes images.zip, {train,valid,test}.{captions,labels}.tsv and regions.jsonl into a new folder."""
    from seqloom.media.images import encode_png

    folder.parent.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    index = 0
    with draft_folder(folder.parent) as place:
        draft = place / folder.name
        draft.mkdir()
        with (
            zipfile.ZipFile(draft / "images.zip", "w", zipfile.ZIP_STORED) as images,
            open(draft / "regions.jsonl", "w", encoding="utf-8") as regions,
        ):
            for split, count in sizes.items():
                captions: list[str] = []
                labels: list[str] = []
                new: set[str] = set()
                while len(captions) < count:
                    picture = drawing(seed, index)
                    name = f"{index:06}.png"
                    index += 1
                    if split != "train" and (picture.caption in seen or len(picture.things) == 1):
                        if len(picture.things) > 1 or len(labels) >= count // 4:
                            continue
                    else:
                        captions.append(f"{name}\t{picture.caption}\n")
                    new.add(picture.caption)
                    if len(picture.things) == 1:
                        labels.append(f"{name}\t{picture.things[0].noun}\n")
                    images.writestr(zipfile.ZipInfo(name), encode_png(picture.pixels))
                    regions.write(json.dumps(region_row(split, name, picture)) + "\n")
                seen |= new
                (draft / f"{split}.captions.tsv").write_text("".join(captions), "utf-8")
                (draft / f"{split}.labels.tsv").write_text("".join(labels), "utf-8")
        os.replace(draft, folder)


def region_row(split: str, name: str, picture: Drawing) -> dict[str, object]:
    """What is known of a picture: its words and the box of the thing that each describes."""
    boxes = [None if box is None else [round(edge, 2) for edge in box] for box in picture.word_boxes]
    return {"split": split, "file": name, "caption": picture.caption, "words": picture.words, "boxes": boxes}
