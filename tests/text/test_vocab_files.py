"""Vocabularies of JoeyNMT, OpenNMT-py and fairseq give their own ids; binarised data comes back as text."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import seqloom
from seqloom.errors import DataError
from seqloom.text.tokenizer import special_tokens
from seqloom.text.vocab_files import Binarized, VocabFile, read_vocabulary

FILES = {
    "joeynmt": "<unk>\n<pad>\n<s>\n</s>\nthe\nking@@\nqueen\n",
    "opennmt": "the\t120\nking@@\t7\nqueen\t3\n",
    "fairseq": "the 120\nking@@ 7\nqueen 3\n",
}
IDS = {
    "joeynmt": ("unk", "pad", "bos", "eos"),
    "opennmt": ("unk", "pad", "bos", "eos"),
    "fairseq": ("bos", "pad", "eos", "unk"),
}


@pytest.mark.parametrize("form", FILES)
def test_ids_are_those_of_the_toolkit(form: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text(FILES[form], encoding="utf-8")
    assert read_vocabulary(path)[1] == form
    tokenizer = VocabFile([], str(path))
    unknown = IDS[form].index("unk")
    assert tokenizer.encode("the king@@ dog queen", add_special_tokens=False).ids == [4, 5, unknown, 6]
    assert tokenizer.decode([4, 6]) == "the queen"
    specials = special_tokens(tokenizer)
    assert [getattr(specials, role) for role in IDS[form]] == [0, 1, 2, 3]
    assert specials.stop_ids == (IDS[form].index("eos"),)


def test_a_joeynmt_file_without_specials_gets_them_first(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("the\nking\n", encoding="utf-8")
    assert read_vocabulary(path)[0] == ["<unk>", "<pad>", "<s>", "</s>", "the", "king"]


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        ("the 1\nthe 2\n", "fairseq", "is in it twice"),
        ("the king\n", "joeynmt", "is not a token"),
        ("the\n", "opennmt", "not a token, a tab and a count"),
        ("the\n", "fairseq", "not a token, a space and a count"),
    ],
)
def test_a_wrong_vocabulary_is_one_line(text: str, form: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as error:
        read_vocabulary(path, form)  # type: ignore[arg-type]
    assert "vocab.txt:" in str(error.value) and "\n" not in str(error.value)


def binarize(path: Path, rows: list[list[int]]) -> None:
    """As fairseq's MMapIndexedDatasetBuilder does, written from its layout."""
    np.array([index for row in rows for index in row], "<u2").tofile(path)
    sizes = np.array([len(row) for row in rows], "<i4")
    pointers = np.cumsum([0, *(2 * sizes[:-1])]).astype("<i8")
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQ", 1, 8, len(rows))
    path.with_suffix(".idx").write_bytes(header + sizes.tobytes() + pointers.tobytes())


def make(folder: Path) -> list[str]:
    (folder / "dict.de.txt").write_text("der 5\nKönig 3\n", encoding="utf-8")
    (folder / "dict.en.txt").write_text("the 5\nking 3\n", encoding="utf-8")
    binarize(folder / "train.de-en.de.bin", [[4, 5, 2], [5, 3, 2]])
    binarize(folder / "train.de-en.en.bin", [[4, 5, 2], [5, 2]])
    return [str(folder / f"train.de-en.{language}.bin") for language in ("de", "en")]


def test_binarised_pairs_come_back_as_text(tmp_path: Path) -> None:
    paths = make(tmp_path)
    assert list(Binarized(paths)) == [("der König", "the king"), ("König <unk>", "king")]
    assert seqloom.data.show(paths).form == "binarized"


def test_damaged_binaries_are_one_line(tmp_path: Path) -> None:
    paths = make(tmp_path)
    whole = Path(paths[0]).read_bytes()
    index = Path(paths[0]).with_suffix(".idx")
    good = index.read_bytes()
    for path, content, message in [
        (Path(paths[0]), whole[:4], "ends before its last sentence"),
        (index, b"TNTIDX\x00\x00" + good, "not an index of fairseq in the mmap form"),
        (index, good[:30], "damaged, or of another version"),
        (index, good[:18] + struct.pack("<Q", 2**60) + good[26:], "damaged, or of another version"),
        (Path(paths[0]), b"\xff\xff" + whole[2:], "has an id that the dictionary has not"),
    ]:
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            list(Binarized(paths))
        path.write_bytes(before)
    (tmp_path / "dict.de.txt").unlink()
    with pytest.raises(DataError, match=r"dict\.de\.txt is missing"):
        list(Binarized(paths))
    with pytest.raises(DataError, match=r"two \.bin files"):
        Binarized(paths[:1])


def test_a_translator_trains_with_a_foreign_vocabulary(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text(FILES["joeynmt"], encoding="utf-8")
    for name in ("a.src", "a.tgt"):
        (tmp_path / name).write_text("the queen\nking@@ the\nthe the queen\nqueen\n" * 10, encoding="utf-8")
    changes = (
        f"tokenizer={{type: VocabFile, path: {vocabulary}}}",
        "model.dim=16",
        "batches.batch_tokens=200",
    )
    run = seqloom.fit(
        "seq2seq",
        *changes,
        data=[str(tmp_path / "a.src"), str(tmp_path / "a.tgt")],
        out=tmp_path / "run",
        steps=2,
        progress=False,
    )
    assert run.specials.bos == 2 and run.specials.eos == 3 and run.specials.pad == 1
    assert isinstance(seqloom.translate(run, "the queen", max_tokens=3).text, str)
