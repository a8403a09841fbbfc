"""Builds the program of one Transformer decoding step, which `kernels/program.py` runs in one call: the fast
form of the blocks of `nn/transformer.py`.

A program is an array of int64: each instruction is its opcode and its operands, counts first, then addresses.
Only the cache addresses and the range of visible keys change from step to step, so a program is built once,
kept in the state, and patched (the `patch_` functions). This module knows tensors and addresses; which
instructions a block needs is in `nn/decode.py`, and the plain form is the blocks' own `forward`.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import numpy as np
from torch import Tensor

from seqloom.fused.dispatch import load_kernels, num_threads, zero_bias

# The opcodes of kernels/program.py, repeated here because that module takes a second to import; a test
# compares the two.
NORM, LINEAR, LINEAR_INT8, ADD, WRITE_CACHE, ATTEND, ACTIVATE, GATE, ROTATE = range(9)


@cache
def load_interpreter() -> tuple[ModuleType, tuple]:
    """The interpreter and the addresses of its workers."""
    program = load_kernels("program")
    workers = (
        load_kernels("small_gemm").f32_worker,
        load_kernels("int8_gemm").int8_worker,
        load_kernels("decode_attention").decode_worker,
        program.activation_worker,
        np.array(program.OP_SIZES),
    )
    return program, workers


class Program:
    """Instructions for `rows` rows, with the buffers they work in and references to every tensor whose
    address they hold.
    """

    def __init__(self, rows: int, like: Tensor):
        self.rows = rows
        self.like = like
        self.instructions: list[int] = []
        self.constants: list[float] = [0.0]  # index 0 stays unused, since the sign of an index carries a flag
        self.tensors: list[Tensor] = []

    def buffer(self, width: int) -> int:
        """The address of a new buffer with `width` floats for each row."""
        return self.address(self.like.new_empty(self.rows * width))

    def address(self, tensor: Tensor | None) -> int:
        """The address of a tensor, which the program keeps; 0 for None."""
        if tensor is None:
            return 0
        self.tensors.append(tensor)
        return tensor.data_ptr()

    def constant(self, value: float) -> int:
        """The index of a new constant."""
        self.constants.append(value)
        return len(self.constants) - 1

    def emit(self, *words: int) -> int:
        """Appends one instruction; returns its offset."""
        self.instructions += words
        return len(self.instructions) - len(words)

    def emit_norm(
        self,
        dim: int,
        gain: Tensor | None,
        bias: Tensor | None,
        epsilon: float,
        x: int,
        y: int,
        centred: bool,
    ) -> int:
        """y ← norm(x); `centred` subtracts the mean, as LayerNorm does and RMSNorm does not. Returns y."""
        index = self.constant(epsilon) * (1 if centred else -1)
        self.emit(NORM, self.rows, dim, x, y, self.address(gain), self.address(bias), index)
        return y

    def emit_linear(self, weight: Tensor, bias: Tensor | None, x: int, y: int) -> None:
        """y ← W x + b"""
        columns, size = weight.shape
        bias = zero_bias(columns) if bias is None else bias
        self.emit(LINEAR, self.rows, columns, size, x, self.address(weight), self.address(bias), y)

    def emit_linear_int8(
        self, shape: tuple[int, int], panels: Tensor, scales: Tensor, bias: Tensor, x: int, y: int
    ) -> None:
        """y ← W x + b with W of `shape` (out, in) in int8 panels."""
        weights = self.address(panels), self.address(bias)
        self.emit(LINEAR_INT8, self.rows, *shape, x, *weights, y, self.address(scales))

    def emit_add(self, dim: int, x: int, y: int) -> None:
        """x ← x + y"""
        self.emit(ADD, self.rows, dim, x, y)

    def emit_activation(self, dim: int, name: str, x: int) -> None:
        """x ← name(x)"""
        self.emit(ACTIVATE, self.rows * dim, load_interpreter()[0].ACTIVATIONS.index(name), x)

    def emit_gate(self, dim: int, x: int, y: int) -> None:
        """y ← swish(first half of x) ⊙ second half of x"""
        self.emit(GATE, self.rows, dim, x, y)

    def emit_rotary(self, heads: int, key_dim: int, halves: bool, x: int, x_stride: int) -> int:
        """Rotates the queries and keys in x; `patch_rotary` sets the angles."""
        return self.emit(ROTATE, self.rows, heads, key_dim, int(halves), x, x_stride, 0, 0)

    def emit_cache_write(
        self, kv_heads: int, key_dim: int, value_dim: int, keys: int, values: int, stride: int
    ) -> int:
        """Copies new keys and values into the cache; `patch_cache_write` sets where."""
        sizes = kv_heads, key_dim, value_dim
        return self.emit(WRITE_CACHE, self.rows, *sizes, keys, values, stride, *[0] * 6)

    def emit_attention(
        self, shape: tuple[int, int, int, int], scale: float, q: int, q_stride: int, y: int
    ) -> int:
        """Attends from q with (heads, kv_heads, key_dim, value_dim); `patch_attention` sets keys, values and
        their range.
        """
        heads_and_scale = self.rows * shape[1], self.constant(scale)
        return self.emit(ATTEND, *heads_and_scale, *shape, 0, 0, q, q_stride, y, *[0] * 17)

    def finish(self) -> None:
        """Turns the instructions into the arrays that the interpreter reads."""
        self.code = np.array(self.instructions)
        self.floats = np.array(self.constants, np.float32)

    def run(self, code: np.ndarray) -> None:
        """Runs a patched copy of `code`."""
        interpreter, workers = load_interpreter()
        interpreter.run_program(code, self.floats, *workers, num_threads())


def patch_rotary(code: np.ndarray, offset: int, angles: Tensor) -> None:
    """Sets the table of cosines and sines, (rows or 1, key_dim)."""
    code[offset + 7 : offset + 9] = angles.data_ptr(), 0 if len(angles) == 1 else 4 * angles.shape[1]


def patch_cache_write(code: np.ndarray, offset: int, keys: Tensor, values: Tensor, position: int) -> None:
    """Sets the buffers (rows, kv_heads, capacity, dim) and the position to write at."""
    layout: list[int] = []
    for tensor in (keys, values):
        row, head, step, _ = tensor.stride()
        layout += [tensor.data_ptr() + 4 * step * position, 4 * row, 4 * head]
    code[offset + 8 : offset + 14] = layout


def patch_attention(code: np.ndarray, offset: int, first: int, end: int, layout: tuple[int, ...]) -> None:
    """Sets the range of keys [first, end) and the layout of keys, values and mask
    (`decode_attention.attention_layout`).
    """
    code[offset + 7 : offset + 9] = first, end
    code[offset + 12 : offset + 29] = layout
