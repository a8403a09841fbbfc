"""The words' verbs, from the command line: what they print, and one clear line with exit code 2 for what is wrong, nothing lost."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from seqloom.cli import main
from seqloom.vectors import formats, word2vec
from seqloom.vectors.training import LowercasedLines, VectorOptions, train
from seqloom.vectors.vectors import Vectors

WORDS = [
    "the",
    "a",
    "old",
    "young",
    "king",
    "queen",
    "dog",
    "cat",
    "river",
    "street",
    "sees",
    "hears",
    "finds",
    "and",
    "but",
    "then",
    "never",
]


def sentences(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(count)]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    words = ["man", "king", "woman", "queen", "river", "bank"]
    rows = np.array(
        [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [-1, 0.2, 0.1], [-1, 0, 0.3]], dtype=np.float32
    )
    formats.save(Vectors(words, rows, {"kind": "by hand"}), tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("kind", ["skip-gram", "cbow", "glove", "ppmi-svd"])
def test_each_kind_trains_from_a_file_into_a_folder(
    kind: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    main(
        [
            "vectors",
            "train",
            str(text),
            "--kind",
            kind,
            "--dim",
            "8",
            "--epochs",
            "2",
            "--threads",
            "1",
            "--out",
            str(tmp_path / "v"),
            "--json",
        ]
    )
    out, err = capsys.readouterr()
    report, found = json.loads(out), formats.load(tmp_path / "v")
    assert (
        report["kind"] == kind == found.meta["kind"]
        and report["source"] == "text"
        and len(found) == 17
        and found.dim == 8
    )
    assert np.isfinite(found.matrix).all() and "%" in err
    assert len(report.get("losses", [1, 2])) == 2 and report["corpus words"] == len(
        text.read_text("utf-8").split()
    )
    main(["vectors", "nearest", str(tmp_path / "v"), "king", "--count", "3"])
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_training_is_word2vecs_own_and_the_same_for_a_seed(text: Path, tmp_path: Path):
    for name in ("one", "two"):
        main(
            [
                "vectors",
                "train",
                str(text),
                "--dim",
                "8",
                "--epochs",
                "2",
                "--reproducible",
                "--seed",
                "3",
                "--out",
                str(tmp_path / name),
            ]
        )
    one, two = (formats.load(tmp_path / name) for name in ("one", "two"))
    np.testing.assert_array_equal(one.matrix, two.matrix)
    own = word2vec.train(text, word2vec.Word2VecOptions(dim=8, epochs=2), reproducible=True, seed=3)
    np.testing.assert_array_equal(one.matrix, own.vectors)
    assert one.meta["losses"] == own.losses and list(one.words) == own.vocabulary.words


def test_bank_has_one_vector_between_its_two_meanings(tmp_path: Path, capsys: pytest.CaptureFixture):
    """The world's "bank" is where money is and where rivers flow; its one vector leans to both, far more than "cat" does  [A13, X25]."""
    main(["vectors", "train", "world", "--dim", "30", "--threads", "1", "--out", str(tmp_path / "v")])
    found = formats.load(tmp_path / "v")
    assert found.words.count("bank") == 1
    capsys.readouterr()
    main(["vectors", "nearest", str(tmp_path / "v"), "bank", "--count", "25", "--json"])
    near = {row["word"] for row in json.loads(capsys.readouterr().out)["bank"]}
    assert near & {"deposit", "deposits", "deposited", "money", "account", "borrow", "borrowed"}
    assert near & {"muddy", "river", "rivers", "banks", "lake", "stream"}
    for other in ("money", "river"):
        assert found.similarity("bank", other) > found.similarity("cat", other)


