"""A metric's value with its signature, which records the conditions of the measurement  [W9, N11]."""

from __future__ import annotations

from typing import NamedTuple


class Number(NamedTuple):
    """`signature` is `metric|key:value|…`: two numbers can be compared
    only if their signatures agree in all but the compared key."""

    name: str
    value: float
    signature: str

    def json(self) -> dict[str, str | float]:
        """Returns the fields as a JSON object."""
        return {"name": self.name, "value": self.value, "signature": self.signature}


def make_signature(metric: str, conditions: dict[str, object]) -> str:
    """Returns the signature of a metric under the given conditions, in one line."""
    return "|".join([metric, *(f"{key}:{value}" for key, value in conditions.items())])
