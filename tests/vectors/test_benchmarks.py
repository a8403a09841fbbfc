"""Scores equal gensim's and scipy's; intervals equal scipy's; files of every usual shape are read."""

from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors
from scipy.stats import spearmanr

from seqloom.vectors import benchmarks
from seqloom.vectors import vectors as module
from seqloom.vectors.vectors import Vectors


def world(copies: int = 60, noise: float = 0.35) -> Vectors:
    """Words a0 b0 a1 b1 …, each b a shifted a: analogies that come out right about half of the time, in capitals here and there."""
    rng = np.random.default_rng(3)
    base, shift = rng.normal(size=(copies, 10)), rng.normal(size=10)
    other = base + shift + noise * rng.normal(size=base.shape)
    words = [
        name
        for number in range(copies)
        for name in (f"a{number}", f"B{number}" if number % 7 == 0 else f"b{number}")
    ]
    return Vectors(
        [*words, "b7", "A1"],
        np.concatenate([np.stack([base, other], 1).reshape(-1, 10), rng.normal(size=(2, 10))]).astype(
            np.float32
        ),
    )


def peer(vectors: Vectors) -> KeyedVectors:
    keyed = KeyedVectors(vectors.dim)
    keyed.add_vectors(list(vectors.words), np.array(vectors.matrix))
    return keyed


def question_file(path: Path) -> Path:
    lines = [": first"]
    lines += [f"a{i} b{i} a{j} b{j}" for i in range(12) for j in range(12) if i != j]
    lines += [": empty", ": gram1-second", "a1 b1 unheard b2"]
    lines += [f"A{i} B{i} A{j} B{j}" for i in range(20, 40) for j in range(20, 40) if i != j]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.mark.parametrize("lowercase", [True, False])
def test_analogies_equal_gensim(lowercase: bool, tmp_path: Path):
    vectors, path = world(), question_file(tmp_path / "q.txt")
    total, sections = peer(vectors).evaluate_word_analogies(path, case_insensitive=lowercase)
    found = {score.section: score for score in benchmarks.analogies(vectors, path, lowercase=lowercase)}
    assert 0.1 < total < 0.95
    assert found["total"].value == pytest.approx(total)
    for section in sections[:-1]:
        known = len(section["correct"]) + len(section["incorrect"])
        if known:
            score = found[section["section"]]
            assert (score.n, round(score.value * score.n)) == (
                known,
                len(section["correct"]),
            )
    assert found["semantic"].n + found["syntactic"].n == found["total"].n < found["total"].total
    assert found["total"].total == 132 + 381


@pytest.mark.parametrize("method", ["add", "mul"])
@pytest.mark.parametrize("block, width", [(1 << 22, 512), (300, 7)])
def test_answers_are_those_of_single_questions(
    method: str, block: int, width: int, monkeypatch: pytest.MonkeyPatch
):
    vectors = world()
    monkeypatch.setattr(module, "BLOCK", block)
    monkeypatch.setattr(benchmarks, "WIDTH", width)
    questions = np.random.default_rng(0).integers(0, len(vectors), (50, 3))
    ours = benchmarks.solve_analogies(vectors, questions, np.arange(len(vectors)), method)
    for row, question in zip(ours, questions, strict=True):
        assert (
            vectors.words[row]
            == vectors.analogy(*(vectors.words[one] for one in question), 1, method)[0].word
        )


def test_only_the_first_words_count_where_asked(tmp_path: Path):
    vectors, path = world(), question_file(tmp_path / "q.txt")
    score = benchmarks.analogies(vectors, path, limit=24)[-1]
    assert score.n == 132 and "words:24" in score.signature
    assert score.value == benchmarks.analogies(vectors.first(24), path)[-1].value


