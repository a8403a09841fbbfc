"""Cases of the five promises: convolution, mixing and mixtures of experts."""

from __future__ import annotations

from case import Case

CASES: list[Case] = []
