"""The rules of the world: how scenes become English, with the weight of every choice and the French it means.

Symbols carry class and number (`NP:animal:p`), so agreement over any distance is the grammar's own business. One derivation per sentence,
by four habits: a noun has one class and a verb one group; a noun phrase has at most one modifier, a place or a relative clause; a place
never follows an object; pronouns stand only in causes. Left out of this version: questions, moods, dependency heads, pictures.
"""

from collections.abc import Iterator

from . import lexicon as lex
from .banks import banks
from .french import Cause, Phrase, agree, bar, clause, coordinate, determined, frame, render, verb
from .pcfg import Grammar, Rule

NUMBERS = ("s", "p")
HUMAN = ("man", "woman", "person")
ANIMATE = ("animal", "human")
PLACES = ("building", "ground", "cover", "height")
CLASSES = tuple(lex.PREDICATES)
ADJECTIVES = lex.adjectives()
DETERMINERS = {"s": (("the", "DET", 60), ("a", "DET", 20), ("this", "DET", 10)), "p": (("the", "DET", 60), ("some", "DET", 12), ("these", "DET", 8),
               ("two", "NUM", 8), ("three", "NUM", 4))}
KINDS = {"some": "a", "these": "this"}
IMPERSONAL = ("road", "water", "ground", "cover", "height")  # nobody says "my river" here
BE = {"s": ("is", "was"), "p": ("are", "were")}
ETRE = {("s", 0): "est", ("s", 1): "était", ("p", 0): "sont", ("p", 1): "étaient"}


def rank(place: int) -> int:
    """A mild Zipf law: the weight of the word at a place of its list."""
    return 60 // (place + 5)


def first(value):
    """The French of a rule that only passes on its one part."""
    return value


def words() -> Iterator[Rule]:
    """Leaves: nouns, names, adjectives, verbs, adverbs, because."""
    for kind, table in lex.NOUNS.items():
        for place, noun in enumerate(lex.nouns(table)):
            for number in NUMBERS:
                plural = number == "p"
                styles = tuple((weight, ((many if plural else one), feminine + 2 * plural)) for weight, one, many, feminine in noun.french)
                yield leaf(f"N:{kind}:{number}", rank(place), f"{noun.forms[plural]}/NOUN", styles, "noun")
    for kind, table in lex.NAMES.items():
        for place, name in enumerate(lex.nouns(table)):
            yield Rule(f"NAME:{kind}", rank(place), f"{name.forms[0]}/PROPN", Phrase("", (name.french[0][1],), int(name.french[0][3]), False))
    lists = {f"PRED:{kind}": text for kind, text in (lex.PREDICATES | lex.BANKS).items()}
    lists |= {f"PRE:{kind}": text for kind, (text, _) in lex.ATTRIBUTES.items()} | {f"POST:{kind}": text for kind, (_, text) in lex.ATTRIBUTES.items()}
    for index, (*_, negative, positive) in enumerate(lex.FRAMES):
        for polarity, pair in (("no", negative), ("yes", positive)):
            lists |= {f"CAUSE:{index}:{polarity}:subject": pair[0], f"CAUSE:{index}:{polarity}:object": pair[1]}
    for symbol, text in lists.items():
        for place, english in enumerate(text.split()):
            yield Rule(symbol, rank(place), f"{english}/ADJ", ADJECTIVES[english])
    for group, table in lex.VERBS.items():
        for place, entry in enumerate(lex.verbs(table)):
            for form, english in zip(("base", "third", "past"), entry.english, strict=True):
                yield Rule(f"V:{group}:{form}", rank(place), f"{english}/VERB", entry)
    for place, (english, styles) in enumerate(lex.ADVERBS.items()):
        yield leaf("ADVERB", rank(place), f"{english}/ADV", tuple((weight, (french,)) for weight, french in styles))
    yield leaf("BECAUSE", 1, "because/SCONJ", ((9, ("parce", "que")), (1, ("car",))))


def leaf(left: str, weight: int, right: str, styles: tuple, mark: str | None = None) -> Rule:
    """A word with one French rendering or several."""
    return Rule(left, weight, right, styles[0][1], mark, styles if len(styles) > 1 else ())


