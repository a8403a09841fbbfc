"""Bilingual lexicons: a rotated language is recovered, CSLS is its definition, and the dictionary decides."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from seqloom import vectors
from seqloom.cli import main
from seqloom.errors import UserError
from seqloom.vectors import bilingual
from seqloom.vectors.bilingual import Space, lexicon, mutual_pairs, translate_words
from seqloom.vectors.vectors import Vectors


def languages(
    words: int = 400, dim: int = 20, noise: float = 0.0, seed: int = 0
) -> tuple[Vectors, Vectors, np.ndarray]:
    """Vectors of a language, its copy under a rotation, and the rotation."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((words, dim)) + 0.5
    q, _ = np.linalg.qr(random.standard_normal((dim, dim)))
    y = x @ q + noise * random.standard_normal((words, dim))
    return (
        Vectors([f"e{n}" for n in range(words)], x.astype(np.float32)),
        Vectors([f"f{n}" for n in range(words)], y.astype(np.float32)),
        q,
    )


def dictionary(*numbers: int) -> list[tuple[str, str]]:
    return [(f"e{n}", f"f{n}") for n in numbers]


@pytest.mark.parametrize("method", ["csls", "nearest"])
def test_a_rotated_copy_is_recovered(method):
    english, french, q = languages()
    found = lexicon(
        english, french, pairs=dictionary(*range(40)), test=dictionary(*range(40, 400)), method=method
    )
    assert [number.value for number in found.precision] == [1, 1, 1]
    assert found.precision[0].n == 360 and found.precision[0].low > 0.98
    np.testing.assert_allclose(found.rotation @ found.rotation.T, np.eye(20), atol=1e-5)
    np.testing.assert_allclose(found.rotation, q, atol=1e-4)
    assert [(one.word, one.translation) for one in found.translations] == dictionary(*range(400))


def test_words_that_are_spelt_alike_are_a_seed():
    english, french, _ = languages()
    same = [word.replace("f", "e") if row < 30 else word for row, word in enumerate(french.words)]
    found = lexicon(english, Vectors(same, french.matrix), test=dictionary(*range(30, 400)))
    assert found.precision[0].value == 1 and found.seed == "words that are spelt alike"
    with pytest.raises(UserError, match="no word is spelt alike"):
        lexicon(english, french)


def test_x7_the_printed_recipe_finds_nothing(monkeypatch):
    """R = U Vᵀ from the SVD of Yᵀ X, as the lecture prints it, is the inverse rotation."""
    english, french, _ = languages()

    def printed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        u, _, vt = np.linalg.svd(y.T @ x)
        return u @ vt

    monkeypatch.setattr(bilingual, "procrustes", printed)
    options = {"pairs": dictionary(*range(100)), "test": dictionary(*range(100, 400)), "refinements": 0}
    assert lexicon(english, french, **options).precision[0].value < 0.05
    monkeypatch.undo()
    assert lexicon(english, french, **options).precision[0].value == 1


def literal_csls(mapped: np.ndarray, target: np.ndarray, k: int = 10) -> np.ndarray:
    """2 cos(x, y) − r_T(x) − r_S(y), pair by pair."""

    def cosine(u: np.ndarray, v: np.ndarray) -> float:
        return float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))

    cosines = np.array([[cosine(x, y) for y in target] for x in mapped])
    r_target = [np.mean(sorted(row)[-k:]) for row in cosines]
    r_source = [np.mean(sorted(column)[-k:]) for column in cosines.T]
    return np.array(
        [
            [2 * cosines[i, j] - r_target[i] - r_source[j] for j in range(len(target))]
            for i in range(len(mapped))
        ]
    )


def test_csls_is_its_definition():
    english, french, _ = languages(60, 6, noise=1.0)
    x, y = Space.of(english, 60, True), Space.of(french, 45, True)
    rows, scores = translate_words(x.units, y, "csls", 3)
    expected = literal_csls(x.units.astype(np.float64), y.units.astype(np.float64))
    order = np.argsort(-expected, 1)[:, :3]
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, order, 1), atol=1e-5)
    found, cosine = mutual_pairs(x, y, np.eye(6, dtype=np.float32), "csls")
    forward, backward = expected.argmax(1), expected.argmax(0)
    assert found.tolist() == [[i, j] for i, j in enumerate(forward) if backward[j] == i]
    assert cosine == pytest.approx(
        np.mean([x.units[i] @ y.units[j] for i, j in enumerate(forward)]), abs=1e-5
    )


def test_csls_undoes_hubs():
    """A target word that is near to every word is the nearest neighbour of many, but not their CSLS translation."""
    english, french, _ = languages(300, 30, noise=0.8)
    matrix = np.array(french.matrix)
    matrix -= matrix.mean(0)
    matrix[:5] = matrix[100:].mean(0) + matrix[[200, 210, 220, 230, 240]] * 0.9
    target = Vectors(french.words, matrix)
    test = dictionary(*range(100, 300))
    options = {"pairs": dictionary(*range(50, 100)), "test": test, "refinements": 0}
    csls, nearest = (
        lexicon(english, target, method=m, **options).precision[0].value for m in ("csls", "nearest")
    )
    assert csls > nearest


def test_refinement_helps_a_small_seed():
    english, french, _ = languages(2000, 30, noise=0.3, seed=3)
    options = {"pairs": dictionary(*range(18)), "test": dictionary(*range(100, 2000))}
    alone, refined = (lexicon(english, french, refinements=n, **options) for n in (0, 5))
    assert refined.precision[0].value > alone.precision[0].value + 0.2
    assert len(alone.refinements) == 1 and alone.refinements[0].pairs == 18
    cosines = [step.cosine for step in refined.refinements]
    assert len(cosines) > 1 and cosines == sorted(cosines)


