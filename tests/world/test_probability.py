"""The probabilities of the world are exact: parser, sampler, enumeration, convolution and closed form must agree."""

import math
from collections import Counter

import numpy as np
import pytest

from seqloom.world import (
    describe,
    entropy,
    log_probability,
    scenes,
    translation_log_probability,
    translations,
)
from seqloom.world.grammar import GRAMMAR
from seqloom.world.lexicon import FRAMES
from seqloom.world.parse import derivations, parse
from seqloom.world.pcfg import Grammar, Rule, Terminal

SAMPLE = list(scenes(6000, seed=11))


def length_masses(longest: int) -> dict[str, np.ndarray]:
    """p(a symbol yields n words) for n <= longest: the least fixed point of one convolution per rule, from a zero start."""
    masses = {symbol: np.zeros(longest + 1) for symbol in GRAMMAR.rules}
    for _ in range(longest + 25):  # more rounds than any derivation of so few words is deep
        fresh = {}
        for symbol, rules in GRAMMAR.rules.items():
            total = np.zeros(longest + 1)
            for rule in rules:
                part = np.zeros(longest + 1)
                part[len(rule.rhs) - len(rule.nonterminals)] = rule.weight
                for kid in rule.nonterminals:
                    part = np.convolve(part, masses[kid])[: longest + 1]
                total += part
            fresh[symbol] = total / sum(rule.weight for rule in rules)
        masses = fresh
    return masses


def enumerate_words(symbol: str, longest: int) -> list[tuple[float, tuple[str, ...]]]:
    """Every derivation of at most so many words, as probability and words, by brute force."""
    shortest = dict.fromkeys(GRAMMAR.rules, math.inf)
    for _ in range(30):
        for rule in GRAMMAR:
            shortest[rule.lhs] = min(
                shortest[rule.lhs], sum(1 if isinstance(i, Terminal) else shortest[i] for i in rule.rhs)
            )

    def expand(symbol: str, room: int) -> list[tuple[float, tuple[str, ...]]]:
        found = []
        for rule in GRAMMAR.rules[symbol]:
            least = [1 if isinstance(item, Terminal) else shortest[item] for item in rule.rhs]
            if sum(least) > room:
                continue
            front = [(rule.probability, ())]
            for place, item in enumerate(rule.rhs):
                rest = sum(least[place + 1 :])
                if isinstance(item, Terminal):
                    front = [(p, (*words, item.word)) for p, words in front]
                else:
                    front = [
                        (p * q, words + more)
                        for p, words in front
                        for q, more in expand(item, room - rest - len(words))
                    ]
            found += front
        return found

    return expand(symbol, longest)


def test_the_parser_gives_back_the_samplers_probability_and_one_derivation():
    longest = sorted(SAMPLE, key=lambda one: -len(one.words))[:60]
    for one in [*SAMPLE[:500], *longest]:
        assert len(parse(one.english)) == 1, one.english
        assert log_probability(one.english) == pytest.approx(one.english_logp, abs=1e-9)


def test_all_lengths_together_have_probability_one():
    mass = length_masses(70)["S"]
    assert mass.sum() == pytest.approx(1, abs=1e-6)
    assert mass @ np.arange(71) == pytest.approx(entropy().words, abs=1e-4)
    assert mass[31:].sum() < 0.002


def test_short_sentences_enumerated_one_by_one():
    every = enumerate_words("S", 4)
    mass = length_masses(4)["S"]
    strings = [words for _, words in every]
    assert len(strings) > 2000
    assert len(set(strings)) == len(strings), "two derivations write the same sentence"
    assert math.fsum(p for p, _ in every) == pytest.approx(mass.sum(), rel=1e-9)
    three = [" ".join(words[:-1]) + "." for _, words in every if len(words) == 3]
    assert math.fsum(
        math.exp(log_probability(text[0].upper() + text[1:])) for text in three
    ) == pytest.approx(mass[3], rel=1e-9)


