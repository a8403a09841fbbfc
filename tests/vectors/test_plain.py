"""The loops of word vectors in plain numpy equal the compiled ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.kernels import available
from seqloom.kernels.word2vec_args import WIDTH, TrainingData, Word2VecMode
from seqloom.vectors import counts, glove, vector_parser, word2vec
from seqloom.vectors.backend import load_kernels, useful_threads
from seqloom.vectors.plain import analogies as plain_analogies
from seqloom.vectors.plain import cooccurrence as plain_cooccurrence
from seqloom.vectors.plain import glove as plain_glove
from seqloom.vectors.plain import parse_floats as plain_parse_floats
from seqloom.vectors.plain import word2vec as plain_word2vec
from seqloom.vectors.subwords import Subwords
from seqloom.vectors.vocabulary import Corpus

NAMES = ("analogies", "cooccurrence", "glove", "parse_floats", "word2vec")


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch):
    """Inside a test, `load_kernels` finds no compiled module."""
    return lambda: monkeypatch.setattr(available, "AVAILABLE", False)


def random_corpus(seed: int, vocab: int, sentences: int = 12) -> Corpus:
    """Sentences of 0 to 9 words, frequent words first."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 10, sentences)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.minimum(random.geometric(0.2, starts[-1]) - 1, vocab - 1)
    return Corpus(ids.astype(np.int32), starts)


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_form_stands_in_for_the_compiled_one(name: str, without_kernels):
    compiled = load_kernels(name)
    assert compiled.__name__ == f"seqloom.kernels.{name}" and useful_threads(3) == 3
    without_kernels()
    plain = load_kernels(name)
    assert plain.__name__ == f"seqloom.vectors.plain.{name}" and useful_threads(3) == 1
    functions = [key for key in vars(plain) if not key.startswith("_") and callable(vars(plain)[key])]
    local = [key for key in functions if vars(plain)[key].__module__ == plain.__name__]
    assert local and all(hasattr(compiled, key) for key in local)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    cbow=st.booleans(),
    mean_context=st.booleans(),
    negative=st.sampled_from([0, 1, 5, 6, 13]),
    subwords=st.booleans(),
    count_updates=st.booleans(),
    dim=st.integers(1, 20),
    vocab=st.integers(2, 12),
)
def test_word2vec(seed, cbow, mean_context, negative, subwords, count_updates, dim, vocab):
    random = np.random.default_rng(seed)
    corpus = random_corpus(seed, vocab)
    frequencies = 1 + random.random(vocab)
    ngrams = Subwords(2, 3, buckets=7)
    rows, bounds = ngrams.table([f"word{i}" for i in range(vocab)]) if subwords else (np.empty(0, np.int64),
                                                                                     np.zeros(vocab + 1, np.int64))  # fmt: skip
    thresholds = word2vec.subsample_thresholds(frequencies, 0.1)
    data = TrainingData(
        corpus.ids, corpus.starts, thresholds, word2vec.alias_table(frequencies), rows, bounds
    )
    mode = Word2VecMode(cbow, mean_context, int(random.integers(1, 4)), negative)
    results = []
    for module in (load_kernels("word2vec"), plain_word2vec):
        weights = word2vec.init_matrices(vocab, ngrams.buckets if subwords else 0, dim, seed)
        scale = np.random.default_rng(seed)
        for flat in (weights.inputs, weights.outputs):
            flat.reshape(-1, weights.stride)[:vocab, :dim] = scale.normal(size=(vocab, dim))
        if count_updates:
            sizes = (weights.inputs.size // weights.stride, weights.outputs.size // weights.stride)
            weights = weights._replace(
                input_updates=np.zeros(sizes[0], np.int32), output_updates=np.zeros(sizes[1], np.int32)
            )
        loss, targets = module.train_sentences(
            data, weights, mode, 2, len(corpus.starts) - 1, 0.1, 0.02, np.uint64(2 * seed + 1)
        )
        results.append((loss, targets, weights))
    (loss, targets, weights), (plain_loss, plain_targets, plain_weights) = results
    assert plain_targets == targets and plain_loss == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(plain_weights.inputs, weights.inputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(plain_weights.outputs, weights.outputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(plain_weights.input_updates, weights.input_updates)
    np.testing.assert_array_equal(plain_weights.output_updates, weights.output_updates)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), copies=st.integers(1, 3), rows=st.integers(1, 9))
def test_merging_copies(seed, copies, rows):
    random, stride = np.random.default_rng(seed), 2 * WIDTH
    base = random.normal(size=rows * stride).astype(np.float32)
    updates = (random.integers(0, 200, (copies, rows)) * random.integers(0, 2, (copies, rows))).astype(
        np.int32
    )
    changes = random.normal(size=(copies, rows * stride)) * np.repeat(updates > 0, stride, axis=1)
    first = int(random.integers(0, rows))
    results = []
    for module in (load_kernels("word2vec"), plain_word2vec):
        arguments = base.copy(), (base + changes).astype(np.float32), updates.copy()
        module.merge_copies(*arguments, first, rows, WIDTH, stride)
        results.append(arguments)
    for compiled, plain in zip(*results, strict=True):
        np.testing.assert_allclose(plain, compiled, rtol=1e-5, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    side=st.sampled_from(["left", "right", "both"]),
    window=st.integers(1, 5),
    pieces=st.booleans(),
)
def test_cooccurrences_have_the_same_bits(seed, side, window, pieces):
    corpus = random_corpus(seed, 9, sentences=4000 if pieces else 30)
    memory = 52_000 if pieces else 1 << 24
    results = []
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(2):
            cells = counts.cooccurrences(corpus, 9, window, side=side, memory=memory)
            results.append(cells)
            patch.setattr(available, "AVAILABLE", False)
    for compiled, plain in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, compiled)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), begin=st.integers(0, 20), length=st.integers(0, 30))
