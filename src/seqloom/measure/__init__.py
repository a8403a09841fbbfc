"""Metrics: every number has a signature that records how it was measured. Imports no other package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.lazy import lazy_names

if TYPE_CHECKING:
    from seqloom.measure.likelihood import likelihood
    from seqloom.measure.number import Number, make_signature
    from seqloom.measure.pronunciation import pronunciation
    from seqloom.measure.translation import translation

__all__ = ["Number", "likelihood", "make_signature", "pronunciation", "translation"]

NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)
