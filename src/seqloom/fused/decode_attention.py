"""Fast form of attention with one query in each row, for the caches of `nn/attention.py`: keys and values are
read in place.

Rows of a beam search share keys and values: a table says in which row of the buffer each position is. The
kernel is `kernels/decode_attention.py`; it needs float32 on the CPU without gradients and head sizes that are
multiples of 8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.fused.dispatch import is_f32_inference, load_kernels, num_threads
from seqloom.fused.sdpa import SingleQueryMask


def readable_in_place(x: Tensor) -> bool:
    """Whether the decode kernel can read x without a copy (float32, CPU, unit stride, width a multiple of 8)."""
    return is_f32_inference(x) and x.shape[-1] % 8 == 0 and x.stride(-1) == 1


def decode_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float | None,
    visible: SingleQueryMask,
    row_table: Tensor | None,
    mask_by_key_row: bool,
) -> Tensor | None:
    """The one query q (B, H, 1, K) of row b attends to keys (N, G, S, K) and values (N, G, S, K') with the scores scale · q·k:
    (B, H, 1, K').

    `visible` is a mask and the range [first, end) of keys: boolean (B or 1, 1, 1, S), indexed by the row of
    the keys where `mask_by_key_row`, or float32 (B or 1, H or 1, 1, end - first), added to the scores. The
    keys of row b at position s are in row row_table[b, s] of `keys`, or row_table[b, 0] for all s; in row b
    without a table. None where the kernel cannot read a tensor in place or the score has no scale.
    """
    if (
        scale is None
        or not all(readable_in_place(tensor) for tensor in (q, keys, values))
        or q.numel() == 0
        or keys.shape[2] == 0
    ):
        return None
    mask, first, end = visible
    batch, heads, _, key_dim = q.shape
    kv_heads, value_dim = keys.shape[1], values.shape[3]
    if q.stride(1) != key_dim:
        q = q.contiguous()
    if mask is not None and mask.stride(-1) != 1:
        mask = mask.contiguous()
    y = q.new_empty(batch, heads, 1, value_dim)
    arguments = (
        heads,
        kv_heads,
        key_dim,
        value_dim,
        first,
        end,
        q.data_ptr(),
        4 * q.stride(0),
        y.data_ptr(),
        *attention_layout(keys, values, row_table, mask, first, mask_by_key_row),
    )
    kernels = load_kernels("decode_attention")
    kernels.decode_attention(kernels.decode_worker, batch * kv_heads, scale, arguments, num_threads())
    return y


def attention_layout(
    keys: Tensor,
    values: Tensor,
    row_table: Tensor | None,
    mask: Tensor | None,
    first: int,
    mask_by_key_row: bool,
) -> tuple[int, ...]:
    """Addresses and strides in bytes, in the order that `kernels/decode_attention.py` reads them from `KEYS`
    on; 0 for an absent tensor.
    """
    table_layout = mask_layout = bias_layout = (0, 0, 0)
    if row_table is not None:
        position_stride = 4 * row_table.stride(1) if row_table.shape[1] > 1 else 0
        table_layout = (row_table.data_ptr(), 4 * row_table.stride(0), position_stride)
    if mask is not None:
        strides = [0 if size == 1 else stride for size, stride in zip(mask.shape, mask.stride(), strict=True)]
        if mask.dtype is torch.bool:
            mask_layout = (mask.data_ptr(), strides[0], int(mask_by_key_row))
        else:
            bias_layout = (mask.data_ptr() - 4 * first, 4 * strides[0], 4 * strides[1])
    key_layout = (keys.data_ptr(), *(4 * stride for stride in keys.stride()[:3]))
    value_layout = (values.data_ptr(), *(4 * stride for stride in values.stride()[:3]))
    return (*key_layout, *value_layout, *table_layout, *mask_layout, *bias_layout)
