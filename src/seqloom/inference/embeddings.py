"""Sentence embeddings: one vector for each text, near where meanings are near."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.run import Run

MAX_INPUT_TOKENS = 256  # tokens that are read of a text, as sentence-transformers does for MiniLM


def masked_mean(h: Tensor, mask: Tensor) -> Tensor:
    """1/n Σₜ hₜ over the real tokens: (B, T, D) → (B, D)."""
    real = mask.to(h.dtype)
    return torch.einsum("btd,bt->bd", h, real) / real.sum(1, keepdim=True).clamp(min=1)


@torch.inference_mode()
def embed(
    run: Run,
    texts: Sequence[str],
    normalise: bool = True,
    length: int = MAX_INPUT_TOKENS,
    tokens: int = 4096,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """v = m / |m|,   m = 1/n Σₜ hₜ, the mean of the model's features over a text's tokens: (texts, D) in 32 bits.

    A text longer than `length` tokens is cut, and the token that closes it kept. Texts of like length go together, as many as fit `tokens`.
    """
    if not run.model.embeds_text:
        raise ValueError(
            f"{run.folder}: a {type(run.model).__name__} gives no vector for a text; use an encoder, such as MiniLM"
        )
    length = min(length, run.model.context or length)
    before, after = run.specials.before, run.specials.after
    if length < len(before) + len(after) + 1:
        raise ValueError(f"a length of {length} leaves no room for text: give more")
    most = length - len(before) - len(after)
    rows = [
        [*before, *encoding.ids[:most], *after]
        for encoding in run.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    ]
    rows = [row or [run.specials.first_id] for row in rows]
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    found = np.zeros((len(rows), 0), np.float32)
    while order:
        chosen = [order.pop()]
        longest = len(rows[chosen[0]])
        while order and (len(chosen) + 1) * longest <= tokens:
            chosen.append(order.pop())
        ids = torch.zeros(len(chosen), longest, dtype=torch.int64)
        mask = torch.zeros(len(chosen), longest, dtype=torch.bool)
        for place, row in enumerate(chosen):
            ids[place, : len(rows[row])], mask[place, : len(rows[row])] = torch.tensor(rows[row]), True
        h, _ = run.model.features(ids, None, None if mask.all() else mask)
        vectors = masked_mean(h.float(), mask)
        vectors = F.normalize(vectors, dim=-1) if normalise else vectors
        found = np.zeros((len(rows), vectors.shape[1]), np.float32) if not found.shape[1] else found
        found[chosen] = vectors.numpy()
        if progress:
            progress(len(chosen))
    return found
