"""word2vec against autograd, gensim's own numbers, closed forms and the built-in world."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numba import njit
from scipy.stats import chisquare

from seqloom.kernels import simd, word2vec
from seqloom.kernels.word2vec_args import MERGED_STEPS, Matrices, TrainingData, Word2VecMode
from seqloom.results import Progress
from seqloom.vectors.subwords import Subwords, fnv1a
from seqloom.vectors.vocabulary import Corpus, VocabOptions, Vocabulary, encode
from seqloom.vectors.word2vec import (
    Word2Vec,
    Word2VecOptions,
    alias_table,
    init_matrices,
    subsample_thresholds,
    train,
)
from seqloom.vectors.word2vec_trainers import chunk_sentences, split_long_sentences
from seqloom.world import scenes

QUIET = {"min_count": 1, "subsample": 0.0, "threads": 1}


def fit(source, method: str = "skipgram", dim: int = 100, min_count: int = 5, **keywords) -> Word2Vec:
    """`train` with all options as keywords."""
    options = {name: keywords.pop(name) for name in Word2VecOptions._fields if name in keywords}
    return train(source, Word2VecOptions(method, dim, **options), VocabOptions(min_count), **keywords)


def context(sentence: str, position: int, reach: int) -> list[str]:
    words = sentence.split()
    first, last = word2vec.window(position, reach, len(words))
    return [words[j] for j in range(first, last) if j != position]


def test_x1_the_windows_of_the_professor_and_the_student():
    text = "the professor is scribbling on the board and the student is writing down the scribbles"
    assert context(text, 1, 2) == ["the", "is", "scribbling"]
    assert context(text, 9, 2) == ["and", "the", "is", "writing"]
    assert context(text, 14, 2) == ["down", "the"]


def test_x4_the_quick_is_a_sample():
    text = "the quick brown fox jumps"
    pairs = {(centre, other) for i, centre in enumerate(text.split()) for other in context(text, i, 2)}
    assert ("the", "quick") in pairs and ("the", "brown") in pairs and ("the", "fox") not in pairs


def weights(words: int, dim: int, seed: int = 0) -> Matrices:
    """Random weights large enough for the sigmoids to differ from ½."""
    made, random = init_matrices(words, 0, dim, seed), np.random.default_rng(seed)
    for flat in (made.inputs, made.outputs):
        flat.reshape(-1, made.stride)[:words, :dim] = random.normal(size=(words, dim))
    return made


def matrices(made: Matrices, words: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = (
        torch.from_numpy(flat.reshape(-1, made.stride)[:words, :dim].copy()).double()
        for flat in (made.inputs, made.outputs)
    )
    return tuple(rows)


def follow(inputs, outputs, sentence, negative, cbow, average, rate):
    """The same windows by autograd: each target is one loss, h is the same for the window; returns the summed loss."""
    total = 0.0
    for i in range(len(sentence)):
        near = [sentence[j] for j in (i - 1, i + 1) if 0 <= j < len(sentence)]
        given, targets = (near, [sentence[i]]) if cbow else ([sentence[i]], near)
        h = inputs[given].mean(0).requires_grad_()
        step = torch.zeros_like(h)
        for target in targets if negative is not None else [targets]:
            table = outputs.clone().requires_grad_()
            if negative is None:
                loss = -F.log_softmax(table @ h, 0)[target].sum()
            else:
                loss = -F.logsigmoid(table[target] @ h) - F.logsigmoid(-table[negative] @ h)
            dh, du = torch.autograd.grad(loss, (h, table))
            scale = rate / len(targets) if average else rate
            outputs -= scale * du
            step -= scale * dh
            total += loss.item()
        for row in given:
            inputs[row] += step / len(given) if average else step
    return total


@pytest.mark.parametrize("dim", [5, 8, 100])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("cbow", [False, True])
@pytest.mark.parametrize("negative", [4, None])
def test_a_sentence_moves_the_weights_as_autograd_says(
    cbow: bool, average: bool, negative: int | None, dim: int
):
    words, sentence, rate = 5, [0, 1, 2, 3], 0.1
    made = weights(words, dim, seed=dim)
    inputs, outputs = matrices(made, words, dim)
    only = np.zeros(words)
    only[4] = 1  # every negative is word 4
    text = TrainingData(
        np.array(sentence, np.int32),
        np.array([0, 4]),
        subsample_thresholds(np.ones(words), 0),
        alias_table(only),
        np.empty(0, np.int64),
        np.zeros(words + 1, np.int64),
    )
    method = Word2VecMode(cbow, average, 1, 0 if negative is None else 1)
    loss, targets = word2vec.train_sentences(text, made, method, 0, 1, rate, rate, np.uint64(7))
    expected = follow(inputs, outputs, sentence, negative, cbow, average, rate)
    assert targets == (4 if cbow else 6) and loss == pytest.approx(expected, rel=1e-5)
    for ours, theirs in zip(matrices(made, words, dim), (inputs, outputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert (
        not made.inputs.reshape(words, -1)[:, dim:].any()
        and not made.outputs.reshape(-1, made.stride)[words:].any()
    )


def test_five_negatives_at_once_are_autograds():
    dim, rate = 100, 0.05
    made = weights(9, dim)
    _, outputs = matrices(made, 9, dim)
    h = torch.randn(dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    table = outputs.clone().requires_grad_()
    chosen = [3, 8, 1, 0, 5, 7]
    scores = table[chosen] @ h
    loss = -F.logsigmoid(scores[0]) - F.logsigmoid(-scores[1:]).sum()
    dh, du = torch.autograd.grad(loss, (h, table))
    hidden, step = (np.zeros(made.width, np.float32) for _ in range(2))
    hidden[:dim] = h.detach()
    product, exponents = np.ones(8, np.float32), np.zeros(8, np.int32)
    sign, real = np.array([1, *[-1] * 7], np.float32), np.array([*[1] * 6, 0, 0], np.float32)
    rows = np.array([*chosen, 9, 9]) * made.stride
    word2vec.negative_sampling_step(
        hidden, step, made.outputs, made.width, rows, 0, sign, real, np.float32(rate), product, exponents
    )
    assert simd.log_total(product, exponents) == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(step[:dim], -rate * dh, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(matrices(made, 9, dim)[1], outputs - rate * du, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("negatives, cost", [(1, 2), (5, 6), (6, 7), (17, 18)])
def test_untrained_outputs_cost_log_two_each(negatives: int, cost: int):
    """With U = 0 every σ is ½; a rate of next to nothing keeps it so. Places that hold no negative cost nothing."""
    result = fit(
        ["a b c d e f"] * 40,
        window=1,
        dim=8,
        negative=negatives,
        epochs=2,
        lr=1e-30,
        final_lr=1e-30,
        **QUIET,
    )
    assert result.targets == [40 * 10] * 2
    assert result.losses == pytest.approx([cost * math.log(2)] * 2, rel=1e-6)


def test_the_softmax_begins_at_the_log_of_the_vocabulary():
    result = fit(
        ["a b c d e f g"] * 10, window=1, dim=8, negative=0, epochs=1, lr=1e-30, final_lr=1e-30, **QUIET
    )
    assert result.targets == [120] and result.losses == pytest.approx([math.log(7)], rel=1e-6)


def test_frequent_words_stay_as_often_as_gensim_keeps_them():
    from gensim.models import Word2Vec as Peer

    corpus = [["the"] * 50 + ["of"] * 20 + ["cat", "dog", "cat"]] * 3
    vocab = Vocabulary.build(corpus, 1)
    peer = Peer(corpus, min_count=1, sample=0.01, vector_size=4, workers=1, epochs=1)
    theirs = [peer.wv.get_vecattr(word, "sample_int") for word in vocab.words]
    np.testing.assert_allclose(
        subsample_thresholds(vocab.counts, 0.01).astype(float), np.array(theirs, float), rtol=1e-6
    )
    assert (subsample_thresholds(vocab.counts, 0) == 1 << 32).all()


def test_sub_sampling_happens_that_often():
    """Sentences "a b": a target exists if sub-sampling keeps both words, with probability p²."""
    count, sample = 40_000, 0.05
    p = math.sqrt(sample / 0.5) + sample / 0.5
    result = fit(["a b"] * count, window=3, dim=8, epochs=1, subsample=sample, min_count=1, threads=1)
    assert abs(result.targets[0] / 2 - count * p * p) < 5 * math.sqrt(count * p * p * (1 - p * p))


def test_the_alias_table_holds_exactly_its_weights():
    weights = np.random.default_rng(0).zipf(1.5, 300).clip(max=10**6) ** 0.75
    table = alias_table(weights)
    stay, other = (table >> np.uint64(32)) / 2.0**32, (table & np.uint64(0xFFFFFFFF)).astype(int)
    chances = (stay + np.bincount(other, 1 - stay, len(table))) / len(table)
    np.testing.assert_allclose(chances, weights / weights.sum(), rtol=1e-4, atol=1e-9)


@njit
def drawn(table, count, state):
    found = np.zeros(len(table), np.int64)
    reaches = np.zeros(5, np.int64)
    for _ in range(count):
        state = word2vec.xorshift64(state)
        found[word2vec.draw_negative(state, table)] += 1
        state = word2vec.xorshift64(state)
        reaches[word2vec.uniform(state, 5)] += 1
    return found, reaches


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_negatives_follow_count_to_the_three_quarters_and_reaches_are_even(seed: int):
    counts = 100_000 / np.arange(1, 201)
    found, reaches = drawn(alias_table(counts**0.75), 2_000_000, np.uint64(seed * 2**40 + 1))
    expected = counts**0.75 / (counts**0.75).sum() * 2_000_000
    assert chisquare(found, expected).pvalue > 1e-4 and chisquare(reaches).pvalue > 1e-4


@pytest.mark.parametrize("kind", ["skipgram", "cbow"])
@pytest.mark.parametrize("negatives", [0, 5])
def test_reproducible_gives_the_same_bits_for_any_number_of_threads(kind: str, negatives: int):
    corpus = [list(one.words) for one in scenes(400)]
    runs = [
        fit(corpus, kind, 20, negative=negatives, epochs=2, threads=threads, reproducible=True, seed=seed)
        for threads, seed in ((1, 3), (2, 3), (4, 3), (2, 4))
    ]
    for other in runs[1:3]:
        assert np.array_equal(runs[0].vectors, other.vectors) and np.array_equal(
            runs[0].outputs, other.outputs
        )
        assert runs[0].losses == other.losses and runs[0].targets == other.targets
    assert not np.array_equal(runs[0].vectors, runs[3].vectors)
    assert runs[0].losses[1] < runs[0].losses[0]


def test_merging_adds_few_steps_and_averages_many():
    """Rows: changed by nobody, by one copy, by both seldom, by both often, and by both so often that only the mean is safe."""
    random, stride = np.random.default_rng(0), 16
    base = random.normal(size=5 * stride).astype(np.float32)
    steps = np.array([[0, 3, 5, MERGED_STEPS, 500], [0, 0, 7, MERGED_STEPS // 3, 700]], np.int32)
    copies = base + np.repeat(steps > 0, stride, 1) * random.normal(size=(2, 5 * stride)).astype(np.float32)
    share = np.repeat([1, 1, 1, MERGED_STEPS / steps[:, 3].sum(), 1 / 2], stride)
    expected = base + share * (copies - base).sum(0)
    marks, joined = steps.copy(), copies.astype(np.float32)
    word2vec.merge_copies(base, joined, marks, 0, 5, stride, stride)
    np.testing.assert_allclose(base, expected, rtol=1e-5, atol=1e-6)
    assert (joined == base).all() and not marks.any()


def test_one_thread_repeats_itself():
    corpus = [list(one.words) for one in scenes(200)]
    one, other = (fit(corpus, dim=16, epochs=1, threads=1) for _ in range(2))
    assert np.array_equal(one.vectors, other.vectors) and one.losses == other.losses


def nearness(result) -> float:
    """How often a word's nearest neighbour has its part of speech, minus the expectation for random words."""
    tags: dict[str, Counter] = {}
    for one in scenes(2000):
        for word, tag in zip(one.words, one.tags, strict=True):
            tags.setdefault(word, Counter())[tag] += 1
    classes = np.array([tags[word].most_common(1)[0][0] for word in result.vocabulary.words])
    unit = result.vectors / np.linalg.norm(result.vectors, axis=1, keepdims=True)
    near = unit @ unit.T - 2 * np.eye(len(unit))
    share = np.array([(classes == tag).mean() for tag in classes])
    return float((classes[near.argmax(1)] == classes).mean() - share.mean())


