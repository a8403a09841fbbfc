"""French from a derivation: every rule composes the French
of its parts, and the parts carry gender and number.

A number `k` encodes gender and number: 0 masculine singular, 1 feminine singular, 2 masculine plural, 3
feminine plural. In a verb phrase, words that agree with a subject that is not known yet are four-tuples (ms,
fs, mp, fp); `agree` selects the form. Elision and contraction are matters of spelling, so they are applied
last, to the full sentence.
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
    """A noun phrase: its determiner is chosen late, since negation and "de" change it."""

    determiner: str
    words: tuple[str, ...]  # adjectives and noun
    k: int
    fronted: bool  # whether an adjective precedes the noun
    tail: tuple[str, ...] = ()


class Cause(NamedTuple):
    """because + pronoun + be + degree + adjective: the antecedent determines the pronoun."""

    because: tuple[str, ...]
    subject: bool  # whether the pronoun refers to the subject, else to the object
    be: tuple[str, str]
    degree: str
    adjective: Adjective


Tokens = tuple[Any, ...]  # words, and four-tuples of forms whose k is not known yet


def agree(tokens: Tokens, k: int) -> tuple[str, ...]:
    """Selects the forms of the words whose gender and number were not known."""
    return tuple([token if type(token) is str else token[k] for token in tokens])


def bar(noun: tuple[str, int], first: Adjective | None = None, second: Adjective | None = None) -> Phrase:
    """Builds a noun with adjectives around it: le vieil arbre vert."""
    word, k = noun
    words: tuple[str, ...] = (word,)
    if second:
        words = (word, second.forms[k])
    if first:
        words = (first.liaison if k == 0 and vowel(word) else first.forms[k], *words)
    return Phrase("", words, k, first is not None)


def determined(determiner: str, phrase: Phrase) -> Phrase:
    """Returns the phrase with a determiner."""
    return Phrase(determiner, phrase.words, phrase.k, phrase.fronted)


def render(phrase: Phrase, preposition: tuple[str, ...] = (), negated: bool = False) -> tuple[str, ...]:
    """Returns the words of a noun phrase after a preposition,
    or as the object of a negated verb (pas de, pas d')."""
    determiner, words, k, fronted, tail = phrase
    is_name = not determiner
    drops_article = (
        determiner == "a" and k > 1 and preposition[-1:] == ("de",)
    )  # près de + des maisons: près de maisons
    if is_name or drops_article:
        return preposition + words + tail
    article = DETERMINERS[determiner][k]
    if determiner == "a" and (negated or (k > 1 and fronted)):
        article = "de"
    elif determiner == "this" and k == 0 and vowel(words[0]):
        article = "cet"
    elif determiner == "my" and k == 1 and vowel(words[0]):
        article = "mon"
    return (*preposition, article, *words, *tail)


def verb(entry: Verb, plural: bool, past: bool, negated: bool) -> tuple[Tokens, bool]:
    """Returns a conjugated verb, présent or passé composé,
    with ne … pas if negated, and whether it is negated."""
    head: Tokens = (entry.french[plural],)
    rest: Tokens = ()
    if past and entry.etre:
        head = ("sont" if plural else "est",)
        rest = (entry.participle,)
    elif past:
        head = ("ont" if plural else "a",)
        rest = (entry.participle[0],)
    return (("ne", *head, "pas", *rest) if negated else head + rest), negated


def coordinate(first: Phrase, second: Phrase) -> Phrase:
    """Builds "le chien et la vache": plural, and feminine only if both are."""
    return Phrase("", (*render(first), "et", *render(second)), 2 + (first.k & second.k & 1), False)


def clause(subject: Phrase, predicate: Tokens) -> tuple[str, ...]:
    """Returns the words of a subject and a verb phrase that agrees with it."""
    return render(subject) + agree(predicate, subject.k)


def frame(subject: Phrase, predicate: tuple[Tokens, bool], thing: Phrase, cause: Cause) -> tuple[str, ...]:
    """Returns the words of an event and its cause; the antecedent
    determines il, elle, ils or elles and the adjective's form."""
    k = (subject if cause.subject else thing).k
    reason = (*cause.because, PRONOUNS[k], cause.be[k > 1], cause.degree, cause.adjective.forms[k])
    tokens, negated = predicate
    return render(subject) + agree(tokens, subject.k) + render(thing, negated=negated) + reason


def compose(derivation: list[Rule], choices: list[int]) -> Any:
    """Returns the French tokens of a derivation. `choices` has the
    index of the style of each rule that has styles, in order."""
    stack: list[Any] = []
    remaining = len(choices)
    for rule in reversed(derivation):
        if rule.styles:
            remaining -= 1
            stack.append(rule.styles[choices[remaining]][1])
        elif rule.nonterminals:
            count = len(rule.nonterminals)
            arguments = stack[: -count - 1 : -1]
            del stack[-count:]
            stack.append(rule.compose(*arguments))
        else:
            stack.append(rule.compose)
    return stack[0]


def spell(tokens: tuple[str, ...]) -> str:
    """Returns the sentence: elided, contracted, capitalised, with a full stop."""
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