PAIRS = [(f"a{i}", f"a{i + 1}", (i * 37 % 19) / 2) for i in range(30)] + [("a1", "unheard", 3.0)]


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{a}\t{b}\t{s}\n" for a, b, s in PAIRS),
        "Word 1,Word 2,Human (mean)\n" + "".join(f"{a},{b},{s}\n" for a, b, s in PAIRS),
        "word1;word2;score\r\n" + "".join(f"{a};{b};{s}\r\n" for a, b, s in PAIRS),
        "# a comment\n" + "".join(f"{a} {b} {s}\n" for a, b, s in PAIRS),
        "word1\tword2\tPOS\tSimLex999\tconc(w1)\n"
        + "".join(f"{a.upper()}\t{b}\tN\t{s}\t9.9\n" for a, b, s in PAIRS),
    ],
    ids=["tabs", "commas and header", "semicolons and CRLF", "spaces", "SimLex"],
)
def test_similarities_equal_scipy_and_gensim_in_every_shape(text: str, tmp_path: Path):
    vectors, path = world(), tmp_path / "pairs.txt"
    path.write_bytes(text.encode())
    score = benchmarks.evaluate(vectors, path)[0]
    known = PAIRS[:-1]
    expected = spearmanr([vectors.similarity(a, b) for a, b, _ in known], [s for _, _, s in known]).statistic
    assert score.value == pytest.approx(expected, abs=1e-9) and (
        score.n,
        score.total,
    ) == (
        30,
        31,
    )
    assert "pairs:30/31" in score.signature and "case:folded" in score.signature
    (tmp_path / "plain").write_text("".join(f"{a}\t{b}\t{s}\n" for a, b, s in PAIRS), "utf-8")
    assert score.value == pytest.approx(
        peer(vectors).evaluate_word_pairs(tmp_path / "plain")[1].statistic, abs=1e-9
    )


def test_the_interval_of_a_correlation_holds_the_truth_as_often_as_it_says():
    """200 samples of a known rank correlation: about 95 % of the intervals contain it."""
    rng, held = np.random.default_rng(0), 0
    rho = 0.6
    true = 6 / np.pi * np.arcsin(rho / 2)  # Spearman's of a normal pair with correlation rho
    for sample in range(200):
        x = rng.normal(size=80)
        y = rho * x + np.sqrt(1 - rho**2) * rng.normal(size=80)
        low, high = benchmarks.correlation_interval(float(spearmanr(x, y).statistic), 80)
        held += low <= true <= high
        assert low < high, sample
    assert 180 <= held <= 199


@pytest.mark.parametrize(
    "text, parts",
    [
        ("a b c d\na b c\n", ["f:2", "3 words", "four"]),
        (": s\nw x y z\n", ["none of its 1 questions"]),
        ("a1\ta2\t5\na2\ta3\tfive\n", ["f:2", "no number in column 3"]),
        ("a1\ta2\t5\n", ["only 1 of 1 pairs"]),
        ("one two\n", ["no two words and a number"]),
        ("", ["f", "empty"]),
    ],
)
def test_mistakes_are_sentences_with_their_place(text: str, parts: list[str], tmp_path: Path):
    path = tmp_path / "f"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError) as caught:
        benchmarks.evaluate(world(), path)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.data
def test_real_vectors_score_as_gensim_says(real_data: Path):
    from seqloom.vectors.formats import load

    vectors = load(real_data / "weights" / "glove_top20k" / "glove.6B.100d.top20k.txt.gz").first(4000)
    theirs = peer(vectors)
    for name in ("EN-WS-353-ALL.txt", "EN-SIMLEX-999.txt"):
        path = real_data / "wordsim" / name
        assert benchmarks.evaluate(vectors, path)[0].value == pytest.approx(
            theirs.evaluate_word_pairs(path)[1].statistic, abs=1e-9
        )
    path = real_data / "wordsim" / "questions-words.txt"
    total, sections = theirs.evaluate_word_analogies(path)
    score = benchmarks.evaluate(vectors, path)[-1]
    assert score.value == pytest.approx(total) and score.total == 19_544
    assert score.n == sum(len(sections[-1][side]) for side in ("correct", "incorrect"))
