"""Masking: what is picked, what becomes of it, and that nothing else counts."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from seqloom.batches import Windows
from seqloom.batches.masking import mask_tokens
from seqloom.models import LanguageModel
from seqloom.nn import RNN
from seqloom.objectives.likelihood import token_loss
from seqloom.text.store import Column, Store
from seqloom.text.tokenizer import MASK


def drawn(ids: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.rand(3, *ids.shape, generator=torch.Generator().manual_seed(seed))


def test_shares_are_as_asked() -> None:
    ids = torch.randint(5, 1000, (200, 500), generator=torch.Generator().manual_seed(0))
    real = torch.arange(500) < 400
    found = mask_tokens(ids, real.expand_as(ids), 1000, drawn(ids, 1))
    share = found.selected[:, :400].float().mean()
    assert abs(share - 0.15) < 0.005 and not found.selected[:, 400:].any()
    assert torch.equal(found.ids[~found.selected], ids[~found.selected])
    read, was = found.ids[found.selected], ids[found.selected]
    assert abs((read == MASK).float().mean() - 0.8) < 0.01
    assert abs(((read != MASK) & (read != was)).float().mean() - 0.1) < 0.01 and read.min() >= MASK
    again = mask_tokens(ids, real.expand_as(ids), 1000, drawn(ids, 1))
    assert torch.equal(again.ids, found.ids)


def test_x17_three_are_picked_two_masked_one_replaced_and_only_they_count() -> None:
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12]])
    for seed in range(2000):  # until chance draws the figure: 3 picked, of which 2 masked and 1 another word
        found = mask_tokens(
            ids,
            torch.ones_like(ids, dtype=torch.bool),
            20,
            drawn(ids, seed),
            rate=0.4,
            mask_fraction=0.6,
            random_fraction=0.4,
        )
        read, was = found.ids[found.selected], ids[found.selected]
        if len(read) == 3 and int((read == MASK).sum()) == 2 and bool(((read != MASK) & (read != was)).any()):
            break
    else:
        pytest.fail("the figure never came")
    torch.manual_seed(0)
    model = LanguageModel(20, 8, partial(RNN))
    h, _ = model.features(found.ids)
    loss, _ = token_loss(model, h, ids, found.selected, 0.0)
    log_p = model.output(h).log_softmax(-1)
    places = found.selected[0].nonzero()[:, 0].tolist()
    assert loss.item() == pytest.approx(-sum(log_p[0, t, ids[0, t]].item() for t in places), rel=1e-5)
    other = torch.where(found.selected, ids, 19)
    assert token_loss(model, h, other, found.selected, 0.0)[0].item() == loss.item()


def test_a_row_with_words_has_a_gap() -> None:
    ids = torch.arange(5, 11).repeat(50, 1)
    real = torch.ones_like(ids, dtype=torch.bool)
    real[0] = False
    real[1, 1:] = False
    found = mask_tokens(ids, real, 20, drawn(ids, 0), rate=1e-9)
    assert found.selected.sum(1).tolist() == [0] + [1] * 49 and found.selected[1, 0]


def test_bad_shares_are_refused() -> None:
    ids = torch.zeros(1, 2, dtype=torch.long)
    for options in ({"rate": 0}, {"mask_fraction": 0.9, "random_fraction": 0.2}, {"random_fraction": -0.1}):
        with pytest.raises(ValueError, match="fractions that sum"):
            mask_tokens(ids, ids == 0, 10, drawn(ids, 0), **options)


def test_x8_a_million_steps_of_256_times_512_tokens_are_forty_epochs() -> None:
    """3.3e9 words, taken for tokens, read in windows as training reads them: 39.7 epochs, which the deck rounds to 40."""

    words = 3_300_000_000
    tokens, ends = np.broadcast_to(np.uint16(7), words), np.array([0, words])  # takes no memory
    source = Windows(Store([Column(tokens, ends, ends)], "digest"), width=256, batch=512)
    _, windows = source.order.epoch_offset_and_count(0)
    assert 1_000_000 / (windows / 512) == pytest.approx(39.7, abs=0.02)
    batch, cursor = next(source.batches((39, windows // 512 - 1)))
    assert batch.ids.shape == (512, 256) and cursor == (39, windows // 512)
