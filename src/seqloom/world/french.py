"""French from a derivation: every rule composes the French of its parts, and agreement travels with the parts.

A number `k` stands for gender and number at once: 0 masculine singular, 1 feminine singular, 2 masculine plural, 3 feminine plural. A verb
phrase whose words must still agree with a subject it has not met holds four-tuples (ms, fs, mp, fp) in their place; `agree` settles them.
Elision and contraction are spelling, so they come last, over the whole sentence.
"""

from typing import Any, NamedTuple

from seqloom.world.lexicon import Adjective, Verb, vowel
from seqloom.world.pcfg import Rule

DETERMINERS = {
    "the": ("le", "la", "les", "les"),
    "a": ("un", "une", "des", "des"),
    "this": ("ce", "cette", "ces", "ces"),
    "my": ("mon", "ma", "mes", "mes"),
    "two": ("deux",) * 4,
    "three": ("trois",) * 4,
}
PRONOUNS = ("il", "elle", "ils", "elles")
CONTRACTIONS = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
ELIDED = {"le": "l'", "la": "l'", "de": "d'", "ne": "n'", "que": "qu'"}


class Phrase(NamedTuple):
    """A noun phrase: its determiner is chosen late, for negation and "de" change it."""

    determiner: str
    words: tuple[str, ...]  # adjectives and noun
    k: int
    fronted: bool  # an adjective stands before the noun
    tail: tuple[str, ...] = ()


class Cause(NamedTuple):
    """because + pronoun + be + degree + adjective: the pronoun is settled by its antecedent."""

    because: tuple[str, ...]
    subject: bool
    be: tuple[str, str]
    degree: str
    adjective: Adjective


Tokens = tuple[Any, ...]  # words, and four-tuples that wait for their k


def agree(tokens: Tokens, k: int) -> tuple[str, ...]:
    """Settle the words that wait for a gender and a number."""
    return tuple([token if type(token) is str else token[k] for token in tokens])


def bar(noun: tuple[str, int], first: Adjective | None = None, second: Adjective | None = None) -> Phrase:
    """Adjectives around a noun: le vieil arbre vert."""
    word, k = noun
    words = (word,)
    if second:
        words = (word, second.forms[k])
    if first:
        words = (first.liaison if k == 0 and vowel(word) else first.forms[k], *words)
    return Phrase("", words, k, first is not None)


def determined(determiner: str, phrase: Phrase) -> Phrase:
    """Give a phrase its determiner."""
    return Phrase(determiner, phrase.words, phrase.k, phrase.fronted)


def render(phrase: Phrase, preposition: tuple[str, ...] = (), negated: bool = False) -> tuple[str, ...]:
    """The words of a noun phrase after a preposition, or as the object of a negated verb (pas de, pas d')."""
    kind, words, k, fronted, tail = phrase
    if not kind or (
        kind == "a" and k > 1 and preposition[-1:] == ("de",)
    ):  # a name; or près de + des maisons: près de maisons
        return preposition + words + tail
    article = DETERMINERS[kind][k]
    if kind == "a" and (negated or (k > 1 and fronted)):
        article = "de"
    elif kind == "this" and k == 0 and vowel(words[0]):
        article = "cet"
    elif kind == "my" and k == 1 and vowel(words[0]):
        article = "mon"
    return (*preposition, article, *words, *tail)


def verb(entry: Verb, plural: bool, past: bool, negated: bool) -> tuple[Tokens, bool]:
    """A conjugated verb: présent or passé composé, with ne … pas; and whether it is negated."""
    if past:
        head = (("sont" if plural else "est") if entry.etre else ("ont" if plural else "a"),)
        rest = (entry.participle if entry.etre else entry.participle[0],)
    else:
        head, rest = (entry.french[plural],), ()
    return (("ne", *head, "pas", *rest) if negated else head + rest), negated


def coordinate(one: Phrase, other: Phrase) -> Phrase:
    """le chien et la vache: plural, and feminine only if both are."""
    return Phrase("", (*render(one), "et", *render(other)), 2 + (one.k & other.k & 1), False)


def clause(subject: Phrase, predicate: Tokens) -> tuple[str, ...]:
    """Subject and verb phrase, agreed."""
    return render(subject) + agree(predicate, subject.k)


def frame(subject: Phrase, predicate: tuple[Tokens, bool], thing: Phrase, cause: Cause) -> tuple[str, ...]:
    """An event and its cause; the antecedent gives il, elle, ils or elles and the adjective's form."""
    k = (subject if cause.subject else thing).k
    reason = (*cause.because, PRONOUNS[k], cause.be[k > 1], cause.degree, cause.adjective.forms[k])
    tokens, negated = predicate
    return render(subject) + agree(tokens, subject.k) + render(thing, negated=negated) + reason


def compose(derivation: list[Rule], choices: list[int]) -> Any:
    """The French tokens of a derivation. `choices` holds the index of the style for each rule that has styles, in order."""
    stack: list[Any] = []
    left = len(choices)
    for rule in reversed(derivation):
        if rule.styles:
            left -= 1
            stack.append(rule.styles[choices[left]][1])
        elif rule.kids:
            count = len(rule.kids)
            arguments = stack[: -count - 1 : -1]
            del stack[-count:]
            stack.append(rule.make(*arguments))
        else:
            stack.append(rule.make)
    return stack[0]


def spell(tokens: tuple[str, ...]) -> str:
    """The sentence: elide, contract, capitalise, and end with a full stop."""
    words = list(tokens)
    for i in range(len(words) - 2, -1, -1):
        word = words[i]
        if word in ELIDED or word == "à":
            following = words[i + 1]
            if word != "à" and vowel(following):
                words[i : i + 2] = [ELIDED[word] + following]
            elif (word, following) in CONTRACTIONS:
                words[i : i + 2] = [CONTRACTIONS[word, following]]
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."
