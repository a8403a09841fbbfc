"""Noun phrases, places, relative clauses and verb phrases.

`NP` is determiner, adjectives and noun; `NPX` a subject that may carry a place or a relative clause; `NPO` an object that may carry a
relative clause; `WHICH` a relative clause; `DO` a verb in one of four tenses; `IS` the copula and what follows; `VP` the verb phrase.
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
KINDS = {"some": "a", "these": "this"}  # French has one determiner for both numbers
NOBODYS = (
    "man",
    "woman",
    "road",
    "water",
    "ground",
    "cover",
    "height",
)  # no "my river" here, and "ma femme" is my wife
MOVABLE = (
    *ANIMATE,
    "vehicle",
    "boat",
    "food",
    "thing",
)  # may be in, on or under a place; houses and lakes are only near one
PREPOSITIONS = {
    "near": ("près", "de"),
    "behind": ("derrière",),
    "in": ("dans",),
    "under": ("sous",),
    "on": ("sur",),
}


def noun_phrases() -> Iterator[Rule]:
    """NP, NPX and NPO."""
    for number in NUMBERS:
        for kind in lex.NOUNS:
            name = f"{kind}:{number}"
            yield Rule(f"BAR:{name}", 62, f"@N:{name}", bar)
            yield Rule(f"BAR:{name}", 18, f"@PRE:{kind} @N:{name}", lambda a, n: bar(n, a))
            yield Rule(f"BAR:{name}", 15, f"@POST:{kind} @N:{name}", lambda b, n: bar(n, None, b))
            yield Rule(f"BAR:{name}", 5, f"@PRE:{kind} @POST:{kind} @N:{name}", lambda a, b, n: bar(n, a, b))
            for english, tag, weight in (*DETERMINERS[number], *(() if kind in NOBODYS else (MINE,))):
                french = KINDS.get(english, english)
                yield Rule(
                    f"NP:{name}", weight, f"{english}/{tag} @BAR:{name}", lambda p, f=french: determined(f, p)
                )
        for kind in ("man", "woman", "person"):
            yield Rule(f"NP:human:{number}", 1, f"@NP:{kind}:{number}", identity)
        for kind in CLASSES:
            name = f"{kind}:{number}"
            place = "PLACE" if kind in MOVABLE else "NEAR"
            yield Rule(f"NPX:{name}", 68, f"@NP:{name}", identity)
            yield Rule(f"NPX:{name}", 14, f"@NP:{name} @{place}", placed)
            yield Rule(f"NPX:{name}", 14, f"@NP:{name} @WHICH:{name}", related)
            yield Rule(f"NPO:{kind}", 3 if number == "s" else 2, f"@NPO:{name}", identity)
            yield Rule(f"NPO:{name}", 88, f"@NP:{name}", identity)
            yield Rule(f"NPO:{name}", 12, f"@NP:{name} @WHICH:{name}", related)
    for kind in lex.NAMES:
        yield Rule("NPX:human:s", 12, f"@NAME:{kind}", identity)
        yield Rule("NPO:human:s", 10, f"@NAME:{kind}", identity)
    for kind in ANIMATE:
        for one, other in ("ss", "sp", "ps"):
            yield Rule(f"NPX:{kind}:p", 4, f"@NP:{kind}:{one} and/CCONJ @NP:{kind}:{other}", coordinate)


def placed(phrase: Phrase, place: tuple[str, ...]) -> Phrase:
    """le chien derrière la maison."""
    return phrase._replace(tail=place)


def related(phrase: Phrase, which: tuple) -> Phrase:
    """la vache que le chien a vue: the relative clause agrees with its noun."""
    return phrase._replace(tail=agree(which, phrase.k))


def places() -> Iterator[Rule]:
    """Where: one preposition and a plain noun phrase."""
    for kind in ("building", "ground", "cover", "height"):
        for number, weight in (("s", 3), ("p", 2)):
            yield Rule("SPOT", weight, f"@NP:{kind}:{number}", identity)
            yield Rule(f"SPOT:{kind}", weight, f"@NP:{kind}:{number}", identity)
    yield Rule("SPOT:in", 3, "@SPOT:building", identity)
    yield Rule("SPOT:in", 4, "@SPOT:ground", identity)
    for left, english, weight, spot in (
        ("NEAR", "near", 5, "SPOT"),
        ("NEAR", "behind", 3, "SPOT"),
        ("PLACE", "near", 5, "SPOT"),
        ("PLACE", "behind", 3, "SPOT"),
        ("PLACE", "in", 6, "SPOT:in"),
        ("PLACE", "under", 2, "SPOT:cover"),
        ("PLACE", "on", 2, "SPOT:height"),
    ):
        yield Rule(left, weight, f"{english}/ADP @{spot}", lambda p, f=PREPOSITIONS[english]: render(p, f))


def relative_clauses() -> Iterator[Rule]:
    """WHICH: qui + verb phrase, or que + subject + verb, whose participle agrees with the noun before it."""
    for number in NUMBERS:
        for kind in CLASSES:
            who = "who" if kind == "human" else "that"
            yield Rule(
                f"WHICH:{kind}:{number}", 6, f"{who}/PRON @VP:{kind}:{number}", lambda vp: ("qui", *vp)
            )
            yield Rule(f"WHICH:{kind}:{number}", 5, "that/PRON @SEEN", identity)
        for kind in ANIMATE:
            yield Rule(
                "SEEN", 3, f"@NPS:{kind}:{number} @SEES:{number}", lambda p, v: ("que", *render(p), *v)
            )
            yield Rule(f"NPS:{kind}:{number}", 8, f"@NP:{kind}:{number}", identity)
            yield Rule(f"NPS:{kind}:{number}", 2, f"@NP:{kind}:{number} @PLACE", placed)
        form, plural = ("base", True) if number == "p" else ("third", False)
        yield Rule(f"SEES:{number}", 1, f"@V:see:{form}", lambda v, p=plural: (v.french[p],))
        yield Rule(
            f"SEES:{number}", 1, "@V:see:past", lambda v, p=plural: ("ont" if p else "a", v.participle)
        )
    for kind in lex.NAMES:
        yield Rule("SEEN", 1, f"@NAME:{kind} @SEES:s", lambda p, v: ("que", *render(p), *v))


def tenses() -> Iterator[Rule]:
    """DO: present and past, each also negated. IS and HOW: be, degree, adjective."""
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
        for kind in (*CLASSES, *lex.BANKS):
            for be, french in zip(BE[number], ETRE[number], strict=True):
                yield Rule(f"IS:{kind}:{number}", 4, f"{be}/AUX @HOW:{kind}", lambda how, f=french: (f, *how))
                yield Rule(
                    f"IS:{kind}:{number}",
                    1,
                    f"{be}/AUX n't/PART @HOW:{kind}",
                    lambda how, f=french: ("ne", f, "pas", *how),
                )
    for kind in (*CLASSES, *lex.BANKS):
        yield Rule(f"HOW:{kind}", 5, f"@PRED:{kind}", lambda a: (a.forms,))
        yield Rule(f"HOW:{kind}", 3, f"very/ADV @GRADE:{kind}", lambda a: ("très", a.forms))
        yield Rule(f"HOW:{kind}", 2, f"too/ADV @GRADE:{kind}", lambda a: ("trop", a.forms))


def verb_phrases() -> Iterator[Rule]:
    """VP: what a subject of a class and a number does or is."""
    for number in NUMBERS:
        for kind in CLASSES:
            yield Rule(f"VP:{kind}:{number}", 20, f"@IS:{kind}:{number}", identity)
        for kind, group, weight, objects in TRANSITIVE:
            for thing in objects:
                right = f"@DO:{group}:{number} @NPO:{thing}"
                yield Rule(f"VP:{kind}:{number}", weight, right, lambda v, p: v[0] + render(p, negated=v[1]))
        for kind, group, alone, adverb, place in (
            ("animal", "sleep", 6, 4, 12),
            ("human", "sleep", 6, 4, 12),
            ("human", "work", 2, 2, 4),
            ("vehicle", "turn", 6, 4, 1),
        ):
            yield Rule(f"VP:{kind}:{number}", alone, f"@DO:{group}:{number}", lambda v: v[0])
            yield Rule(f"VP:{kind}:{number}", adverb, f"@DO:{group}:{number} @ADVERB", lambda v, a: v[0] + a)
            yield Rule(f"VP:{kind}:{number}", place, f"@DO:{group}:{number} @PLACE", lambda v, p: v[0] + p)
        for kind in ANIMATE:
            yield Rule(
                f"VP:{kind}:{number}",
                6,
                f"@DO:go:{number} to/ADP @SITE",
                lambda v, p: v[0] + render(p, ("à",)),
            )
            yield Rule(
                f"VP:{kind}:{number}",
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
        for kind in ("thing", "food"):
            yield Rule("GIFT", weight, f"@NP:{kind}:{number}", identity)
    for weight, word, tag, number in (
        (7, "the", "DET", "s"),
        (1, "this", "DET", "s"),
        (2, "my", "PRON", "s"),
        (2, "the", "DET", "p"),
    ):
        yield Rule("SITE", weight, f"{word}/{tag} @BAR:building:{number}", lambda p, w=word: determined(w, p))


TRANSITIVE = (  # subject, verb group, weight of each object, objects
    *(
        (kind, group, weight, objects)
        for kind in ANIMATE
        for group, weight, objects in (
            ("see", 3, (*ANIMATE, "vehicle", "thing", "building")),
            ("hear", 5, ANIMATE),
            ("eat", 8, ("food",)),
            ("carry", 8, ("thing",)),
        )
    ),
    *(
        (kind, group, weight, objects)
        for kind in (*ANIMATE, "vehicle")
        for group, weight, objects in (("cross", 8, ("road",)), ("reach", 2, ("road", "water")))
    ),
    ("boat", "cross", 10, ("water",)),
    ("boat", "reach", 5, ("water",)),
    ("human", "buy", 2, ("vehicle", "thing")),
    ("human", "repair", 2, ("vehicle", "thing", "building")),
)
