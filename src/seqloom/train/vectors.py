"""Embeddings that start from word vectors: `embedding: {type: Embedding, vectors: FOLDER_OR_FILE, frozen: true}`  [A2].

Done once, before the first step: a checkpoint holds the table as it was learnt on, and a finished run needs the file no more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from seqloom.nn import Embedding
from seqloom.text.tokenizer import SPECIALS
from seqloom.words.formats import load
from seqloom.words.vectors import Vectors


def begin(model: nn.Module, tokenizer: Tokenizer, say: Callable[[str], None] | None = None) -> None:
    """Put the vectors that each embedding names into the rows of the tokens that are spelt so; the other rows keep their random start."""
    for name, part in model.named_modules():
        if not isinstance(part, Embedding) or part.vectors is None:
            continue
        vectors = load(part.vectors)
        if vectors.dim != part.table.shape[1]:
            raise ValueError(
                f"{part.vectors}: vectors of {vectors.dim} numbers do not fit an embedding of {part.table.shape[1]}; "
                f"set model.dim to {vectors.dim} or use other vectors"
            )
        known = rows(vectors, tokenizer)
        if not known:
            raise ValueError(
                f"{part.vectors}: not one token of the tokenizer has a vector there; use a Words tokenizer or other vectors"
            )
        places = torch.tensor([token for token, _ in known])
        found = np.asarray(vectors.matrix[[row for _, row in known]], dtype=np.float32)
        with torch.no_grad():
            part.table[places] = torch.from_numpy(found).to(part.table) / part.factor
        if say:
            kept = "which stay as they are" if not part.table.requires_grad else "and learn on"
            say(
                f"{name}: {len(known):,} of {tokenizer.get_vocab_size():,} tokens start from {part.vectors}, {kept}"
            )


def rows(vectors: Vectors, tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """(token, row of its vector): by its spelling, or in lower case. Of byte-pair tokens those with their space are words."""
    found = []
    for token, number in tokenizer.get_vocab().items():
        word = tokenizer.decode([number]).strip() if token.startswith("Ġ") else token
        row = vectors.index.get(word, vectors.index.get(word.lower()))
        if row is not None and not (number < len(SPECIALS) and token == SPECIALS[number]):
            found.append((number, row))
    return sorted(found)
