"""Molecules of the world: valid SMILES with a property that is a weighted count of atoms and rings, so that the best error is 0.

A molecule is a chain of units: a carbon with or without a branch, a nitrogen, an oxygen, a benzene ring, a ring of carbon. It is a pure
function of (seed, index).
"""

import re
from typing import NamedTuple

from seqloom.world.rng import GOLDEN, MASK, splitmix64, stream_state

MOLECULE_STREAM = 0x5A11E5
UNITS = (
    "C",
    "C",
    "C",
    "C",
    "C(C)",
    "C(O)",
    "C(=O)",
    "C(N)",
    "C(Cl)",
    "C(Br)",
    "N",
    "O",
    "c1ccc(CC)cc1",
    "C1CCCCC1",
)
ENDS = ("C", "C", "C", "O", "N", "Cl", "Br", "c1ccccc1", "C#N")
MAX_UNITS = 7
WEIGHTS = {"C": -0.5, "c": -0.4, "N": 0.7, "O": 0.9, "Cl": -0.7, "Br": -0.9}  # of each atom
RING = -0.3
CONSTANT = 1.0


class Molecule(NamedTuple):
    """A molecule and its property.

    >>> seqloom.world.molecule(0, 3).smiles
    'CC(N)CC#N'
    """

    smiles: str
    value: float


def property_of(smiles: str) -> float:
    """v = 1 + Σ_atoms w(atom) - 0.3 · rings: looks like a solubility, and can be computed exactly.

    >>> property_of("CCO")
    0.9
    """
    atoms = re.findall("Cl|Br|[CNOc]", smiles)
    rings = len(re.findall("[0-9]", smiles)) // 2
    return round(CONSTANT + sum(WEIGHTS[atom] for atom in atoms) + RING * rings, 2)


def molecule(seed: int, index: int) -> Molecule:
    """The molecule with the given index in the infinite sequence of a seed.

    >>> seqloom.world.molecule(0, 3)
    Molecule(smiles='CC(N)CC#N', value=0.4)
    """
    state = stream_state(seed ^ MOLECULE_STREAM, index)

    def below(count: int) -> int:
        nonlocal state
        state = (state + GOLDEN) & MASK
        return splitmix64(state) * count >> 64

    units = [UNITS[below(len(UNITS))] for _ in range(1 + below(MAX_UNITS))]
    smiles = "C" + "".join(units) + ENDS[below(len(ENDS))]
    return Molecule(smiles, property_of(smiles))