@pytest.mark.parametrize(
    "options",
    [
        {"method": "skipgram"},
        {"method": "cbow", "lr": 0.1},
        {"method": "skipgram", "reproducible": True},
        {"method": "skipgram", "mean_context": True, "lr": 0.1},
        {"method": "skipgram", "negative": 0},
        {"method": "skipgram", "subwords": Subwords(buckets=5000)},
    ],
    ids=str,
)
def test_words_of_one_class_end_up_near_and_the_loss_falls(options: dict):
    """The distributional hypothesis [A13]: a word is known by its company."""
    corpus = [list(one.words) for one in scenes(2000)]
    seen: list[Progress] = []
    result = fit(corpus, dim=32, window=2, epochs=8, subsample=0.01, progress=seen.append, **options)
    assert nearness(result) > 0.3
    assert result.losses[-1] < 0.97 * result.losses[0] and np.isfinite(result.vectors).all()
    assert seen[-1].done == seen[-1].total and all(one.done < other.done for one, other in pairwise(seen))
    assert seen[-1].numbers["loss"] == result.losses[-1] and result.speed > 0


def test_subwords_are_gensims():
    from gensim.models.fasttext_inner import compute_ngrams, ft_hash_bytes

    for word in ["where", "a", "naïve", "日本語", "<b>", "x" * 30]:
        assert Counter(Subwords().ngrams(word)) == Counter(compute_ngrams(word, 3, 6))
        assert Subwords(1, 2).ngrams(word)[:1] != ["<"]
        assert fnv1a(word.encode()) == ft_hash_bytes(word.encode())
    with pytest.raises(ValueError, match="1 ≤ shortest ≤ longest"):
        Subwords(4, 3)


