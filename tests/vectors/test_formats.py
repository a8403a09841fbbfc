"""Every form comes back as it went, also through gensim; damage is one sentence with its place; opening a folder reads no matrix."""

import gzip
import json
import os
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.vectors import formats, vector_parser
from seqloom.vectors.vectors import Vectors

# Non-ASCII words, and words that hold white space of Unicode other than a plain space.
WORDS = [
    "the",
    "naïve",
    "日本",
    "a\u00a0b",
    "x\u2028y",
    "\u3000",
    "tab\tbed",
    "emoji😀",
    "5",
    "0.5",
    "-",
    "e\u0301",
    "1e3",
]
FORMS = ["word2vec", "binary", "glove"]


def some(words: list[str] = WORDS, dim: int = 7) -> Vectors:
    matrix = np.random.default_rng(1).normal(size=(len(words), dim)).astype(np.float32)
    matrix[0, :3] = [0, 1e-30, -123456.789]
    return Vectors(words, matrix)


def equal(one: Vectors, other: Vectors) -> None:
    assert list(one.words) == list(other.words)
    np.testing.assert_array_equal(one.matrix, other.matrix)


@pytest.mark.parametrize("form", ["folder", *FORMS])
def test_a_form_comes_back_bit_for_bit(form: str, tmp_path: Path):
    formats.save(some(), tmp_path / "v", form)
    equal(formats.load(tmp_path / "v"), some())


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_ours_and_we_read_gensims(binary: bool, tmp_path: Path):
    formats.save(some(), tmp_path / "ours", "binary" if binary else "word2vec")
    theirs = KeyedVectors.load_word2vec_format(tmp_path / "ours", binary=binary)
    assert theirs.index_to_key == WORDS
    np.testing.assert_array_equal(theirs.vectors, some().matrix)
    theirs.save_word2vec_format(tmp_path / "theirs", binary=binary)
    assert formats.open_stream(tmp_path / "theirs").format == ("binary" if binary else "word2vec")
    equal(formats.load(tmp_path / "theirs"), some())


def test_gensim_reads_our_glove_form(tmp_path: Path):
    formats.save(some(), tmp_path / "ours", "glove")
    theirs = KeyedVectors.load_word2vec_format(tmp_path / "ours", no_header=True)
    assert theirs.index_to_key == WORDS
    np.testing.assert_array_equal(theirs.vectors, some().matrix)


@pytest.mark.parametrize("source", ["folder", *FORMS])
@pytest.mark.parametrize("target", ["folder", *FORMS])
def test_any_form_converts_to_any_other(source: str, target: str, tmp_path: Path):
    formats.save(some(), tmp_path / "one", source)
    assert formats.convert(tmp_path / "one", tmp_path / "two", target) == source
    equal(formats.load(tmp_path / "two"), some())


def test_small_blocks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for form in FORMS:
        formats.save(some(), tmp_path / form, form)
    monkeypatch.setattr(vector_parser, "BLOCK", 50)
    for form in FORMS:
        equal(formats.load(tmp_path / form), some())


def test_packed_files_and_windows_lines_and_trailing_spaces_are_read(tmp_path: Path):
    formats.save(some(), tmp_path / "a", "word2vec")
    formats.save(some(), tmp_path / "b", "binary")
    for name in "ab":
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        equal(formats.load(tmp_path / f"{name}.gz"), some())
    text = (tmp_path / "a").read_bytes()
    (tmp_path / "crlf").write_bytes(text.replace(b"\n", b"\r\n"))
    (tmp_path / "spaces").write_bytes(text.replace(b"\n", b" \n"))
    (tmp_path / "open").write_bytes(text.removesuffix(b"\n"))
    (tmp_path / "bare").write_bytes(
        (tmp_path / "b").read_bytes().replace(b"\n", b"").replace(b"13 7", b"13 7\n")
    )
    for name in ("crlf", "spaces", "open"):
        equal(formats.load(tmp_path / name), some())


def test_words_with_spaces_of_glove_files_are_read(tmp_path: Path):
    (tmp_path / "a").write_text("the 1 2 3\n. . . 4 5 6\nat name@domain.com 7 8 9\n", "utf-8")
    found = formats.load(tmp_path / "a")
    assert found.words == ["the", ". . .", "at name@domain.com"] and found.matrix.tolist() == [
        [1, 2, 3],
        [4, 5, 6],
        [7, 8, 9],
    ]