def test_streams_and_inverted_indices(seed, begin, length):
    corpus = random_corpus(seed, 9)
    begin = min(begin, len(corpus.ids))
    end = min(begin + length, len(corpus.ids))
    first = int(np.searchsorted(corpus.starts, begin, "right"))
    skip, count = (end - begin) // 3, (end - begin) // 2
    results = []
    for module in (load_kernels("cooccurrence"), plain_cooccurrence):
        out = np.empty(2 * len(corpus.ids) + 20, np.int32)
        stream = out[: module.write_stream(corpus.ids, corpus.starts, first, begin, end, out)]
        offsets, positions = np.zeros(10, np.int64), np.zeros(count, np.int32)
        module.inverted_index(stream, skip, count, offsets, positions)
        results.append((stream, offsets, positions))
    for compiled, plain in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, compiled)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), dim=st.integers(1, 20), vocab=st.integers(2, 30))
def test_glove(seed, dim, vocab):
    corpus = random_corpus(seed, vocab, sentences=40)
    cells = counts.cooccurrences(corpus, vocab, 3)
    results = []
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(2):
            results.append(glove.train(cells, dim, 3, threads=1, seed=seed))
            patch.setattr(available, "AVAILABLE", False)
    for compiled, plain in zip(*results, strict=True):
        np.testing.assert_allclose(plain, compiled, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("size", [0, 1, 2, 57])
def test_the_order_of_cells_is_the_same(size: int):
    cells = np.arange(2 * size, dtype=np.uint64).reshape(-1, 2)
    compiled, plain = cells.copy(), cells.copy()
    load_kernels("glove").shuffle(compiled, np.uint64(5))
    plain_glove.shuffle(plain, np.uint64(5))
    np.testing.assert_array_equal(plain, compiled)


NUMBERS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: f"{x:.9g}"),
    st.sampled_from(["1e5", "-.5", "+3.", "1E-3", "123456789012345678901", "1e-40", "0x10", "nan", "1_0"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_parsed_numbers(fields):
    data = " ".join(fields).encode()
    results = []
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(2):
            try:
                results.append(vector_parser._parse_numbers("file", data, len(fields), 1, 1))
            except ValueError as error:
                results.append(np.array(str(error)))
            patch.setattr(available, "AVAILABLE", False)
    np.testing.assert_array_equal(*results)


def test_a_rejected_field_is_named_by_its_bytes():
    out, rejected = np.zeros(3, np.float32), np.zeros((3, 3), np.int64)
    data = np.frombuffer(b"1.5 x7 2 9", np.uint8)
    assert plain_parse_floats.read_numbers(data, out, rejected) == (4, 1)
    assert out.tolist() == [1.5, 0, 2] and rejected[0].tolist() == [1, 4, 6]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), multiply=st.booleans(), candidates=st.integers(1, 40))
def test_analogies(seed, multiply, candidates):
    random = np.random.default_rng(seed)
    cosines = random.random((6, candidates)).astype(np.float32)
    which = random.integers(0, 6, (50, 3)).astype(np.int32)
    numbers = np.sort(random.permutation(100)[:candidates])
    results = []
    for module in (load_kernels("analogies"), plain_analogies):
        best, answers = np.full(50, 0.5, np.float32), np.full(50, -1)
        module.update_best(cosines, which, which * 7, numbers, multiply, best, answers)
        results.append((best, answers))
    (best, answers), (plain_best, plain_answers) = results
    np.testing.assert_allclose(plain_best, best, rtol=1e-5)
    np.testing.assert_array_equal(plain_answers, answers)
