"""The field of a molecule in SMILES."""

from __future__ import annotations

import logging
from typing import Any

from seqloom.errors import DataError
from seqloom.text.encoder import TextField
from seqloom.text.smiles import problem

logger = logging.getLogger("seqloom.text")
MAX_WARNINGS = 3  # about the form of molecules


class SmilesField(TextField):
    """A molecule in SMILES, as ids."""

    num_warnings = 0

    def check(self, value: Any, location: str) -> str:
        molecule = super().check(value, location).strip()
        if not molecule:
            raise DataError(f"{location}: an empty SMILES; write one, or remove the row")
        if len(molecule.split()) > 1:
            raise DataError(
                f"{location}: {molecule[:60]!r} contains a blank, which no SMILES does; remove what follows it"
            )
        wrong = problem(molecule) if self.num_warnings < MAX_WARNINGS else None
        if wrong:
            self.num_warnings += 1
            last = "; further ones are not reported" if self.num_warnings == MAX_WARNINGS else ""
            logger.warning("%s: %s in %s%s", location, wrong, molecule[:60], last)
        return molecule
