"""Word vectors: counts, PMI, SVD, word2vec, GloVe, vector files, benchmarks, and classical text classifiers. No torch.

from seqloom import vectors
v = vectors.train("input.txt", dim=100)
v.nearest("king")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.lazy import lazy_names

__all__ = [
    "BenchmarkScore",
    "BilingualLexicon",
    "Neighbor",
    "Vectors",
    "WordMap",
    "convert",
    "evaluate",
    "lexicon",
    "load",
    "map",
    "train",
]

if TYPE_CHECKING:
    from seqloom.vectors.benchmarks import BenchmarkScore, evaluate
    from seqloom.vectors.bilingual import BilingualLexicon, lexicon
    from seqloom.vectors.formats import convert, load
    from seqloom.vectors.projection import WordMap
    from seqloom.vectors.projection import write_map as map
    from seqloom.vectors.training import train
    from seqloom.vectors.vectors import Neighbor, Vectors

_NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)
