"""The built-in world: a seeded grammar of scenes that writes English, its French
translation, tags, antecedents and word senses, with exact probabilities."""

from seqloom.world.chats import chat, chats, is_right, preference, right_answers
from seqloom.world.drawing import Drawing, drawing
from seqloom.world.molecules import Molecule, molecule
from seqloom.world.reports import Report, report
from seqloom.world.scene import (
    SHOWCASE,
    Entropy,
    Scene,
    describe,
    entropy,
    log_probability,
    scene,
    scenes,
    translate,
    translation_log_probability,
    translations,
)
from seqloom.world.voice import speak
from seqloom.world.write import write

__all__ = [
    "SHOWCASE",
    "Drawing",
    "Entropy",
    "Molecule",
    "Report",
    "Scene",
    "chat",
    "chats",
    "describe",
    "drawing",
    "entropy",
    "is_right",
    "log_probability",
    "molecule",
    "preference",
    "report",
    "right_answers",
    "scene",
    "scenes",
    "speak",
    "translate",
    "translation_log_probability",
    "translations",
    "write",
]
