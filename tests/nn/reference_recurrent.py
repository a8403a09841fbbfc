"""Literal forms: recurrent cells and their arrangements. Each takes (part, x, memory) for one example."""

from __future__ import annotations

from collections.abc import Callable

FORMS: dict[str, Callable] = {}
