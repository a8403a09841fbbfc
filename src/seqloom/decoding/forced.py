"""Forced decoding: the log-probability that a model gives to each token of a given text."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqloom.decoding.ensemble import output_log_probs
from seqloom.decoding.protocol import AutoregressiveModel, State, check_prompts
from seqloom.errors import UserError


@torch.inference_mode()
def forced_log_probs(
    model: AutoregressiveModel,
    ids: Tensor,
    texts: Sequence[Sequence[int]],
    state: State = None,
    mask: Tensor | None = None,
    *,
    eos_id: int | None = 3,
) -> list[list[float]]:
    """ln P(yₜ | prompt, y₍<t₎) for each token of each row's text, and for `eos_id` after it unless that is None.

    Two calls of the model for all rows together. The sum is the log P that a search reports for the same text.
    """
    end = [] if eos_id is None else [eos_id]
    target_rows = [[*text, *end] for text in texts]
    if len(target_rows) != len(ids):
        raise UserError(f"{len(target_rows)} texts for {len(ids)} prompts: give one each")
    max_length = max((len(row) for row in target_rows), default=0)
    if not max_length:
        return [[] for _ in target_rows]
    prompt = check_prompts(model, ids, mask, max_length)
    for index, (row, limit) in enumerate(zip(target_rows, prompt.limits.tolist(), strict=True)):
        if len(row) > limit:
            raise UserError(
                f"text {index} has {len(row)} tokens but only {limit} fit into the model's context after its prompt: "
                "shorten it"
            )
    h, state = model.features(prompt.ids, state, prompt.mask)
    rows = torch.arange(len(ids), device=ids.device)
    features = h[rows, prompt.lengths - 1][:, None]  # (B, 1, D)
    lengths = torch.tensor([len(row) for row in target_rows], device=ids.device)
    padded = [row + [0] * (max_length - len(row)) for row in target_rows]
    targets = torch.tensor(padded, device=ids.device)  # (B, L)
    if max_length > 1:
        fed = torch.arange(max_length - 1, device=ids.device) < lengths[:, None] - 1
        more, _ = model.features(targets[:, :-1], state, None if fed.all() else fed)
        features = torch.cat([features, more], 1)  # (B, L, D)
    log_p = output_log_probs(model, features).gather(2, targets[:, :, None])[:, :, 0]  # (B, L)
    return [row[:count] for row, count in zip(log_p.tolist(), lengths.tolist(), strict=True)]
