"""Events with a cause: "The animal didn't cross the street because it was too tired", or "too wide" (SPEC X22, T13).

The pronoun may mean the subject or the object. Where both are singular things it is "it" either way, and the adjective alone decides:
the lists of the lexicon that suit the subject and the object of one frame never meet.
"""

from collections.abc import Iterator

from seqloom.world.french import Cause, frame, verb
from seqloom.world.pcfg import Rule
from seqloom.world.phrases import placed
from seqloom.world.words import BE, ETRE, NUMBERS, identity

from . import lexicon as lex

# polarity, past, weight
MODES = (("no", 1, 6), ("no", 0, 2), ("yes", 1, 3))
HUMANS = (("man", "s", "he", 1), ("woman", "s", "she", 1), ("human", "p", "they", 1))


def actors(kinds: str) -> list[tuple[str, str, str, int]]:
    """Subjects of a frame: class, number, pronoun, weight."""
    found = []
    for kind in kinds.split():
        found += HUMANS if kind == "human" else ((kind, "s", "it", 3), (kind, "p", "they", 1))
    return found


def frames() -> Iterator[Rule]:
    """FRAME: subject, verb, object and WHY."""
    subjects = set()
    for index, entry in enumerate(lex.FRAMES):
        for kind, number, pronoun, weight in actors(entry.subjects):
            subjects.add((kind, number))
            for thing in entry.objects.split():
                for many in NUMBERS:
                    for polarity, past, share in MODES:
                        do = "did" if past else "do" if number == "p" else "does"
                        action = (
                            f"{do}/AUX n't/PART @V:{entry.verbs}:base"
                            if polarity == "no"
                            else f"@V:{entry.verbs}:past"
                        )
                        yield Rule(
                            "FRAME",
                            entry.weight * weight * share * (2 if many == "s" else 1),
                            f"@NPF:{kind}:{number} {action} @NP:{thing}:{many} @WHY:{index}:{pronoun}:{many}:{polarity}{past}",
                            lambda s, v, o, c, a=number == "p", b=bool(past), n=polarity == "no": frame(
                                s, verb(v, a, b, n), o, c
                            ),
                        )
        for pronoun in dict.fromkeys(pronoun for _, _, pronoun, _ in actors(entry.subjects)):
            for many in NUMBERS:
                for polarity, past, _ in MODES:
                    yield from causes(index, pronoun, "it" if many == "s" else "they", many, polarity, past)
    for kind, number in sorted(subjects):
        yield Rule(f"NPF:{kind}:{number}", 88, f"@NP:{kind}:{number}", identity)
        yield Rule(f"NPF:{kind}:{number}", 12, f"@NP:{kind}:{number} @PLACE", placed)
        if kind in lex.NAMES:
            yield Rule(f"NPF:{kind}:{number}", 60, f"@NAME:{kind}", identity)


def causes(index: int, subject: str, thing: str, many: str, polarity: str, past: int) -> Iterator[Rule]:
    """WHY: because it was too tired (the subject) or too wide (the object); only "it" is marked with the one it means."""
    degree, french = ("too", "trop") if polarity == "no" else ("very", "très")
    for role, pronoun in (("subject", subject), ("object", thing)):
        be = BE["p" if pronoun == "they" else "s"][past]
        etre = (ETRE["s"][past], ETRE["p"][past])
        yield Rule(
            f"WHY:{index}:{subject}:{many}:{polarity}{past}",
            1,
            f"@BECAUSE {pronoun}/PRON {be}/AUX {degree}/ADV @CAUSE:{index}:{polarity}:{role}",
            lambda b, a, s=role == "subject", e=etre: Cause(b, s, e, french, a),
            role if pronoun == "it" else None,
        )