@pytest.mark.parametrize("form", FORMS)
def test_converting_needs_no_memory_for_the_whole_matrix(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """8 MB of numbers pass through blocks of 0.1 MB in under 3 MB."""
    formats.save(some([f"w{number}" for number in range(2000)], 1000), tmp_path / "v", form)
    monkeypatch.setattr(vector_parser, "BLOCK", 100_000)
    tracemalloc.start()
    formats.convert(tmp_path / "v", tmp_path / "folder")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000 and (tmp_path / "folder" / "vectors.npy").stat().st_size > 8_000_000


@pytest.mark.parametrize("form", FORMS)
def test_vectors_of_very_many_numbers_are_recognised(form: str, tmp_path: Path):
    expected = some(["one", "two"], 9000)
    formats.save(expected, tmp_path / "v", form)
    assert formats.open_stream(tmp_path / "v").format == form
    equal(formats.load(tmp_path / "v"), expected)


def test_of_equal_words_the_first_is_kept(tmp_path: Path):
    (tmp_path / "a").write_text("3 2\na 1 2\nb 3 4\na 5 6\n", "utf-8")
    found = formats.load(tmp_path / "a")
    assert found.words == ["a", "b"] and found.matrix.tolist() == [[1, 2], [3, 4]]
    formats.convert(tmp_path / "a", tmp_path / "b", "binary")
    equal(formats.load(tmp_path / "b"), found)


def test_a_packed_number_that_reads_like_text_is_no_text(tmp_path: Path):
    expected = Vectors(["w", "x"], np.array([[3953208695193600.0], [3953208695193600.0]], dtype=np.float32))
    formats.save(expected, tmp_path / "v", "binary")
    equal(formats.load(tmp_path / "v"), expected)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=12),
    st.sampled_from(FORMS),
)
def test_every_float_comes_back(tmp_path_factory: pytest.TempPathFactory, numbers: list[float], form: str):
    folder = tmp_path_factory.mktemp("v")
    expected = Vectors(["w", "x"], np.array([numbers, numbers[::-1]], dtype=np.float32))
    formats.save(expected, folder / "v", form)
    equal(formats.load(folder / "v"), expected)


