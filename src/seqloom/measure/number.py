"""Numbers with their signatures, and how well a model predicts: nats per token, perplexity, and bits per byte, which is comparable across
tokenizers  [W10]."""

from __future__ import annotations

import math
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


def likelihood(nats: float, tokens: int, num_bytes: int, conditions: dict[str, object]) -> list[Number]:
    """nats/token = Σ -ln P / N;   perplexity = exp(nats/token);   bits/byte = Σ -ln P / (ln 2 · bytes).

    Every token counts once. Without `num_bytes` there are no bits per byte.
    """
    nats_per_token = nats / max(tokens, 1)
    token_conditions = {"tokens": tokens, **conditions}
    numbers = [
        Number("nats per token", nats_per_token, make_signature("nats", token_conditions)),
        Number(
            "perplexity", math.exp(min(nats_per_token, 700)), make_signature("perplexity", token_conditions)
        ),
    ]
    if num_bytes:
        signature = make_signature("bits", {"bytes": num_bytes, **conditions})
        numbers.append(Number("bits per byte", nats / math.log(2) / num_bytes, signature))
    return numbers
