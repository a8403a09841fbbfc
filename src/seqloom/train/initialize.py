"""Embeddings that start from word vectors: `embedding: {type: Embedding, vectors: FOLDER_OR_FILE, frozen: true}`  [A2].

Done once, before the first step: a checkpoint holds the table as it was learnt on, and a finished run needs the file no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from seqloom.measure import spans as chunks
from seqloom.models import Regressor, Tagger
from seqloom.nn import Embedding
from seqloom.text.fields import preview
from seqloom.text.special_tokens import SPECIALS
from seqloom.text.store import Store
from seqloom.vectors.formats import load
from seqloom.vectors.vectors import Vectors


def load_word_vectors(
    model: nn.Module, tokenizer: Tokenizer, say: Callable[[str], None] | None = None
) -> None:
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
        known = match_tokens(vectors, tokenizer)
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


def match_tokens(vectors: Vectors, tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """(token, row of its vector): by its spelling, or in lower case. Of byte-pair tokens those with their space are words."""
    found = []
    for token, number in tokenizer.get_vocab().items():
        word = tokenizer.decode([number]).strip() if token.startswith("Ġ") else token
        row = vectors.index.get(word, vectors.index.get(word.lower()))
        if row is not None and not (number < len(SPECIALS) and token == SPECIALS[number]):
            found.append((number, row))
    return sorted(found)


def initialize_from_data(model: nn.Module, store: Store, labels: Sequence[str]) -> None:
    """What a task sets in a new model from the data that it will learn."""
    if isinstance(model, Regressor):
        set_target_scale(model, store)
    elif isinstance(model, Tagger):
        check_span_tags(model, store, labels)


def set_target_scale(model: Regressor, store: Store) -> None:
    """Set the mean and the deviation of the numbers to learn."""
    numbers = store.columns("number")[0].tokens
    with torch.no_grad():
        model.mean.fill_(float(numbers.mean()))
        model.deviation.fill_(float(numbers.std()) or 1.0)


def check_span_tags(model: Tagger, store: Store, names: Sequence[str]) -> None:
    """Where tags mark spans, the sentences to learn must keep to what spans allow."""
    if not model.head.spans:
        return
    if not chunks.has_span_tags(names):
        raise ValueError(
            f"model.head.spans: {preview(names)} are not labels of spans, such as O, B-PER and I-PER; leave it out"
        )
    field = store.columns("tags")[0]
    tags, border, full = field.tokens.astype(np.int64), len(names), np.flatnonzero(np.diff(field.offsets))
    before, after = (
        np.insert(tags, field.offsets[full], border),
        np.insert(tags, field.offsets[full + 1], border),
    )
    if len(wrong := np.flatnonzero(~model.head.allowed.numpy()[before, after])):
        first, second = ([*names, "the border"][side[wrong[0]]] for side in (before, after))
        sentence = (
            full[np.searchsorted(field.offsets[full + 1] + np.arange(1, len(full) + 1), wrong[0], "right")]
            + 1
        )
        raise ValueError(
            f"sentence {sentence} of the training text has {second} after {first}, which no spans allow; leave model.head.spans out"
        )
