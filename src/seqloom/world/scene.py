"""Scenes: drawn from the grammar as a pure function of (seed,
index), with the exact log-probability of their sentences."""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from seqloom.errors import DataError
from seqloom.world.french import compose, spell
from seqloom.world.grammar import GRAMMAR
from seqloom.world.parse import Derivation, fix_articles, join, parse
from seqloom.world.pcfg import Rule, Terminal, style_logs
from seqloom.world.rng import GOLDEN, MASK, stream_state


class Scene(NamedTuple):
    """One sentence in two languages with its annotations; log-probabilities
    are in nats. The names of the fields are keys of scenes.jsonl.

    >>> seqloom.world.scene(seed=0, index=3).tags[:3]
    ('DET', 'NOUN', 'VERB')
    """

    english: str
    french: str
    words: tuple[str, ...]  # lower case but for names; n't and the full stop are words
    tags: tuple[str, ...]  # universal parts of speech
    antecedent: tuple[int, int] | None  # the positions of "it" and of the noun it refers to
    bank: str | None  # "river" or "money"
    english_logp: float  # log p(english)
    french_logp: float  # log p(french | english)


class Entropy(NamedTuple):
    """The exact entropy, which no model's loss can beat: means per sentence, in nats.

    >>> round(seqloom.world.entropy().french, 4)
    0.1519
    """

    english: float
    french: float  # of the French given the English
    words: float  # mean number of English words per sentence, including the full stop


SENSES = ("money", "river")
STYLE_LOGS = {rule: style_logs(rule) for rule in GRAMMAR if rule.styles}
STYLE_TABLES = {
    rule: [i for i, (weight, _) in enumerate(rule.styles) for _ in range(weight)] for rule in STYLE_LOGS
}
LIKELIEST = {rule: logs.index(max(logs)) for rule, logs in STYLE_LOGS.items()}


def scene(seed: int, index: int) -> Scene:
    """Returns the scene with the given index in the infinite sequence of a seed.

    >>> seqloom.world.scene(seed=0, index=3).english
    'These kings wait on the bank.'
    """
    state = stream_state(seed, index)
    tables = GRAMMAR.tables

    def pick(table: list) -> Any:
        nonlocal state
        state = z = (state + GOLDEN) & MASK
        # `splitmix64`, inlined for speed: it runs about twenty times per scene
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return table[(z ^ z >> 31) * len(table) >> 64]

    return expand(lambda symbol: pick(tables[symbol]), lambda rule: pick(STYLE_TABLES[rule]))


def describe(english: str) -> Scene:
    """Returns the scene of a sentence of the language: its most
    probable French, tags, antecedent, sense and probabilities.

    >>> seqloom.world.describe("The bank near the school was muddy.").bank
    'river'
    """
    rules = iter(unique_parse(english))
    return expand(lambda symbol: next(rules), lambda rule: LIKELIEST[rule])


def expand(choose: Callable[[str], Rule], style: Callable[[Rule], int]) -> Scene:
    """Expands the start symbol with the rules that `choose` returns,
    leftmost first, and the French styles that `style` returns."""
    words: list[str] = []
    tags: list[str] = []
    marks: list[tuple[str, int]] = []
    derivation: list[Rule] = []
    choices: list[int] = []
    logs: list[float] = []
    stack: list[str | Terminal] = [GRAMMAR.start]
    while stack:
        item = stack.pop()
        if isinstance(item, Terminal):
            words.append(item.word)
            tags.append(item.tag)
            continue
        rule = choose(item)
        derivation.append(rule)
        if rule.mark:
            marks.append((rule.mark, len(words)))
        if rule.nonterminals:
            stack += rule.reversed_rhs
        else:
            for terminal in rule.rhs:
                if isinstance(terminal, Terminal):
                    words.append(terminal.word)
                    tags.append(terminal.tag)
        if rule.styles:
            choices.append(style(rule))
            logs.append(STYLE_LOGS[rule][choices[-1]])
    fix_articles(words)
    antecedent = None
    bank = None
    nouns: list[int] = []
    for mark, position in marks:
        if mark == "noun":
            nouns.append(position)
        elif mark in SENSES:
            bank = mark
        else:  # the cause of a frame is last: the subject of the frame is the first noun, the object the last
            antecedent = words.index("it"), nouns[0 if mark == "subject" else -1]
    return Scene(
        join(words),
        spell(compose(derivation, choices)),
        tuple(words),
        tuple(tags),
        antecedent,
        bank,
        math.fsum([rule.log_prob for rule in derivation]),
        math.fsum(logs),
    )


