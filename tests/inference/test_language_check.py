"""A translator that is given its own target language says so once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqloom.inference.language_check import PROFILE_FILE, SwapCheck
from seqloom.text.pair_checks import trigram_profile

ENGLISH = ["the old man is reading a book in the garden behind the house"] * 8
FRENCH = ["le vieil homme lit un livre dans le jardin derrière la maison"] * 8


@pytest.mark.parametrize("texts, warnings", [(FRENCH, 1), (ENGLISH, 0), (FRENCH[:1], 0)])
def test_texts_of_the_target_language_are_reported_once(
    texts: list[str], warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / PROFILE_FILE).write_text(json.dumps([trigram_profile(ENGLISH), trigram_profile(FRENCH)]))
    run: Any = SimpleNamespace(folder=tmp_path)
    check = SwapCheck(run)
    for text in texts:
        check.add([text])
    assert sum("looks like the target language" in line for line in caplog.messages) == warnings
