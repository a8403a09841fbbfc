"""A probabilistic context-free grammar with integer weights:
rules, lookup tables, expected counts, entropies.

A derivation is the list of its rules, leftmost first; the list determines the tree, the sentence and its
probability. Integer weights make sampling exact and the same on every machine. Left out: left recursion,
which the parser does not support.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from seqloom.errors import DataError


class Terminal(NamedTuple):
    """An English word with its universal part-of-speech tag."""

    word: str
    tag: str


class Rule:
    """lhs -> rhs with a weight. `compose` builds the French from the
    French of the nonterminals; for a word it is the French itself.

    `styles` are alternative French renderings with their weights.
    `mark` names a property of the word that follows.
    """

    __slots__ = (
        "compose",
        "lhs",
        "log_prob",
        "mark",
        "nonterminals",
        "probability",
        "reversed_rhs",
        "rhs",
        "styles",
        "weight",
    )

    def __init__(
        self,
        lhs: str,
        weight: int,
        rhs: str,
        compose: Any,
        mark: str | None = None,
        styles: tuple[tuple[int, Any], ...] = (),
    ) -> None:
        self.lhs = lhs
        self.weight = weight
        self.compose = compose
        self.mark = mark
        self.styles = styles
        self.rhs: tuple[str | Terminal, ...] = tuple(
            item[1:] if item[0] == "@" else Terminal(*item.rsplit("/", 1)) for item in rhs.split()
        )
        self.reversed_rhs = self.rhs[::-1]
        self.nonterminals = tuple(item for item in self.rhs if isinstance(item, str))
        self.probability = 0.0  # set by the grammar
        self.log_prob = 0.0

    def __repr__(self) -> str:
        items = " ".join(item if isinstance(item, str) else item.word for item in self.rhs)
        return f"{self.lhs} -> {items} [{self.weight}]"


class Grammar:
    """Rules by their left-hand symbol; every symbol that a rule uses must have rules."""

    def __init__(self, rules: Iterable[Rule], start: str = "S") -> None:
        self.start = start
        self.rules: dict[str, list[Rule]] = {}
        for rule in rules:
            self.rules.setdefault(rule.lhs, []).append(rule)
        missing = {symbol for rule in self for symbol in rule.nonterminals} - set(self.rules)
        if missing:
            raise DataError(f"grammar: {sorted(missing)} are used but have no rules; add rules for them")
        self.tables: dict[
            str, list[Rule]
        ] = {}  # a rule of weight w occurs w times, so that one index draws it
        for symbol, choices in self.rules.items():
            total = sum(rule.weight for rule in choices)
            for rule in choices:
                rule.probability = rule.weight / total
                rule.log_prob = math.log(rule.probability)
            self.tables[symbol] = [rule for rule in choices for _ in range(rule.weight)]

    def __iter__(self) -> Iterator[Rule]:
        return (rule for choices in self.rules.values() for rule in choices)

    def expected_counts(self) -> dict[str, float]:
        """The mean number of each symbol in a derivation: n = e_start
        + Mᵀ n, where M[a, b] is the mean number of b under a."""
        index = {symbol: i for i, symbol in enumerate(self.rules)}
        mean = np.zeros((len(index), len(index)))
        for rule in self:
            for symbol in rule.nonterminals:
                mean[index[rule.lhs], index[symbol]] += rule.probability
        if max(abs(np.linalg.eigvals(mean))) >= 1:
            raise DataError(
                "grammar: its recursion is not sub-critical; lower the weights of the recursive rules"
            )
        start = np.zeros(len(index))
        start[index[self.start]] = 1
        counts = np.linalg.solve(np.eye(len(index)) - mean.T, start)
        return dict(zip(index, counts.tolist(), strict=True))

    def expectation(self, value: Callable[[Rule], float]) -> float:
        """Returns the mean over derivations of the sum of `value(rule)` over their rules."""
        counts = self.expected_counts()
        return math.fsum(counts[rule.lhs] * rule.probability * value(rule) for rule in self)

    def vocabulary(self) -> dict[str, Counter[str]]:
        """Returns every terminal word with the expected count of each of its tags."""
        counts = self.expected_counts()
        tags_by_word: dict[str, Counter[str]] = {}
        for rule in self:
            for item in rule.rhs:
                if isinstance(item, Terminal):
                    tags = tags_by_word.setdefault(item.word, Counter())
                    # The stubs type Counter for integers; these are expected counts.
                    tags[item.tag] += counts[rule.lhs] * rule.probability  # type: ignore[assignment]
        return tags_by_word


def style_logs(rule: Rule) -> tuple[float, ...]:
    """Returns the log-probability of each French rendering of a rule."""
    total = sum(weight for weight, _ in rule.styles)
    return tuple(math.log(weight / total) for weight, _ in rule.styles)
