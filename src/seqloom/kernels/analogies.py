"""How good word vectors are: rank correlation with people's judgements of similarity, and analogies answered right.

Every figure carries its interval, how much of the file the vocabulary covers, and its signature. Words that have no vector are left out and
counted, never guessed.
"""

from __future__ import annotations

import numba as nb
import numpy as np

EPSILON = 1e-6  # keeps 3CosMul's division finite


@nb.njit(parallel=True, fastmath={"nnan", "nsz", "reassoc"}, cache=True, error_model="numpy")
def update_best(cosines, which, asked, here, multiply, best, found):
    """Take the best candidate of this block where it beats what was found before. The maximum alone is a loop of plain arithmetic; only
    where it beats the best are single candidates looked at, and the question's own words passed over."""
    for q in nb.prange(len(which)):
        a, b, c = cosines[which[q, 0]], cosines[which[q, 1]], cosines[which[q, 2]]
        top = np.float32(-np.inf)
        if multiply:
            for x in range(len(here)):
                top = max(top, b[x] * c[x] / (a[x] + np.float32(EPSILON)))
        else:
            for x in range(len(here)):
                top = max(top, b[x] - a[x] + c[x])
        if top > best[q]:
            for x in range(len(here)):
                score = b[x] * c[x] / (a[x] + np.float32(EPSILON)) if multiply else b[x] - a[x] + c[x]
                if (
                    score > best[q]
                    and here[x] != asked[q, 0]
                    and here[x] != asked[q, 1]
                    and here[x] != asked[q, 2]
                ):
                    best[q], found[q] = score, here[x]
