"""What a training tells about its data before it begins: fields, labels with their counts, what looks wrong, what is held out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice

import numpy as np

from seqloom.run_config import Config
from seqloom.text.pair_checks import Profile, trigram_profile
from seqloom.text.store import Store
from seqloom.text.summary import SHOWN_LABELS, TRAINING_RECORDS, describe

PROFILE_PAIRS = 2000  # pairs that the profiles of the languages are made of
logger = logging.getLogger("seqloom.train")


def log_data(config: Config, valid: Store, labels: Sequence[str]) -> None:
    """Logs what the training files hold and what is held out; suspicions are warnings."""
    summary = describe(config.reader(config.files.train), TRAINING_RECORDS)
    for line in summary.lines():
        logger.info("%s", line)
    for warning in summary.warnings:
        logger.warning("%s", warning)
    logger.info("held out: %s", held_out(config, valid, labels))


def held_out(config: Config, valid: Store, labels: Sequence[str]) -> str:
    """What is held out, in a few words."""
    if config.files.valid:
        how = "given files"
    elif config.files.split == "content":
        how = f"a share of {config.files.valid_fraction:g}, drawn by content"
    else:
        how = f"the last {config.files.valid_fraction:g} of the data"
    if config.kinds() == ("text",):
        return f"{how}, {valid.fields[0].num_bytes:,} bytes"
    counts = ""
    if columns := valid.columns("label"):
        numbers = np.bincount(columns[0].gathered().tokens.astype(np.int64), minlength=len(labels))
        named = list(zip(labels, numbers.tolist(), strict=True))[:SHOWN_LABELS]
        counts = ": " + ", ".join(f"{label} {number:,}" for label, number in named)
        counts += f" and {len(labels) - SHOWN_LABELS:,} more" if len(labels) > SHOWN_LABELS else ""
    return f"{len(valid):,} records, {how}{counts}"


def language_profiles(config: Config) -> list[Profile]:
    """The character trigrams of both sides of the training pairs; empty if records are no pairs of two texts."""
    reader = config.reader(config.files.train)
    if reader.kinds != ("text", "text") or reader.measure == "pronunciation":
        return []
    pairs = list(islice(reader, PROFILE_PAIRS))
    return [trigram_profile(pair[side] for pair in pairs) for side in (0, 1)]
