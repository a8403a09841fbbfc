"""From a sentence back to its derivation: a chart parser over
the same rules; it shares only the grammar with the sampler.

It parses top-down with a memo over (symbol, position), since the grammar has no left recursion. The
probability of a sentence is the sum over its derivations; the tests check that there is never more than one.
"""

from seqloom.world.grammar import GRAMMAR
from seqloom.world.lexicon import article_an
from seqloom.world.pcfg import Grammar, Rule, Terminal

Derivation = tuple[Rule, ...]


def split(english: str) -> list[str]:
    """Splits a sentence into words: the full stop and n't are separate;
    the first word is lowercased unless it is a name."""
    words: list[str] = []
    for piece in english.split(" "):
        full_stop = ["."] if piece.endswith(".") else []
        piece = piece[: len(piece) - len(full_stop)]
        words += [piece[:-3], "n't", *full_stop] if piece.endswith("n't") else [piece, *full_stop]
    lowered = words[0][:1].lower() + words[0][1:]
    return [lowered if lowered in WORDS else words[0], *words[1:]]


def join(words: list[str]) -> str:
    """Joins words into a sentence with usual spacing and a capital."""
    text = " ".join(words).replace(" n't", "n't").replace(" .", ".")
    return text[0].upper() + text[1:]


def fix_articles(words: list[str]) -> None:
    """Replaces "a" before a vowel by "an", in place; the grammar has only "a"."""
    for i, word in enumerate(words):
        if word == "a" and article_an(words[i + 1]):
            words[i] = "an"


def derivations(words: list[str], grammar: Grammar = GRAMMAR, symbol: str | None = None) -> list[Derivation]:
    """Returns every derivation of the words from a symbol, by default the grammar's start."""
    chart: dict[tuple[str, int], dict[int, list[Derivation]]] = {}
    first = FIRST if grammar is GRAMMAR else first_words(grammar)

    def parse_symbol(symbol: str, start: int) -> dict[int, list[Derivation]]:
        """Returns the derivations of the symbol from word
        `start` on, by the position after their last word."""
        by_end = chart.get((symbol, start))
        if by_end is None:
            by_end = chart[symbol, start] = {}
            if start < len(words) and words[start] in first[symbol]:
                for rule in grammar.rules[symbol]:
                    for end, tails in parse_rule(rule, start).items():
                        by_end.setdefault(end, []).extend((rule, *tail) for tail in tails)
        return by_end

    def parse_rule(rule: Rule, start: int) -> dict[int, list[Derivation]]:
        """Returns the derivations of the rule's right-hand side from
        word `start` on, by the position after their last word."""
        partial: dict[int, list[Derivation]] = {start: [()]}
        for item in rule.rhs:
            extended: dict[int, list[Derivation]] = {}
            for position, heads in partial.items():
                if isinstance(item, Terminal):
                    if position < len(words) and words[position] == item.word:
                        extended.setdefault(position + 1, []).extend(heads)
                else:
                    for end, tails in parse_symbol(item, position).items():
                        extended.setdefault(end, []).extend(head + tail for head in heads for tail in tails)
            partial = extended
            if not partial:
                break
        return partial

    return parse_symbol(symbol or grammar.start, 0).get(len(words), [])


def first_words(grammar: Grammar) -> dict[str, set[str]]:
    """Returns the words that each symbol can begin with."""
    first: dict[str, set[str]] = {symbol: set() for symbol in grammar.rules}
    changed = True
    while changed:
        changed = False
        for rule in grammar:
            item = rule.rhs[0]
            new = {item.word} if isinstance(item, Terminal) else first[item]
            if not new <= first[rule.lhs]:
                first[rule.lhs] |= new
                changed = True
    return first


def parse(english: str) -> list[Derivation]:
    """Returns the derivations of an English sentence; none outside the language."""
    if not english.endswith(".") or not english[0].isupper():
        return []
    written = split(english)
    words = ["a" if word == "an" else word for word in written]
    fix_articles(words)
    if words != written:
        return []
    return derivations(["a" if word == "an" else word for word in words])


WORDS = {item.word for rule in GRAMMAR for item in rule.rhs if isinstance(item, Terminal)} | {"an"}
FIRST = first_words(GRAMMAR)
