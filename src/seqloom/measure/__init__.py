"""Numbers, each with its signature. Knows nobody."""

from seqloom.measure.likelihood import likelihood
from seqloom.measure.number import Number, make_signature
from seqloom.measure.pronunciation import pronunciation
from seqloom.measure.translation import translation

__all__ = ["Number", "likelihood", "make_signature", "pronunciation", "translation"]
