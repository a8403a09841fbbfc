"""Data files: what they hold, how they are divided, which records they share; tokenizers; the cache; the built-in world's text.

from seqloom import data
data.show("reviews.tsv").labels               # {"pos": 3610, "neg": 3310}
data.split("reviews.tsv", "parts", test=0.1)  # parts/train.tsv, parts/valid.tsv, parts/test.tsv
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.lazy import lazy_names

if TYPE_CHECKING:
    from seqloom.data.augmenting import augment
    from seqloom.data.caching import cache, prune
    from seqloom.data.overlap import leaks
    from seqloom.data.splitting import split
    from seqloom.data.tokenizing import train_tokenizer
    from seqloom.data.viewing import show
    from seqloom.data.world_files import write_world

__all__ = ["augment", "cache", "leaks", "prune", "show", "split", "train_tokenizer", "write_world"]

NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)