def noun_phrases() -> Iterator[Rule]:
    """NP: determiner, adjectives, noun. NPX: with a modifier, as a subject. NPO: as an object."""
    for kind in lex.NOUNS:
        for number in NUMBERS:
            name = f"{kind}:{number}"
            yield Rule(f"BAR:{name}", 62, f"@N:{name}", bar)
            yield Rule(f"BAR:{name}", 18, f"@PRE:{kind} @N:{name}", lambda a, n: bar(n, a))
            yield Rule(f"BAR:{name}", 15, f"@POST:{kind} @N:{name}", lambda b, n: bar(n, None, b))
            yield Rule(f"BAR:{name}", 5, f"@PRE:{kind} @POST:{kind} @N:{name}", lambda a, b, n: bar(n, a, b))
            mine = () if kind in IMPERSONAL else (("my", "PRON", 10),)
            for english, tag, weight in DETERMINERS[number] + mine:
                yield Rule(f"NP:{name}", weight, f"{english}/{tag} @BAR:{name}", lambda p, k=KINDS.get(english, english): determined(k, p))
    for number in NUMBERS:
        for kind in HUMAN:
            yield Rule(f"NP:human:{number}", 4, f"@NP:{kind}:{number}", first)
        for kind in CLASSES:
            name = f"{kind}:{number}"
            yield Rule(f"NPX:{name}", 68, f"@NP:{name}", first)
            yield Rule(f"NPX:{name}", 14, f"@NP:{name} @PLACE", lambda p, place: p._replace(tail=place))
            yield Rule(f"NPX:{name}", 14, f"@NP:{name} @WHICH:{name}", lambda p, which: p._replace(tail=agree(which, p.k)))
            yield Rule(f"NPO:{kind}", 3 if number == "s" else 2, f"@NPO:{name}", first)
            yield Rule(f"NPO:{name}", 88, f"@NP:{name}", first)
            yield Rule(f"NPO:{name}", 12, f"@NP:{name} @WHICH:{name}", lambda p, which: p._replace(tail=agree(which, p.k)))
    for kind in lex.NAMES:
        yield Rule("NPX:human:s", 12, f"@NAME:{kind}", first)
        yield Rule("NPO:human:s", 10, f"@NAME:{kind}", first)
    for kind in ANIMATE:
        for one, other in ("ss", "sp", "ps"):
            yield Rule(f"NPX:{kind}:p", 4, f"@NP:{kind}:{one} and/CCONJ @NP:{kind}:{other}", coordinate)


def places() -> Iterator[Rule]:
    """Where: one preposition and a plain noun phrase."""
    for kind in PLACES:
        for number, weight in (("s", 3), ("p", 2)):
            yield Rule("SPOT", weight, f"@NP:{kind}:{number}", first)
            yield Rule(f"SPOT:{kind}", weight, f"@NP:{kind}:{number}", first)
    yield Rule("SPOT:in", 3, "@SPOT:building", first)
    yield Rule("SPOT:in", 4, "@SPOT:ground", first)
    for weight, english, spot, french in ((5, "near", "SPOT", ("près", "de")), (3, "behind", "SPOT", ("derrière",)), (6, "in", "SPOT:in", ("dans",)),
                                          (2, "under", "SPOT:cover", ("sous",)), (2, "on", "SPOT:height", ("sur",))):
        yield Rule("PLACE", weight, f"{english}/ADP @{spot}", lambda p, f=french: render(p, f))


def relative_clauses() -> Iterator[Rule]:
    """WHICH: qui + verb phrase, or que + subject + verb, whose participle agrees with the noun before it."""
    for kind in CLASSES:
        for number in NUMBERS:
            who = "who" if kind == "human" else "that"
            yield Rule(f"WHICH:{kind}:{number}", 6, f"{who}/PRON @VP:{kind}:{number}", lambda vp: ("qui", *vp))
            yield Rule(f"WHICH:{kind}:{number}", 5, "that/PRON @SEEN", first)
    for kind in ANIMATE:
        for number in NUMBERS:
            yield Rule("SEEN", 3, f"@NPS:{kind}:{number} @SEES:{number}", lambda p, v: ("que", *render(p), *v))
            yield Rule(f"NPS:{kind}:{number}", 8, f"@NP:{kind}:{number}", first)
            yield Rule(f"NPS:{kind}:{number}", 2, f"@NP:{kind}:{number} @PLACE", lambda p, place: p._replace(tail=place))
    for kind in lex.NAMES:
        yield Rule("SEEN", 1, f"@NAME:{kind} @SEES:s", lambda p, v: ("que", *render(p), *v))
    for number in NUMBERS:
        yield Rule(f"SEES:{number}", 1, f"@V:see:{'third' if number == 's' else 'base'}", lambda v, n=number: (v.french[n == "p"],))
        yield Rule(f"SEES:{number}", 1, "@V:see:past", lambda v, n=number: ("ont" if n == "p" else "a", v.participle))


