"""A number and what it means: every figure is kept with the signature of how it came about  [W9, N11]."""

from __future__ import annotations

from typing import NamedTuple


class Number(NamedTuple):
    """`signature` is `metric|key:value|…`: two numbers compare only where their signatures are the same but for what is compared."""

    name: str
    value: float
    signature: str

    def json(self) -> dict[str, str | float]:
        return {"name": self.name, "value": self.value, "signature": self.signature}


def make_signature(metric: str, facts: dict[str, object]) -> str:
    """The signature of a metric under the given facts, in one line."""
    return "|".join([metric, *(f"{key}:{value}" for key, value in facts.items())])
