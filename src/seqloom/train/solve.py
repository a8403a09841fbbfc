"""A run that a solver trains: features of all texts in memory, the solver's weights, held-out numbers, results."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_array
from tokenizers import Tokenizer

from seqloom import __version__, evaluation, files
from seqloom.errors import ConfigError
from seqloom.models.linear import LinearClassifier
from seqloom.models.text_features import MeanVectors, TextFeatures
from seqloom.results import ProgressOption, Reporter
from seqloom.run import Run
from seqloom.text.store import Store, build
from seqloom.train import budget
from seqloom.train.initialize import match_tokens
from seqloom.train.metrics import Metrics
from seqloom.train.options import TrainResult
from seqloom.train.solvers import LabelledFeatures, Solver, count_right

if TYPE_CHECKING:
    from seqloom.measure.number import Number
    from seqloom.train.preparation import PreparedRun
    from seqloom.vectors.vectors import Vectors

logger = logging.getLogger("seqloom.train")
EPOCHS = 15  # of word vectors that are trained on the few words of labelled texts


def solve(
    folder: Path, prepared: PreparedRun, solver: Solver, progress: ProgressOption = True
) -> tuple[TrainResult, list[Number]]:
    """Fits the model of a run; what the training took, and the numbers on the held-out texts."""
    start_time = time.perf_counter()
    solver.check(prepared.model)
    model, train, valid = prepared.model, prepared.train, prepared.valid
    if not isinstance(model, LinearClassifier):
        raise TypeError(f"{type(model).__name__} has no features to fit")
    config = prepared.config
    refit = solver.refit and not config.files.valid
    # The training texts in the order of the file, those that are held out included.
    reader = config.reader(config.files.require("train"))
    everything = build(reader, prepared.tokenizer, labels=prepared.labels) if refit else train
    with torch.no_grad(), Reporter("fitting", 4, progress) as report:
        features = model.text_features
        set_word_vectors(features, prepared, everything)
        report.advance()
        if config.files.valid:
            texts, held_out = fit_features(features, train, valid)
            passes = solver.choose(model, texts, held_out, config.seed)
        else:
            (all_texts,) = fit_features(features, everything)
            final_features = {name: value.clone() for name, value in features.state_dict().items()}
            passes = solver.choose(model, all_texts, None, config.seed)
            texts, held_out = fit_features(features, train, valid)
        report.advance()
        passes += solver.fit(model, texts)
        report.advance()
        loss = count_right(model, held_out).mean_nats
        run = Run(folder, config, prepared.tokenizer, model.eval(), prepared.labels)
        numbers = evaluation.held_out(run, valid, len(valid))
        if refit:
            features.load_state_dict(final_features)
            texts = all_texts
            passes += solver.fit(model, texts)
        report.advance()
    tokens = passes * len(texts.y)
    seconds = time.perf_counter() - start_time
    metrics = Metrics(folder, True, False)
    metrics.truncate()
    metrics.add({"step": passes, "tokens": tokens, "valid_loss": loss})
    metrics.add_time(passes, seconds)
    metrics.close()
    parameters = budget.parameters(model) | {"output": own_parameters(model)}
    # A product with the weights forward, one backward; a multiplication and an addition are two FLOPs.
    flops = 4 * texts.numbers_per_text * model.labels
    estimate = budget.Estimate(parameters, flops, budget.peak_memory(), seconds, passes)
    return TrainResult(passes, loss, passes, seconds, tokens, estimate, None), numbers


def own_parameters(model: LinearClassifier) -> int:
    return sum(parameter.numel() for parameter in model.parameters(recurse=False))


def fit_features(
    features: TextFeatures, train: Store, valid: Store | None = None
) -> tuple[LabelledFeatures, ...]:
    """Fits the features to the training texts; the features and labels of the training texts, and of the held-out ones if they are given."""
    if not isinstance(features, MeanVectors):
        features.weight.fill_(1)
        specials = train.specials
        ids = {specials.pad, specials.unk, specials.bos, specials.mask, specials.eos, *specials.stop_ids} - {
            None
        }
        features.weight[[index for index in ids if index is not None and index < features.vocabulary]] = 0
    counts = count_texts(features, train)
    features.fit(counts)
    fitted = LabelledFeatures(features.matrix(counts), labels_of(train))
    if valid is None:
        return (fitted,)
    return fitted, LabelledFeatures(features.matrix(count_texts(features, valid)), labels_of(valid))


def count_texts(features: TextFeatures, store: Store) -> csr_array:
    """The word counts of all texts of the store."""
    field = store.columns("text")[0].gathered()
    return features.count_matrix(field.tokens, field.offsets)


def labels_of(store: Store) -> np.ndarray:
    return store.columns("label")[0].gathered().tokens.astype(np.int64)


def set_word_vectors(features: TextFeatures, prepared: PreparedRun, texts: Store) -> None:
    """Gives the words their vectors, from a file or trained on the words of the texts, whose labels are not read."""
    if not isinstance(features, MeanVectors):
        return
    from seqloom.vectors import formats

    if features.vectors is None:
        vectors = cached_vectors(features, prepared.tokenizer, texts, prepared.config.seed)
    else:
        vectors = formats.load(features.vectors)
    if vectors.dim != features.dim:
        raise ConfigError(
            f"{features.vectors or 'model.features'}: vectors of {vectors.dim} numbers; set model.features.dim={vectors.dim}"
        )
    matches = match_tokens(vectors, prepared.tokenizer)
    if not matches:
        raise ConfigError(
            f"{features.vectors}: no word of the training texts has a vector there; use other vectors"
        )
    ids, rows = np.array(matches).T
    features.set_vectors(ids, np.asarray(vectors.matrix)[rows])
    level = logging.INFO if features.vectors else logging.DEBUG  # vectors of these texts lack rare words only
    logger.log(level, "%d of %d words have a vector", len(ids), prepared.tokenizer.get_vocab_size())


def cached_vectors(features: MeanVectors, tokenizer: Tokenizer, texts: Store, seed: int) -> Vectors:
    """`train_vectors`, which are kept in the cache: several classifiers average the same vectors."""
    from seqloom.vectors import formats

    options = [features.method, features.dim, features.epochs, features.min_count, seed, __version__]
    name = json.dumps([*options, texts.digest])
    folder = files.cache_folder() / f"vectors-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        formats.save(train_vectors(features, tokenizer, texts, seed), folder)
        folder.chmod(0o700)
    return formats.load(folder)


def train_vectors(features: MeanVectors, tokenizer: Tokenizer, texts: Store, seed: int) -> Vectors:
    """Word vectors trained on the words of the texts. One thread, so that the seed decides the bits."""
    from seqloom.vectors.training import train

    words = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]
    eos = texts.specials.eos
    field = texts.columns("text")[0]
    sentences = [
        [words[index] for index in field.row(record).tolist() if index != eos]
        for record in range(field.num_records)
    ]
    epochs = features.epochs or (EPOCHS if features.method in ("skip-gram", "cbow") else None)
    return train(
        sentences,
        features.method,
        features.dim,
        epochs=epochs,
        min_count=features.min_count,
        subsample=0.0,
        threads=1,
        seed=seed,
        progress=False,
    )
