"""How well a model predicts: nats per token, perplexity, and bits per byte, which compares across tokenizers  [W10]."""

from __future__ import annotations

import math

from seqloom.measure.number import Number, make_signature


def likelihood(nats: float, tokens: int, octets: int, facts: dict[str, object]) -> list[Number]:
    """nats/token = Σ -ln P / N;   perplexity = exp(nats/token);   bits/byte = Σ -ln P / (ln 2 · bytes). Every token counts once."""
    each = nats / max(tokens, 1)
    numbers = [
        Number("nats per token", each, make_signature("nats", {"tokens": tokens, **facts})),
        Number(
            "perplexity", math.exp(min(each, 700)), make_signature("perplexity", {"tokens": tokens, **facts})
        ),
    ]
    if octets:
        numbers.append(
            Number(
                "bits per byte",
                nats / math.log(2) / octets,
                make_signature("bits", {"bytes": octets, **facts}),
            )
        )
    return numbers
