"""The printed loss of word2vec: a fixed sample, equal to the objective written out, that falls when the vectors become better."""

import math

import numpy as np
import pytest

from seqloom.kernels.word2vec_args import TrainingData, Word2VecMode
from seqloom.vectors import word2vec
from seqloom.vectors.loss_sample import LossSample, draw_loss_sample
from seqloom.vectors.subwords import Subwords
from seqloom.vectors.vocabulary import Corpus, VocabOptions, Vocabulary, encode
from seqloom.vectors.word2vec import Word2VecOptions, alias_table, init_matrices, subsample_thresholds


def topics(articles: int = 40, words: int = 1500, seed: int = 0) -> list[list[str]]:
    """Long articles, each with words of its own among common ones: what the weights have just seen helps with what comes next."""
    random = np.random.default_rng(seed)
    common = [f"common{i}" for i in range(200)]
    texts = []
    for _ in range(articles):
        own = [f"topic{i}" for i in random.integers(0, 2000, 60)]
        texts.append([str(random.choice(own if random.random() < 0.6 else common)) for _ in range(words)])
    return texts


def sample_of(
    source: list, mode: Word2VecMode, subsample: float = 0.0, subwords: Subwords | None = None
) -> tuple[LossSample, Corpus, Vocabulary]:
    vocabulary = Vocabulary.build(source, 1)
    corpus = encode(source, vocabulary)
    rows, bounds = np.empty(0, np.int64), np.zeros(len(vocabulary) + 1, np.int64)
    if subwords:
        rows, bounds = subwords.table(vocabulary.words)
    thresholds = subsample_thresholds(vocabulary.counts, subsample)
    table = alias_table(vocabulary.counts**0.75)
    data = TrainingData(corpus.ids, corpus.starts, thresholds, table, rows, bounds)
    return draw_loss_sample(corpus, data, mode, vocabulary.counts), corpus, vocabulary


def test_the_running_loss_rises_while_the_vectors_become_better_and_the_printed_one_falls():
    """The fault that this module mends: as the learning rate falls, the cost just before each step rises."""
    result = word2vec.train(topics(), Word2VecOptions(dim=32), VocabOptions(1), threads=1)
    assert result.running_losses[-1] > min(result.running_losses) + 0.02
    assert all(later < earlier for earlier, later in zip(result.losses, result.losses[1:], strict=False))


@pytest.mark.parametrize("negative", [0, 1, 5, 13])
@pytest.mark.parametrize("cbow", [False, True])
@pytest.mark.parametrize("subwords", [None, Subwords(2, 3, buckets=11)])
def test_the_loss_is_the_objective_written_out(cbow: bool, negative: int, subwords: Subwords | None):
    texts = [text[:60] for text in topics(5)]
    sample, _, vocabulary = sample_of(texts, Word2VecMode(cbow, False, 3, negative), 0.01, subwords)
    words, dim = len(vocabulary), 10
    weights = init_matrices(words, subwords.buckets if subwords else 0, dim, 0)
    random = np.random.default_rng(1)
    for flat, rows in (
        (weights.inputs, words + (subwords.buckets if subwords else 0)),
        (weights.outputs, words),
    ):
        flat.reshape(-1, weights.stride)[:rows, :dim] = random.normal(size=(rows, dim))
    inputs, outputs = (
        flat.reshape(-1, weights.stride)[:, :dim].astype(float) for flat in (weights.inputs, weights.outputs)
    )

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    total = 0.0
    for target, window, negatives in zip(sample.targets, sample.windows, sample.negatives, strict=True):
        rows = sample.sources[sample.bounds[window] : sample.bounds[window + 1]]
        h = sum(inputs[row] for row in rows) / len(rows)
        if negative == 0:
            scores = [float(outputs[word] @ h) for word in range(words)]
            total += math.log(sum(map(math.exp, scores))) - scores[target]
        else:
            total -= math.log(sigmoid(outputs[target] @ h))
            total -= sum(math.log(sigmoid(-outputs[word] @ h)) for word in negatives)
    assert sample.loss(weights, words) == pytest.approx(total / len(sample.targets), rel=1e-5)


