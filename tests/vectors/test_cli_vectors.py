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
from seqloom.vectors.training import LowercasedLines, train
from seqloom.vectors.vectors import Vectors
from support.words import WORDS


def sentences(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(count)]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    words = ["man", "king", "woman", "queen", "river", "bank"]
    rows = np.array(
        [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [-1, 0.2, 0.1], [-1, 0, 0.3]], dtype=np.float32
    )
    formats.save(Vectors(words, rows, {"method": "by hand"}), tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("method", ["skip-gram", "cbow", "glove", "ppmi-svd"])
def test_each_method_trains_from_a_file_into_a_folder(
    method: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    out = str(tmp_path / "v")
    options = ["--method", method, "--dim", "8", "--epochs", "2", "--threads", "1", "--out", out, "--json"]
    main(["vectors", "train", str(text), *options])
    out, err = capsys.readouterr()
    report, found = json.loads(out), formats.load(tmp_path / "v")
    assert report["method"] == method == found.meta["method"] and report["source"] == "text"
    assert report["vectors"] == str(tmp_path / "v") and len(found) == report["words"] == 17 and found.dim == 8
    assert np.isfinite(found.matrix).all() and "vocabulary 17" in err
    assert len(report.get("losses", [1, 2])) == 2
    assert report["corpus_words"] == len(text.read_text("utf-8").split())
    main(["vectors", "nearest", str(tmp_path / "v"), "king", "--top", "3"])
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
    main(["vectors", "nearest", str(tmp_path / "v"), "bank", "--top", "25", "--json"])
    near = {row["word"] for row in json.loads(capsys.readouterr().out)["nearest"]}
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

    found = train(text, dim=8, epochs=2, subwords=True, reproducible=True, progress=False)
    formats.save(found, tmp_path / "v")
    again = formats.load(tmp_path / "v")
    options = word2vec.Word2VecOptions(dim=8, epochs=2, subwords=module_subwords(buckets=2000))
    own = word2vec.train(text, options, reproducible=True)
    for word in ("king", "kings", "unheard"):
        np.testing.assert_allclose(again[word], own.vector(word), atol=1e-6)
    assert again.nearest("kings", 1)[0].word in again.words
    assert [word for word, _ in again.nearest("king", 3)] == [word for word, _ in found.nearest("king", 3)]


def test_lower_case_reads_raw_text(tmp_path: Path):
    (tmp_path / "a").write_text("The King's dog, the KING.\n", "utf-8")
    assert list(LowercasedLines([tmp_path / "a"])) == [["the", "king's", "dog", ",", "the", "king", "."]]


def test_punctuation_at_the_ends_of_words_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "a.txt"
    path.write_text("Where is the king? The king, he said, is here.\n" * 10, "utf-8")
    for lowercase in (False, True):
        train(str(path), dim=2, epochs=1, threads=1, lowercase=lowercase, progress=False)
    (warning,) = caplog.messages
    assert warning.startswith(
        "a: 40 % of the words end in punctuation, such as 'king?', 'king,'; --lowercase"
    )


def test_questions_are_answered(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    main(["vectors", "analogy", str(saved), "man", "king", "woman", "--top", "1"])
    assert capsys.readouterr().out.split()[1] == "queen"
    main(["vectors", "nearest", str(saved), "bank", "king", "--top", "1"])
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
    assert any(line.startswith("spearman|cosine|pairs:4/5") and "method:by hand" in line for line in lines)
    main(["vectors", "map", str(saved), "--out", str(tmp_path / "map.html"), "--json"])
    assert json.loads(capsys.readouterr().out)["words"] == 6 and (tmp_path / "map.html").exists()
    main(["vectors", "convert", str(saved), "--out", str(tmp_path / "v.bin")])
    main(["vectors", "convert", str(tmp_path / "v.bin"), "--out", str(tmp_path / "again")])
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


def test_the_old_verb_makes_the_table_of_classical_runs(
    labelled: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
):
    """Lines of a label and a text are read as ever; the rows are runs."""
    main(["classify", *labelled, "--quick", "--out", str(tmp_path / "study"), "--json"])
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert "compare classical" in told.err and len(report["rows"]) == 6 and not report["failed"]
    assert report["rows"][0]["metrics"]["accuracy"] > 90
    runs = sorted((tmp_path / "study" / "runs").glob("*/seed-0"))
    main(["predict", str(runs[0]), "the queen sees a cat", "a dog and a cat"])
    assert [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()] == ["royal", "common"]


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def good(p: Path) -> str:
    return write(p / "good.txt", "\n".join(sentences(200)))


def small(p: Path) -> str:
    return write(p / "v.vec", "2 2\nriver 1 2\nbank 3 4\n")


def run_in(p: Path) -> str:
    write(p / "config.yaml", "seqloom: 2\n")
    return str(p)


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
        lambda p: [
            "vectors",
            "train",
            write(p / "a", "hum " * 50),
            "--method",
            "glove",
            "--out",
            str(p / "o"),
        ],
        ["one word"],
    ),
    "a word a line": (
        lambda p: ["vectors", "train", write(p / "a", "hum\nho\n" * 50), "--out", str(p / "o")],
        ["no word has a context"],
    ),
    "no word above the minimum": (
        lambda p: ["vectors", "train", good(p), "--min-count", "5000", "--out", str(p / "o")],
        ["5000 times", "--min-count"],
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
        lambda p: ["vectors", "train", good(p), "--method", "ppmi-svd", "--dim", "90", "--out", str(p / "o")],
        ["90", "16"],
    ),
    "unknown kind": (lambda p: ["vectors", "train", good(p), "--method", "elmo"], ["elmo", "skip-gram"]),
    "subwords of glove": (
        lambda p: ["vectors", "train", good(p), "--method", "glove", "--subwords", "--out", str(p / "o")],
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
    "existing map": (
        lambda p: ["vectors", "map", small(p), "--out", write(p / "m.html", "x")],
        ["m.html", "exists", "m-2.html"],
    ),
    "existing target": (lambda p: ["vectors", "convert", small(p), "--out", good(p)], ["good.txt", "exists"]),
    "a map as PNG": (
        lambda p: ["vectors", "map", small(p), "--out", str(p / "map.png")],
        ["map.png", ".html or .svg"],
    ),
    "an unknown ending": (
        lambda p: ["vectors", "convert", small(p), "--out", str(p / "v.kv")],
        ["v.kv", ".txt, .vec or .bin", "--format"],
    ),
    "nowhere to write": (lambda p: ["vectors", "convert", small(p)], ["--out"]),
    "a folder called like a file": (
        lambda p: ["vectors", "train", good(p), "--out", str(p / "o.txt")],
        ["o.txt", "a folder", "seqloom vectors convert"],
    ),
    "a foreign folder": (
        lambda p: ["vectors", "train", good(p), "--out", str(p), "--overwrite"],
        ["a folder without vectors is not overwritten"],
    ),
    "a pickle": (
        lambda p: ["vectors", "nearest", write(p / "v.kv", b"\x80\x04K\x01."), "a"],
        ["v.kv", "pickle", "save_word2vec_format"],
    ),
    "damaged npz": (
        lambda p: ["vectors", "nearest", write(p / "v.npz", b"PK\x03\x04 not a zip"), "a"],
        ["v.npz", "words and vectors"],
    ),
    "memory without a unit": (
        lambda p: ["vectors", "train", good(p), "--memory", "512", "--out", str(p / "o")],
        ["--memory 512MB"],
    ),
    "no negatives below 0": (
        lambda p: ["vectors", "train", good(p), "--negative", "-1", "--out", str(p / "o")],
        ["--negative is -1"],
    ),
    "one word has no neighbour": (
        lambda p: ["vectors", "nearest", write(p / "v", "1 2\nriver 1 2\n"), "river"],
        ["only one word", "no neighbour"],
    ),
    "an analogy among three words": (
        lambda p: ["vectors", "analogy", write(p / "v", "3 1\na 1\nb 2\nc 3\n"), "a", "b", "c"],
        ["only 3 words", "no answer"],
    ),
    "empty vectors": (lambda p: ["vectors", "nearest", write(p / "v", ""), "a"], ["v", "empty"]),
    "an empty benchmark": (
        lambda p: ["vectors", "evaluate", small(p), write(p / "b", "")],
        ["b", "empty"],
    ),
    "a sentence for a file": (
        lambda p: ["vectors", "train", "the cat sat", "--out", str(p / "o")],
        ["the cat sat", "no such file"],
    ),
    "nothing to measure on": (lambda p: ["vectors", "evaluate", small(p)], ["file"]),
    "a run for an old classifier": (
        lambda p: ["classify", "predict", run_in(p), "a text"],
        ["seqloom predict", "'a text'"],
    ),
    "a run and a text for two files": (
        lambda p: ["classify", run_in(p), "a text"],
        ["seqloom predict", "'a text'"],
    ),
    "one file to classify": (lambda p: ["classify", small(p)], ["compare classical"]),
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


def test_a_name_in_txt_is_a_file_in_word2vecs_text(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    """The fault: `convert X vec.txt` made a folder of that name."""
    main(["vectors", "convert", str(saved), "--out", str(tmp_path / "vec.txt")])
    assert (tmp_path / "vec.txt").read_text("utf-8").startswith("6 3\nman 1 0 0\n")
    assert capsys.readouterr().out.splitlines() == ["folder → word2vec", f"vectors: {tmp_path / 'vec.txt'}"]
    from gensim.models import KeyedVectors

    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "vec.txt"))
    np.testing.assert_array_equal(theirs["queen"], formats.load(saved)["queen"])


@pytest.mark.parametrize(
    "name, format",
    [
        ("v.vec", "word2vec"),
        ("v.txt.gz", "word2vec"),
        ("v.bin", "binary"),
        ("v.bin.gz", "binary"),
        ("v.npz", "npz"),
        ("v", "folder"),
    ],
)
def test_the_ending_chooses_the_format(
    saved: Path, tmp_path: Path, name: str, format: str, capsys: pytest.CaptureFixture
):
    for _ in range(2):
        main(["vectors", "convert", str(saved), "--out", str(tmp_path / name), "--json", "--overwrite"])
        report = json.loads(capsys.readouterr().out)
        assert report == {"from": "folder", "to": format, "vectors": str(tmp_path / name)}
    assert (tmp_path / name).is_dir() == (format == "folder")
    found = formats.load(tmp_path / name)
    assert list(found.words) == list(formats.load(saved).words)
    np.testing.assert_array_equal(found.matrix, formats.load(saved).matrix)
    assert not [one for one in os.listdir(tmp_path) if one.startswith(".")]
    main(
        ["vectors", "convert", str(tmp_path / name), "--out", str(tmp_path / "last.txt"), "--format", "glove"]
    )
    assert (tmp_path / "last.txt").read_text("utf-8").startswith("man 1 0 0\n")


def test_a_map_is_what_its_ending_says(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """The fault: `map X map.png` wrote HTML under that name."""
    from xml.etree import ElementTree

    main(["vectors", "map", str(saved), "--out", str(tmp_path / "map.svg"), "--clusters", "2"])
    drawing = ElementTree.parse(tmp_path / "map.svg").getroot()
    texts = [one.text for one in drawing.iter("{http://www.w3.org/2000/svg}text")]
    circles = list(drawing.iter("{http://www.w3.org/2000/svg}circle"))
    assert drawing.tag.endswith("svg") and len(circles) == 6 and "man" in texts
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # a page of ours is drawn again
        main(["vectors", "map", str(saved), "--clusters", "2"])
        assert capsys.readouterr().out.splitlines()[-1] == f"page: {saved / 'reports' / 'map.html'}"
    assert (saved / "reports" / "map.html").read_text("utf-8").startswith("<!doctype html>")
    assert len(formats.load(saved)) == 6
    main(["vectors", "convert", str(saved), "--out", "v.vec"])
    main(["vectors", "map", "v.vec", "--clusters", "2", "--json"])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["page"] == "runs/reports/map-v.html" and Path(report["page"]).is_file()


def test_vectors_go_under_runs_by_default(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    fast = ["--dim", "4", "--epochs", "1", "--threads", "1"]
    main(["vectors", "train", str(text), *fast])
    assert capsys.readouterr().out.splitlines()[-1] == "vectors: runs/vectors-text"
    with pytest.raises(SystemExit):
        main(["vectors", "train", str(text), *fast])
    assert "runs/vectors-text-2" in capsys.readouterr().err
    main(["vectors", "train", str(text), *fast, "--method", "ppmi-svd", "--overwrite"])
    assert formats.load("runs/vectors-text").meta["method"] == "ppmi-svd"
    monkeypatch.setenv("SEQLOOM_RUNS", str(tmp_path / "mine"))
    main(["vectors", "train", "world", *fast])
    assert len(formats.load(tmp_path / "mine" / "vectors-world")) > 100


def test_threads_are_all_cores_or_those_of_the_environment(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fast = ["--dim", "4", "--epochs", "1"]

    def threads(name: str, *options: str) -> int:
        main(["vectors", "train", str(text), *fast, "--out", str(tmp_path / name), *options])
        return formats.load(tmp_path / name).meta["took"]["threads"]

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads("a") == 3 and threads("b", "--threads", "1") == 1
    monkeypatch.setenv("SEQLOOM_THREADS", "2")
    assert threads("c") == 2
    monkeypatch.delenv("SEQLOOM_THREADS")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads("d") == len(os.sched_getaffinity(0))


def test_older_names_run_and_print_the_present_ones(
    text: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    options = (
        "--kind cbow --minimum 2 --most 9 --negatives 3 --sample 0 --rate 0.1 --average --dim 4 --epochs 1"
    )
    main(["vectors", "train", str(text), *options.split(), "--out", str(tmp_path / "v")])
    err = capsys.readouterr().err
    for new in (
        "--method",
        "--min-count",
        "--max-vocab",
        "--negative",
        "--subsample",
        "--lr",
        "--mean-context",
    ):
        assert f"is now {new}\n" in err
    found = formats.load(tmp_path / "v")
    expected = {
        "method": "cbow",
        "min_count": 2,
        "negative": 3,
        "subsample": 0,
        "lr": 0.1,
        "mean_context": True,
    }
    assert len(found) == 9 and expected.items() <= found.meta.items()
    main(["vectors", "nearest", str(saved), "king", "--count", "1"])
    main(["vectors", "convert", str(saved), str(tmp_path / "v.vec")])
    main(["vectors", "convert", str(saved), str(tmp_path / "v.x"), "--form", "glove"])
    main(["vectors", "map", str(saved), str(tmp_path / "m.html"), "--most", "5", "--clusters", "2"])
    err = capsys.readouterr().err
    assert (
        "--count is now --top" in err
        and f"--out {tmp_path / 'v.vec'}" in err
        and "--most is now --limit" in err
    )
    assert all((tmp_path / name).is_file() for name in ("v.vec", "v.x", "m.html"))


def test_folders_of_earlier_versions_have_present_keys(saved: Path):
    about = {"kind": "glove", "minimum": 3, "corpus words": 99, "rate": 0.1}
    meta = json.loads((saved / "meta.json").read_text("utf-8"))
    (saved / "meta.json").write_text(json.dumps({**meta, "about": about}), "utf-8")
    assert formats.load(saved).meta == {"method": "glove", "min_count": 3, "corpus_words": 99, "lr": 0.1}


@pytest.mark.parametrize(
    "option, ours",
    [
        ("--vector-size", "--dim"),
        ("-size", "--dim"),
        ("--learning-rate", "--lr"),
        ("-minCount", "--min-count"),
        ("--workers", "--threads"),
        ("--input", "an argument"),
    ],
)
def test_options_of_other_tools_are_answered_with_ours(
    option: str, ours: str, text: Path, capsys: pytest.CaptureFixture
):
    with pytest.raises(SystemExit) as caught:
        main(["vectors", "train", str(text), option, "5"])
    assert caught.value.code == 2 and f"{option}: here it is {ours}" in capsys.readouterr().err


def test_stdout_holds_results_only_and_json_has_snake_case_keys(
    text: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    def keys(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {key for one in value.values() for key in keys(one)}
        return {key for one in value for key in keys(one)} if isinstance(value, list) else set()

    (tmp_path / "pairs.tsv").write_text("man\tking\t8\nking\tqueen\t9\nriver\tking\t1\nman\tbank\t2\n")
    (tmp_path / "questions.txt").write_text(": royal\nman king woman queen\n: unknown\na b c d\n", "utf-8")
    fast = ["--dim", "4", "--epochs", "1", "--threads", "1"]
    for command in (
        ["train", str(text), *fast, "--out", str(tmp_path / "a")],
        ["train", str(text), *fast, "--out", str(tmp_path / "b"), "--method", "glove"],
        ["nearest", str(saved), "king", "bank"],
        ["analogy", str(saved), "man", "king", "woman"],
        ["evaluate", str(saved), str(tmp_path / "pairs.tsv"), str(tmp_path / "questions.txt")],
        ["map", str(saved), "--clusters", "2", "--out", str(tmp_path / "m.svg")],
        ["convert", str(saved), "--out", str(tmp_path / "v.bin")],
    ):
        main(["vectors", *command, "--json", "-q"])
        out, err = capsys.readouterr()
        records = [json.loads(line) for line in out.splitlines()]
        assert not err and len(records) == (2 if command[0] == "nearest" else 1)
        assert all(key.isidentifier() and key == key.lower() for key in keys(records))


def test_the_group_alone_prints_its_help(capsys: pytest.CaptureFixture):
    main(["vectors"])
    out = capsys.readouterr().out
    assert all(verb in out for verb in ("train", "nearest", "analogy", "evaluate", "map", "convert"))


def test_help_loads_neither_torch_nor_numba_nor_scikit_learn():
    code = "import sys; from seqloom.cli import main\ntry: main(['vectors', 'train', '--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'numba', 'sklearn', 'scipy', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]" and "--reproducible" in done.stdout
