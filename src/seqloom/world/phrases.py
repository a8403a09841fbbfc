"""Noun phrases, places, relative clauses and verb phrases.

`NP` is a determiner, adjectives and a noun; `NPX` a subject, perhaps with a place or a relative clause; `NPO`
an object, perhaps with a relative clause; `WHICH` a relative clause; `DO` a verb in one of four tenses; `IS`
the copula with its complement; `VP` the verb phrase.
"""

from collections.abc import Iterator

from seqloom.world.french import Phrase, agree, bar, coordinate, determined, render, verb
from seqloom.world.pcfg import Rule
from seqloom.world.words import ANIMATE, BE, CLASSES, ETRE, NUMBERS, identity

from . import lexicon as lex

DETERMINERS = {
    "s": (("the", "DET", 60), ("a", "DET", 20), ("this", "DET", 10)),
    "p": (
        ("the", "DET", 60),
        ("some", "DET", 12),
        ("these", "DET", 8),
        ("two", "NUM", 8),
        ("three", "NUM", 4),
    ),
}
MINE = ("my", "PRON", 10)
SINGULAR_DETERMINERS = {"some": "a", "these": "this"}  # French has one determiner for both numbers
# Classes without "my": there is no "my river" here, and "ma femme" is my wife.
NOT_POSSESSED = ("man", "woman", "road", "water", "ground", "cover", "height")
# Classes that may be in, on or under a place; houses and lakes are only near one.
MOVABLE = (*ANIMATE, "vehicle", "boat", "food", "thing")
PREPOSITIONS = {
    "near": ("près", "de"),
    "behind": ("derrière",),
    "in": ("dans",),
    "under": ("sous",),
    "on": ("sur",),
}


def noun_phrases() -> Iterator[Rule]:
    """Yields the rules of NP, NPX and NPO."""
    for number in NUMBERS:
        for noun_class in lex.NOUNS:
            name = f"{noun_class}:{number}"
            yield Rule(f"BAR:{name}", 62, f"@N:{name}", bar)
            yield Rule(f"BAR:{name}", 18, f"@PRE:{noun_class} @N:{name}", lambda a, n: bar(n, a))
            yield Rule(f"BAR:{name}", 15, f"@POST:{noun_class} @N:{name}", lambda b, n: bar(n, None, b))
            yield Rule(
                f"BAR:{name}",
                5,
                f"@PRE:{noun_class} @POST:{noun_class} @N:{name}",
                lambda a, b, n: bar(n, a, b),
            )
            for english, tag, weight in (
                *DETERMINERS[number],
                *(() if noun_class in NOT_POSSESSED else (MINE,)),
            ):
                french = SINGULAR_DETERMINERS.get(english, english)
                yield Rule(
                    f"NP:{name}", weight, f"{english}/{tag} @BAR:{name}", lambda p, f=french: determined(f, p)
                )
        for noun_class in ("man", "woman", "person"):
            yield Rule(f"NP:human:{number}", 1, f"@NP:{noun_class}:{number}", identity)
        for noun_class in CLASSES:
            name = f"{noun_class}:{number}"
            place = "PLACE" if noun_class in MOVABLE else "NEAR"
            yield Rule(f"NPX:{name}", 68, f"@NP:{name}", identity)
            yield Rule(f"NPX:{name}", 14, f"@NP:{name} @{place}", placed)
            yield Rule(f"NPX:{name}", 14, f"@NP:{name} @WHICH:{name}", related)
            yield Rule(f"NPO:{noun_class}", 3 if number == "s" else 2, f"@NPO:{name}", identity)
            yield Rule(f"NPO:{name}", 88, f"@NP:{name}", identity)
            yield Rule(f"NPO:{name}", 12, f"@NP:{name} @WHICH:{name}", related)
    for noun_class in lex.NAMES:
        yield Rule("NPX:human:s", 12, f"@NAME:{noun_class}", identity)
        yield Rule("NPO:human:s", 10, f"@NAME:{noun_class}", identity)
    for noun_class in ANIMATE:
        for first, second in ("ss", "sp", "ps"):
            yield Rule(
                f"NPX:{noun_class}:p",
                4,
                f"@NP:{noun_class}:{first} and/CCONJ @NP:{noun_class}:{second}",
                coordinate,
            )


