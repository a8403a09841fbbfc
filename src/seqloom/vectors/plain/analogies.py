"""The best answers to analogies in one block of candidates: the plain form of `kernels/analogies.py`."""

from __future__ import annotations

import numpy as np

EPSILON = np.float32(1e-6)  # keeps 3CosMul's division finite
QUESTIONS = 1024  # scored together, to bound memory


def update_best(
    cosines: np.ndarray,
    which: np.ndarray,
    questions: np.ndarray,
    candidates: np.ndarray,
    multiply: bool,
    best: np.ndarray,
    answers: np.ndarray,
) -> None:
    """Replaces a question's best score and answer where a candidate of this block beats it.

    `cosines` (W, C) are those of each distinct word of the questions with each of the C candidates, `which`
    (Q, 3) the rows of `cosines` for each question. The three words of a question are never its answer.
    """
    for start in range(0, len(which), QUESTIONS):
        part = slice(start, start + QUESTIONS)
        a, b, c = (cosines[which[part, i]] for i in range(3))  # (Q, C) each
        scores = b * c / (a + EPSILON) if multiply else b - a + c
        own = (candidates[None, :, None] == questions[part, None, :]).any(2)
        scores[own] = -np.inf
        top = scores.argmax(1)
        values = scores[np.arange(len(top)), top]
        better = np.flatnonzero(values > best[part])
        best[start + better] = values[better]
        answers[start + better] = candidates[top[better]]
