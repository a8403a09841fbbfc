"""Cases of the five promises: recurrent cells and their arrangements."""

from __future__ import annotations

from case import Case

CASES: list[Case] = []
