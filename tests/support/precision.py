"""The precision that tests of parts compute in."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """Computes in double precision from the same seed, with one thread, since the tensors are too small for more."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
