"""A probabilistic context-free grammar with integer weights: rules, lookup tables, expected counts, entropies.

A derivation is the list of its rules, leftmost first; that list determines the tree, the sentence and its probability. Integer weights
keep sampling exact and the same on every machine. Left out: left recursion, which the parser does not need to support here.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np


class Terminal(NamedTuple):
    """An English word with its universal part-of-speech tag."""

    word: str
    tag: str


class Rule:
    """left -> right with a weight; `make` composes the French of the parts, `styles` are French choices of known weight."""

    __slots__ = ("kids", "left", "logp", "make", "mark", "probability", "right", "stack", "styles", "weight")

    def __init__(
        self,
        left: str,
        weight: int,
        right: str,
        make: Any,
        mark: str | None = None,
        styles: tuple[tuple[int, Any], ...] = (),
    ) -> None:
        self.left, self.weight, self.make, self.mark, self.styles = left, weight, make, mark, styles
        self.right = tuple(
            item[1:] if item[0] == "@" else Terminal(*item.rsplit("/", 1)) for item in right.split()
        )
        self.stack = self.right[::-1]
        self.kids = tuple(item for item in self.right if isinstance(item, str))
        self.probability = self.logp = 0.0  # set when the grammar is closed

    def __repr__(self) -> str:
        return f"{self.left} -> {' '.join(item if isinstance(item, str) else item.word for item in self.right)} [{self.weight}]"


class Grammar:
    """Rules by their left-hand symbol, closed: every symbol that is used has rules."""

    def __init__(self, rules: Iterable[Rule], start: str = "S") -> None:
        self.start = start
        self.rules: dict[str, list[Rule]] = {}
        for rule in rules:
            self.rules.setdefault(rule.left, []).append(rule)
        missing = {kid for rule in self for kid in rule.kids} - set(self.rules)
        if missing:
            raise ValueError(f"grammar: {sorted(missing)} are used but have no rules; add rules for them")
        self.tables: dict[str, list[Rule]] = {}  # a rule of weight w stands w times: one index draws it
        for symbol, choices in self.rules.items():
            total = sum(rule.weight for rule in choices)
            for rule in choices:
                rule.probability = rule.weight / total
                rule.logp = math.log(rule.probability)
            self.tables[symbol] = [rule for rule in choices for _ in range(rule.weight)]

    def __iter__(self):
        return (rule for choices in self.rules.values() for rule in choices)

    def expected_counts(self) -> dict[str, float]:
        """How often each symbol occurs in a derivation on average: n = e_start + Mᵀ n, with M[a, b] the mean number of b under a."""
        place = {symbol: i for i, symbol in enumerate(self.rules)}
        mean = np.zeros((len(place), len(place)))
        for rule in self:
            for kid in rule.kids:
                mean[place[rule.left], place[kid]] += rule.probability
        if max(abs(np.linalg.eigvals(mean))) >= 1:
            raise ValueError(
                "grammar: its recursion is not sub-critical; lower the weights of the recursive rules"
            )
        one = np.zeros(len(place))
        one[place[self.start]] = 1
        return dict(zip(place, np.linalg.solve(np.eye(len(place)) - mean.T, one).tolist(), strict=True))

    def expectation(self, value: Callable[[Rule], float]) -> float:
        """The mean over derivations of the sum of `value(rule)` over the rules used."""
        counts = self.expected_counts()
        return math.fsum(counts[rule.left] * rule.probability * value(rule) for rule in self)

    def vocabulary(self) -> dict[str, Counter[str]]:
        """Every terminal word and how often, in expectation, it carries each tag."""
        counts, found = self.expected_counts(), {}
        for rule in self:
            for item in rule.right:
                if isinstance(item, Terminal):
                    found.setdefault(item.word, Counter())[item.tag] += counts[rule.left] * rule.probability
        return found


def style_logs(rule: Rule) -> tuple[float, ...]:
    """log p of each French choice of a rule."""
    total = sum(weight for weight, _ in rule.styles)
    return tuple(math.log(weight / total) for weight, _ in rule.styles)
