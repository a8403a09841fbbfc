"""The memory of attention: keys and values of the positions so far, and of what an encoder read.

Neither is copied when a beam search picks rows: both keep a table of where each row's positions lie, and one query in each row reads them there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.fused.dispatch import is_f32_inference, load_kernels


def readable_in_place(x: Tensor) -> bool:
    """Whether one query may read x where it lies."""
    return is_f32_inference(x) and x.shape[-1] % 8 == 0 and x.stride(-1) == 1


def supports_decode(q: Tensor, keys: Tensor, values: Tensor) -> bool:
    return (
        readable_in_place(q)
        and readable_in_place(keys)
        and readable_in_place(values)
        and q.numel() > 0
        and keys.shape[2] > 0
    )


def decode_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    mask: Tensor | None,
    first: int,
    last: int,
    table: Tensor | None,
    by_row: bool,
) -> Tensor:
    """The one query q (B, H, 1, K) of row b attends to the keys and values `first` … `last` - 1 of row b, or of the rows that the table (B, S or 1)
    names: (B, H, 1, K'). `mask` is boolean (B or 1, 1, 1, S), the keys' own where `by_row`, or added (B or 1, H or 1, 1, last - first)."""
    batch, heads, _, key = q.shape
    if q.stride(1) != key:
        q = q.contiguous()
    y, groups = q.new_empty(batch, heads, 1, values.shape[3]), keys.shape[1]
    host, kernels = load_kernels("host"), load_kernels("decode_attention")
    mask = mask if mask is None or mask.stride(-1) == 1 else mask.contiguous()
    shape = (heads, groups, key, values.shape[3], first, last, q.data_ptr(), 4 * q.stride(0), y.data_ptr())
    numbers = (*shape, *attention_layout(keys, values, table, mask, first, by_row))
    kernels.decode_attention(
        host.c_address(kernels.decode_worker), batch * groups, scale, numbers, host.num_threads()
    )
    return y


def attention_layout(
    keys: Tensor, values: Tensor, table: Tensor | None, mask: Tensor | None, first: int, by_row: bool
) -> tuple[int, ...]:
    """Where all lies, as look.py wants to know it."""
    places, seen, more = (0, 0, 0), (0, 0, 0), (0, 0, 0)
    if table is not None:
        places = (table.data_ptr(), 4 * table.stride(0), 4 * table.stride(1) if table.shape[1] > 1 else 0)
    if mask is not None:
        steps = [0 if size == 1 else step for size, step in zip(mask.shape, mask.stride(), strict=True)]
        if mask.dtype is torch.bool:
            seen = (mask.data_ptr(), steps[0], int(by_row))
        else:
            more = (mask.data_ptr() - 4 * first, 4 * steps[0], 4 * steps[1])
    (a, b, c, _), (d, e, f, _) = keys.stride(), values.stride()
    return (
        keys.data_ptr(),
        4 * a,
        4 * b,
        4 * c,
        values.data_ptr(),
        4 * d,
        4 * e,
        4 * f,
        *places,
        *seen,
        *more,
    )