def placed(phrase: Phrase, place: tuple[str, ...]) -> Phrase:
    """Adds a place: le chien derrière la maison."""
    return phrase._replace(tail=place)


def related(phrase: Phrase, which: tuple) -> Phrase:
    """Adds a relative clause, which agrees with its noun: la vache que le chien a vue."""
    return phrase._replace(tail=agree(which, phrase.k))


def places() -> Iterator[Rule]:
    """Yields the rules of places: a preposition and a simple noun phrase."""
    for noun_class in ("building", "ground", "cover", "height"):
        for number, weight in (("s", 3), ("p", 2)):
            yield Rule("SPOT", weight, f"@NP:{noun_class}:{number}", identity)
            yield Rule(f"SPOT:{noun_class}", weight, f"@NP:{noun_class}:{number}", identity)
    yield Rule("SPOT:in", 3, "@SPOT:building", identity)
    yield Rule("SPOT:in", 4, "@SPOT:ground", identity)
    for lhs, english, weight, spot in (
        ("NEAR", "near", 5, "SPOT"),
        ("NEAR", "behind", 3, "SPOT"),
        ("PLACE", "near", 5, "SPOT"),
        ("PLACE", "behind", 3, "SPOT"),
        ("PLACE", "in", 6, "SPOT:in"),
        ("PLACE", "under", 2, "SPOT:cover"),
        ("PLACE", "on", 2, "SPOT:height"),
    ):
        yield Rule(lhs, weight, f"{english}/ADP @{spot}", lambda p, f=PREPOSITIONS[english]: render(p, f))


def relative_clauses() -> Iterator[Rule]:
    """Yields the rules of WHICH: qui + verb phrase, or que + subject
    + verb, whose participle agrees with the noun before it."""
    for number in NUMBERS:
        for noun_class in CLASSES:
            who = "who" if noun_class == "human" else "that"
            yield Rule(
                f"WHICH:{noun_class}:{number}",
                6,
                f"{who}/PRON @VP:{noun_class}:{number}",
                lambda vp: ("qui", *vp),
            )
            yield Rule(f"WHICH:{noun_class}:{number}", 5, "that/PRON @SEEN", identity)
        for noun_class in ANIMATE:
            yield Rule(
                "SEEN", 3, f"@NPS:{noun_class}:{number} @SEES:{number}", lambda p, v: ("que", *render(p), *v)
            )
            yield Rule(f"NPS:{noun_class}:{number}", 8, f"@NP:{noun_class}:{number}", identity)
            yield Rule(f"NPS:{noun_class}:{number}", 2, f"@NP:{noun_class}:{number} @PLACE", placed)
        form, plural = ("base", True) if number == "p" else ("third", False)
        yield Rule(f"SEES:{number}", 1, f"@V:see:{form}", lambda v, p=plural: (v.french[p],))
        yield Rule(
            f"SEES:{number}", 1, "@V:see:past", lambda v, p=plural: ("ont" if p else "a", v.participle)
        )
    for noun_class in lex.NAMES:
        yield Rule("SEEN", 1, f"@NAME:{noun_class} @SEES:s", lambda p, v: ("que", *render(p), *v))


def tenses() -> Iterator[Rule]:
    """Yields the rules of DO (present and past, each also
    negated), and of IS and HOW (be, degree, adjective)."""
    for number in NUMBERS:
        plural = number == "p"
        for group in lex.VERBS:
            for weight, past, negated, right in (
                (5, False, False, f"@V:{group}:{'base' if plural else 'third'}"),
                (4, True, False, f"@V:{group}:past"),
                (1, False, True, f"{'do' if plural else 'does'}/AUX n't/PART @V:{group}:base"),
                (2, True, True, f"did/AUX n't/PART @V:{group}:base"),
            ):
                yield Rule(
                    f"DO:{group}:{number}",
                    weight,
                    right,
                    lambda v, a=plural, b=past, c=negated: verb(v, a, b, c),
                )
        for noun_class in (*CLASSES, *lex.BANKS):
            for be, french in zip(BE[number], ETRE[number], strict=True):
                yield Rule(
                    f"IS:{noun_class}:{number}",
                    4,
                    f"{be}/AUX @HOW:{noun_class}",
                    lambda how, f=french: (f, *how),
                )
                yield Rule(
                    f"IS:{noun_class}:{number}",
                    1,
                    f"{be}/AUX n't/PART @HOW:{noun_class}",
                    lambda how, f=french: ("ne", f, "pas", *how),
                )
    for noun_class in (*CLASSES, *lex.BANKS):
        yield Rule(f"HOW:{noun_class}", 5, f"@PRED:{noun_class}", lambda a: (a.forms,))
        yield Rule(f"HOW:{noun_class}", 3, f"very/ADV @GRADE:{noun_class}", lambda a: ("très", a.forms))
        yield Rule(f"HOW:{noun_class}", 2, f"too/ADV @GRADE:{noun_class}", lambda a: ("trop", a.forms))


