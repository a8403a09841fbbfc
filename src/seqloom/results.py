"""What the calls of seqloom return: frozen dataclasses that are also JSON.

@dataclass(frozen=True)
class Label(Result):
    label: str
    probability: float

Label("pos", 0.9).to_dict()   # {"label": "pos", "probability": 0.9}
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any


class Result:
    """Base of the results. A subclass is a frozen dataclass; a field whose metadata has `json: False` stays out of the JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The result as the command line prints it with --json: numbers that are not finite become None."""
        return {
            field.name: to_json(getattr(self, field.name))
            for field in dataclasses.fields(self)  # type: ignore[arg-type]  # subclasses are dataclasses
            if field.metadata.get("json", True)
        }


def to_json(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_json(value._asdict())
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch
        return to_json(value.tolist())
    return value