@pytest.mark.parametrize("cbow", [False, True])
def test_windows_are_those_of_the_corpus(cbow: bool):
    """Without sub-sampling each word of a window stands near its centre in some sentence, and in no other sentence."""
    texts = [[f"s{i}w{j}" for j in range(12)] for i in range(300)]
    sample, _, vocabulary = sample_of(texts, Word2VecMode(cbow, False, 2, 3))
    reaches = set()
    for target, window, negatives in zip(sample.targets, sample.windows, sample.negatives, strict=True):
        sources = sample.sources[sample.bounds[window] : sample.bounds[window + 1]]
        for source in sources:
            (a, i), (b, j) = (vocabulary.words[row][1:].split("w") for row in (source, target))
            assert a == b and 1 <= abs(int(i) - int(j)) <= 2
            reaches.add(int(i) - int(j))
        assert target not in negatives
    assert reaches == {-2, -1, 1, 2}


def test_sub_sampling_widens_windows_and_spares_rare_words():
    """ "the" is half of the text and mostly dropped: the words next to it become neighbours, and few of the targets are "the"."""
    texts = [[word for j in range(30) for word in ("the", f"s{i}w{j}")] for i in range(200)]
    sample, _, vocabulary = sample_of(texts, Word2VecMode(False, False, 1, 2), 1e-3)
    the = vocabulary.index["the"]
    keep = float(subsample_thresholds(vocabulary.counts, 1e-3)[the]) / 2**32
    share = (sample.targets == the).mean()
    assert share == pytest.approx(keep / (1 + keep), abs=0.02)
    others = [
        (vocabulary.words[source], vocabulary.words[target])
        for source, target in zip(sample.sources[sample.windows], sample.targets, strict=True)
        if the not in (source, target)
    ]
    assert any(int(a.split("w")[1]) + 1 == int(b.split("w")[1]) for a, b in others)


def test_the_sample_is_the_same_for_every_seed_and_negatives_follow_their_distribution():
    texts = topics(10)
    first, second = (sample_of(texts, Word2VecMode(False, False, 5, 5), 1e-3)[0] for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    sample, _, vocabulary = sample_of(texts, Word2VecMode(False, False, 5, 20))
    expected = vocabulary.counts**0.75 / (vocabulary.counts**0.75).sum()
    shares = np.bincount(sample.negatives.ravel(), minlength=len(vocabulary)) / sample.negatives.size
    assert np.abs(shares - expected).max() < 0.003


def test_the_loss_after_training_is_the_sample_under_the_final_weights():
    texts = topics(6, 300)
    result = word2vec.train(texts, Word2VecOptions(dim=12, epochs=2), VocabOptions(1), threads=1)
    sample, _, vocabulary = sample_of(texts, Word2VecMode(False, False, 5, 5), 1e-3)
    weights = init_matrices(len(vocabulary), 0, 12, 0)
    for flat, rows in ((weights.inputs, result.vectors), (weights.outputs, result.outputs)):
        flat.reshape(-1, weights.stride)[: len(rows), :12] = rows
    assert result.losses[-1] == pytest.approx(sample.loss(weights, len(vocabulary)), rel=1e-6)


def test_a_corpus_may_be_the_first_sentences_of_its_ids():
    """`starts` may end before `ids` does: only sentences that it names are drawn from."""
    texts = [["early", "first", "begin"]] * 30 + [["late", "last", "end"]] * 30
    vocabulary = Vocabulary.build(texts, 1)
    corpus = encode(texts, vocabulary)
    part = Corpus(corpus.ids, corpus.starts[:31])
    none = np.empty(0, np.int64), np.zeros(len(vocabulary) + 1, np.int64)
    data = TrainingData(
        part.ids,
        part.starts,
        subsample_thresholds(vocabulary.counts, 0),
        alias_table(vocabulary.counts),
        *none,
    )
    sample = draw_loss_sample(part, data, Word2VecMode(False, False, 2, 1), vocabulary.counts)
    assert {vocabulary.words[row] for row in sample.targets} == {"early", "first", "begin"}


def test_a_text_that_sub_sampling_empties_is_one_sentence():
    with pytest.raises(
        ValueError, match="sub-sampling leaves no two words of a sentence together; raise --subsample"
    ):
        word2vec.train(["a b"] * 500, Word2VecOptions(dim=4, subsample=1e-12), VocabOptions(1), threads=1)
