"""Literal forms: convolution, mixing and mixtures of experts. Each takes (part, x, memory) for one example."""

from __future__ import annotations

from collections.abc import Callable

FORMS: dict[str, Callable] = {}
