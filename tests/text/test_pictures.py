"""Lists of pictures in every form give the same records; a wrong row is named."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seqloom.errors import DataError
from seqloom.text import records
from seqloom.text.pictures import Pictures
from seqloom.text.records import RecordSchema
from seqloom.text.split import record_keys
from seqloom.text.store import build, in_memory_store
from seqloom.text.tokenizer import Words

NAMES = ("a.png", "b.png", "c.png")
CAPTIONS = {"a.png": ["a red square", "red all over"], "b.png": ["a green square"], "c.png": ["a blue one"]}


def png(number: int) -> bytes:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[..., number] = 200
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three pictures and their captions in every form."""
    for number, name in enumerate(NAMES):
        (tmp_path / name).write_bytes(png(number))
    rows = [(name, text) for name in NAMES for text in CAPTIONS[name]]
    (tmp_path / "captions.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in rows), "utf-8")
    lines = [json.dumps({"file": name, "captions": CAPTIONS[name]}) for name in NAMES]
    (tmp_path / "list.jsonl").write_text("\n".join(lines), "utf-8")
    coco = {
        "images": [{"id": 10 + number, "file_name": name} for number, name in enumerate(NAMES)],
        "annotations": [
            {"image_id": 10 + NAMES.index(name), "id": number, "caption": text}
            for number, (name, text) in enumerate(rows)
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco), "utf-8")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in (*NAMES, "captions.tsv"):
            archive.write(tmp_path / name, name)
    return tmp_path


def read(reader: Pictures) -> list[tuple[str, list[str], list[int]]]:
    return [(picture.name, texts, picture.array().mean((0, 1)).tolist()) for picture, texts in reader]


EXPECTED = [
    (name, CAPTIONS[name], [200.0 if channel == number else 0.0 for channel in range(3)])
    for number, name in enumerate(NAMES)
]


@pytest.mark.parametrize("name", ["captions.tsv", "list.jsonl", "coco.json", "all.zip", "."])
def test_every_form_of_a_list_gives_the_same_records(folder: Path, name: str):
    assert read(Pictures([folder / name], size=8)) == EXPECTED


def test_rows_of_one_picture_need_not_be_together(folder: Path):
    (folder / "mixed.tsv").write_text("file\tcaption\nb.png\tone\na.png\ttwo\nb.png\tthree\n", "utf-8")
    found = [(picture.name, texts) for picture, texts in Pictures([folder / "mixed.tsv"])]
    assert found == [("b.png", ["one", "three"]), ("a.png", ["two"])]


def test_numbered_names_are_one_picture(folder: Path):
    (folder / "flickr.tsv").write_text("a.png#0\tone\na.png#1\ttwo\n", "utf-8")
    assert [texts for _, texts in Pictures([folder / "flickr.tsv"])] == [["one", "two"]]


@pytest.mark.parametrize("place", ["images", "images.zip", "elsewhere"])
def test_pictures_may_be_beside_their_list(folder: Path, tmp_path: Path, place: str):
    other = tmp_path / "lists"
    other.mkdir()
    (other / "train.tsv").write_text("a.png\tone\n", "utf-8")
    if place == "images.zip":
        with zipfile.ZipFile(other / place, "w") as archive:
            archive.write(folder / "a.png", "a.png")
    else:
        (other / place).mkdir()
        (other / place / "a.png").write_bytes(png(0))
    files = "elsewhere" if place == "elsewhere" else None
    assert len(read(Pictures([other / "train.tsv"], size=8, files=files))) == 1


def test_labels_are_a_column_or_folders(folder: Path, tmp_path: Path):
    (folder / "labels.tsv").write_text("a.png\twarm\nb.png\tcold\n", "utf-8")
    kinds = ("image", "label")
    assert [label for _, label in Pictures([folder / "labels.tsv"], kinds=kinds)] == ["warm", "cold"]
    for number, label in enumerate(("cold", "warm")):
        (tmp_path / "sorted" / label).mkdir(parents=True)
        (tmp_path / "sorted" / label / "x.png").write_bytes(png(number))
    found = [(picture.name, label) for picture, label in Pictures([tmp_path / "sorted"], kinds=kinds)]
    assert found == [("cold/x.png", "cold"), ("warm/x.png", "warm")]


def test_training_a_tokenizer_decodes_no_picture(folder: Path):
    reader = Pictures([folder / "captions.tsv"])
    (folder / "a.png").write_bytes(b"broken")
    assert sum(1 for _ in records.iter_texts(reader)) == 4


def test_the_digest_depends_on_pixels_texts_and_options(folder: Path):
    def digest(**options: object) -> str:
        return Pictures([folder / "captions.tsv"], **options).digest()

    first = digest()
    assert digest() == first and digest(size=32) != first and digest(fit="pad") != first
    (folder / "b.png").write_bytes(png(2))
    assert digest() != first


def test_the_store_has_pixels_and_captions_as_they_are(folder: Path, tmp_path: Path):
    reader = Pictures([folder / "captions.tsv"], size=8)
    tokenizer = Words(records.iter_texts(reader), size=50)
    sizes: list[int] = []
    store = build(reader, tokenizer, tmp_path / "cache", progress=sizes.append)
    assert sum(sizes) >= sum(picture.array().size for picture, _ in reader)  # not of the captions alone
    assert store.names == ("pixel_shape", "pixels", "caption_ends", "captions") and len(store) == 3
    for number, (_, texts, _) in enumerate(EXPECTED):
        shape, pixels, ends, ids = store[number]
        np.testing.assert_array_equal(
            pixels.reshape(*shape, 3), np.asarray(Image.open(io.BytesIO(png(number))))
        )
        found = [ids[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        eos = store.specials.eos
        assert [row.tolist() for row in found] == [
            [*tokenizer.encode(text, add_special_tokens=False).ids, eos] for text in texts
        ]
    memory = in_memory_store(
        [(picture, texts) for picture, texts in reader],
        RecordSchema(reader.kinds, [tokenizer], True, []),
    )
    for one, other in zip(store.fields, memory.fields, strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)
        np.testing.assert_array_equal(one.offsets, other.offsets)
    # a line end after each caption: those of one picture, and that of the record
    total = sum(len(text) + 1 for texts in CAPTIONS.values() for text in texts)
    assert store.fields[-1].num_bytes + len(store) == total


def test_equal_pictures_are_on_one_side_of_a_split(folder: Path):
    (folder / "copy.png").write_bytes(png(0))
    (folder / "two.tsv").write_text("a.png\tone\ncopy.png\ttwo\nb.png\tthree\n", "utf-8")
    keys = record_keys(Pictures([folder / "two.tsv"]))
    assert keys[0] == keys[1] != keys[2]


# Wrong files


def error(folder: Path, name: str, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        read(Pictures([folder / name], size=8, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "row, message",
    [
        ("nowhere.png\ta cat", "list.tsv:2: there is no picture nowhere.png in"),
        ("a.png\t ", "list.tsv:2: a.png has an empty text; write one"),
        ("a.png", "list.tsv:2: 1 cells instead of 2; write file, tab, text"),
        ("a.png\tone\ttwo", "list.tsv:2: 3 cells instead of 2"),
        ("\ta cat", "list.tsv:2: no picture is named"),
        ("../a.png\ta cat", "list.tsv:2: '../a.png' leads out of"),
        ("text.png\ta cat", "list.tsv:2: text.png: not a picture, but a PDF"),
    ],
)
def test_a_wrong_row_is_named(folder: Path, row: str, message: str):
    (folder / "text.png").write_bytes(b"%PDF-1.4")
    (folder / "list.tsv").write_text(f"b.png\tfine\n{row}\n", "utf-8")
    assert message in error(folder, "list.tsv")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("list.jsonl", '{"file": "a.png"}', "list.jsonl:1: no file with a text"),
        ("list.jsonl", '{"file": "a.png", "caption": true}', "the text of a.png is not text"),
        ("list.json", "{", "not JSON"),
        ("list.json", '{"data": []}', 'not a COCO file; it has "images" and "annotations"'),
        (
            "list.json",
            '{"images": [], "annotations": [{"image_id": 3}]}',
            "annotation 1: no caption of an image",
        ),
    ],
)
def test_a_wrong_json_list_is_one_line(folder: Path, name: str, content: str, message: str):
    (folder / name).write_text(content, "utf-8")
    assert message in error(folder, name)


def test_a_zip_that_is_empty_damaged_or_leads_out_is_refused(folder: Path):
    with zipfile.ZipFile(folder / "empty.zip", "w"):
        pass
    assert "empty.zip: the zip holds no files" in error(folder, "empty.zip")
    (folder / "broken.zip").write_bytes((folder / "all.zip").read_bytes()[:100])
    assert "broken.zip: not a zip, or damaged" in error(folder, "broken.zip")
    for name in ("../../evil.png", "/etc/evil.png", "c:\\evil.png"):
        with zipfile.ZipFile(folder / "slip.zip", "w") as archive:
            archive.writestr(name, png(0))
        assert "leads out of the zip" in error(folder, "slip.zip")
    with zipfile.ZipFile(folder / "bare.zip", "w") as archive:
        archive.writestr("a.png", png(0))
    assert "there is no captions.tsv or" in error(folder, "bare.zip")


def test_a_damaged_member_of_a_zip_is_named(folder: Path):
    data = bytearray((folder / "all.zip").read_bytes())
    position = data.index(b"IHDR")
    data[position + 6] ^= 0xFF
    (folder / "bad.zip").write_bytes(data)
    assert "a.png cannot be read" in error(folder, "bad.zip")


@pytest.mark.parametrize("size", [0, [8], [8, 8, 8], 5000])
def test_a_wrong_size_is_refused(folder: Path, size: object):
    with pytest.raises(DataError, match="give one number of pixels, or height and width"):
        Pictures([folder / "captions.tsv"], size=size)
