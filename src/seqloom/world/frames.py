"""Events with a cause: "The animal didn't cross the street
because it was too tired", or "too wide" (SPEC X22, T13).

The pronoun may refer to the subject or to the object. If both are singular and not human, it is "it" in
either case, and only the adjective decides: in the lexicon, the adjectives of the subject and of the object
of one frame are disjoint.
"""

from collections.abc import Iterator
from itertools import product

from seqloom.world.french import Cause, frame, verb
from seqloom.world.pcfg import Rule
from seqloom.world.phrases import placed
from seqloom.world.words import BE, ETRE, NUMBERS, identity

from . import lexicon as lex

# polarity, past, weight
MODES = (("no", 1, 6), ("no", 0, 2), ("yes", 1, 3))
HUMANS = (("man", "s", "he", 1), ("woman", "s", "she", 1), ("human", "p", "they", 1))


def actors(classes: str) -> list[tuple[str, str, str, int]]:
    """Returns the subjects of a frame: class, number, pronoun, weight."""
    subjects: list[tuple[str, str, str, int]] = []
    for noun_class in classes.split():
        subjects += (
            HUMANS if noun_class == "human" else ((noun_class, "s", "it", 3), (noun_class, "p", "they", 1))
        )
    return subjects


def frames() -> Iterator[Rule]:
    """Yields the rules of FRAME: subject, verb, object and WHY."""
    subjects = set()
    for index, entry in enumerate(lex.FRAMES):
        for noun_class, number, pronoun, weight in actors(entry.subjects):
            subjects.add((noun_class, number))
            subject = f"NPF:{noun_class}:{number}"
            for object_class, object_number, mode in product(entry.objects.split(), NUMBERS, MODES):
                polarity, past, mode_weight = mode
                negated = polarity == "no"
                plural = number == "p"
                auxiliary = "did" if past else "do" if plural else "does"
                action = f"@V:{entry.verbs}:past"
                if negated:
                    action = f"{auxiliary}/AUX n't/PART @V:{entry.verbs}:base"
                cause = f"WHY:{index}:{pronoun}:{object_number}:{polarity}{past}"
                yield Rule(
                    "FRAME",
                    entry.weight * weight * mode_weight * (2 if object_number == "s" else 1),
                    f"@{subject} {action} @NP:{object_class}:{object_number} @{cause}",
                    lambda s, v, o, c, a=plural, b=bool(past), n=negated: frame(s, verb(v, a, b, n), o, c),
                )
        for pronoun in dict.fromkeys(pronoun for _, _, pronoun, _ in actors(entry.subjects)):
            for object_number, (polarity, past, _) in product(NUMBERS, MODES):
                object_pronoun = "it" if object_number == "s" else "they"
                yield from causes(index, pronoun, object_pronoun, object_number, polarity, past)
    for noun_class, number in sorted(subjects):
        yield Rule(f"NPF:{noun_class}:{number}", 88, f"@NP:{noun_class}:{number}", identity)
        yield Rule(f"NPF:{noun_class}:{number}", 12, f"@NP:{noun_class}:{number} @PLACE", placed)
        if noun_class in lex.NAMES:
            yield Rule(f"NPF:{noun_class}:{number}", 60, f"@NAME:{noun_class}", identity)


def causes(
    index: int, subject: str, thing: str, object_number: str, polarity: str, past: int
) -> Iterator[Rule]:
    """Yields the rules of WHY: because it was too tired (the subject)
    or too wide (the object). Only "it" is marked with its role."""
    degree, french = ("too", "trop") if polarity == "no" else ("very", "très")
    for role, pronoun in (("subject", subject), ("object", thing)):
        be = BE["p" if pronoun == "they" else "s"][past]
        etre = (ETRE["s"][past], ETRE["p"][past])
        yield Rule(
            f"WHY:{index}:{subject}:{object_number}:{polarity}{past}",
            1,
            f"@BECAUSE {pronoun}/PRON {be}/AUX {degree}/ADV @CAUSE:{index}:{polarity}:{role}",
            lambda b, a, s=role == "subject", e=etre: Cause(b, s, e, french, a),
            role if pronoun == "it" else None,
        )
