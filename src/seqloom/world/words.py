"""The leaves of the grammar: every word of the lexicon as a rule, its weight by rank and its French.

Symbols: `N:class:number`, `NAME:class`, `PRE:class` and `POST:class` (adjectives, by their French place), `PRED:class` (as a predicate),
`GRADE:class` (those of PRED that "very" and "too" suit), `CAUSE:frame:polarity:role`, `V:group:form`, `ADVERB`, `BECAUSE`.
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


def zipf_weight(place: int) -> int:
    """A mild Zipf law: the weight of the word at a place of its list."""
    return 60 // (place + 5)


def identity(value: Any) -> Any:
    """The French of a rule that only passes on its one part."""
    return value


def words() -> Iterator[Rule]:
    """Every word that carries meaning; the grammar's other rules write the function words."""
    yield from nouns()
    yield from adjectives()
    for group, table in lex.VERBS.items():
        for place, entry in enumerate(lex.verbs(table)):
            for form, english in zip(("base", "third", "past"), entry.english, strict=True):
                yield Rule(f"V:{group}:{form}", zipf_weight(place), f"{english}/VERB", entry)
    for place, (english, styles) in enumerate(lex.ADVERBS.items()):
        yield leaf(
            "ADVERB",
            zipf_weight(place),
            f"{english}/ADV",
            tuple((weight, (french,)) for weight, french in styles),
        )
    yield leaf("BECAUSE", 1, "because/SCONJ", ((9, ("parce", "que")), (1, ("car",))))


def nouns() -> Iterator[Rule]:
    """Common nouns with their k, and names."""
    for kind, table in lex.NOUNS.items():
        for place, noun in enumerate(lex.nouns(table)):
            for plural, number in enumerate(NUMBERS):
                styles = tuple(
                    (weight, (forms[plural], feminine + 2 * plural))
                    for weight, *forms, feminine in noun.french
                )
                yield leaf(
                    f"N:{kind}:{number}", zipf_weight(place), f"{noun.forms[plural]}/NOUN", styles, "noun"
                )
    for kind, table in lex.NAMES.items():
        for place, name in enumerate(lex.nouns(table)):
            ((_, french, _, feminine),) = name.french
            yield Rule(
                f"NAME:{kind}",
                zipf_weight(place),
                f"{name.forms[0]}/PROPN",
                Phrase("", (french,), int(feminine), False),
            )


def adjectives() -> Iterator[Rule]:
    """Adjectives, in each list they belong to."""
    lists = {}
    for kind, text in (lex.PREDICATES | lex.BANKS).items():
        lists[f"PRED:{kind}"] = text.split()
        lists[f"GRADE:{kind}"] = [word for word in text.split() if word not in lex.ABSOLUTE.split()]
    for kind, (before, after) in lex.ATTRIBUTES.items():
        lists[f"PRE:{kind}"], lists[f"POST:{kind}"] = before.split(), after.split()
    for index, frame in enumerate(lex.FRAMES):
        for polarity, (subject, thing) in (("no", frame.negative), ("yes", frame.positive)):
            lists[f"CAUSE:{index}:{polarity}:subject"], lists[f"CAUSE:{index}:{polarity}:object"] = (
                subject.split(),
                thing.split(),
            )
    known = lex.adjectives()
    for symbol, members in lists.items():
        for place, english in enumerate(members):
            yield Rule(symbol, zipf_weight(place), f"{english}/ADJ", known[english])


def leaf(
    left: str, weight: int, right: str, styles: tuple[tuple[int, Any], ...], mark: str | None = None
) -> Rule:
    """A word with one French rendering or several."""
    return Rule(left, weight, right, styles[0][1], mark, styles if len(styles) > 1 else ())
