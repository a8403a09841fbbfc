"""Sentence embeddings: one vector for each text; texts of similar meaning have similar vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batches import pad
from seqloom.inference.generation import length_groups
from seqloom.run import Run

MAX_INPUT_TOKENS = 256  # as sentence-transformers does for MiniLM


def masked_mean(h: Tensor, mask: Tensor) -> Tensor:
    """1/n Σₜ hₜ over the real tokens: (B, T, D) → (B, D)."""
    weights = mask.to(h.dtype)
    return torch.einsum("btd,bt->bd", h, weights) / weights.sum(1, keepdim=True).clamp(min=1)


@torch.inference_mode()
def embed(
    run: Run,
    texts: Sequence[str],
    normalise: bool = True,
    length: int = MAX_INPUT_TOKENS,
    tokens: int = 4096,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """v = m / |m|,   m = 1/n Σₜ hₜ, the mean of the model's features over a text's tokens: (texts, D) in float32.

    A text longer than `length` tokens is truncated; the tokens that the template adds are kept. Texts of similar length form
    a batch of at most `tokens` tokens.
    """
    if not run.model.embeds_text:
        raise ValueError(
            f"{run.folder}: a {type(run.model).__name__} cannot embed a text; use an encoder, such as MiniLM"
        )
    max_tokens = min(length, run.model.context or length)
    before, after = run.specials.before, run.specials.after
    max_text_tokens = max_tokens - len(before) - len(after)
    if max_text_tokens < 1:
        raise ValueError(
            f"a length of {max_tokens} tokens leaves none for the text: give at least {len(before) + len(after) + 1}"
        )
    encodings = run.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    rows = [
        [*before, *encoding.ids[:max_text_tokens], *after] or [run.specials.first_id]
        for encoding in encodings
    ]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    vectors = np.zeros((len(rows), 0), np.float32)
    for group in length_groups(lengths, tokens, len(rows)):
        ids, mask = pad([np.array(rows[row], dtype=np.int64) for row in group])
        h, _ = run.model.features(ids, None, None if mask.all() else mask)
        means = masked_mean(h.float(), mask)
        if normalise:
            means = F.normalize(means, dim=-1)
        if not vectors.shape[1]:
            vectors = np.zeros((len(rows), means.shape[1]), np.float32)
        vectors[group] = means.numpy()
        if progress:
            progress(len(group))
    return vectors
