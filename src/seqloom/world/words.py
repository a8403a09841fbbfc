"""The leaves of the grammar: a rule for every word of the lexicon, weighted by its rank, with its French.

Symbols: `N:class:number`, `NAME:class`, `PRE:class` and `POST:class` (adjectives before and after the French
noun), `PRED:class` (predicates), `GRADE:class` (predicates that combine with "very" and "too"),
`CAUSE:frame:polarity:role`, `V:group:form`, `ADVERB`, `BECAUSE`.
"""

from collections.abc import Iterator
from typing import Any

from seqloom.world.french import Phrase
from seqloom.world.pcfg import Rule

from . import lexicon as lex

NUMBERS = ("s", "p")
ANIMATE = ("animal", "human")
CLASSES = tuple(lex.PREDICATES)
BE = {"s": ("is", "was"), "p": ("are", "were")}
ETRE = {"s": ("est", "était"), "p": ("sont", "étaient")}


def zipf_weight(rank: int) -> int:
    """Returns the weight of the word with the given rank in its list, by a mild Zipf law."""
    return 60 // (rank + 5)


def identity(value: Any) -> Any:
    """Composes the French of a rule with one part: returns it unchanged."""
    return value


def words() -> Iterator[Rule]:
    """Yields the rules of content words; the other rules of the grammar contain the function words."""
    yield from nouns()
    yield from adjectives()
    for group, table in lex.VERBS.items():
        for rank, entry in enumerate(lex.verbs(table)):
            for form, english in zip(("base", "third", "past"), entry.english, strict=True):
                yield Rule(f"V:{group}:{form}", zipf_weight(rank), f"{english}/VERB", entry)
    for rank, (english, styles) in enumerate(lex.ADVERBS.items()):
        yield leaf(
            "ADVERB",
            zipf_weight(rank),
            f"{english}/ADV",
            tuple((weight, (french,)) for weight, french in styles),
        )
    yield leaf("BECAUSE", 1, "because/SCONJ", ((9, ("parce", "que")), (1, ("car",))))


def nouns() -> Iterator[Rule]:
    """Yields the rules of common nouns, with their k, and of names."""
    for noun_class, table in lex.NOUNS.items():
        for rank, noun in enumerate(lex.nouns(table)):
            for plural, number in enumerate(NUMBERS):
                styles = tuple(
                    (weight, (forms[plural], feminine + 2 * plural))
                    for weight, *forms, feminine in noun.french
                )
                yield leaf(
                    f"N:{noun_class}:{number}",
                    zipf_weight(rank),
                    f"{noun.forms[plural]}/NOUN",
                    styles,
                    "noun",
                )
    for noun_class, table in lex.NAMES.items():
        for rank, name in enumerate(lex.nouns(table)):
            ((_, french, _, feminine),) = name.french
            yield Rule(
                f"NAME:{noun_class}",
                zipf_weight(rank),
                f"{name.forms[0]}/PROPN",
                Phrase("", (french,), int(feminine), False),
            )


def adjectives() -> Iterator[Rule]:
    """Yields the rules of adjectives, one for each list that an adjective belongs to."""
    lists: dict[str, list[str]] = {}
    for noun_class, text in (lex.PREDICATES | lex.BANKS).items():
        lists[f"PRED:{noun_class}"] = text.split()
        lists[f"GRADE:{noun_class}"] = [word for word in text.split() if word not in lex.ABSOLUTE.split()]
    for noun_class, (before, after) in lex.ATTRIBUTES.items():
        lists[f"PRE:{noun_class}"] = before.split()
        lists[f"POST:{noun_class}"] = after.split()
    for index, frame in enumerate(lex.FRAMES):
        for polarity, (subject, thing) in (("no", frame.negative), ("yes", frame.positive)):
            lists[f"CAUSE:{index}:{polarity}:subject"] = subject.split()
            lists[f"CAUSE:{index}:{polarity}:object"] = thing.split()
    adjectives_by_word = lex.adjectives()
    for symbol, members in lists.items():
        for rank, english in enumerate(members):
            yield Rule(symbol, zipf_weight(rank), f"{english}/ADJ", adjectives_by_word[english])


def leaf(
    lhs: str, weight: int, rhs: str, styles: tuple[tuple[int, Any], ...], mark: str | None = None
) -> Rule:
    """Returns the rule of a word with one or several French renderings."""
    return Rule(lhs, weight, rhs, styles[0][1], mark, styles if len(styles) > 1 else ())
