"""Feedback on answers in batches of similar length: pairs for one prompt, of which the first was preferred, and single judged answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.buckets import Buckets, pad, read_rows, row_lengths
from seqloom.errors import ConfigError
from seqloom.text.store import Store


class PreferenceBatch(NamedTuple):
    """P pairs in K · P rows: first the chosen texts after their prompts, then the rejected ones, then, if K = 3, each prompt with the
    chosen text of the next pair."""

    tokens: Tensor  # (K · P, T + 1): prompt and text with its <eos>, padded on the right
    token_mask: Tensor  # (K · P, T + 1): the real tokens
    mask: Tensor  # (K · P, T): the targets that belong to the text
    margins: Tensor  # (P,): by how much the first is better; 0 if the data do not say
    counted: Tensor  # (P,): the pairs that count
    reference: Tensor | None = None  # (K · P,): ln π_ref(y | x)
    carry_state: bool = False

    @property
    def ids(self) -> Tensor:
        """The tokens that the model reads, (K · P, T)."""
        return self.tokens[:, :-1]

    @property
    def targets(self) -> Tensor:
        """The token after each, (K · P, T)."""
        return self.tokens[:, 1:]

    def first_groups(self, rows: int) -> PreferenceBatch:
        """The first pairs, of about so many rows in all."""
        pairs = max(1, rows * self.num_pairs // len(self.tokens))
        index = torch.arange(len(self.tokens)).view(-1, self.num_pairs)[:, :pairs].flatten()
        tokens, token_mask, mask = (tensor[index] for tensor in self[:3])
        reference = None if self.reference is None else self.reference[index]
        return PreferenceBatch(
            tokens, token_mask, mask, self.margins[:pairs], self.counted[:pairs], reference
        )

    @property
    def num_pairs(self) -> int:
        return len(self.margins)

    @property
    def num_targets(self) -> int:
        """The number of pairs that count in the loss."""
        return int(self.counted.sum())


class Comparisons(Buckets):
    """Preferences in batches in which rows × longest row is at most `batch_tokens`. A preference with a chat of more than `max_length`
    tokens is skipped in training. `mismatched` adds to each prompt the chosen answer of the next pair, which KTO needs."""

    def __init__(
        self,
        store: Store,
        batch_tokens: int = 4096,
        max_length: int = 512,
        shuffle_pool: int = 4096,
        mismatched: bool = False,
        seed: int = 0,
    ):
        if store.names != ("answer", "counted", "answer", "counted"):
            columns = ", ".join(store.names)
            raise ConfigError(f"the records have {columns}: use corpus Preferences, which has two answers")
        super().__init__(store, batch_tokens, max_length, shuffle_pool, seed)
        self.mismatched = mismatched
        self.num_skipped = int((self.lengths(np.arange(len(store))) > max_length).sum())
        if self.num_skipped == len(store):
            raise ConfigError(
                f"every preference is longer than batches.max_length={max_length} tokens: raise it"
            )

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.maximum(*(row_lengths(column, index) for column in self.store.columns("answer")))

    def full_lengths(self, index: np.ndarray) -> np.ndarray:
        return (3 if self.mismatched else 2) * self.lengths(index)  # all rows of a pair

    def collate(self, index: np.ndarray, counted: bool = True) -> PreferenceBatch:
        chats = [row for column in self.store.columns("answer") for row in read_rows(column, index)]
        flags = [row for column in self.store.columns("counted") for row in read_rows(column, index)]
        # what a template writes after the end of an answer is not read, as after a sampled text
        ends = [int(np.flatnonzero(row)[-1]) + 1 if row.any() else len(row) for row in flags]
        chats = [row[:end] for row, end in zip(chats, ends, strict=True)]
        flags = [row[:end] for row, end in zip(flags, ends, strict=True)]
        if self.mismatched:
            pairs = len(index)
            for i in range(pairs):
                other = (i + 1) % pairs
                prompt = flags[i] == 0
                answer = flags[other] > 0
                chats.append(np.concatenate([chats[i][prompt], chats[other][answer]]))
                flags.append(np.concatenate([flags[i][prompt], flags[other][answer]]))
        tokens, mask = pad(chats)
        is_answer = pad(flags)[0][:, 1:] > 0
        none = torch.zeros(len(index))
        return PreferenceBatch(
            tokens, mask, is_answer & mask[:, 1:], none, torch.full((len(index),), counted)
        )


class JudgedBatch(NamedTuple):
    """Answers after their prompts, and whether each is good."""

    tokens: Tensor  # (B, T): prompt and answer with its end, padded on the right
    token_mask: Tensor  # (B, T): the real tokens
    targets: Tensor  # (B,): 1 for a good answer, else 0
    mask: Tensor  # (B,): the answers that count
    carry_state: bool = False

    @property
    def ids(self) -> Tensor:
        """The tokens that the model reads."""
        return self.tokens

    @property
    def num_targets(self) -> int:
        """The number of answers that count in the loss."""
        return int(self.mask.sum())


class Judgements(Buckets):
    """Judged answers in batches in which rows × longest row is at most `batch_tokens`. Of a longer chat the last `max_length` tokens are read."""

    def __init__(
        self,
        store: Store,
        batch_tokens: int = 4096,
        max_length: int = 512,
        shuffle_pool: int = 4096,
        seed: int = 0,
    ):
        if store.names != ("answer", "counted", "label"):
            columns = ", ".join(store.names)
            raise ConfigError(f"the records have {columns}: use corpus Judged, whose answers are good or bad")
        super().__init__(store, batch_tokens, max_length, shuffle_pool, seed)

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.minimum(row_lengths(self.store.columns("answer")[0], index), self.max_length)

    def collate(self, index: np.ndarray, counted: bool = True) -> JudgedBatch:
        answers, flags, labels = (
            read_rows(self.store.columns(name)[0], index) for name in ("answer", "counted", "label")
        )
        ends = [int(np.flatnonzero(flag)[-1]) + 1 if flag.any() else len(flag) for flag in flags]
        chats = [row[max(0, end - self.max_length) : end] for row, end in zip(answers, ends, strict=True)]
        targets = torch.tensor([float(label[0]) for label in labels])  # false is label 0, true is label 1
        return JudgedBatch(*pad(chats), targets, torch.full((len(index),), counted))
