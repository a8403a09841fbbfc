"""Forced decoding: what a model thinks of a text it is given, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqloom.decoding.ensemble import log_probabilities
from seqloom.decoding.protocol import Model, State, check_prompts


@torch.inference_mode()
def forced_log_probs(
    model: Model,
    ids: Tensor,
    texts: Sequence[Sequence[int]],
    state: State = None,
    mask: Tensor | None = None,
    *,
    end: int | None = 3,
) -> list[list[float]]:
    """ln P(yₜ | prompt, y₍<t₎) for each token of each row's text, and of `end` after it where given.

    Two calls of the model for all rows together. The sum is the log P that a search reports for the same text.
    """
    wanted = [[*text, *([] if end is None else [end])] for text in texts]
    if len(wanted) != len(ids):
        raise ValueError(f"{len(wanted)} texts for {len(ids)} prompts: give one each")
    longest = max((len(text) for text in wanted), default=0)
    if not longest:
        return [[] for _ in wanted]
    prompt = check_prompts(model, ids, mask, longest)
    for row, (text, limit) in enumerate(zip(wanted, prompt.limits.tolist(), strict=True)):
        if len(text) > limit:
            raise ValueError(
                f"text {row} has {len(text)} tokens but the model has room for {limit} after its prompt: shorten it"
            )
    h, state = model.features(prompt.ids, state, prompt.mask)
    rows = torch.arange(len(ids), device=ids.device)
    first = h[rows, prompt.lengths - 1][:, None]  # (B, 1, D)
    lengths = torch.tensor([len(text) for text in wanted], device=ids.device)
    targets = torch.tensor(
        [text + [0] * (longest - len(text)) for text in wanted], device=ids.device
    )  # (B, L)
    if longest > 1:
        fed = torch.arange(longest - 1, device=ids.device) < lengths[:, None] - 1
        more, _ = model.features(targets[:, :-1], state, None if fed.all() else fed)
        first = torch.cat([first, more], 1)
    log_p = log_probabilities(model, first).gather(2, targets[:, :, None])[:, :, 0]
    return [row[:count] for row, count in zip(log_p.tolist(), lengths.tolist(), strict=True)]
