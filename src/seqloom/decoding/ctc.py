"""Texts from the distributions of frames (CTC): the best alignment, prefix beam search with a language model, and the frames of
each token of a text.

An alignment names a token or the blank for each frame; its text is the tokens without repetitions and then without blanks. Arrays are
numpy: log-probabilities (T, V) of one recording, with the blank at id 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from seqloom.errors import UserError

BLANK = 0
MIN_LOG_PROB = -14.0  # tokens less probable than this in a frame extend no prefix
MAX_BEAM = 4096


@dataclass(frozen=True)
class CTCText:
    """A text: its ids, ln P(text | frames) summed over the alignments that the search kept, the language model's ln P, and the score
    that ranks it."""

    ids: tuple[int, ...]
    logprob: float
    lm_logprob: float
    score: float


class PrefixScorer(Protocol):
    """A language model that scores prefixes of texts: ln P of each next token, and of the end of the text."""

    def __call__(self, prefixes: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
        """ids of each prefix → (n, V) and (n,)."""


@dataclass(frozen=True)
class CTCSearch:
    """How texts are ranked: ln P(text | frames) + `lm_weight` ln P_LM(text) + `bonus` × tokens, with the `beam` best prefixes of each frame.

    A `beam` of 1 without a language model is the text of the best alignment.
    """

    beam: int = 1
    scorer: PrefixScorer | None = None
    lm_weight: float = 0.0
    bonus: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.beam <= MAX_BEAM:
            raise UserError(f"a beam of {self.beam}: give 1 to {MAX_BEAM}")

    @property
    def searches(self) -> bool:
        return self.beam > 1 or self.scorer is not None

    def __call__(self, log_probs: np.ndarray, n: int = 1) -> list[CTCText]:
        """The `n` best texts of a recording, best first."""
        if not len(log_probs):
            return [CTCText((), 0.0, 0.0, 0.0)]
        if not self.searches:
            ids = greedy_text(log_probs)
            logprob = float(log_probs.max(1).sum())
            return [CTCText(ids, logprob, 0.0, logprob)]
        return prefix_beam_search(log_probs, self, n)

    def signature(self) -> str:
        """The search in a signature of a metric."""
        if not self.searches:
            return "greedy"
        lm = f"-lm{self.lm_weight:g}-bonus{self.bonus:g}" if self.scorer is not None else ""
        return f"prefix-beam{self.beam}{lm}"


def greedy_text(log_probs: np.ndarray) -> tuple[int, ...]:
    """The text of the most probable alignment."""
    best = log_probs.argmax(1)
    changes = np.concatenate([[True], best[1:] != best[:-1]])
    return tuple(best[changes & (best != BLANK)].tolist())


@dataclass
class _Prefixes:
    """The prefixes of a beam, K rows: their nodes, last tokens, parents' nodes, ln P of the alignments that end in a blank and in the last
    token, and what the language model says."""

    node: list[int]
    parent: list[int]
    last: np.ndarray
    blank: np.ndarray
    token: np.ndarray
    lm: np.ndarray
    length: np.ndarray


@dataclass
class _Trie:
    """The prefixes of a search by number; the same text always has the same number."""

    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    ids: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    next_scores: dict[int, np.ndarray] = field(default_factory=dict)
    end_scores: dict[int, float] = field(default_factory=dict)

    def child(self, node: int, token: int) -> int:
        number = self.numbers.setdefault((node, token), len(self.ids))
        if number == len(self.ids):
            self.ids.append((*self.ids[node], token))
        return number

    def score(self, nodes: list[int], scorer: PrefixScorer) -> np.ndarray:
        """The language model's ln P of each next token of these prefixes, (n, V)."""
        missing = [node for node in nodes if node not in self.next_scores]
        if missing:
            scores, ends = scorer([self.ids[node] for node in missing])
            for node, row, end in zip(missing, scores, ends.tolist(), strict=True):
                self.next_scores[node] = row
                self.end_scores[node] = end
        return np.stack([self.next_scores[node] for node in nodes])


def prefix_beam_search(log_probs: np.ndarray, search: CTCSearch, n: int = 1) -> list[CTCText]:
    """Graves's and Hannun's search: the beam holds prefixes, each with ln P of all its alignments so far, those that end in a
    blank apart from those that end in its last token.

    A frame lengthens a prefix by a token, or repeats its last token or a blank:

        b'(y)   = ln(e^b(y) + e^t(y)) + ln P(blank)
        t'(y)   = t(y) + ln P(last(y)),  and for y = z + c also ln P(c) + (b(z) if c = last(z), else ln(e^b(z) + e^t(z)))
    """
    log_probs = np.asarray(log_probs, np.float64)
    vocabulary = log_probs.shape[1]
    trie = _Trie()
    zero = np.zeros(1)
    beam = _Prefixes([0], [-1], np.array([-1]), zero, np.full(1, -np.inf), zero, zero)
    for frame in log_probs:
        tokens = np.flatnonzero(frame > max(MIN_LOG_PROB, frame.max() - 2 * -MIN_LOG_PROB))
        tokens = tokens[tokens != BLANK]
        beam = _step(beam, frame, tokens, trie, search, vocabulary)
    total = np.logaddexp(beam.blank, beam.token)
    ends = np.zeros(len(total))
    if search.scorer is not None:
        trie.score(beam.node, search.scorer)
        ends = np.array([trie.end_scores[node] for node in beam.node])
    lm = beam.lm + ends
    scores = total + search.lm_weight * lm + search.bonus * beam.length
    order = np.argsort(-scores, kind="stable")[:n]
    return [CTCText(trie.ids[beam.node[i]], float(total[i]), float(lm[i]), float(scores[i])) for i in order]


