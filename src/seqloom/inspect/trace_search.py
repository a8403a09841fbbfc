"""Steps of a trace that are not values of a model: the probabilities along a beam's tree, and CBOW with word vectors   [X10, X1]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from seqloom.decoding.forced import forced_log_probs
from seqloom.errors import DataError, RunError
from seqloom.inference.completion import prepare_prompt
from seqloom.inspect.search_tree import search
from seqloom.inspect.trace_steps import Operand, Step
from seqloom.inspect.trace_values import Trace, make_trace
from seqloom.run import Run

MOST_STEPS = 8  # of a search
BRANCHES = 8  # of each
MOST_WORDS = 12


def beam_steps(run: Run, text: str, width: int) -> list[Step]:
    """P(text so far · token) = P(text so far) · P(token | text so far) for the branches of each step; the probability of the token is that
    of a pass of its own over the text, not a ratio of the search's totals."""
    if not run.model.generates:
        raise RunError(f"{run.folder}: a {type(run.model).__name__} does not generate text; leave --beam out")
    _, _, tree = search(run, text, width, None, MOST_STEPS, BRANCHES)
    before: dict[tuple[int, ...], float] = {(): 1.0}
    steps = []
    for number, branches in enumerate(tree.steps, 1):
        ids, mask = run.encode([text] * len(branches), as_prompt=run.model.continues)
        prompt, state, prompt_mask = prepare_prompt(run, ids, mask)
        texts = [branch.ids for branch in branches]
        forced = forced_log_probs(run.model, prompt, texts, state, prompt_mask, eos_id=None)
        operands = {
            "before": Operand(
                "P of the text so far", "w", np.array([before[tuple(branch.ids[:-1])] for branch in branches])
            ),
            "p": Operand("P of the token", "w", np.exp([row[-1] for row in forced])),
        }
        totals = np.exp([branch.log_probability for branch in branches])
        names = tuple(f"{run.decode(branch.ids)} ({branch.status})" for branch in branches)
        formula = "P(text · token) = P(text) · P(token | text)"
        finish = "before * p"
        made = Step(
            f"beam.{number}",
            "beam search",
            formula,
            "w",
            totals,
            True,
            "text",
            "",
            "",
            finish,
            operands,
            {"w": names},
        )
        steps.append(made.checked())
        before = {tuple(branch.ids): float(total) for branch, total in zip(branches, totals, strict=True)}
    return steps


def trace_cbow(
    vocabulary: Sequence[str],
    vectors: np.ndarray,
    text: str,
    *,
    window: int = 5,
    outputs: np.ndarray | None = None,
) -> Trace:
    """CBOW on each word of a text: the mean of the vectors around it, and its score with the word itself.

    `vectors` (V, D) has a row for each word of the vocabulary. `outputs` (V, D) are the output vectors, as `word2vec.train` returns them; a
    folder of vectors does not have them: then the words' own vectors take their place, and the scores are those of similarity.
    """
    index = {word: row for row, word in reversed(list(enumerate(vocabulary)))}
    words = text.split()
    known = [word for word in words if word in index]
    if len(known) < 2:
        missing = ", ".join(sorted(set(words) - set(known))[:5]) or "the text is empty"
        raise DataError(f"CBOW needs at least two words with vectors; without one: {missing}")
    rows = [index[word] for word in known]
    own = np.asarray(vectors[rows], np.float64)
    distance = np.abs(np.subtract.outer(np.arange(len(known)), np.arange(len(known))))
    around = ((distance > 0) & (distance <= window)).astype(np.float64)
    table = np.asarray(vectors if outputs is None else outputs, np.float64)
    kind = "v (no output vectors are stored)" if outputs is None else "u"

    def step(
        name: str,
        formula: str,
        axes: str,
        finish: str,
        operands: dict[str, Operand],
        term: str,
        over: str,
    ) -> Step:
        values = np.zeros(0)
        return Step(
            name, "CBOW", formula, axes, values, False, "text", term, over, finish, operands
        ).checked()

    mean = step(
        "context",
        f"h = mean of the vectors at most {window} words away",
        "ti",
        "total / count",
        {
            "near": Operand("whether the word is in the window", "ts", around),
            "v": Operand("v", "si", own),
            "count": Operand("words in the window", "t", around.sum(1)),
        },
        term="near * v",
        over="s",
    )
    score = step(
        "score",
        f"s = h · {kind}",
        "t",
        "total",
        {"h": Operand("context", "ti", mean.values), "u": Operand(kind, "ti", table[rows])},
        term="h * u",
        over="i",
    )
    middle = len(known) // 2
    every = table @ mean.values[middle]
    best = np.unique([*np.argsort(-every)[:MOST_WORDS], rows[middle]])
    best = best[np.argsort(-every[best])]
    labels = {"w": tuple(str(vocabulary[row]) for row in best)}
    chosen = step(
        f"words around “{known[middle]}”",
        f"s(w) = h · {kind} for the likeliest words in the place of “{known[middle]}”",
        "w",
        "total",
        {"h": Operand("context", "i", mean.values[middle]), "u": Operand(kind, "wi", table[best])},
        term="h * u",
        over="i",
    )
    softmax = step(
        f"probability around “{known[middle]}”",
        "P(w) = exp(s) / Σ exp(s) over all words",
        "w",
        "exp(s) / total",
        {"s": Operand(chosen.name, "w", chosen.values), "every": Operand("scores of all words", "u", every)},
        term="exp(every)",
        over="u",
    )
    named = [replace(one, labels=labels) for one in (chosen, softmax)]
    return make_trace(tuple(known), (), [mean, score, *named])
