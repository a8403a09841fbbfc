"""The feature sets of the classifiers' table, each computed from the training texts alone  [B4]."""

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
from seqloom.vectors.training import Method, ProgressCallback, VectorOptions, train
from seqloom.vectors.vocabulary import VocabOptions

TRAINED: dict[str, Method] = {
    "PPMI-SVD averaged": "ppmi-svd",
    "skip-gram averaged": "skip-gram",
    "CBOW averaged": "cbow",
    "GloVe averaged": "glove",
}


def feature_sets(
    texts: Sequence[str],
    vectors_path: Path | None,
    ngrams: int,
    min_count: int,
    dim: int,
    quick: bool,
    seed: int,
    progress: ProgressCallback | None = None,
) -> list[Features]:
    """Bag of words, TF-IDF, its SVD, and mean vectors.

    The vectors are trained on these texts by each method, or loaded from `vectors_path`. `quick` leaves out
    the SVD and the trained vectors.
    """
    bag = bag_of_words_features(texts, min_count, ngrams)
    weighted = tfidf_features(bag, texts)
    sets = [bag, weighted]
    if not quick:
        sets.append(lsa_features(weighted, texts, dim, seed))
        sentences = [tokens(text) for text in texts]
        for name, method in TRAINED.items():
            # A small corpus needs more epochs and no sub-sampling; with one thread the seed decides the table.
            epochs = 15 if method in ("skip-gram", "cbow") else None
            options = VectorOptions(method, dim, epochs=epochs, subsample=0.0)
            vocab = VocabOptions(max(2, min_count))
            try:
                vectors = train(sentences, options, vocab, threads=1, seed=seed, progress=progress)
            except (
                ValueError
            ) as error:  # too little text to train vectors on; the other features may still work
                if progress:
                    progress(f"no {name}: {error}", 1.0)
                continue
            sets.append(mean_vector_features(vectors, texts, name))
    if vectors_path is not None:
        vectors = formats.load(vectors_path)
        sets.append(mean_vector_features(vectors, texts, f"{vectors_path.name} averaged"))
    return sets


def conditions(train: str, test: str, ngrams: int, min_count: int, dim: int) -> dict[str, object]:
    """What the figures depend on besides features and classifier."""
    digests = {name: files.sha256(local_copy(path))[:12] for name, path in (("train", train), ("test", test))}
    return {**digests, "ngrams": ngrams, "minimum": min_count, "dim": dim}
