"""One decoding step of a Transformer as a compiled program: the same numbers as its blocks give one after another, without the cost of
hundreds of small calls.

Here is what reads blocks and parts; `fused/program.py` builds the instructions and `kernels/program.py` runs them. The program is kept in
the first layer's cache. Not covered, and left to the blocks' own `forward`: mixtures of experts and parts of the user's own, more rows than
`SMALL_GEMM_ROWS` in float32 (torch's products are as fast there), gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.fused.decode_attention import attention_layout, readable_in_place
from seqloom.fused.dispatch import is_f32_inference
from seqloom.fused.linear import SMALL_GEMM_ROWS
from seqloom.fused.program import Program, patch_attention, patch_cache_write, patch_rotary
from seqloom.nn.attention import CrossAttention, SelfAttention
from seqloom.nn.attention_core import Visibility
from seqloom.nn.basic import LayerNorm, Linear, Norm, RMSNorm
from seqloom.nn.feedforward import FeedForward, SwiGLU
from seqloom.nn.int8 import Int8Linear
from seqloom.nn.position import Positions, Rotary
from seqloom.nn.score import Dot, ScaledDot, Softmax
from seqloom.nn.state import State

if TYPE_CHECKING:
    from seqloom.nn.transformer import Block


class PatchOffsets(NamedTuple):
    """Offsets of the instructions of one block that change from step to step; -1 where the block has none."""

    rotary: int
    cache_write: int
    attention: int
    cross_attention: int


class BlocksProgram(Program):
    """The program of one step of all blocks for `rows` rows."""

    def __init__(self, blocks: Sequence[Block], rows: int, like: Tensor):
        super().__init__(rows, like)
        self.first = blocks[0].attention.qkv_proj
        self.x = like.new_empty(rows, 1, blocks[0].dim)
        shapes = [
            part.shape for block in blocks for part in (block.attention, block.cross) if part is not None
        ]
        self.h = self.buffer(blocks[0].dim)
        self.qkv = self.buffer(max(sum(shape.proj_widths) for shape in shapes))
        self.context = self.buffer(max(shape.heads * shape.value_dim for shape in shapes))
        self.inner = self.buffer(max(block.feedforward.in_proj.out_features for block in blocks))
        self.gated = self.buffer(max(block.feedforward.out_proj.in_features for block in blocks))
        self.offsets = [self.emit_block(block) for block in blocks]
        self.finish()

    def emit_block(self, block: Block) -> PatchOffsets:
        cross = -1
        offsets = self.emit_self_attention(block.attention, self.input_of(block, block.attention_norm))
        self.emit_residual(block, block.attention.out_proj, self.context, block.attention_norm)
        if block.cross is not None:
            cross = self.emit_cross_attention(block.cross, self.input_of(block, block.cross_norm))
            self.emit_residual(block, block.cross.out_proj, self.context, block.cross_norm)
        forward = block.feedforward
        self.emit_part(forward.in_proj, self.input_of(block, block.feedforward_norm), self.inner)
        if type(forward) is SwiGLU:
            self.emit_gate(forward.out_proj.in_features, self.inner, self.gated)
            self.emit_residual(block, forward.out_proj, self.gated, block.feedforward_norm)
        else:
            self.emit_activation(forward.in_proj.out_features, forward.activation, self.inner)
            self.emit_residual(block, forward.out_proj, self.inner, block.feedforward_norm)
        return PatchOffsets(*offsets, cross)

    def input_of(self, block: Block, norm: Norm) -> int:
        """The address of a sub-layer's input: norm(x) in a pre-norm block, x in a post-norm one."""
        x = self.x.data_ptr()
        return self.emit_norm_of(norm, x, self.h) if block.order == "pre" else x

    def emit_norm_of(self, norm: Norm, x: int, y: int) -> int:
        bias = norm.bias if isinstance(norm, LayerNorm) else None
        return self.emit_norm(norm.dim, norm.gain, bias, norm.epsilon, x, y, isinstance(norm, LayerNorm))

    def emit_part(self, part: nn.Module, x: int, y: int) -> None:
        """y ← part(x) for a linear map in float32 or int8."""
        if isinstance(part, Int8Linear):
            bias = part.zero_bias if part.bias is None else part.bias
            shape = part.out_features, part.in_features
            self.emit_linear_int8(shape, part.panels, part.scales, bias, x, y)
        else:
            self.emit_linear(part.weight, part.bias, x, y)

    def emit_residual(self, block: Block, last: nn.Module, x: int, norm: Norm) -> None:
        """self.x ← self.x + last(x), followed by the norm in a post-norm block."""
        residual = self.x.data_ptr()
        self.emit_part(last, x, self.h)
        self.emit_add(block.dim, residual, self.h)
        if block.order == "post":
            self.emit_norm_of(norm, residual, residual)

    def emit_self_attention(self, part: SelfAttention, x: int) -> tuple[int, int, int]:
        """Projects q, k and v, rotates them if positions are rotary, writes the cache, attends."""
        (heads, groups, key, value), (queries, keys, values) = part.shape, part.shape.proj_widths
        row = 4 * (queries + keys + values)
        self.emit_part(part.qkv_proj, x, self.qkv)
        rotary = -1
        if part.position.rotates:
            rotary = self.emit_rotary(heads + groups, key, part.position.layout == "halves", self.qkv, row)
        new_keys, new_values = self.qkv + 4 * queries, self.qkv + 4 * (queries + keys)
        write = self.emit_cache_write(groups, key, value, new_keys, new_values, row)
        return rotary, write, self.emit_attention(part.shape, part.score.scale, self.qkv, row, self.context)

    def emit_cross_attention(self, part: CrossAttention, x: int) -> int:
        heads, _, key, _ = part.shape
        self.emit_part(part.q_proj, x, self.qkv)
        return self.emit_attention(part.shape, part.score.scale, self.qkv, 4 * heads * key, self.context)


