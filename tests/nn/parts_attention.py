"""Cases of the five promises: attention, positions and decoders that look at a memory."""

from __future__ import annotations

from case import Case

CASES: list[Case] = []
