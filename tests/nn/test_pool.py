"""Poolings against loops over the real tokens of each row."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from seqloom.nn import RNN, AttentionPool, EndsPool, FirstPool, LastPool, MaxPool, MeanPool, SumPool
from seqloom.nn.pool import Pool

SIZE = 4
MASKS = {
    "right": torch.tensor(
        [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.bool
    ),
    "holes": torch.tensor(
        [[0, 1, 0, 1, 1], [0, 0, 0, 1, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.bool
    ),
}


def attended(pool: AttentionPool, rows: list[Tensor]) -> Tensor:
    w, b, u = pool.project.weight, pool.project.bias, pool.query.weight[0]
    powers = [
        math.exp(sum((u[i] * torch.tanh((w[i] * x).sum() + b[i])).item() for i in range(len(u))))
        for x in rows
    ]
    return sum(power / sum(powers) * x for power, x in zip(powers, rows, strict=True))


LITERAL = {
    LastPool: lambda _, rows: rows[-1],
    FirstPool: lambda _, rows: rows[0],
    EndsPool: lambda _, rows: torch.cat([rows[-1][: SIZE // 2], rows[0][SIZE // 2 :]]),
    MeanPool: lambda _, rows: sum(rows) / len(rows),
    SumPool: lambda _, rows: sum(rows),
    MaxPool: lambda _, rows: torch.tensor([max(float(row[i]) for row in rows) for i in range(SIZE)]),
    AttentionPool: attended,
}
every = pytest.mark.parametrize("kind", LITERAL, ids=lambda kind: kind.__name__)


@every
@pytest.mark.parametrize("layout", MASKS)
@pytest.mark.parametrize("junk", [0.0, 1e30, math.nan])
def test_each_row_is_its_own_tokens(kind: type[Pool], layout: str, junk: float):
    pool, mask = kind(SIZE), MASKS[layout]
    assert pool.dim == SIZE
    x = torch.randn(4, 5, SIZE).masked_fill(~mask[..., None], junk)
    y = pool(x, mask).detach()
    for row in range(3):
        torch.testing.assert_close(y[row], LITERAL[kind](pool, list(x[row, mask[row]])).detach())
        torch.testing.assert_close(y[row], pool(x[row, None, mask[row]])[0].detach())
    assert not y[3].any()


@every
def test_gradients(kind: type[Pool]):
    pool, x, mask = kind(SIZE), torch.randn(4, 5, SIZE).requires_grad_(), MASKS["holes"]
    assert torch.autograd.gradcheck(lambda x: pool(x, mask), [x])
    (gradient,) = torch.autograd.grad(pool(x, mask).sum(), x)
    assert not gradient[~mask].any() and gradient.isfinite().all()


@every
def test_nothing_to_pool(kind: type[Pool]):
    assert not kind(SIZE)(torch.zeros(2, 0, SIZE)).any()
    assert kind(SIZE)(torch.zeros(2, 0, SIZE), torch.zeros(2, 0, dtype=torch.bool)).shape == (2, SIZE)


def test_ends_have_read_the_whole_and_last_has_not():
    """Change the first token: the last output's backward half does not know."""
    rnn, x = RNN(3, 2, direction="both"), torch.randn(1, 4, 3)
    other = torch.cat([torch.randn(1, 1, 3), x[:, 1:]], 1)
    moved = {
        kind: (kind(4)(rnn(x)[0]) - kind(4)(rnn(other)[0])).abs() > 1e-12 for kind in (EndsPool, LastPool)
    }
    assert moved[EndsPool].all() and moved[LastPool].tolist() == [[True, True, False, False]]


def test_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="odd"):
        EndsPool(3)
    with pytest.raises(ValueError, match="at least one"):
        MeanPool(0)