def verb_phrases() -> Iterator[Rule]:
    """VP: what a subject of a class and a number does or is."""
    for number in NUMBERS:
        plural, do = number == "p", "do" if number == "p" else "does"
        for group in lex.VERBS:
            for weight, right, past, negated in ((5, f"@V:{group}:{'base' if plural else 'third'}", False, False), (4, f"@V:{group}:past", True, False),
                                                 (1, f"{do}/AUX n't/PART @V:{group}:base", False, True), (2, f"did/AUX n't/PART @V:{group}:base", True, True)):
                yield Rule(f"DO:{group}:{number}", weight, right, lambda v, a=plural, b=past, c=negated: verb(v, a, b, c))
        for kind in (*CLASSES, *lex.BANKS):
            for past in (0, 1):
                be, etre = BE[number][past], ETRE[number, past]
                yield Rule(f"IS:{kind}:{number}", 4, f"{be}/AUX @HOW:{kind}", lambda how, e=etre: (e, *how))
                yield Rule(f"IS:{kind}:{number}", 1, f"{be}/AUX n't/PART @HOW:{kind}", lambda how, e=etre: ("ne", e, "pas", *how))
        for kind in CLASSES:
            name = f"{kind}:{number}"
            yield Rule(f"VP:{name}", 20, f"@IS:{name}", first)
            if kind in ANIMATE:
                yield Rule(f"VP:{name}", 8, f"@DO:sleep:{number}", lambda v: v[0])
                yield Rule(f"VP:{name}", 5, f"@DO:sleep:{number} @ADVERB", lambda v, a: v[0] + a)
                yield Rule(f"VP:{name}", 14, f"@DO:sleep:{number} @PLACE", lambda v, p: v[0] + p)
                for preposition, group, weight in (("to", "go", 6), ("at", "arrive", 3)):
                    yield Rule(f"VP:{name}", weight, f"@DO:{group}:{number} {preposition}/ADP @SITE", lambda v, p: v[0] + render(p, ("à",)))
                yield from transitive(name, number, (("see", 14, ("animal", "human", "vehicle", "thing", "building")), ("hear", 10, ANIMATE),
                                                     ("eat", 8, ("food",)), ("carry", 8, ("thing",))))
            if kind == "human":
                yield Rule(f"VP:{name}", 3, f"@DO:work:{number} @PLACE", lambda v, p: v[0] + p)
                yield Rule(f"VP:{name}", 8, f"@DO:give:{number} @GIFT to/ADP @NPO:human:s",
                           lambda v, gift, p: v[0] + render(gift, negated=v[1]) + render(p, ("à",)))
                yield from transitive(name, number, (("buy", 4, ("vehicle", "thing")), ("repair", 7, ("vehicle", "thing", "building"))))
            if kind in (*ANIMATE, "vehicle"):
                yield from transitive(name, number, (("cross", 8, ("road",)), ("reach", 4, ("road", "water"))))
            if kind == "vehicle":
                yield Rule(f"VP:{name}", 6, f"@DO:turn:{number}", lambda v: v[0])
                yield Rule(f"VP:{name}", 4, f"@DO:turn:{number} @ADVERB", lambda v, a: v[0] + a)
            if kind == "boat":
                yield from transitive(name, number, (("cross", 10, ("water",)), ("reach", 5, ("water",))))
    for number, weight in (("s", 3), ("p", 1)):
        yield Rule("GIFT", weight, f"@NP:thing:{number}", first)
        yield Rule("GIFT", weight, f"@NP:food:{number}", first)
    for english, tag, weight in (("the", "DET", 7), ("this", "DET", 1), ("my", "PRON", 2)):
        yield Rule("SITE", weight, f"{english}/{tag} @BAR:building:s", lambda p, k=english: determined(k, p))
    yield Rule("SITE", 2, "the/DET @BAR:building:p", lambda p: determined("the", p))
    for kind in (*CLASSES, *lex.BANKS):
        yield Rule(f"HOW:{kind}", 5, f"@PRED:{kind}", lambda a: (a.forms,))
        yield Rule(f"HOW:{kind}", 3, f"very/ADV @PRED:{kind}", lambda a: ("très", a.forms))
        yield Rule(f"HOW:{kind}", 2, f"too/ADV @PRED:{kind}", lambda a: ("trop", a.forms))


