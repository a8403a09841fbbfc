"""The regulariser of a decoder of regions runs where its weights are."""

import torch

from seqloom.nn.region_decoder import attention_spread_penalty


def test_the_regulariser_is_on_the_device_of_the_weights() -> None:
    weights = torch.ones(2, 1, 3, 4, device="meta")
    assert attention_spread_penalty(weights, None).device.type == "meta"
