"""One decoding step of a Transformer as a compiled program: the fast form of calling its blocks one after
another, without the overhead of hundreds of small calls.

This module reads the blocks and chooses the instructions; `fused/program.py` encodes them and
`kernels/program.py` runs them. The program is stored in the first layer's cache. The blocks' own `forward`
runs instead for mixtures of experts, for parts that users define, for more than `SMALL_GEMM_ROWS` rows in
float32 (torch's products are as fast there), and under autograd.
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
from seqloom.nn.attention import KVCache, SelfAttention
from seqloom.nn.attention_core import Dot, ScaledDot, Score, Softmax, Visibility
from seqloom.nn.basic import FeedForward, LayerNorm, Linear, Norm, RMSNorm, SwiGLU
from seqloom.nn.cross_attention import CrossAttention, CrossKV
from seqloom.nn.int8 import Int8Linear
from seqloom.nn.layer import State
from seqloom.nn.position import Positions, Rotary

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
        self.first = blocks[0].attention.qkv_proj  # identifies the model: `quantize` replaces it
        self.x = like.new_empty(rows, 1, blocks[0].dim)
        shapes = [block.attention.shape for block in blocks]
        shapes += [block.cross.shape for block in blocks if block.cross is not None]
        ffns = [supported_ffn(block) for block in blocks]
        self.h = self.buffer(blocks[0].dim)
        self.qkv = self.buffer(max(sum(shape.proj_widths) for shape in shapes))
        self.context = self.buffer(max(shape.heads * shape.value_dim for shape in shapes))
        self.inner = self.buffer(max(ffn.in_proj.out_features for ffn in ffns))
        self.gated = self.buffer(max(ffn.out_proj.in_features for ffn in ffns))
        self.offsets = [self.emit_block(block) for block in blocks]
        self.finish()

    def emit_block(self, block: Block) -> PatchOffsets:
        """All instructions of one block."""
        cross_attention = -1
        offsets = self.emit_self_attention(block.attention, self.input_of(block, block.attention_norm))
        self.emit_residual(block, block.attention.out_proj, self.context, block.attention_norm)
        if block.cross is not None and block.cross_norm is not None:
            cross_attention = self.emit_cross_attention(block.cross, self.input_of(block, block.cross_norm))
            self.emit_residual(block, block.cross.out_proj, self.context, block.cross_norm)
        ffn = supported_ffn(block)
        self.emit_part(ffn.in_proj, self.input_of(block, block.feedforward_norm), self.inner)
        if isinstance(ffn, SwiGLU):
            self.emit_gate(ffn.out_proj.in_features, self.inner, self.gated)
            self.emit_residual(block, ffn.out_proj, self.gated, block.feedforward_norm)
        else:
            self.emit_activation(ffn.in_proj.out_features, ffn.activation, self.inner)
            self.emit_residual(block, ffn.out_proj, self.inner, block.feedforward_norm)
        return PatchOffsets(*offsets, cross_attention)

    def input_of(self, block: Block, norm: Norm) -> int:
        """The address of a sub-layer's input: norm(x) in a pre-norm block, x in a post-norm one."""
        x = self.x.data_ptr()
        return self.emit_norm_of(norm, x, self.h) if block.order == "pre" else x

    def emit_norm_of(self, norm: Norm, x: int, y: int) -> int:
        """y ← norm(x). Returns y."""
        if isinstance(norm, LayerNorm):
            return self.emit_norm(norm.dim, norm.gain, norm.bias, norm.epsilon, x, y, True)
        if isinstance(norm, RMSNorm):
            return self.emit_norm(norm.dim, norm.gain, None, norm.epsilon, x, y, False)
        raise TypeError(f"a program has no instruction for {type(norm).__name__}")

    def emit_part(self, part: nn.Module, x: int, y: int) -> None:
        """y ← part(x) for a linear map in float32 or int8."""
        if isinstance(part, Int8Linear):
            shape = (part.out_features, part.in_features)
            self.emit_linear_int8(shape, part.panels, part.scales, part.padded_bias, x, y)
        elif isinstance(part, Linear):
            self.emit_linear(part.weight, part.bias, x, y)
        else:
            raise TypeError(f"a program has no instruction for {type(part).__name__}")

    def emit_residual(self, block: Block, out_proj: nn.Module, x: int, norm: Norm) -> None:
        """self.x ← self.x + out_proj(x), followed by the norm in a post-norm block."""
        residual = self.x.data_ptr()
        self.emit_part(out_proj, x, self.h)
        self.emit_add(block.dim, residual, self.h)
        if block.order == "post":
            self.emit_norm_of(norm, residual, residual)

    def emit_self_attention(self, part: SelfAttention, x: int) -> tuple[int, int, int]:
        """Projects q, k and v, rotates q and k if positions are rotary, writes the cache, attends. Returns
        the offsets of rotation, cache write and attention.
        """
        heads, kv_heads, key_dim, value_dim = part.shape
        q_width, k_width, v_width = part.shape.proj_widths
        stride = 4 * (q_width + k_width + v_width)  # bytes of a row of self.qkv
        self.emit_part(part.qkv_proj, x, self.qkv)
        rotary = -1
        if isinstance(part.position, Rotary):
            halves = part.position.layout == "halves"
            rotary = self.emit_rotary(heads + kv_heads, key_dim, halves, self.qkv, stride)
        keys = self.qkv + 4 * q_width
        values = keys + 4 * k_width
        cache_write = self.emit_cache_write(kv_heads, key_dim, value_dim, keys, values, stride)
        attention = self.emit_attention(part.shape, scale_of(part.score), self.qkv, stride, self.context)
        return rotary, cache_write, attention

    def emit_cross_attention(self, part: CrossAttention, x: int) -> int:
        """Projects q and attends to the memory. Returns the offset of the attention."""
        stride = 4 * part.shape.heads * part.shape.key_dim  # bytes of a row of queries
        self.emit_part(part.q_proj, x, self.qkv)
        return self.emit_attention(part.shape, scale_of(part.score), self.qkv, stride, self.context)