def test_an_unseen_word_has_the_mean_of_its_ngrams():
    corpus = [list(one.words) for one in scenes(1500)]
    parts = Subwords(buckets=20_000)
    result = fit(corpus, dim=24, epochs=5, subsample=0.01, subwords=parts)
    flat, bounds = parts.table(["x", "where"])
    assert bounds.tolist() == [0, 1, 1 + len(parts.ngrams("where"))] and flat[0] == fnv1a(b"<x>") % 20_000 + 2
    np.testing.assert_allclose(
        result.vector("kinglet"),
        np.mean([result.buckets[row] for row in parts.rows("kinglet")], 0),
        rtol=1e-5,
    )
    assert np.array_equal(result.vector("king"), result.vectors[result.vocabulary.index["king"]])

    def cosine(a: str, b: str) -> float:
        u, v = result.vector(a), result.vector(b)
        return float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))

    assert cosine("bicyclez", "bicycles") > cosine("bicyclez", "the")
    plain = fit(corpus, dim=8, epochs=1)
    with pytest.raises(ValueError, match="'kinglet' is not in the vocabulary; train with subwords"):
        plain.vector("kinglet")


def test_pieces_are_all_sentences_once():
    starts = np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(1, 50, 999))])
    for most in (1, 7, 100, 10**6):
        runs = chunk_sentences(starts, most)
        assert runs[0][0] == 0 and runs[-1][1] == 999 and all(a[1] == b[0] for a, b in pairwise(runs))
        assert max(starts[b] - starts[a] for a, b in runs) < most + 50