def scenes(count: int, seed: int = 0, start: int = 0) -> Iterator[Scene]:
    """Yields `count` scenes of a seed from the index `start` on.

    >>> [scene.bank for scene in seqloom.world.scenes(4)]
    ['money', None, None, 'river']
    """
    return (scene(seed, index) for index in range(start, start + count))


def log_probability(english: str) -> float:
    """Returns log p(english), by parsing, in nats; minus infinity outside the language.

    >>> round(seqloom.world.log_probability("The bank near the school was muddy."), 2)
    -13.13
    >>> seqloom.world.log_probability("The animal was wide.")
    -inf
    """
    log_probs = [math.fsum([rule.log_prob for rule in derivation]) for derivation in parse(english)]
    if not log_probs:
        return -math.inf
    highest = max(log_probs)
    return highest + math.log(math.fsum([math.exp(value - highest) for value in log_probs]))


def translations(english: str) -> dict[str, float]:
    """Returns every French translation of a sentence with its log-probability given the English.

    >>> seqloom.world.translations("The bank near the school was muddy.")
    {"La rive près de l'école était boueuse.": 0.0}
    """
    log_probs: dict[str, float] = {}
    derivation = unique_parse(english)
    styled = [rule for rule in derivation if rule.styles]
    for choices in product(*[range(len(rule.styles)) for rule in styled]):
        french = spell(compose(list(derivation), list(choices)))
        log_prob = math.fsum(STYLE_LOGS[rule][choice] for rule, choice in zip(styled, choices, strict=True))
        if french in log_probs:
            log_prob = math.log(math.exp(log_probs[french]) + math.exp(log_prob))
        log_probs[french] = log_prob
    return log_probs


def translation_log_probability(english: str, french: str) -> float:
    """Returns log p(french | english), in nats; minus infinity
    for a sentence that is not a translation of it.

    >>> seqloom.world.translation_log_probability("The bank was muddy.", "La rive était boueuse.")
    0.0
    """
    return translations(english).get(french, -math.inf)


def translate(english: str) -> str:
    """Returns the most probable French translation of a sentence of the language.

    >>> seqloom.world.translate("The bank near the school was closed.")
    "La banque près de l'école était fermée."
    """
    return describe(english).french


def unique_parse(english: str) -> Derivation:
    """Returns the derivation of a sentence of the language; raises if there is none."""
    derivations = parse(english)
    if not derivations:
        raise DataError(
            f"world: {english!r} is not a sentence of the built-in world; see docs/world.md for its words and grammar"
        )
    return derivations[0]


def entropy() -> Entropy:
    """H = Σ_A n_A H(rules of A), where n_A is the expected number of A in a derivation.

    It is the entropy of sentences, since each sentence has one derivation.

    >>> round(seqloom.world.entropy().english, 2)
    20.18
    """
    return Entropy(
        GRAMMAR.expectation(lambda rule: -rule.log_prob),
        GRAMMAR.expectation(
            lambda rule: -math.fsum(math.exp(log_prob) * log_prob for log_prob in STYLE_LOGS.get(rule, ()))
        ),
        GRAMMAR.expectation(lambda rule: len(rule.rhs) - len(rule.nonterminals)),
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