def supports_linear(part: nn.Module, rows: int) -> bool:
    """Whether the program has this product for so many rows."""
    if type(part) is Int8Linear:
        return True
    return type(part) is Linear and rows <= SMALL_GEMM_ROWS and part.weight.dtype is torch.float32


def supports_block(block: Block, rows: int) -> bool:
    """Whether the program covers all parts of the block."""
    attention, cross, forward = block.attention, block.cross, block.feedforward
    if (
        type(attention) is not SelfAttention
        or type(cross) not in (CrossAttention, type(None))
        or type(forward) not in (FeedForward, SwiGLU)
    ):
        return False
    attentions, norms = [attention], [block.attention_norm, block.feedforward_norm]
    linears = [attention.qkv_proj, attention.out_proj, forward.in_proj, forward.out_proj]
    if cross is not None:
        attentions, norms = [*attentions, cross], [*norms, block.cross_norm]
        linears = [*linears, cross.q_proj, cross.out_proj]
    return (
        (not attention.position.rotates or type(attention.position) is Rotary)
        and all(type(part.score) in (Dot, ScaledDot) and type(part.weights) is Softmax for part in attentions)
        and all(part.shape.key_dim % 8 == 0 and part.shape.value_dim % 8 == 0 for part in attentions)
        and all(type(part) in (LayerNorm, RMSNorm) for part in norms)
        and all(supports_linear(part, rows) for part in linears)
        and not (block.training and block.dropout.rate)
    )


def cos_sin(part: SelfAttention, places: Positions) -> Tensor:
    """Cosines and sines of each row's position, one row if all agree: (B or 1, K)."""
    here = torch.arange(places.start, places.stop) if isinstance(places, slice) else places.reshape(-1)
    angle = part.position.angles(here, part.shape.key_dim)
    return torch.cat([angle.cos(), angle.sin()], -1).float()


def decode_step(
    blocks: Sequence[Block], x: Tensor, state: Sequence[State], visibility: Visibility
) -> tuple[Tensor, tuple[State, ...]] | None:
    """What the blocks give for x (B, 1, D), and their states after; None where the program does not cover them."""
    rows, first = len(x), state[0][0]
    seen = (
        visibility.plan.single_query(first.length + 1)
        if rows and first.length and is_f32_inference(x)
        else None
    )
    if seen is None or not readable_in_place(first.key_buffer):
        return None
    program = first.program
    if program is None or program.rows != rows or program.first is not blocks[0].attention.qkv_proj:
        if not all(supports_block(block, rows) for block in blocks):
            return None
        program = BlocksProgram(blocks, rows, x)
    program.x.copy_(x)
    code, after, tables = program.code.copy(), [], {}
    mask, low, high = seen
    mask = mask if mask is None or mask.stride(-1) == 1 else mask.contiguous()
    angles = cos_sin(blocks[0].attention, visibility.positions) if program.offsets[0].rotary >= 0 else None
    for (past, memory), offsets in zip(state, program.offsets, strict=True):
        if angles is not None:
            patch_rotary(code, offsets.rotary, angles)
        new = past.reserve(1, rows, visibility.key_mask)
        patch_cache_write(code, offsets.cache_write, new.key_buffer, new.value_buffer, past.length)
        layout = attention_layout(new.key_buffer, new.value_buffer, new.row_table, mask, low, False)
        patch_attention(code, offsets.attention, low, high, layout)
        if offsets.cross_attention >= 0:
            if id(memory.rows) not in tables:
                tables[id(memory.rows)] = memory.row_table()
            table, source = tables[id(memory.rows)], memory.key_buffer
            layout = attention_layout(source, memory.value_buffer, table, memory.visible_buffer, 0, True)
            patch_attention(code, offsets.cross_attention, 0, source.shape[2], layout)
        after.append((new, memory))
    after[0][0].program = program
    program.run(code)
    return program.x.clone(), tuple(after)
