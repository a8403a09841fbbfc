"""Warns if the texts that a translator is given look like its target language, or its translations like none."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from seqloom.measure.number import Number
from seqloom.run import Run
from seqloom.text.pair_checks import looks_swapped

PROFILE_FILE = "profile.json"  # of a run: character trigrams of the training sources and targets
ENOUGH_CHARACTERS = 200
SUSPICIOUS_BLEU = 1.0  # below it, on SUSPICIOUS_SENTENCES or more, something is wrong with the files
SUSPICIOUS_SENTENCES = 100
logger = logging.getLogger("seqloom.inference")


class SwapCheck:
    """Watches the texts that a run translates, block by block, and warns once if they look like its target language."""

    def __init__(self, run: Run):
        self.run = run
        self.texts: list[str] = []
        self.num_characters = 0

    def add(self, texts: Sequence[str]) -> None:
        """Looks at the next texts, until there are enough to judge by."""
        if self.num_characters >= ENOUGH_CHARACTERS:
            return
        self.texts += texts
        self.num_characters += sum(map(len, texts))
        if self.num_characters >= ENOUGH_CHARACTERS:
            warn_if_swapped(self.run, self.texts)
            self.texts = []


def warn_if_swapped(run: Run, sources: Sequence[str]) -> bool:
    """Logs a warning if texts look more like what the run was trained to write than like what it was trained to read; returns whether."""
    try:
        profiles = json.loads((run.folder / PROFILE_FILE).read_text("utf-8"))
        swapped = looks_swapped(profiles, sources)
    except (OSError, ValueError, IndexError, KeyError, TypeError, AttributeError):
        return False  # a run without profiles
    if swapped:
        logger.warning(
            "%s: the source looks like the target language of this run; is it the right file?", run.folder
        )
    return swapped


def warn_of_swapped_files(sources: Sequence[str], outputs: Sequence[str], bleu: Number) -> None:
    """Logs a warning if the outputs are more like the sources than like the targets, or like neither."""
    from seqloom.measure.translation import bleu_of

    source_bleu = bleu_of(outputs, sources)
    if len(outputs) >= SUSPICIOUS_SENTENCES and source_bleu > max(bleu.value, SUSPICIOUS_BLEU):
        logger.warning(
            "the translations are more like the source (BLEU %.1f) than like the target (BLEU %.1f): are the two files swapped?",
            source_bleu,
            bleu.value,
        )
    elif len(outputs) >= SUSPICIOUS_SENTENCES and bleu.value < SUSPICIOUS_BLEU:
        logger.warning(
            "BLEU is %.2f: the model is trained too little, or the two files are swapped or do not belong together",
            bleu.value,
        )