def scale_of(score: Score) -> float:
    """The scale of a score that `supports_block` accepts."""
    if score.scale is None:
        raise TypeError(f"a program has no instruction for {type(score).__name__}")
    return score.scale


def supported_ffn(block: Block) -> FeedForward | SwiGLU:
    """The feed-forward part of a block that `supports_block` accepts."""
    ffn = block.feedforward
    if not isinstance(ffn, (FeedForward, SwiGLU)):
        raise TypeError(f"a program has no instruction for {type(ffn).__name__}")
    return ffn


def supports_linear(part: nn.Module, rows: int) -> bool:
    """Whether a program can compute this linear map for so many rows."""
    if type(part) is Int8Linear:
        return True
    return type(part) is Linear and rows <= SMALL_GEMM_ROWS and part.weight.dtype is torch.float32


def supports_block(block: Block, rows: int) -> bool:
    """Whether a program can compute all parts of the block. Subclasses may compute something else, so the
    classes must be exactly these.
    """
    attention = block.attention
    cross = block.cross
    if (
        type(attention) is not SelfAttention
        or type(cross) not in (CrossAttention, type(None))
        or type(block.feedforward) not in (FeedForward, SwiGLU)
    ):
        return False
    ffn = supported_ffn(block)
    attentions: list[SelfAttention | CrossAttention] = [attention]
    norms: list[Norm | None] = [block.attention_norm, block.feedforward_norm]
    linears = [attention.qkv_proj, attention.out_proj, ffn.in_proj, ffn.out_proj]
    if cross is not None:
        attentions.append(cross)
        norms.append(block.cross_norm)
        linears += [cross.q_proj, cross.out_proj]
    return (
        (not attention.position.rotates or type(attention.position) is Rotary)
        and all(type(part.score) in (Dot, ScaledDot) and type(part.weights) is Softmax for part in attentions)
        and all(part.shape.key_dim % 8 == 0 and part.shape.value_dim % 8 == 0 for part in attentions)
        and all(type(part) in (LayerNorm, RMSNorm) for part in norms)
        and all(supports_linear(part, rows) for part in linears)
        and not (block.training and block.dropout.rate)
    )


def cos_sin(rotary: Rotary, key_dim: int, positions: Positions) -> Tensor:
    """Cosines and sines of each row's position, one row if all agree: (B or 1, K)."""
    if isinstance(positions, slice):
        positions = torch.arange(positions.start, positions.stop)
    angle = rotary.angles(positions.reshape(-1), key_dim)
    return torch.cat([angle.cos(), angle.sin()], -1).float()


def decode_step(
    blocks: Sequence[Block], x: Tensor, state: Sequence[State], visibility: Visibility
) -> tuple[Tensor, tuple[State, ...]] | None:
    """The outputs of the blocks for x (B, 1, D), and their new states; None if a program cannot compute this
    step.
    """
    rows = len(x)
    first_cache: KVCache = state[0][0]
    attention = blocks[0].attention
    if not (rows and first_cache.length and is_f32_inference(x)):
        return None
    visible = visibility.plan.single_query(first_cache.length + 1)
    if visible is None or not readable_in_place(first_cache.key_buffer):
        return None
    program: BlocksProgram | None = first_cache.program
    if program is None or program.rows != rows or program.first is not attention.qkv_proj:
        if not all(supports_block(block, rows) for block in blocks):
            return None
        program = BlocksProgram(blocks, rows, x)
    program.x.copy_(x)
    code = program.code.copy()
    mask, first, end = visible
    if mask is not None and mask.stride(-1) != 1:
        mask = mask.contiguous()
    angles: Tensor | None = None  # alive until the program has run, which reads it by address
    if isinstance(attention.position, Rotary):
        angles = cos_sin(attention.position, attention.shape.key_dim, visibility.positions)
    new_states: list[tuple[KVCache, CrossKV | None]] = []
    row_tables: dict[int, Tensor | None] = {}  # by the identity of `rows`, which all layers share
    for (cache, memory), offsets in zip(state, program.offsets, strict=True):
        if angles is not None:
            patch_rotary(code, offsets.rotary, angles)
        new_cache = cache.reserve(1, rows, visibility.key_mask)
        keys, values = new_cache.key_buffer, new_cache.value_buffer
        patch_cache_write(code, offsets.cache_write, keys, values, cache.length)
        layout = attention_layout(keys, values, new_cache.row_table, mask, first, False)
        patch_attention(code, offsets.attention, first, end, layout)
        if offsets.cross_attention >= 0:
            if id(memory.rows) not in row_tables:
                row_tables[id(memory.rows)] = memory.row_table()
            row_table = row_tables[id(memory.rows)]
            keys, values = memory.key_buffer, memory.value_buffer
            layout = attention_layout(keys, values, row_table, memory.visible_buffer, 0, True)
            patch_attention(code, offsets.cross_attention, 0, keys.shape[2], layout)
        new_states.append((new_cache, memory))
    new_states[0][0].program = program
    program.run(code)
    return program.x.clone(), tuple(new_states)