def verb_phrases() -> Iterator[Rule]:
    """Yields the rules of VP: what a subject of a class and a number does or is."""
    for number in NUMBERS:
        for noun_class in CLASSES:
            yield Rule(f"VP:{noun_class}:{number}", 20, f"@IS:{noun_class}:{number}", identity)
        for noun_class, group, weight, objects in TRANSITIVE:
            for thing in objects:
                right = f"@DO:{group}:{number} @NPO:{thing}"
                yield Rule(
                    f"VP:{noun_class}:{number}", weight, right, lambda v, p: v[0] + render(p, negated=v[1])
                )
        for noun_class, group, alone, adverb, place in (
            ("animal", "sleep", 6, 4, 12),
            ("human", "sleep", 6, 4, 12),
            ("human", "work", 2, 2, 4),
            ("vehicle", "turn", 6, 4, 1),
        ):
            yield Rule(f"VP:{noun_class}:{number}", alone, f"@DO:{group}:{number}", lambda v: v[0])
            yield Rule(
                f"VP:{noun_class}:{number}", adverb, f"@DO:{group}:{number} @ADVERB", lambda v, a: v[0] + a
            )
            yield Rule(
                f"VP:{noun_class}:{number}", place, f"@DO:{group}:{number} @PLACE", lambda v, p: v[0] + p
            )
        for noun_class in ANIMATE:
            yield Rule(
                f"VP:{noun_class}:{number}",
                6,
                f"@DO:go:{number} to/ADP @SITE",
                lambda v, p: v[0] + render(p, ("à",)),
            )
            yield Rule(
                f"VP:{noun_class}:{number}",
                3,
                f"@DO:arrive:{number} at/ADP @SITE",
                lambda v, p: v[0] + render(p, ("à",)),
            )
        yield Rule(
            f"VP:human:{number}",
            9,
            f"@DO:give:{number} @GIFT to/ADP @NPO:human",
            lambda v, gift, p: v[0] + render(gift, negated=v[1]) + render(p, ("à",)),
        )
    for number, weight in (("s", 3), ("p", 1)):
        for noun_class in ("thing", "food"):
            yield Rule("GIFT", weight, f"@NP:{noun_class}:{number}", identity)
    for weight, word, tag, number in (
        (7, "the", "DET", "s"),
        (1, "this", "DET", "s"),
        (2, "my", "PRON", "s"),
        (2, "the", "DET", "p"),
    ):
        yield Rule("SITE", weight, f"{word}/{tag} @BAR:building:{number}", lambda p, w=word: determined(w, p))


TRANSITIVE = (  # subject, verb group, weight of each object, objects
    *(
        (noun_class, group, weight, objects)
        for noun_class in ANIMATE
        for group, weight, objects in (
            ("see", 3, (*ANIMATE, "vehicle", "thing", "building")),
            ("hear", 5, ANIMATE),
            ("eat", 8, ("food",)),
            ("carry", 8, ("thing",)),
        )
    ),
    *(
        (noun_class, group, weight, objects)
        for noun_class in (*ANIMATE, "vehicle")
        for group, weight, objects in (("cross", 8, ("road",)), ("reach", 2, ("road", "water")))
    ),
    ("boat", "cross", 10, ("water",)),
    ("boat", "reach", 5, ("water",)),
    ("human", "buy", 2, ("vehicle", "thing")),
    ("human", "repair", 2, ("vehicle", "thing", "building")),
)