def test_a_test_word_may_have_several_translations_and_its_case_is_folded():
    english, french, _ = languages()
    test = [
        ("E50", "wrong"),
        ("e50", "F50"),
        ("e51", "f52"),
        ("e51", "f51"),
        ("e60", "f61"),
        ("nothing", "f3"),
        ("e3", "nothing"),
    ]
    found = lexicon(english, french, pairs=dictionary(*range(40)), test=test)
    assert found.precision[0].n == 3 and found.test_words == 5
    assert found.precision[0].value == pytest.approx(2 / 3)
    cased = lexicon(english, french, pairs=dictionary(*range(40)), test=test, lowercase=False)
    assert cased.precision[0].n == 2 and cased.test_words == 6


def test_memory_does_not_hold_all_pairs():
    """Scores are computed in blocks: no array of words × words exists."""
    english, french, _ = languages(3000, 4)
    tracemalloc.start()
    lexicon(english, french, pairs=dictionary(*range(40)), refinements=0)
    largest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert largest < 4 * 3000 * 3000


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    english, french, _ = languages()
    english.save(tmp_path / "en")
    french.save(tmp_path / "fr")
    (tmp_path / "seed.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in dictionary(*range(40))), "utf-8")
    (tmp_path / "test.txt").write_text("".join(f"{a} {b}\n" for a, b in dictionary(*range(40, 500))), "utf-8")
    return tmp_path


def test_the_verb_prints_the_lexicon_or_its_precision(folders: Path, capsys, monkeypatch):
    monkeypatch.chdir(folders)
    main(["vectors", "lexicon", "en", "fr", "--pairs", "seed.tsv", "-q"])
    assert capsys.readouterr().out.splitlines() == [f"{a}\t{b}" for a, b in dictionary(*range(400))]
    main(
        ["vectors", "lexicon", "en", "fr", "--pairs", "seed.tsv", "--test", "test.txt", "--out", "words.tsv"]
    )
    printed = capsys.readouterr().out
    assert "precision@1" in printed and "[0.9894, 1.0000]  360 of 460" in printed and "words.tsv" in printed
    assert (folders / "words.tsv").read_text("utf-8").startswith("e0\tf0\n")
    main(
        [
            "vectors",
            "lexicon",
            "en",
            "fr",
            "--pairs",
            "seed.tsv",
            "--test",
            "test.txt",
            "--method",
            "nearest",
            "--json",
        ]
    )
    report = json.loads(capsys.readouterr().out)
    assert report["method"] == "nearest" and report["precision"][0]["value"] == 1
    assert len(report["translations"]) == 400 and report["refinements"][0]["pairs"] == 40
    assert vectors.lexicon("en", "fr", pairs="seed.tsv").translations[7].translation == "f7"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("en fr", "no word is spelt alike in both languages; give translations with --pairs FILE"),
        ("en nowhere --pairs seed.tsv", "nowhere"),
        ("en fr --pairs nowhere.tsv", "nowhere.tsv"),
        ("en fr --pairs three.tsv", "three.tsv:2: not two words"),
        ("en fr --pairs empty.tsv", "empty.tsv: no pairs of words"),
        ("en fr --pairs other.tsv", "none of the 1 pairs has vectors for both words"),
        ("en fr --pairs seed.tsv --test other.tsv", "none of the 1 words of the test has vectors"),
        ("en small --pairs seed.tsv", "20 and 2 dimensions cannot be rotated"),
        ("en fr --pairs seed.tsv --refinements -1", "0 or more"),
    ],
)
def test_wrong_inputs_are_one_line(folders: Path, words: str, message: str, capsys, monkeypatch):
    monkeypatch.chdir(folders)
    (folders / "three.tsv").write_text("a\tb\na\tb\tc\n", "utf-8")
    (folders / "empty.tsv").write_text("\n", "utf-8")
    (folders / "other.tsv").write_text("house\tmaison\n", "utf-8")
    Vectors(["f0", "f1"], np.eye(2)).save(folders / "small")
    with pytest.raises(SystemExit) as stop:
        main(["vectors", "lexicon", *words.split()])
    assert stop.value.code == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error


def test_words_of_the_seed_in_the_test_are_reported(folders: Path, caplog):
    lexicon(folders / "en", folders / "fr", pairs=dictionary(*range(40)), test=dictionary(1, 2, 50))
    assert "2 words of the test are in the seed too" in caplog.text


@pytest.mark.data
def test_english_and_german_captions(real_data: Path, tmp_path: Path):
    """Vectors of the two sides of Multi30k, trained apart: far above chance on the dictionary's words that occur."""
    for language in ("en", "de"):
        with gzip.open(real_data / "multi30k" / f"train.{language}.gz", "rt", encoding="utf-8") as file:
            (tmp_path / language).write_text(file.read(), "utf-8")
    trained = [
        vectors.train(
            tmp_path / language, dim=50, epochs=10, min_count=5, lowercase=True, threads=1, progress=False
        )
        for language in ("en", "de")
    ]
    folder = real_data / "lexicons"
    found = vectors.lexicon(
        *trained, pairs=folder / "yacle.train.freq.5k.en-de.tsv", test=folder / "yacle.test.freq.2k.en-de.tsv"
    )
    first, _, tenth = found.precision
    assert found.test_words > 1500 and 50 < first.n < 400  # few of its words occur in captions
    assert tenth.value > first.value and tenth.value > 20 / len(trained[1])
