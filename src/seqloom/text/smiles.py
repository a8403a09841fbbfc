"""Molecules as SMILES: their tokenizer, what is wrong with one, and random SMILES of the same molecule.

SMILES writes a molecule as a walk over its atoms: `c1ccccc1O` is phenol. A token is an atom, a bond, a parenthesis or the number of a ring
bond. Left out: chemistry. Whether a string is a molecule that can exist is decided by a chemistry library, which only `random_smiles` needs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from seqloom.errors import DataError, UserError
from seqloom.text.tokenizer import SPECIALS

# An atom in brackets, an element of two letters, a ring bond of two digits, or one character. Each character is read at most twice, because
# the text in brackets contains no bracket: the time is linear.
TOKEN = r"\[[^\[\]\s]+\]|Br|Cl|%[0-9]{2}|%\([0-9]{1,5}\)|\S"
# Every character that SMILES can consist of, so that an atom that is new comes back from its ids too, spelt out.
CHARACTERS = "ABCDEFGHIKLMNOPRSTUVWXYZabcdefghiklmnoprstuvy0123456789[]().=#$:/\\-+@%*~>&!,;{}|^"


def SMILES(texts: Iterable[str]) -> Tokenizer:
    """Tokens of molecules in SMILES: atoms, bonds, parentheses, ring bonds (G8).

    An atom in brackets is one token, as are `Cl`, `Br` and ring bonds such as `%10`. An atom that is not in `texts` is spelt in characters,
    so that ids give the whole string back.
    """
    tokens: set[str] = set()
    split = re.compile(TOKEN).findall
    for text in texts:
        tokens.update(split(text))
    if not tokens:
        raise DataError("there is no molecule to train a tokenizer on; give SMILES, such as CCO")
    vocabulary = dict.fromkeys([*SPECIALS, *CHARACTERS, "Cl", "Br", *sorted(tokens)])
    ids = {token: index for index, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token="<unk>", fuse_unk=False, ignore_merges=True))
    tokenizer.normalizer = normalizers.Strip()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(TOKEN), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def problem(smiles: str) -> str | None:
    """What is wrong with the form of a SMILES, in a few words; None if nothing is: brackets and parentheses close, ring bonds come in pairs."""
    tokens = re.findall(TOKEN, smiles)
    depth = 0
    rings: Counter[str] = Counter()
    for token in tokens:
        if token in "[]":
            return f"a {token!r} without its partner"
        depth += (token == "(") - (token == ")")
        if depth < 0:
            return "a ')' that closes nothing"
        if token[0] == "%" or token.isdigit():
            rings[token.strip("%()").lstrip("0") or "0"] += 1
    if depth:
        return "a '(' that is not closed"
    odd = next((ring for ring, count in rings.items() if count % 2), None)
    return None if odd is None else f"the ring bond {odd} is open"


def random_smiles(smiles: str, count: int, seed: int, location: str) -> Iterator[str]:
    """Up to `count` other SMILES of the same molecule, in random order of its atoms: a function of the seed.

    They need rdkit, a library of chemistry that is not installed with seqloom.
    """
    try:
        from rdkit import Chem, RDLogger
    except ImportError:
        raise UserError(
            "random SMILES need the chemistry library rdkit; install it: pip install rdkit"
        ) from None
    RDLogger.DisableLog("rdApp.*")
    molecule = Chem.MolFromSmiles(smiles.strip())
    if molecule is None:
        raise DataError(f"{location}: rdkit cannot read {smiles[:80]!r}; correct it, or remove the row")
    drawn = Chem.MolToRandomSmilesVect(molecule, 2 * count, randomSeed=seed % (1 << 31))
    others = dict.fromkeys(text for text in drawn if text != smiles.strip())
    yield from list(others)[:count]
