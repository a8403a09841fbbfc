"""Sentence embeddings: one vector for each text; texts of similar meaning have similar vectors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, overload

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batches import pad
from seqloom.errors import UserError
from seqloom.inference.completion import length_groups
from seqloom.inference.one_or_many import Texts, apply, is_text, require_texts
from seqloom.inference.unknown_text import UnknownText
from seqloom.inference.verbs import wrong_verb
from seqloom.run import Run, RunLike, as_run

logger = logging.getLogger("seqloom.inference")
MAX_INPUT_TOKENS = 256  # as sentence-transformers does for MiniLM


def masked_mean(h: Tensor, mask: Tensor) -> Tensor:
    """1/n Σₜ hₜ over the real tokens: (B, T, D) → (B, D)."""
    weights = mask.to(h.dtype)
    return torch.einsum("btd,bt->bd", h, weights) / weights.sum(1, keepdim=True).clamp(min=1)


@overload
def embed(
    run: RunLike, texts: str, *, normalize: bool = True, max_input_tokens: int = MAX_INPUT_TOKENS
) -> np.ndarray: ...
@overload
def embed(
    run: RunLike, texts: Texts, *, normalize: bool = True, max_input_tokens: int = MAX_INPUT_TOKENS
) -> np.ndarray: ...
@overload
def embed(
    run: RunLike, texts: Iterator[str], *, normalize: bool = True, max_input_tokens: int = MAX_INPUT_TOKENS
) -> Iterator[np.ndarray]: ...
def embed(
    run: RunLike,
    texts: str | Texts | Iterator[str],
    *,
    normalize: bool = True,
    max_input_tokens: int = MAX_INPUT_TOKENS,
) -> Any:
    """v = m / |m|,   m = 1/n Σₜ hₜ, the mean of the model's features over a text's tokens, in float32: (D,) for one text,
    (texts, D) for a list.

    A text longer than `max_input_tokens` is cut there, with a warning in the log; the tokens that the template adds are kept.

    >>> seqloom.embed(encoder, "the old cat").shape
    (4,)
    >>> seqloom.embed(encoder, ["the old cat", "a dog"]).shape
    (2, 4)
    """
    embedder = Embedder(as_run(run), normalize, max_input_tokens)
    if is_text(texts) and not str(texts).strip():
        raise UserError("an empty text has no vector; give a text with words in it")
    unknown = UnknownText(embedder.run)
    return apply(texts, unknown.watch(embedder), collect=np.asarray, after=unknown.warn)


class Embedder:
    """Embeds texts with one run. The first text that is cut is reported, the others are not."""

    def __init__(self, run: Run, normalize: bool, max_input_tokens: int, batch_tokens: int = 4096):
        if not run.model.embeds_text:
            raise wrong_verb(run, "embed")
        self.run = run
        self.normalize = normalize
        self.batch_tokens = batch_tokens
        self.max_tokens = min(max_input_tokens, run.model.context or max_input_tokens)
        self.max_text_tokens = self.max_tokens - len(run.specials.before) - len(run.specials.after)
        if self.max_text_tokens < 1:
            least = self.max_tokens - self.max_text_tokens + 1
            raise UserError(
                f"max_input_tokens of {self.max_tokens} leave none for the text: give at least {least}"
            )
        self.warned = False

    @torch.inference_mode()
    def __call__(self, texts: list[str]) -> Any:
        """The vectors of several texts (texts, D). Texts of similar length form a batch."""
        require_texts(texts)
        if not texts:
            return self(["a"])[:0]
        rows = self.rows(texts)
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        vectors = np.zeros((len(rows), 0), np.float32)
        for group in length_groups(lengths, self.batch_tokens, len(rows)):
            ids, mask = pad([np.array(rows[row], dtype=np.int64) for row in group])
            h, _ = self.run.model.features(ids, None, None if mask.all() else mask)
            means = masked_mean(h.float(), mask)
            if self.normalize:
                means = F.normalize(means, dim=-1)
            if not vectors.shape[1]:
                vectors = np.zeros((len(rows), means.shape[1]), np.float32)
            vectors[group] = means.numpy()
        return vectors

    def rows(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, cut and framed."""
        specials = self.run.specials
        encodings = self.run.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        too_long = sum(len(encoding.ids) > self.max_text_tokens for encoding in encodings)
        if too_long and not self.warned:
            self.warned = True
            context = self.run.model.context
            limit = "the model reads no more" if self.max_tokens == context else "raise max_input_tokens"
            logger.warning("a text is cut at %d tokens: %s", self.max_tokens, limit)
        return [
            [*specials.before, *encoding.ids[: self.max_text_tokens], *specials.after] or [specials.first_id]
            for encoding in encodings
        ]
