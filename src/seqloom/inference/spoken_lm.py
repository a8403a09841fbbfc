"""Our language models as scorers of the prefixes of transcripts (shallow fusion).

A language model over characters scores each letter of a prefix. Any other scores whole words: a word counts when the space after it, or
the end of the text, is reached. Prefixes that were scored before are remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from seqloom.batches.buckets import pad
from seqloom.errors import RunError
from seqloom.run import Run

MAX_CACHED = 200_000  # texts whose probability is remembered


def make_scorer(recognizer: Run, lm: Run) -> CharacterScorer | WholeWordScorer:
    """The scorer of a language model for the tokens of a recognizer."""
    if not (lm.model.generates and lm.model.continues):
        raise RunError(f"{lm.folder}: a {lm.model.task} model scores no transcripts; give a language model")
    pieces = [recognizer.decode([token]) for token in range(recognizer.tokenizer.get_vocab_size())]
    vocabulary = [token for token in lm.tokenizer.get_vocab() if not token.startswith("<") or len(token) == 1]
    if all(len(piece) <= 1 for piece in pieces) and all(len(token) == 1 for token in vocabulary):
        return CharacterScorer(lm, pieces)
    return WholeWordScorer(lm, pieces)


class LanguageScorer:
    """What both scorers share: how a text begins and ends for the language model."""

    def __init__(self, lm: Run, pieces: list[str]):
        self.lm = lm
        self.pieces = pieces
        self.start, _ = lm.encode([""], as_prompt=True)
        newline = lm.tokenizer.encode("\n", add_special_tokens=False).ids
        self.end = lm.specials.eos if lm.adds_eos or not newline else newline[0]
        self.context = lm.model.context

    @torch.inference_mode()
    def next_log_probs(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """ln P of each token of the language model after these ids: (n, V)."""
        first = self.start[0].tolist()
        room = None if self.context is None else self.context - len(first)
        texts = [[*first, *(row if room is None else row[max(0, len(row) - room) :])] for row in rows]
        ids, mask = pad([np.array(text) for text in texts])
        h, _ = self.lm.model.features(ids, None, mask)
        last = h[torch.arange(len(h)), mask.sum(1) - 1]
        return self.lm.model.output(last[:, None])[:, 0].float().log_softmax(-1).numpy()


class CharacterScorer(LanguageScorer):
    """ln P(c | prefix) for each token of the recognizer, by a language model over characters."""

    def __init__(self, lm: Run, pieces: list[str]):
        super().__init__(lm, pieces)
        unk = lm.specials.unk
        found = [lm.tokenizer.encode(piece, add_special_tokens=False).ids for piece in pieces]
        self.ids = np.array([ids[0] if len(ids) == 1 else -1 if unk is None else unk for ids in found])

    def __call__(self, prefixes: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
        scores = self.next_log_probs([self.ids[list(prefix)].tolist() for prefix in prefixes])
        return scores[:, self.ids], scores[:, self.end]


class WholeWordScorer(LanguageScorer):
    """ln P of the words that a prefix completes: 0 for the letters inside a word, all of the word for the space after it."""

    def __init__(self, lm: Run, pieces: list[str]):
        super().__init__(lm, pieces)
        self.is_space = np.array([piece.isspace() for piece in pieces])
        self.begins_word = np.array([piece[:1].isspace() and not piece.isspace() for piece in pieces])
        self.cache: dict[tuple[str, bool], float] = {}

    def text_log_prob(self, text: str, ends: bool) -> float:
        """ln P(text) of complete words, with the end of the text if it `ends`."""
        key = (text, ends)
        if key not in self.cache:
            if len(self.cache) > MAX_CACHED:
                self.cache.clear()
            self.cache[key] = self.compute(text, ends)
        return self.cache[key]

    @torch.inference_mode()
    def compute(self, text: str, ends: bool) -> float:
        ids = self.lm.tokenizer.encode(text, add_special_tokens=False).ids + ([self.end] if ends else [])
        ids = ids if self.context is None else ids[: self.context]
        if not ids:
            return 0.0
        row = torch.tensor([[*self.start[0].tolist(), *ids]])
        h, _ = self.lm.model.features(row[:, :-1])
        log_probs = self.lm.model.output(h[:, -len(ids) :]).float().log_softmax(-1)
        return float(log_probs[0].gather(-1, row[0, -len(ids) :, None]).sum())

    def __call__(self, prefixes: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
        scores = np.zeros((len(prefixes), len(self.pieces)), np.float32)
        ends = np.zeros(len(prefixes), np.float32)
        boundary = self.is_space | self.begins_word
        for row, prefix in enumerate(prefixes):
            text = "".join(self.pieces[token] for token in prefix)
            complete, _, word = text.strip().rpartition(" ")
            before = self.text_log_prob(complete, False) if complete else 0.0
            if word and not text.endswith(" "):
                scores[row, boundary] = self.text_log_prob(" ".join(text.split()), False) - before
            else:
                before = self.text_log_prob(" ".join(text.split()), False) if text.strip() else 0.0
            ends[row] = self.text_log_prob(" ".join(text.split()), True) - before
        return scores, ends
