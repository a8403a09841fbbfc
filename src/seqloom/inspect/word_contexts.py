"""One word's vectors in many contexts, beside its static vector   [A13, X25]

The vector of a word in a text is the mean of its tokens' vectors at one layer. At the embedding it is the same in every text; above it, it
depends on the context. The picture shows the first two principal components.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from seqloom.errors import DataError
from seqloom.inspect.given_texts import check_text, check_texts
from seqloom.inspect.layer_vectors import text_vectors
from seqloom.inspect.token_list import framed_spans
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run import RunLike, as_run

GROUPS = 5  # neighbours that have a marker of their own


@dataclass(frozen=True)
class Context(Result):
    """One occurrence of the word: where it is, where its vector is on the map, and which other occurrence is nearest."""

    text: str
    start: int
    end: int
    x: float
    y: float
    neighbour: str  # the most frequent word next to it that some of the other contexts have too
    nearest: int  # the number of the context whose vector is nearest by cosine
    nearest_cosine: float


@dataclass(frozen=True)
class Contexts(Result):
    """All occurrences of a word."""

    run: str
    word: str
    layer: str
    contexts: tuple[Context, ...] = field(repr=False)
    mean_cosine: float  # of all pairs at the layer
    static_layer: str
    static_mean_cosine: float  # of all pairs at the embedding
    variance_explained: tuple[float, float]  # by the two components of the map
    left_out: int  # occurrences that are not read whole, because their texts are cut
    vectors: np.ndarray = field(repr=False, metadata={"json": False})  # (N, D)
    static_vectors: np.ndarray = field(repr=False, metadata={"json": False})


def contexts(
    run: RunLike,
    word: str,
    texts: Sequence[str],
    *,
    layer: str | None = None,
    limit: int = 500,
    progress: ProgressOption = False,
) -> Contexts:
    """The vectors of a word in the texts that contain it, at most `limit`; `layer` is the last one by default.

    >>> found = seqloom.inspect.contexts(run, "king", ["the cat sees a king", "a king hears the river"])
    >>> round(found.static_mean_cosine, 3)
    1.0
    """
    run = as_run(run)
    check_text(word, "the word")
    texts = check_texts(texts)
    pattern = re.compile(rf"(?<!\w){re.escape(word.strip())}(?!\w)", re.IGNORECASE)
    chosen = [(text, match.span()) for text in texts if (match := pattern.search(text))][:limit]
    if len(chosen) < 2:
        raise DataError(
            f"{word!r} occurs in {len(chosen)} of {len(texts)} texts; give texts with at least two contexts of it"
        )
    found: dict[
        int, tuple[np.ndarray, np.ndarray]
    ] = {}  # by the number of the text: the vector, and the static one
    top = bottom = ""
    with Reporter("contexts", len(chosen), progress) as report:
        for batch in text_vectors(run, [text for text, _ in chosen], verb="contexts"):
            names = list(batch.layers)
            bottom, top = names[0], names[-1] if layer is None else layer
            if top not in names:
                raise DataError(f"{top}: no layer has this name; the layers are {', '.join(names)}")
            for number, at_top, at_bottom in zip(
                batch.index, batch.split(top), batch.split(bottom), strict=True
            ):
                text, span = chosen[number]
                covering = [
                    position
                    for position, place in enumerate(framed_spans(run, text))
                    if place is not None and place[0] < span[1] and place[1] > span[0]
                ]
                if covering and covering[-1] < len(at_top):  # read whole
                    found[number] = at_top[covering].mean(0), at_bottom[covering].mean(0)
            report.advance(len(batch.index))
    kept = [chosen[number] for number in sorted(found)]
    vectors, statics = ([found[number][which] for number in sorted(found)] for which in (0, 1))
    if len(kept) < 2:
        raise DataError(
            f"{word!r}: {len(kept)} of {len(chosen)} occurrences are read whole, because the texts are cut; give shorter ones"
        )
    matrix, static = np.stack(vectors).astype(np.float64), np.stack(statics).astype(np.float64)
    cosines = cosine_matrix(matrix)
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(1)
    map2, explained = principal_components(matrix)
    neighbours = shared_words([around(text, span) for text, span in kept])
    return Contexts(
        str(run.folder),
        word,
        top,
        tuple(
            Context(
                text,
                span[0],
                span[1],
                float(map2[row, 0]),
                float(map2[row, 1]),
                neighbours[row],
                int(nearest[row]),
                float(cosines[row, nearest[row]]),
            )
            for row, (text, span) in enumerate(kept)
        ),
        mean_of_pairs(matrix),
        bottom,
        mean_of_pairs(static),
        explained,
        len(chosen) - len(kept),
        matrix,
        static,
    )


def cosine_matrix(matrix: np.ndarray) -> np.ndarray:
    unit = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return unit @ unit.T


def mean_of_pairs(matrix: np.ndarray) -> float:
    """The mean cosine of all pairs of different rows."""
    cosines = cosine_matrix(matrix)
    n = len(matrix)
    return float((cosines.sum() - np.trace(cosines)) / (n * (n - 1)))


def principal_components(matrix: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """The coordinates (N, 2) on the first two principal components, and the variance that each explains."""
    centred = matrix - matrix.mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    s = np.pad(s, (0, max(0, 2 - len(s))))
    u = np.pad(u, ((0, 0), (0, max(0, 2 - u.shape[1]))))
    total = max(float(np.square(s).sum()), 1e-30)
    return u[:, :2] * s[:2], (float(s[0] ** 2 / total), float(s[1] ** 2 / total))


def around(text: str, span: tuple[int, int], words: int = 4) -> set[str]:
    """The words next to the word, in lower case; short ones, which are mostly grammar, are left out."""
    pattern = r"\w+(?:['’]\w+)?"
    before = re.findall(pattern, text[: span[0]].lower())[-words:]
    after = re.findall(pattern, text[span[1] :].lower())[:words]
    return {word for word in (*before, *after) if len(word) > 3}


def shared_words(bags: Sequence[set[str]]) -> list[str]:
    """For each context the word by which it is grouped: the most frequent of its neighbours that at most half of the contexts have, among
    the `GROUPS` most frequent; "other" if it has none of them."""
    counts = Counter(one for bag in bags for one in bag)
    few = {one: count for one, count in counts.items() if 2 <= count <= max(2, len(bags) // 2)}
    common = sorted(few, key=lambda one: (-few[one], one))[:GROUPS]
    return [next((one for one in common if one in bag), "other") for bag in bags]
