"""Both senses of "bank", banque and rive (of a river), each in contexts that disambiguate it.

In some sentences the word before decides (on the bank, at the bank), in others only
the last word does (was closed, was muddy). A sentence has at most one bank.
"""

from collections.abc import Iterator

from seqloom.world.french import Phrase, Tokens, clause, determined, render
from seqloom.world.pcfg import Rule
from seqloom.world.words import ANIMATE, NUMBERS, identity

BANQUE = Phrase("the", ("banque",), 1, False)
RIVE = Phrase("the", ("rive",), 1, False)
ACCOUNT = Phrase("a", ("compte",), 0, False)


def money(negated: bool) -> tuple[str, ...]:
    """Returns de l'argent, or d'argent after a negation."""
    return ("de", "argent") if negated else ("de", "le", "argent")


def handled(subject: Phrase, action: tuple[Tokens, bool], bank: Phrase) -> tuple[str, ...]:
    """Composes a clause about money and the bank: who borrows, deposits or lends it."""
    return clause(subject, action[0]) + money(action[1]) + render(bank, ("à",))


def banks() -> Iterator[Rule]:
    """Yields the rules of BANK: clauses with a bank, marked with its sense."""
    for sense in ("money", "river"):
        yield Rule("BANK", 1, f"@BANK:{sense}", identity, sense)
    yield from accounts()
    yield from shores()
    for sense, bank in (("money", "BANQUE"), ("river", "RIVE")):
        yield Rule(f"BANK:{sense}", 7, f"@{bank} @IS:{sense}:s", clause)
        yield Rule(f"BANK:{sense}", 3, f"@{bank}:NEAR @IS:{sense}:s", clause)
    for bank, phrase in (("BANQUE", BANQUE), ("RIVE", RIVE)):
        yield Rule(bank, 6, "the/DET bank/NOUN", phrase)
        yield Rule(
            f"{bank}:NEAR", 1, "the/DET bank/NOUN @NEAR", lambda place, p=phrase: p._replace(tail=place)
        )


def accounts() -> Iterator[Rule]:
    """Yields the rules of the bank that keeps money."""
    for number in NUMBERS:
        who = f"@NPX:human:{number}"
        yield Rule(
            "BANK:money",
            5,
            f"{who} @DO:open:{number} a/DET account/NOUN at/ADP @BANQUE",
            lambda s, v, b: clause(s, v[0]) + render(ACCOUNT, negated=v[1]) + render(b, ("à",)),
        )
        yield Rule("BANK:money", 3, f"{who} @DO:deposit:{number} money/NOUN at/ADP @BANQUE", handled)
        yield Rule("BANK:money", 4, f"{who} @DO:borrow:{number} money/NOUN from/ADP @BANQUE", handled)
        yield Rule(
            "BANK:money",
            3,
            f"{who} @DO:work:{number} at/ADP @BANQUE",
            lambda s, v, b: clause(s, v[0]) + render(b, ("à",)),
        )
        yield Rule("BANK:money", 2, f"@BANQUE @DO:lend:s money/NOUN to/ADP @NP:human:{number}", handled)
    yield Rule("BANQUE", 1, "my/PRON bank/NOUN", determined("my", BANQUE))


def shores() -> Iterator[Rule]:
    """Yields the rules of the bank of a river."""
    for number in NUMBERS:
        for noun_class, group in (*((noun_class, "sleep") for noun_class in ANIMATE), ("human", "work")):
            yield Rule(
                "BANK:river",
                3,
                f"@NPX:{noun_class}:{number} @DO:{group}:{number} on/ADP @RIVE",
                lambda s, v, b: clause(s, v[0]) + render(b, ("sur",)),
            )
        yield Rule(
            "BANK:river",
            2,
            f"@NPX:boat:{number} @DO:reach:{number} @RIVE",
            lambda s, v, b: clause(s, v[0]) + render(b),
        )
        yield Rule("RIVER", 5 if number == "s" else 1, f"@NP:water:{number}", identity)
    yield Rule(
        "BANK:river",
        3,
        "the/DET banks/NOUN of/ADP @RIVER @IS:river:p",
        lambda river, vp: clause(Phrase("the", ("rives",), 3, False, render(river, ("de",))), vp),
    )
    yield Rule(
        "RIVE", 4, "the/DET bank/NOUN of/ADP @RIVER", lambda river: RIVE._replace(tail=render(river, ("de",)))
    )
    yield Rule(
        "RIVE", 2, "the/DET @PRED:river bank/NOUN", lambda a: RIVE._replace(words=("rive", a.forms[1]))
    )
