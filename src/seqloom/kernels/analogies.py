"""The search for the best answers of analogy questions: the fast form of `vectors/plain/analogies.py`, called
by `vectors/benchmarks.py`.

Arrays: cosines (W, N) float32 of the question's words with a block of N candidates, questions (Q, 3) rows of
cosines, excluded (Q, 3) ids of the question's words, candidates (N,) ids, best (Q,) float32 and answers (Q,)
ids, updated in place. Three rows of cosines, N floats each, are in the cache for a question; questions are
shared among numba's threads. Fallback: the numpy form.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from seqloom.kernels.host import cached_njit

EPSILON = 1e-6  # keeps 3CosMul's division finite


@cached_njit({"parallel": True, "fastmath": {"nnan", "nsz", "reassoc"}, "error_model": "numpy"})
def update_best(cosines, questions, excluded, candidates, multiply, best, answers):
    """Takes the best candidate of this block where it beats the best so far; `multiply` is 3CosMul, else
    3CosAdd.

    The maximum alone is a vectorised loop; single candidates are compared, and the question's own words
    skipped, only where it beats the best.
    """
    for q in nb.prange(len(questions)):
        a = cosines[questions[q, 0]]
        b = cosines[questions[q, 1]]
        c = cosines[questions[q, 2]]
        top = np.float32(-np.inf)
        if multiply:
            for x in range(len(candidates)):
                top = max(top, b[x] * c[x] / (a[x] + np.float32(EPSILON)))
        else:
            for x in range(len(candidates)):
                top = max(top, b[x] - a[x] + c[x])
        if top > best[q]:
            for x in range(len(candidates)):
                score = b[x] * c[x] / (a[x] + np.float32(EPSILON)) if multiply else b[x] - a[x] + c[x]
                if (
                    score > best[q]
                    and candidates[x] != excluded[q, 0]
                    and candidates[x] != excluded[q, 1]
                    and candidates[x] != excluded[q, 2]
                ):
                    best[q] = score
                    answers[q] = candidates[x]
