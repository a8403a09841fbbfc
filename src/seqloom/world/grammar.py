"""The grammar of the world, assembled: how scenes become English, with the weight of every choice and the French it means.

Symbols carry class and number (`NP:animal:p`), so agreement over any distance is the grammar's own business. One derivation per sentence,
by four habits: a noun has one class and a verb one group; a noun phrase has at most one modifier, a place or a relative clause; a place
never follows an object; pronouns stand only in causes. Left out of this version: questions, moods, dependency heads, pictures.
"""

from collections.abc import Iterator

from seqloom.world.banks import banks
from seqloom.world.frames import frames
from seqloom.world.french import clause
from seqloom.world.pcfg import Grammar, Rule
from seqloom.world.phrases import noun_phrases, places, relative_clauses, tenses, verb_phrases
from seqloom.world.words import CLASSES, identity, words

SUBJECTS = {
    "animal": 10,
    "human": 12,
    "vehicle": 4,
    "thing": 2,
    "building": 2,
    "food": 2,
}  # the others weigh 1


def sentences() -> Iterator[Rule]:
    """S: one clause, two joined by because, a frame, or a clause with a bank."""
    yield Rule("S", 47, "@CLAUSE ./PUNCT", identity)
    yield Rule("S", 7, "@CLAUSE @BECAUSE @CLAUSE ./PUNCT", lambda a, b, c: a + b + c)
    yield Rule("S", 30, "@FRAME ./PUNCT", identity)
    yield Rule("S", 14, "@BANK ./PUNCT", identity)
    yield Rule("S", 2, "@BANK @BECAUSE @CLAUSE ./PUNCT", lambda a, b, c: a + b + c)
    for kind in CLASSES:
        for number, share in (("s", 3), ("p", 2)):
            yield Rule(
                "CLAUSE", share * SUBJECTS.get(kind, 1), f"@NPX:{kind}:{number} @VP:{kind}:{number}", clause
            )


def rules() -> Iterator[Rule]:
    """Every rule of the world."""
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
