"""The pictures of the world: what the caption says is what is drawn, where the regions say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from seqloom import world
from seqloom.data.world_pictures import write_pictures
from seqloom.world.drawing import CLEAR, COLOURS, SIDE

PICTURES = [world.drawing(0, index) for index in range(300)]


def test_a_picture_is_a_function_of_seed_and_index():
    again = world.drawing(0, 7)
    assert again.caption == PICTURES[7].caption
    np.testing.assert_array_equal(again.pixels, PICTURES[7].pixels)
    assert not np.array_equal(world.drawing(1, 7).pixels, again.pixels)
    assert again.pixels.shape == (SIDE, SIDE, 3) and again.pixels.dtype == np.uint8


def test_words_describe_their_things():
    for picture in PICTURES:
        assert picture.caption == " ".join(picture.words) + "."
        for number, thing in enumerate(picture.things):
            described = [
                word for word, region in zip(picture.words, picture.regions, strict=True) if region == number
            ]
            assert described == [thing.size, thing.colour, thing.noun]


def test_relations_are_those_of_the_places():
    relations = set()
    for picture in PICTURES:
        if len(picture.things) < 2:
            assert "is" not in picture.words
            continue
        first, second = (np.array(thing.box) for thing in picture.things)
        across, down = ((second - first)[:2] + (second - first)[2:]) / 2
        relation = "left" if "left" in picture.words else "above"
        relations.add(relation)
        assert (across > 0 and across - abs(down) >= CLEAR - 1e-9) == (relation == "left")
        assert (down > 0 and down - abs(across) >= CLEAR - 1e-9) == (relation == "above")
        assert (first[2] <= second[0] + 1e-9) or (first[3] <= second[1] + 1e-9)  # they do not overlap
    assert relations == {"left", "above"}


def test_a_thing_is_drawn_in_its_colour_inside_its_box_and_nothing_outside():
    for picture in PICTURES[:100]:
        outside = np.ones((SIDE, SIDE), bool)
        for thing in picture.things:
            left, top, right, bottom = (round(edge) for edge in thing.box)
            part = picture.pixels[top:bottom, left:right].reshape(-1, 3).astype(float)
            distance = np.abs(part - np.array(COLOURS[thing.colour])).max(1)
            assert (distance < 45).mean() > 0.12, (picture.caption, thing)
            outside[max(top - 1, 0) : bottom + 1, max(left - 1, 0) : right + 1] = False
        background = picture.pixels[outside].astype(float)
        assert background.std(0).max() < 8  # noise alone


def test_files_have_new_captions_in_what_is_held_out(tmp_path: Path):
    write_pictures(tmp_path / "p", {"train": 60, "valid": 10, "test": 20})
    rows = {
        split: [
            line.split("\t") for line in (tmp_path / "p" / f"{split}.captions.tsv").read_text().splitlines()
        ]
        for split in ("train", "valid", "test")
    }
    assert [len(rows[split]) for split in rows] == [60, 10, 20]
    captions = {split: {text for _, text in found} for split, found in rows.items()}
    assert not captions["train"] & captions["test"] and not captions["valid"] & captions["test"]
    regions = {row["file"]: row for row in map(json.loads, (tmp_path / "p" / "regions.jsonl").open())}
    name, text = rows["test"][0]
    assert regions[name]["caption"] == text and len(regions[name]["boxes"]) == len(regions[name]["words"])
