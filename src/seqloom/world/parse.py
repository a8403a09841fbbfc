"""From a sentence back to its derivation: a chart parser over the same rules, which shares nothing with the sampler but the grammar.

Top-down with a memo over (symbol, position): the grammar has no left recursion. A sentence's probability is the sum over its derivations;
the tests check that there is never more than one.
"""

from seqloom.world.grammar import GRAMMAR
from seqloom.world.lexicon import article_an
from seqloom.world.pcfg import Grammar, Rule, Terminal

Derivation = tuple[Rule, ...]


def split(english: str) -> list[str]:
    """The words of a sentence: the full stop and n't stand alone, and the capital of the first word goes unless it is a name."""
    found: list[str] = []
    for piece in english.split(" "):
        tail = ["."] if piece.endswith(".") else []
        piece = piece[: len(piece) - len(tail)]
        found += [piece[:-3], "n't", *tail] if piece.endswith("n't") else [piece, *tail]
    lowered = found[0][:1].lower() + found[0][1:]
    return [lowered if lowered in WORDS else found[0], *found[1:]]


def join(words: list[str]) -> str:
    """The sentence of a list of words, as one would write it."""
    text = " ".join(words).replace(" n't", "n't").replace(" .", ".")
    return text[0].upper() + text[1:]


def fix_articles(words: list[str]) -> None:
    """Write "an" before a vowel; the grammar itself knows only "a"."""
    for i, word in enumerate(words):
        if word == "a" and article_an(words[i + 1]):
            words[i] = "an"


def derivations(words: list[str], grammar: Grammar = GRAMMAR, symbol: str | None = None) -> list[Derivation]:
    """Every derivation of the words from a symbol (the grammar's start unless told)."""
    chart: dict[tuple[str, int], dict[int, list[Derivation]]] = {}
    openings = FIRST if grammar is GRAMMAR else first_words(grammar)

    def spans(symbol: str, begin: int) -> dict[int, list[Derivation]]:
        found = chart.get((symbol, begin))
        if found is None:
            found = chart[symbol, begin] = {}
            if begin < len(words) and words[begin] in openings[symbol]:
                for rule in grammar.rules[symbol]:
                    for end, tails in expand(rule, begin).items():
                        found.setdefault(end, []).extend((rule, *tail) for tail in tails)
        return found

    def expand(rule: Rule, begin: int) -> dict[int, list[Derivation]]:
        front: dict[int, list[Derivation]] = {begin: [()]}
        for item in rule.right:
            ahead: dict[int, list[Derivation]] = {}
            for place, heads in front.items():
                if isinstance(item, Terminal):
                    if place < len(words) and words[place] == item.word:
                        ahead.setdefault(place + 1, []).extend(heads)
                else:
                    for end, tails in spans(item, place).items():
                        ahead.setdefault(end, []).extend(head + tail for head in heads for tail in tails)
            front = ahead
            if not front:
                break
        return front

    return spans(symbol or grammar.start, 0).get(len(words), [])


def first_words(grammar: Grammar) -> dict[str, set[str]]:
    """The words with which each symbol can begin."""
    found: dict[str, set[str]] = {symbol: set() for symbol in grammar.rules}
    grown = True
    while grown:
        grown = False
        for rule in grammar:
            item = rule.right[0]
            new = {item.word} if isinstance(item, Terminal) else found[item]
            if not new <= found[rule.left]:
                found[rule.left] |= new
                grown = True
    return found


def parse(english: str) -> list[Derivation]:
    """The derivations of an English sentence; empty outside the language."""
    if not english.endswith(".") or not english[0].isupper():
        return []
    found = split(english)
    words = ["a" if word == "an" else word for word in found]
    fix_articles(words)
    if words != found:
        return []
    return derivations(["a" if word == "an" else word for word in words])


WORDS = {item.word for rule in GRAMMAR for item in rule.right if isinstance(item, Terminal)} | {"an"}
FIRST = first_words(GRAMMAR)
