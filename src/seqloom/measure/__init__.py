"""Metrics: every number has a signature that records how it was measured. Imports no other package."""

from seqloom.measure.likelihood import likelihood
from seqloom.measure.number import Number, make_signature
from seqloom.measure.pronunciation import pronunciation
from seqloom.measure.translation import translation

__all__ = ["Number", "likelihood", "make_signature", "pronunciation", "translation"]
