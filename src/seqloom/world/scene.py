"""Scenes: drawn from the grammar as a pure function of (seed, index), with the exact log-probability of what they say."""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from seqloom.world.french import compose, spell
from seqloom.world.grammar import GRAMMAR
from seqloom.world.parse import Derivation, fix_articles, join, parse
from seqloom.world.pcfg import Rule, Terminal, style_logs
from seqloom.world.rng import GOLDEN, MASK, stream_state


class Scene(NamedTuple):
    """One sentence in two languages and what is true of it; log-probabilities are in nats."""

    english: str
    french: str
    words: tuple[str, ...]  # lower case but for names; n't and the full stop are words
    tags: tuple[str, ...]  # universal parts of speech
    antecedent: tuple[int, int] | None  # the places of "it" and of the noun it means
    bank: str | None  # "river" or "money"
    english_logp: float  # log p(english)
    french_logp: float  # log p(french | english)


class Entropy(NamedTuple):
    """The floor no model can beat, exactly: means per sentence, in nats."""

    english: float
    french: float  # of the French, given the English
    words: float  # mean number of English words per sentence, the full stop included


SENSES = ("money", "river")
STYLE_LOGS = {rule: style_logs(rule) for rule in GRAMMAR if rule.styles}
STYLE_TABLES = {
    rule: [i for i, (weight, _) in enumerate(rule.styles) for _ in range(weight)] for rule in STYLE_LOGS
}
LIKELIEST = {rule: logs.index(max(logs)) for rule, logs in STYLE_LOGS.items()}


def scene(seed: int, index: int) -> Scene:
    """The scene at a place of the endless list that belongs to a seed."""
    state = stream_state(seed, index)
    tables = GRAMMAR.tables

    def pick(table: list) -> Any:
        nonlocal state
        state = z = (state + GOLDEN) & MASK
        z = (
            (z ^ z >> 30) * 0xBF58476D1CE4E5B9
        ) & MASK  # `mix`, written out: it runs some twenty times a scene
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return table[(z ^ z >> 31) * len(table) >> 64]

    return expand(lambda symbol: pick(tables[symbol]), lambda rule: pick(STYLE_TABLES[rule]))


def describe(english: str) -> Scene:
    """The scene of a sentence of the language, with its most probable French: tags, antecedent, sense and probabilities."""
    rules = iter(unique_parse(english))
    return expand(lambda symbol: next(rules), lambda rule: LIKELIEST[rule])


def expand(choose: Callable[[str], Rule], style: Callable[[Rule], int]) -> Scene:
    """Expand the start symbol with the rules that `choose` gives, leftmost first, and the French styles that `style` gives."""
    words: list[str] = []
    tags: list[str] = []
    marks: list[tuple[str, int]] = []
    derivation: list[Rule] = []
    choices: list[int] = []
    logs: list[float] = []
    stack: list[str | Terminal] = [GRAMMAR.start]
    while stack:
        item = stack.pop()
        if type(item) is not str:
            words.append(item.word)
            tags.append(item.tag)
            continue
        rule = choose(item)
        derivation.append(rule)
        if rule.mark:
            marks.append((rule.mark, len(words)))
        if rule.kids:
            stack += rule.stack
        else:
            for word, tag in rule.right:
                words.append(word)
                tags.append(tag)
        if rule.styles:
            choices.append(style(rule))
            logs.append(STYLE_LOGS[rule][choices[-1]])
    fix_articles(words)
    antecedent = bank = None
    nouns: list[int] = []
    for mark, place in marks:
        if mark == "noun":
            nouns.append(place)
        elif mark in SENSES:
            bank = mark
        else:  # the cause of a frame comes last: its subject is the first noun, its object the last
            antecedent = words.index("it"), nouns[0 if mark == "subject" else -1]
    return Scene(
        join(words),
        spell(compose(derivation, choices)),
        tuple(words),
        tuple(tags),
        antecedent,
        bank,
        math.fsum([rule.logp for rule in derivation]),
        math.fsum(logs),
    )


def scenes(count: int, seed: int = 0, start: int = 0) -> Iterator[Scene]:
    """`count` scenes of a seed from the place `start` on."""
    return (scene(seed, index) for index in range(start, start + count))


def log_probability(english: str) -> float:
    """log p(english) by parsing, in nats; minus infinity outside the language."""
    found = [math.fsum([rule.logp for rule in derivation]) for derivation in parse(english)]
    return (
        max(found) + math.log(math.fsum([math.exp(value - max(found)) for value in found]))
        if found
        else -math.inf
    )


def translations(english: str) -> dict[str, float]:
    """Every French translation of a sentence with its log-probability given the English."""
    found: dict[str, float] = {}
    derivation = unique_parse(english)
    styled = [rule for rule in derivation if rule.styles]
    for choices in product(*[range(len(rule.styles)) for rule in styled]):
        french = spell(compose(list(derivation), list(choices)))
        logp = math.fsum(STYLE_LOGS[rule][choice] for rule, choice in zip(styled, choices, strict=True))
        found[french] = math.log(math.exp(found[french]) + math.exp(logp)) if french in found else logp
    return found


def translation_log_probability(english: str, french: str) -> float:
    """log p(french | english), in nats; minus infinity for a French sentence that does not translate it."""
    return translations(english).get(french, -math.inf)


def translate(english: str) -> str:
    """The most probable French of a sentence of the language."""
    return describe(english).french


def unique_parse(english: str) -> Derivation:
    """The derivation of a sentence of the language."""
    found = parse(english)
    if not found:
        raise ValueError(
            f"world: {english!r} is not a sentence of the built-in world; see docs/world.md for its words and grammar"
        )
    return found[0]


def entropy() -> Entropy:
    """H = Σ_A n_A H(rules of A), with n_A the expected number of A in a derivation; one derivation per sentence makes it the sentence's."""
    return Entropy(
        GRAMMAR.expectation(lambda rule: -rule.logp),
        GRAMMAR.expectation(
            lambda rule: -math.fsum(math.exp(logp) * logp for logp in STYLE_LOGS.get(rule, ()))
        ),
        GRAMMAR.expectation(lambda rule: len(rule.right) - len(rule.kids)),
    )


SHOWCASE = (
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
    "The turtle didn't cross the bridge because it was too scared.",
    "The turtle didn't cross the bridge because it was too long.",
    "Anna opened an account at the bank.",
    "Two cats sleep on the bank of the river.",
    "The bank near the school was closed.",
    "The bank near the school was muddy.",
    "The mice that the girl near the old houses saw are hungry.",
    "The queen who arrived at the hospital gave a book to the children.",
)
