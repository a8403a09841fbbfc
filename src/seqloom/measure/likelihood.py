"""How well a model predicts: nats per token, perplexity, and
bits per byte, which is comparable across tokenizers  [W10]."""

from __future__ import annotations

import math

from seqloom.measure.number import Number, make_signature


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