GOOD = b"2 3\nab 1 2 3\ncd 4 5 6\n"
PACKED = (
    b"2 3\nab " + np.arange(3, dtype="<f4").tobytes() + b"\ncd " + np.arange(3, dtype="<f4").tobytes() + b"\n"
)
DAMAGED = {
    "empty": (b"", ["empty"]),
    "too few words": (GOOD.replace(b"2 3\n", b"5 3\n", 1), ["file:3", "5 words", "has 2"]),
    "too many words": (GOOD.replace(b"2 3\n", b"1 3\n", 1), ["file:3", "1 words", "has 2"]),
    "a number too few": (GOOD.replace(b"4 5 6", b"4 5"), ["file:3", "2 numbers, not 3"]),
    "a number too many": (GOOD.replace(b"4 5 6", b"4 5 6 7"), ["file:3", "4 numbers, not 3"]),
    "a number too many and one too few": (b"ab 1 2 3\ncd 4 5 6 7\nef 8 9\n", ["file:2", "4 numbers, not 3"]),
    "no number": (GOOD.replace(b"5", b"5x"), ["file:3", "'5x' is not a number"]),
    "no number on the first line": (GOOD.replace(b"1 2", b"1 2x"), ["file:2", "'2x' is not a number"]),
    "NaN": (GOOD.replace(b"5", b"nan"), ["file:3", "not finite"]),
    "infinity": (GOOD.replace(b"5", b"-inf"), ["file:3", "not finite"]),
    "not UTF-8": (GOOD.replace(b"cd", b"c\xe9"), ["file:3", "UTF-8", "0xe9"]),
    "short binary": (PACKED[:-6], ["word 2", "ends within"]),
    "binary with one word of two": (PACKED[:19], ["word 2", "ends within"]),
    "binary with bytes to spare": (PACKED + b"more", ["4 bytes or more"]),
    "binary with NaN": (
        PACKED.replace(np.float32(2).tobytes(), np.float32(np.nan).tobytes()),
        ["word 1", "not finite"],
    ),
    "binary with a word not UTF-8": (PACKED.replace(b"cd", b"c\xe9"), ["word 2", "UTF-8"]),
    "no vectors at all": (b"Once upon a time\nthere was\n", ["file:1", "neither"]),
    "fastText's model": ((793712314).to_bytes(4, "little") + bytes(90), [".vec"]),
    "header alone": (b"4 5\n", ["file:1", "promises 4"]),
    "no words promised": (b"0 5\n", ["promises 0"]),
    "cut gzip": (gzip.compress(GOOD * 99)[:30], ["file"]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_a_sentence_with_its_place(name: str, tmp_path: Path):
    data, parts = DAMAGED[name]
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ValueError) as caught:
        formats.load(tmp_path / "file")
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_the_undamaged_files_of_these_tests_are_read(tmp_path: Path):
    for data in (GOOD, PACKED):
        (tmp_path / "file").write_bytes(data)
        assert formats.load(tmp_path / "file").words == ["ab", "cd"]


def test_missing_and_damaged_folders_are_sentences(tmp_path: Path):
    with pytest.raises(ValueError, match="no such file"):
        formats.load(tmp_path / "none")
    with pytest.raises(ValueError, match=r"no meta\.json that seqloom wrote"):
        formats.load(tmp_path)
    formats.save(some(), tmp_path / "v")
    (tmp_path / "v" / "words.txt").write_text("one\ntwo\n", "utf-8")
    with pytest.raises(ValueError, match="2 words"):
        formats.load(tmp_path / "v")
    os.truncate(tmp_path / "v" / "vectors.npy", 140)
    with pytest.raises(ValueError, match="damaged"):
        formats.load(tmp_path / "v")


def test_what_exists_is_not_written_over_and_nothing_is_left_behind(tmp_path: Path):
    (tmp_path / "here").write_text("precious", "utf-8")
    for form in ("folder", *FORMS):
        with pytest.raises(ValueError, match="exists already"):
            formats.save(some(), tmp_path / "here", form)
    spaced = Vectors(["good", "two words"], np.eye(2, dtype=np.float32))
    for form in FORMS:
        with pytest.raises(ValueError, match="'two words' cannot be stored"):
            formats.save(spaced, tmp_path / "new", form)
    with pytest.raises(ValueError, match="line end"):
        formats.save(Vectors(["a\nb"], np.eye(1, dtype=np.float32)), tmp_path / "new")
    assert os.listdir(tmp_path) == ["here"] and (tmp_path / "here").read_text("utf-8") == "precious"


def test_opening_a_folder_reads_no_matrix(tmp_path: Path):
    """A matrix of 6 GB that is not on the disk (a sparse file) opens, answers for single rows and takes no memory."""
    words, dim = 3, 500_000_000
    formats.save(some(["a", "b", "c"], 4), tmp_path / "v")
    with open(tmp_path / "v" / "vectors.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (words, dim)}
        )
        start = file.tell()
        file.truncate(start + 4 * words * dim)
        file.seek(start + 4 * dim)
        file.write(np.float32(2.5).tobytes())

    def resident() -> int:
        pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    found = formats.load(tmp_path / "v")
    assert found.matrix[1, 0] == 2.5 and found.matrix[2, dim - 1] == 0
    assert resident() - before < 50_000_000


def test_what_is_known_of_vectors_is_kept(tmp_path: Path):
    about = {"method": "skip-gram", "losses": [2.5, 1.25], "window": 5}
    formats.save(Vectors(["é"], np.eye(1, dtype=np.float32), about), tmp_path / "v")
    found = formats.load(tmp_path / "v")
    assert found.meta == about
    assert json.loads((tmp_path / "v" / "meta.json").read_text("utf-8"))["dim"] == 1
    assert found.conditions() == {"words": 1, "dim": 1, "method": "skip-gram", "window": 5}


@pytest.mark.data
def test_the_real_glove_file_reads_as_gensim_reads_it(real_data: Path):
    path = real_data / "weights" / "glove_top20k" / "glove.6B.100d.top20k.txt.gz"
    ours, theirs = formats.load(path), KeyedVectors.load_word2vec_format(path, no_header=True, limit=2000)
    assert len(ours) == 20_000 and ours.words[:2000] == theirs.index_to_key
    np.testing.assert_array_equal(ours.matrix[:2000], theirs.vectors)


def test_numbers_are_read_as_python_reads_them():
    """Every way to write a number: signs, up to 25 digits on either side of the point, exponents."""
    rng = random.Random(0)

    def digits(most: int) -> str:
        return "".join(rng.choices("0123456789", k=rng.randint(1, most)))

    written = [
        "0",
        "-0",
        "+1.",
        ".5",
        "9007199254740993",
        "1e22",
        "1e-22",
        "1e23",
        "3e38",
        "1e-45",
        "16777217",
        "0.3000000119",
    ]
    for _ in range(4000):
        most = rng.choice([3, 9, 25])
        number = rng.choice(
            [digits(most), digits(most) + ".", "." + digits(most), f"{digits(most)}.{digits(most)}"]
        )
        power = rng.choice("eE") + rng.choice(["", "+", "-"]) + digits(2)
        written.append(rng.choice(["", "-", "+"]) + number + rng.choice(["", "", power]))
    with np.errstate(over="ignore"):
        expected = np.array([float(one) for one in written]).astype(np.float32)
    ours = vector_parser._parse_numbers("file", " ".join(written).encode(), 1, len(written), 1)[0]
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(
    "field", ["", ".", "-", "1e", "1e+", "e5", "1.2.3", "0x10", "1,5", "--1", "1_000_", "five"]
)
def test_what_is_no_number_is_refused(field: str):
    with pytest.raises(ValueError, match=r"file:1: .* is not a number"):
        vector_parser._parse_numbers("file", f"1 {field} 2".encode(), 1, 3, 1)