def test_long_sentences_are_cut_and_nothing_is_lost():
    assert split_long_sentences(np.array([0, 3, 13, 14, 22]), 4).tolist() == [0, 3, 7, 11, 13, 14, 18, 22]


@pytest.mark.parametrize(
    "corpus, options, sentence",
    [
        (["alone"] * 9, {}, "no word has a context"),
        (["a a a"] * 9, {}, "the vocabulary has only one word, 'a'"),
        (["a b"] * 2, {"min_count": 5}, "lower --min-count"),
        ([], {}, "the corpus has no words"),
        (["a b"] * 9, {"method": "glove"}, "neither skipgram nor cbow"),
        (["a b"] * 9, {"dim": 0}, "dim 0"),
        (["a b"] * 9, {"lr": float("nan")}, "lr nan"),
        ((line for line in ["a b"]), {}, "a generator can be read only once"),
        (encode(["a b"], Vocabulary.build(["a b"], 1)), {}, "give its vocabulary too"),
        (
            ["a b c d", "b d a c"] * 50,
            {"lr": 1e38, "final_lr": 1e38},
            "not finite after epoch 1: the steps are too large; lower --lr",
        ),
    ],
)
def test_mistakes_are_one_sentence(corpus: list | Corpus, options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        fit(corpus, **{"dim": 8, **QUIET, **options})