def transitive(name: str, number: str, groups: tuple) -> Iterator[Rule]:
    """Verb and object; "pas" turns an indefinite object into "de"."""
    for group, weight, objects in groups:
        for kind in objects:
            yield Rule(f"VP:{name}", max(1, weight // len(objects)), f"@DO:{group}:{number} @NPO:{kind}", lambda v, p: v[0] + render(p, negated=v[1]))


def frames() -> Iterator[Rule]:
    """FRAME: the animal didn't cross the street because it was too tired, or because it was too wide."""
    for index, (group, subjects, objects, weight, *_) in enumerate(lex.FRAMES):
        actors = [actor for kind in subjects.split() for actor in (
            (("man", "s", "he", 2), ("woman", "s", "she", 2), ("human", "p", "they", 2)) if kind == "human" else
            ((kind, "s", "it", 6), (kind, "p", "they", 2)))]
        for kind, number, pronoun, share in actors:
            for thing in objects.split():
                for many in NUMBERS:
                    why = f"{index}:{pronoun}:{many}"
                    for mode, past, do, share2 in (("no", 1, "did", 6), ("no", 0, "do" if number == "p" else "does", 2), ("yes", 1, None, 3)):
                        form = "past" if do is None else "base"
                        yield Rule("FRAME", weight * share * share2 * (2 if many == "s" else 1),
                                   f"@NPF:{kind}:{number} " + (f"{do}/AUX n't/PART " if do else "") + f"@V:{group}:{form} @NP:{thing}:{many} @WHY:{why}:{mode}{past}",
                                   lambda s, v, o, c, n=number, b=past, m=mode: frame(s, verb(v, n == "p", bool(b), m == "no"), o, c))
        for pronoun in {pronoun for _, _, pronoun, _ in actors}:
            for many in NUMBERS:
                for mode, past in (("no", 1), ("no", 0), ("yes", 1)):
                    left = f"WHY:{index}:{pronoun}:{many}:{mode}{past}"
                    for role, word in (("subject", pronoun), ("object", "it" if many == "s" else "they")):
                        number = "p" if word == "they" else "s"
                        degree, french = ("too", "trop") if mode == "no" else ("very", "très")
                        yield Rule(left, 1, f"@BECAUSE {word}/PRON {BE[number][past]}/AUX {degree}/ADV @CAUSE:{index}:{mode}:{role}",
                                   lambda b, a, r=role, t=past, f=french: Cause(b, r == "subject", (ETRE["s", t], ETRE["p", t]), f, a),
                                   role if word == "it" else None)
    for kind, number in (("animal", "s"), ("animal", "p"), ("man", "s"), ("woman", "s"), ("human", "p"), ("vehicle", "s"), ("vehicle", "p"),
                         ("boat", "s"), ("boat", "p")):
        yield Rule(f"NPF:{kind}:{number}", 88, f"@NP:{kind}:{number}", first)
        yield Rule(f"NPF:{kind}:{number}", 12, f"@NP:{kind}:{number} @PLACE", lambda p, place: p._replace(tail=place))
        if kind in lex.NAMES:
            yield Rule(f"NPF:{kind}:{number}", 60, f"@NAME:{kind}", first)


def sentences() -> Iterator[Rule]:
    """S: one clause, two joined by because, a frame, or a clause with a bank."""
    yield Rule("S", 47, "@CLAUSE ./PUNCT", first)
    yield Rule("S", 7, "@CLAUSE @BECAUSE @CLAUSE ./PUNCT", lambda a, b, c: a + b + c)
    yield Rule("S", 30, "@FRAME ./PUNCT", first)
    yield Rule("S", 14, "@BANK ./PUNCT", first)
    yield Rule("S", 2, "@BANK @BECAUSE @CLAUSE ./PUNCT", lambda a, b, c: a + b + c)
    weights = {"animal": 10, "human": 12, "vehicle": 4, "thing": 2, "building": 2, "food": 2}
    for kind in CLASSES:
        for number, share in (("s", 3), ("p", 2)):
            yield Rule("CLAUSE", share * weights.get(kind, 1), f"@NPX:{kind}:{number} @VP:{kind}:{number}", clause)


def rules() -> Iterator[Rule]:
    """Every rule of the world."""
    for part in (sentences, noun_phrases, places, relative_clauses, verb_phrases, frames, banks, words):
        yield from part()


GRAMMAR = Grammar(rules())