def test_subwords_give_an_unseen_word_a_vector_also_from_the_disk(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import seqloom.vectors.training as module

    monkeypatch.setattr(module, "Subwords", lambda: module_subwords(buckets=2000))
    from seqloom.vectors.subwords import Subwords as module_subwords

    found = train(text, VectorOptions(dim=8, epochs=2, subwords=True), reproducible=True)
    formats.save(found, tmp_path / "v")
    again = formats.load(tmp_path / "v")
    options = word2vec.Word2VecOptions(dim=8, epochs=2, subwords=module_subwords(buckets=2000))
    own = word2vec.train(text, options, reproducible=True)
    for word in ("king", "kings", "unheard"):
        np.testing.assert_allclose(again[word], own.vector(word), atol=1e-6)
    assert again.nearest("kings", 1)[0][0] in again.words
    assert [word for word, _ in again.nearest("king", 3)] == [word for word, _ in found.nearest("king", 3)]


def test_lower_case_reads_raw_text(tmp_path: Path):
    (tmp_path / "a").write_text("The King's dog, the KING.\n", "utf-8")
    assert list(LowercasedLines([tmp_path / "a"])) == [["the", "king's", "dog", ",", "the", "king", "."]]


def test_questions_are_answered(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    main(["vectors", "analogy", str(saved), "man", "king", "woman", "--count", "1"])
    assert capsys.readouterr().out.split()[1] == "queen"
    main(["vectors", "nearest", str(saved), "bank", "king", "--count", "1"])
    assert capsys.readouterr().out.split() == [
        "bank",
        f"{1.03 / (1.05 * 1.09) ** 0.5:.4f}",
        "river",
        "king",
        f"{2 / 6**0.5:.4f}",
        "queen",
    ]
    (tmp_path / "pairs.tsv").write_text(
        "man\twoman\t8\nking\tqueen\t9\nriver\tking\t1\nman\tbank\t2\nman\tnobody\t2\n", "utf-8"
    )
    (tmp_path / "questions.txt").write_text(": royal\nman king woman queen\n: unknown\na b c d\n", "utf-8")
    main(["vectors", "evaluate", str(saved), str(tmp_path / "pairs.tsv"), str(tmp_path / "questions.txt")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Spearman pairs") and lines[0].endswith("4 of 5")
    assert (
        lines[1].split()[:2] == ["royal", "1.0000"]
        and lines[2].split()[:2] == ["unknown", "–"]
        and lines[3].endswith("1 of 2")
    )
    assert any(line.startswith("spearman|cosine|pairs:4/5") and "kind:by hand" in line for line in lines)
    main(["vectors", "map", str(saved), str(tmp_path / "map.html"), "--json"])
    assert json.loads(capsys.readouterr().out)["words"] == 6 and (tmp_path / "map.html").exists()
    main(["vectors", "convert", str(saved), str(tmp_path / "v.bin"), "--form", "binary"])
    main(["vectors", "convert", str(tmp_path / "v.bin"), str(tmp_path / "again")])
    np.testing.assert_array_equal(formats.load(tmp_path / "again").matrix, formats.load(saved).matrix)


@pytest.fixture
def labelled(tmp_path: Path) -> list[str]:
    paths = []
    for name, seed in (("train", 0), ("test", 1)):
        lines = [
            ("royal " if "king" in line or "queen" in line else "common ") + line
            for line in sentences(250, seed)
        ]
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
        paths.append(str(tmp_path / name))
    return paths


def test_the_table_has_every_classifier_over_every_feature_set(
    labelled: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
):
    main(["classify", *labelled, "--dim", "6", "--out", str(tmp_path / "kept"), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (
        len(report["numbers"]) == 3 * 7 and len({number["signature"] for number in report["numbers"]}) == 21
    )
    best = next(number for number in report["numbers"] if number["name"] == report["best"])
    assert best["value"] > 0.9 and best["held"] == max(number["held"] for number in report["numbers"])
    main(["classify", "predict", str(tmp_path / "kept"), "the queen sees a cat", "a dog and a cat"])
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["royal", "common"]


def test_the_table_is_readable(labelled: list[str], tmp_path: Path, capsys: pytest.CaptureFixture):
    formats.save(
        Vectors(["king", "queen", "dog"], np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)),
        tmp_path / "v.vec",
        "word2vec",
    )
    main(["classify", *labelled, "--quick", "--vectors", str(tmp_path / "v.vec")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:4]] == ["bag of words", "TF-IDF", "v.vec averaged"]
    assert all(line.count("[") == 3 for line in lines[1:4]) and "250 training texts" in lines[4]


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def good(p: Path) -> str:
    return write(p / "good.txt", "\n".join(sentences(200)))


def small(p: Path) -> str:
    return write(p / "v.vec", "2 2\nriver 1 2\nbank 3 4\n")


WRONG: dict[str, tuple[Callable[[Path], list[str]], list[str]]] = {
    "no files": (lambda p: ["vectors", "train"], ["FILE"]),
    "missing file": (
        lambda p: ["vectors", "train", str(p / "none"), "--out", str(p / "o")],
        ["none", "no such file"],
    ),
    "empty corpus": (lambda p: ["vectors", "train", write(p / "a", ""), "--out", str(p / "o")], ["empty"]),
    "blank corpus": (
        lambda p: ["vectors", "train", write(p / "a", " \n\n"), "--out", str(p / "o")],
        ["no words"],
    ),
    "one-word corpus": (
        lambda p: ["vectors", "train", write(p / "a", "hum " * 50), "--out", str(p / "o")],
        ["one word", "'hum'"],
    ),
    "one-word corpus, glove": (
        lambda p: ["vectors", "train", write(p / "a", "hum " * 50), "--kind", "glove", "--out", str(p / "o")],
        ["one word"],
    ),
    "a word a line": (
        lambda p: ["vectors", "train", write(p / "a", "hum\nho\n" * 50), "--out", str(p / "o")],
        ["no word has a context"],
    ),
    "no word above the minimum": (
        lambda p: ["vectors", "train", good(p), "--minimum", "5000", "--out", str(p / "o")],
        ["5000 times", "--minimum"],
    ),
    "binary file": (
        lambda p: ["vectors", "train", write(p / "a", bytes(range(256)) * 9), "--out", str(p / "o")],
        ["a:1", "NUL"],
    ),
    "a folder as text": (lambda p: ["vectors", "train", str(p), "--out", str(p / "o")], ["folder"]),
    "existing out": (lambda p: ["vectors", "train", good(p), "--out", str(p)], ["exists", "--out"]),
    "out in a file": (
        lambda p: ["vectors", "train", good(p), "--out", good(p) + "/o"],
        ["good.txt/o", "cannot be written"],
    ),
    "dim 0": (lambda p: ["vectors", "train", good(p), "--dim", "0", "--out", str(p / "o")], ["--dim"]),
    "more singular vectors than words": (
        lambda p: ["vectors", "train", good(p), "--kind", "ppmi-svd", "--dim", "90", "--out", str(p / "o")],
        ["90", "16"],
    ),
    "unknown kind": (lambda p: ["vectors", "train", good(p), "--kind", "elmo"], ["elmo", "skip-gram"]),
    "subwords of glove": (
        lambda p: ["vectors", "train", good(p), "--kind", "glove", "--subwords", "--out", str(p / "o")],
        ["glove", "subwords"],
    ),
    "unknown word": (lambda p: ["vectors", "nearest", small(p), "rivre"], ["'rivre'", "river"]),
    "unknown word of an analogy": (
        lambda p: ["vectors", "analogy", small(p), "river", "bank", "bnak"],
        ["'bnak'", "bank"],
    ),
    "no word": (lambda p: ["vectors", "nearest", small(p)], ["no word"]),
    "missing vectors": (lambda p: ["vectors", "nearest", str(p / "none"), "a"], ["none", "no such file"]),
    "no vectors in a file": (lambda p: ["vectors", "nearest", good(p), "a"], ["good.txt:1", "neither"]),
    "cut vectors": (
        lambda p: ["vectors", "nearest", write(p / "v", "3 2\na 1 2\nb 3 4\n"), "a"],
        ["v:3", "3 words"],
    ),
    "existing map": (lambda p: ["vectors", "map", small(p), good(p)], ["good.txt", "exists"]),
    "existing target": (lambda p: ["vectors", "convert", small(p), good(p)], ["good.txt", "exists"]),
    "nothing to measure on": (lambda p: ["vectors", "evaluate", small(p)], ["file"]),
    "one label": (
        lambda p: ["classify", write(p / "a", "x one\nx two\n"), write(p / "b", "x one\n")],
        ["one label"],
    ),
    "existing classifier": (
        lambda p: ["classify", write(p / "a", "x one\ny two\n"), write(p / "b", "x one\n"), "--out", str(p)],
        ["exists"],
    ),
    "no classifier": (lambda p: ["classify", "predict", str(p), "a text"], ["no classifier"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_line_and_nothing_is_lost(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    make, parts = WRONG[name]
    arguments = make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert caught.value.code == 2 and last.startswith("seqloom: ") and not out and "Traceback" not in err
    for part in parts:
        assert part in last
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "o").exists() and not [one for one in os.listdir(tmp_path) if one.startswith(".")]


def test_help_loads_neither_torch_nor_numba_nor_scikit_learn():
    code = "import sys; from seqloom.cli import main\ntry: main(['vectors', 'train', '--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'numba', 'sklearn', 'scipy', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]" and "--reproducible" in done.stdout
