"""Initial values of a new model: word vectors in its embeddings, and what a task takes from the training data.

`embedding: {type: Embedding, vectors: FOLDER_OR_FILE, frozen: true}` starts an embedding from word vectors  [A2]. This
happens once, before the first step: a checkpoint holds the trained table, so a resumed or finished run does not read
the vectors again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from seqloom.errors import ConfigError
from seqloom.nn.embedding import Embedding
from seqloom.text.fields import preview
from seqloom.text.store import Store
from seqloom.text.tokenizer import SPECIALS

if TYPE_CHECKING:
    from seqloom.models import Regressor, Tagger
    from seqloom.vectors.vectors import Vectors

SCALE_RECORDINGS = 2000
MIN_DEVIATION = 1e-3
logger = logging.getLogger("seqloom.train")


def load_word_vectors(model: nn.Module, tokenizer: Tokenizer) -> None:
    """Copies the vectors that each embedding names into the rows of the matching tokens; other rows stay random."""
    for name, part in model.named_modules():
        if not isinstance(part, Embedding) or part.vectors is None:
            continue
        from seqloom.vectors.formats import load

        vectors = load(part.vectors)
        dim = part.table.shape[1]
        if vectors.dim != dim:
            raise ConfigError(
                f"{part.vectors}: vectors of {vectors.dim} numbers do not fit an embedding of {dim}; "
                f"set model.dim to {vectors.dim} or use other vectors"
            )
        matches = match_tokens(vectors, tokenizer)
        if not matches:
            raise ConfigError(
                f"{part.vectors}: none of the tokenizer's tokens has a vector there; "
                "use a Words tokenizer or other vectors"
            )
        token_ids = torch.tensor([token_id for token_id, _ in matches])
        rows = np.asarray(vectors.matrix[[row for _, row in matches]], dtype=np.float32)
        with torch.no_grad():
            part.table[token_ids] = torch.from_numpy(rows).to(part.table) / part.factor
        state = "trained further" if part.table.requires_grad else "frozen"
        found, total = f"{len(matches):,}", f"{tokenizer.get_vocab_size():,}"
        logger.info("%s: %s of %s tokens start from %s, %s", name, found, total, part.vectors, state)


def match_tokens(vectors: Vectors, tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """(token id, row of its vector) for each token that has a vector under its spelling, or its spelling in lower case.

    Of byte-level BPE tokens, those that begin with a space are words.
    """
    result = []
    for token, token_id in tokenizer.get_vocab().items():
        word = tokenizer.decode([token_id]).strip() if token.startswith("Ġ") else token
        row = vectors.index.get(word, vectors.index.get(word.lower()))
        is_special = token_id < len(SPECIALS) and token == SPECIALS[token_id]
        if row is not None and not is_special:
            result.append((token_id, row))
    return sorted(result)


def initialize_from_data(model: nn.Module, store: Store, labels: Sequence[str]) -> None:
    """Sets what a new model takes from its training data, and checks the data against the model."""
    from seqloom.models import Regressor, Tagger

    if store.names[:1] == ("audio",):
        set_frame_scale(model, store)
    if isinstance(model, Regressor):
        set_target_scale(model, store)
    elif isinstance(model, Tagger):
        check_span_tags(model, store, labels)


def set_target_scale(model: Regressor, store: Store) -> None:
    """Sets the mean and the standard deviation of the target numbers."""
    numbers = store.columns("number")[0].gathered().tokens
    with torch.no_grad():
        model.mean.fill_(float(numbers.mean()))
        model.deviation.fill_(float(numbers.std()) or 1.0)


def set_frame_scale(model: nn.Module, store: Store) -> None:
    """Sets the mean and the standard deviation of every number of a frame, of at most SCALE_RECORDINGS recordings."""
    from seqloom.nn.frames import SoundEncoder

    (audio,) = store.columns("audio")
    bins = int(store.columns("audio_shape")[0].row(0)[1])
    chosen = np.unique(np.linspace(0, len(store) - 1, min(len(store), SCALE_RECORDINGS)).astype(np.int64))
    sums, squares, count = np.zeros(bins), np.zeros(bins), 0
    for record in chosen:
        frames = audio.row(int(record)).reshape(-1, bins).astype(np.float64)
        sums += frames.sum(0)
        squares += (frames**2).sum(0)
        count += len(frames)
    mean = sums / max(count, 1)
    deviation = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, MIN_DEVIATION**2))
    for part in model.modules():
        if isinstance(part, SoundEncoder):
            with torch.no_grad():
                part.mean.copy_(torch.from_numpy(mean))
                part.deviation.copy_(torch.from_numpy(deviation))


def check_span_tags(model: Tagger, store: Store, names: Sequence[str]) -> None:
    """Raises if the head restricts tags to spans and the training data has a sequence of tags that is not a span."""
    if not model.head.spans:
        return
    from seqloom.measure.spans import has_span_tags

    if not has_span_tags(names):
        raise ConfigError(
            f"model.head.spans: {preview(names)} are not span labels, such as O, B-PER and I-PER; remove it"
        )
    column = store.columns("tags")[0]
    field = column.gathered()
    tags = field.tokens.astype(np.int64)
    boundary = len(names)  # the tag before the first and after the last word of a sentence
    sentences = np.flatnonzero(np.diff(field.offsets))  # without the empty ones
    before = np.insert(tags, field.offsets[sentences], boundary)
    after = np.insert(tags, field.offsets[sentences + 1], boundary)
    if model.head.allowed is None:
        return
    wrong = np.flatnonzero(~model.head.allowed.numpy()[before, after])
    if len(wrong):
        first, second = ([*names, "the border"][side[wrong[0]]] for side in (before, after))
        ends = field.offsets[sentences + 1] + np.arange(1, len(sentences) + 1)
        sentence = column.number(sentences[np.searchsorted(ends, wrong[0], "right")]) + 1
        raise ConfigError(
            f"sentence {sentence} of the training text has {second} after {first}, which no spans allow; "
            "leave model.head.spans out"
        )
