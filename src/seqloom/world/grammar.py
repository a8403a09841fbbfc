"""The grammar of the world: the rules of English sentences with their weights and their French.

Symbols contain class and number (`NP:animal:p`), so that the grammar itself ensures agreement over any
distance. Each sentence has one derivation, by four conventions: a noun has one class and a verb one group; a
noun phrase has at most one modifier, a place or a relative clause; a place never follows an object; pronouns
occur only in causes. Left out of this version: questions, moods, dependency heads, pictures.
"""

from collections.abc import Iterator

from seqloom.world.banks import banks
from seqloom.world.frames import frames
from seqloom.world.french import clause
from seqloom.world.pcfg import Grammar, Rule
from seqloom.world.phrases import noun_phrases, places, relative_clauses, tenses, verb_phrases
from seqloom.world.words import CLASSES, identity, words

# Weights of the classes of subjects; the other classes have weight 1.
SUBJECTS = {"animal": 10, "human": 12, "vehicle": 4, "thing": 2, "building": 2, "food": 2}


def sentences() -> Iterator[Rule]:
    """Yields the rules of S: one clause, two joined by because, a frame, or a clause with a bank."""
    yield Rule("S", 47, "@CLAUSE ./PUNCT", identity)
    yield Rule("S", 7, "@CLAUSE @BECAUSE @CLAUSE ./PUNCT", lambda a, b, c: a + b + c)
    yield Rule("S", 30, "@FRAME ./PUNCT", identity)
    yield Rule("S", 14, "@BANK ./PUNCT", identity)
    yield Rule("S", 2, "@BANK @BECAUSE @CLAUSE ./PUNCT", lambda a, b, c: a + b + c)
    for noun_class in CLASSES:
        for number, number_weight in (("s", 3), ("p", 2)):
            weight = number_weight * SUBJECTS.get(noun_class, 1)
            yield Rule("CLAUSE", weight, f"@NPX:{noun_class}:{number} @VP:{noun_class}:{number}", clause)


def rules() -> Iterator[Rule]:
    """Yields every rule of the world."""
    for part in (
        sentences,
        noun_phrases,
        places,
        relative_clauses,
        tenses,
        verb_phrases,
        frames,
        banks,
        words,
    ):
        yield from part()


GRAMMAR = Grammar(rules())