@pytest.mark.parametrize(
    "symbol", ["NP:boat:s", "NP:height:p", "WHY:0:it:s:no1", "HOW:road", "DO:sleep:p", "SEES:s"]
)
def test_a_symbols_strings_sum_to_one_under_the_parser(symbol):
    strings = {words for _, words in enumerate_words(symbol, 12)}
    total = [
        math.exp(sum(rule.log_prob for rule in one))
        for words in strings
        for one in derivations(list(words), GRAMMAR, symbol)
    ]
    assert math.fsum(total) == pytest.approx(1, abs=1e-12)


def test_the_parser_counts_every_derivation_of_an_ambiguous_grammar():
    toy = Grammar(
        [
            Rule("S", 1, "@A @B", None),
            Rule("A", 1, "x/X", None),
            Rule("A", 1, "x/X x/X", None),
            Rule("B", 1, "x/X", None),
            Rule("B", 3, "x/X x/X", None),
        ]
    )
    found = {
        length: sum(math.exp(sum(rule.log_prob for rule in one)) for one in derivations(["x"] * length, toy))
        for length in range(1, 6)
    }
    assert found == pytest.approx({1: 0, 2: 1 / 8, 3: 3 / 8 + 1 / 8, 4: 3 / 8, 5: 0})


def test_recursion_without_end_is_refused():
    with pytest.raises(ValueError, match="sub-critical"):
        Grammar([Rule("S", 1, "x/X @S @S", None), Rule("S", 1, "x/X", None)]).expected_counts()
    with pytest.raises(ValueError, match="have no rules"):
        Grammar([Rule("S", 1, "@T", None)])


def test_the_sample_agrees_with_the_exact_entropy():
    exact = entropy()
    for value, logs in (
        (exact.english, [one.english_logp for one in SAMPLE]),
        (exact.french, [one.french_logp for one in SAMPLE]),
        (exact.words, [-len(one.words) for one in SAMPLE]),
    ):
        logs = -np.array(logs)
        assert abs(logs.mean() - value) < 4 * logs.std() / len(logs) ** 0.5


def test_words_are_as_frequent_as_the_grammar_says():
    expected = {word: sum(tags.values()) for word, tags in GRAMMAR.vocabulary().items()}
    seen = Counter("a" if word == "an" else word for one in SAMPLE for word in one.words)
    scores = [
        (seen[word] - len(SAMPLE) * mean) / (len(SAMPLE) * mean) ** 0.5 for word, mean in expected.items()
    ]
    assert set(seen) <= set(expected)
    assert max(map(abs, scores)) < 5
    assert np.std(scores) < 1.2


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "The animal didn't cross the street because it was too.",
        "the animal was tired.",
        "The animal was tired",
        "The animals crosses the street.",
        "The dog that the girls sees is tired.",
        "A animal was tired.",
        "An dog was tired.",
        "The animal  was tired.",
        "A.",
        "A  dog was tired.",
        "The animal was wide.",
        "The dog did n't sleep.",
        "The animal was tired .",
        "The anna was tired.",
        "The animal didn't cross the street because it were too tired.",
        "The animal didn't cross the street because he was too tired.",
    ],
)
def test_what_is_outside_the_language_has_probability_zero(text):
    assert log_probability(text) == -math.inf
    with pytest.raises(ValueError, match="not a sentence"):
        describe(text)


def test_translations_form_a_distribution():
    for one in SAMPLE[:300]:
        found = translations(one.english)
        choices = math.prod(len(rule.styles) for rule in parse(one.english)[0] if rule.styles)
        assert len(found) == choices, "two styles write the same French"
        assert math.fsum(map(math.exp, found.values())) == pytest.approx(1)
        assert translation_log_probability(one.english, one.french) == pytest.approx(
            one.french_logp, abs=1e-12
        )
        assert translation_log_probability(one.english, one.french + " ") == -math.inf
        assert describe(one.english).french_logp == max(found.values())


def test_describe_reads_what_scene_wrote():
    for one in SAMPLE[:300]:
        again = describe(one.english)
        assert again[2:7] == one[2:7]


def test_adjectives_of_a_frame_decide_its_pronoun():
    for frame, (subject, thing) in ((one, pair) for one in FRAMES for pair in (one.negative, one.positive)):
        assert not set(subject.split()) & set(thing.split()), frame
