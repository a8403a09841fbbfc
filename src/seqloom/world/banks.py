"""Both senses of "bank": the one with accounts (banque) and the one of a river (rive), each in contexts that decide between them.

Sometimes the word before decides (on the bank, at the bank), sometimes only the last word of the sentence does (was closed, was muddy).
A sentence holds one bank at most.
"""

from collections.abc import Iterator

from .french import Phrase, clause, determined, render
from .pcfg import Rule

BANQUE, RIVE, COMPTE = (Phrase("the", (word,), k, False) for word, k in (("banque", 1), ("rive", 1), ("compte", 0)))
A, ON = ("à",), ("sur",)


def money(negated: bool) -> tuple[str, ...]:
    """de l'argent, and under negation d'argent."""
    return ("de", "argent") if negated else ("de", "le", "argent")


def banks() -> Iterator[Rule]:
    """BANK: clauses with a bank; their mark is its sense."""
    yield Rule("BANK", 1, "@BANK:money", lambda tokens: tokens, "money")
    yield Rule("BANK", 1, "@BANK:river", lambda tokens: tokens, "river")
    for number in ("s", "p"):
        who = f"@NPX:human:{number}"
        yield Rule("BANK:money", 5, f"{who} @DO:open:{number} a/DET account/NOUN at/ADP @BANQUE",
                   lambda s, v, b: clause(s, v[0]) + render(determined("a", COMPTE), negated=v[1]) + render(b, A))
        yield Rule("BANK:money", 3, f"{who} @DO:deposit:{number} money/NOUN at/ADP @BANQUE", lambda s, v, b: clause(s, v[0]) + money(v[1]) + render(b, A))
        yield Rule("BANK:money", 4, f"{who} @DO:borrow:{number} money/NOUN from/ADP @BANQUE", lambda s, v, b: clause(s, v[0]) + money(v[1]) + render(b, A))
        yield Rule("BANK:money", 2, f"{who} @DO:work:{number} at/ADP @BANQUE", lambda s, v, b: clause(s, v[0]) + render(b, A))
        yield Rule("BANK:money", 2, f"@BANQUE @DO:lend:s money/NOUN to/ADP @NP:human:{number}",
                   lambda b, v, p: clause(b, v[0]) + money(v[1]) + render(p, A))
        for kind in ("animal", "human"):
            yield Rule("BANK:river", 3, f"@NPX:{kind}:{number} @DO:sleep:{number} on/ADP @RIVE", lambda s, v, b: clause(s, v[0]) + render(b, ON))
        yield Rule("BANK:river", 2, f"@NPX:boat:{number} @DO:reach:{number} @RIVE", lambda s, v, b: clause(s, v[0]) + render(b))
    for sense, weight, symbol in (("money", 7, "BANQUE"), ("river", 7, "RIVE")):
        yield Rule(f"BANK:{sense}", weight, f"@{symbol} @IS:{sense}:s", clause)
        yield Rule(f"BANK:{sense}", weight // 2, f"@{symbol}:near @IS:{sense}:s", clause)
    yield Rule("BANK:river", 3, "the/DET banks/NOUN of/ADP @RIVER @IS:river:p",
               lambda river, vp: clause(RIVE._replace(words=("rives",), k=3, tail=render(river, ("de",))), vp))
    for symbol, word in (("BANQUE", BANQUE), ("RIVE", RIVE)):
        yield Rule(symbol, 6, "the/DET bank/NOUN", word)
        yield Rule(f"{symbol}:near", 1, "the/DET bank/NOUN @PLACE", lambda place, w=word: w._replace(tail=place))
    yield Rule("BANQUE", 1, "my/PRON bank/NOUN", determined("my", BANQUE))
    yield Rule("RIVE", 4, "the/DET bank/NOUN of/ADP @RIVER", lambda river: RIVE._replace(tail=render(river, ("de",))))
    yield Rule("RIVE", 2, "the/DET @PRED:river bank/NOUN", lambda a: RIVE._replace(words=("rive", a.forms[1])))
    for number, weight in (("s", 5), ("p", 1)):
        yield Rule("RIVER", weight, f"@NP:water:{number}", lambda p: p)