def _step(
    beam: _Prefixes, frame: np.ndarray, tokens: np.ndarray, trie: _Trie, search: CTCSearch, vocabulary: int
) -> _Prefixes:
    """The beam after one more frame, in which `tokens` may begin."""
    size = len(beam.node)
    total = np.logaddexp(beam.blank, beam.token)
    blank = total + frame[BLANK]
    repeated = beam.token + np.where(beam.last >= 0, frame[beam.last], 0.0)
    extended = total[:, None] + frame[tokens]  # (K, C)
    same = beam.last[:, None] == tokens
    extended = np.where(same, beam.blank[:, None] + frame[tokens], extended)
    # A prefix whose parent is in the beam too also gets the alignments that lengthen its parent.
    place = {node: i for i, node in enumerate(beam.node)}
    column = {int(token): c for c, token in enumerate(tokens)}
    for i in range(size):
        j = place.get(beam.parent[i])
        c = column.get(int(beam.last[i]))
        if j is not None and c is not None:
            repeated[i] = np.logaddexp(repeated[i], extended[j, c])
            extended[j, c] = -np.inf
    stay_lm = search.lm_weight * beam.lm + search.bonus * beam.length
    stay_scores = np.logaddexp(blank, repeated) + stay_lm
    new_scores = extended + stay_lm[:, None] + search.bonus
    next_lm: np.ndarray | None = None
    if search.scorer is not None and len(tokens):
        next_lm = trie.score(beam.node, search.scorer)[:, tokens]
        new_scores = new_scores + search.lm_weight * next_lm
    scores = np.concatenate([stay_scores, new_scores.ravel()])
    count = min(search.beam, int(np.isfinite(scores).sum()))
    chosen = np.argpartition(-scores, count - 1)[:count] if count < len(scores) else np.arange(len(scores))
    chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
    stays = chosen[chosen < size]
    rows, columns = np.divmod(chosen[chosen >= size] - size, max(len(tokens), 1))
    begun = tokens[columns] if len(tokens) else columns
    new_lm = beam.lm[rows] + (0.0 if next_lm is None else next_lm[rows, columns])
    return _Prefixes(
        [beam.node[i] for i in stays]
        + [trie.child(beam.node[i], int(c)) for i, c in zip(rows, begun, strict=True)],
        [beam.parent[i] for i in stays] + [beam.node[i] for i in rows],
        np.concatenate([beam.last[stays], begun]),
        np.concatenate([blank[stays], np.full(len(rows), -np.inf)]),
        np.concatenate([repeated[stays], extended[rows, columns]]),
        np.concatenate([beam.lm[stays], new_lm]),
        np.concatenate([beam.length[stays], beam.length[rows] + 1]),
    )


def align_text(log_probs: np.ndarray, ids: Sequence[int]) -> tuple[list[tuple[int, int]], float]:
    """The frames of each token in the most probable alignment of a text, (first, one after the last), and ln P of that alignment
    (Viterbi). Raises if there are fewer frames than the text needs."""
    log_probs = np.asarray(log_probs, np.float64)
    if not len(ids):
        return [], float(log_probs[:, BLANK].sum())
    if not np.isfinite(log_probs[:, ids]).any(0).all():
        raise UserError(
            "the text has characters that the recognizer never writes; give it as the texts of the training are"
        )
    length = len(log_probs)
    states = np.full(2 * len(ids) + 1, BLANK)
    states[1::2] = ids
    # A token can follow a token without a blank between them if the two differ.
    skips = np.zeros(len(states), bool)
    skips[3::2] = states[3::2] != states[1:-2:2]
    scores = np.full(len(states), -np.inf)
    scores[:2] = log_probs[0, states[:2]]
    steps = np.zeros((length, len(states)), np.int8)
    for t in range(1, length):
        choices = np.full((3, len(states)), -np.inf)
        choices[0] = scores
        choices[1, 1:] = scores[:-1]
        choices[2, 2:] = np.where(skips[2:], scores[:-2], -np.inf)
        steps[t] = choices.argmax(0)
        scores = choices.max(0) + log_probs[t, states]
    state = len(states) - 1 if scores[-1] >= scores[-2] else len(states) - 2
    best = float(scores[state])
    if not np.isfinite(best):
        raise UserError(
            f"{length} frames are too few for a text of {len(ids)} tokens; give the text of this recording"
        )
    first = [0] * len(ids)
    last = [0] * len(ids)
    for t in range(length - 1, -1, -1):
        if state % 2:
            token = state // 2
            last[token] = max(last[token], t + 1)
            first[token] = t
        state -= int(steps[t, state])
    return list(zip(first, last, strict=True)), best
