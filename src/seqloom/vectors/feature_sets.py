"""The feature sets of the classifiers' table, each learnt from the training texts alone  [B4]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqloom import files
from seqloom.text.lines import local_copy
from seqloom.vectors import formats
from seqloom.vectors.features import (
    Features,
    bag_of_words_features,
    lsa_features,
    mean_vector_features,
    tfidf_features,
    tokens,
)
from seqloom.vectors.training import ProgressCallback, train

TRAINED = {
    "PPMI-SVD averaged": "ppmi-svd",
    "skip-gram averaged": "skip-gram",
    "CBOW averaged": "cbow",
    "GloVe averaged": "glove",
}


def feature_sets(
    texts: Sequence[str],
    given: Path | None,
    ngrams: int,
    minimum: int,
    dim: int,
    quick: bool,
    seed: int,
    say: ProgressCallback | None = None,
) -> list[Features]:
    """Bag of words, TF-IDF, its SVD, and averaged vectors: learnt by each method from these texts, and those of a file where given."""
    plain = bag_of_words_features(texts, minimum, ngrams)
    weighted = tfidf_features(plain, texts)
    sets = [plain, weighted]
    if not quick:
        sets.append(lsa_features(weighted, texts, dim, seed))
        sentences = [tokens(text) for text in texts]
        for name, kind in TRAINED.items():
            # A small corpus needs more passes and no thinning out; one thread makes the table a function of the seed.
            epochs = 15 if kind in ("skip-gram", "cbow") else None
            try:
                vectors = train(
                    sentences,
                    kind,
                    dim,
                    epochs=epochs,
                    minimum=max(2, minimum),
                    sample=0.0,
                    seed=seed,
                    threads=1,
                    say=say,
                )
            except ValueError as error:  # too little text for vectors of its own; the other features may do
                if say:
                    say(f"no {name}: {error}", 1.0)
                continue
            sets.append(mean_vector_features(vectors, texts, name))
    if given is not None:
        vectors = formats.load(given)
        sets.append(mean_vector_features(vectors, texts, f"{given.name} averaged"))
    return sets


def conditions(train: str, test: str, ngrams: int, minimum: int, dim: int) -> dict[str, object]:
    """What decides the figures besides features and classifier."""
    digests = {name: files.sha256(local_copy(path))[:12] for name, path in (("train", train), ("test", test))}
    return {**digests, "ngrams": ngrams, "minimum": minimum, "dim": dim}
