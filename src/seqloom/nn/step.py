"""One step of a Transformer, told to compiled code (tape.py): the same numbers as its blocks give one after another, without the time that
hundreds of small calls take. What is told is the same from step to step but for the places of keys and values, so it is kept with the state.

Left out: what blocks compute otherwise, namely experts and parts of your own; many rows in single precision, where torch's
products are as quick; gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.nn.attention import CrossAttention, SelfAttention
from seqloom.nn.cache import quiet, told
from seqloom.nn.feedforward import FeedForward, SwiGLU
from seqloom.nn.linear import FEW, Linear, compiled, single, zeros
from seqloom.nn.norm import LayerNorm, Norm, RMSNorm
from seqloom.nn.position import Places, Rotary
from seqloom.nn.quantize import Int8Linear
from seqloom.nn.score import Dot, ScaledDot
from seqloom.nn.sight import Sight
from seqloom.nn.state import State
from seqloom.nn.weights import Softmax

if TYPE_CHECKING:
    from seqloom.nn.stack import Block

NORM, FLOATS, BYTES, ADD, KEEP, LOOK, BEND, GATE, ROTATE = range(
    9
)  # as in tape.py, which takes a second to load


@cache
def machine() -> tuple[ModuleType, tuple]:
    """The interpreter and the addresses of its works, loaded when first used."""
    from seqloom.nn import few, look, tape
    from seqloom.nn.threads import work

    works = (
        work(few.float_work),
        work(few.byte_work),
        work(look.look_work),
        work(tape.bend_work),
        np.array(tape.SIZES),
    )
    return tape, works


class Spots(NamedTuple):
    """Where in the code a block turns, keeps, looks at its past and looks at its memory; -1 where it does not."""

    rotate: int
    keep: int
    look: int
    cross: int


class Plan:
    """The code of all blocks for `rows` rows, the room that it works in, and the tensors it speaks of."""

    def __init__(self, blocks: Sequence[Block], rows: int, like: Tensor):
        self.rows, self.first = rows, blocks[0].attention.project
        self.said: list[int] = []
        self.numbers: list[float] = [0.0]  # place 0 is taken, since a place may carry a sign
        self.held: list[Tensor] = []
        self.x = like.new_empty(rows, 1, blocks[0].dim)
        shapes = [
            part.shape for block in blocks for part in (block.attention, block.cross) if part is not None
        ]
        self.h = self.room(like, blocks[0].dim)
        self.asked = self.room(like, max(sum(shape.widths) for shape in shapes))
        self.found = self.room(like, max(shape.queries * shape.value for shape in shapes))
        self.inner = self.room(like, max(block.feedforward.first.out_features for block in blocks))
        self.gated = self.room(like, max(block.feedforward.last.in_features for block in blocks))
        self.spots = [self.block(block) for block in blocks]
        self.code, self.floats = np.array(self.said), np.array(self.numbers, np.float32)

    def room(self, like: Tensor, size: int) -> int:
        """The address of new room for each row."""
        self.held.append(like.new_empty(self.rows * size))
        return self.held[-1].data_ptr()

    def address(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return 0
        self.held.append(tensor)
        return tensor.data_ptr()

    def number(self, value: float) -> int:
        self.numbers.append(value)
        return len(self.numbers) - 1

    def block(self, block: Block) -> Spots:
        """The block's part of the code."""
        x, pre, cross, forward = self.x.data_ptr(), block.order == "pre", -1, block.feedforward
        places = self.attend(block.attention, self.norm(block.attention_norm, x, self.h) if pre else x)
        self.join(block, block.attention.last, self.found, block.attention_norm)
        if block.cross is not None:
            cross = self.look(block.cross, self.norm(block.cross_norm, x, self.h) if pre else x)
            self.join(block, block.cross.last, self.found, block.cross_norm)
        self.linear(forward.first, self.norm(block.feedforward_norm, x, self.h) if pre else x, self.inner)
        if type(forward) is SwiGLU:
            self.said += (GATE, self.rows, forward.last.in_features, self.inner, self.gated)
        else:
            self.said += (
                BEND,
                self.rows * forward.first.out_features,
                machine()[0].BENDS.index(forward.activation),
                self.inner,
            )
        self.join(
            block, forward.last, self.gated if type(forward) is SwiGLU else self.inner, block.feedforward_norm
        )
        return Spots(*places, cross)

    def norm(self, part: Norm, x: int, y: int) -> int:
        """y ← norm(x)"""
        centred = isinstance(part, LayerNorm)
        place = self.number(part.epsilon) * (1 if centred else -1)
        self.said += (
            NORM,
            self.rows,
            part.dim,
            x,
            y,
            self.address(part.gain),
            self.address(part.bias) if centred else 0,
            place,
        )
        return y

    def linear(self, part: nn.Module, x: int, y: int) -> None:
        """y ← W x + b"""
        columns, size, bias = part.out_features, part.in_features, part.bias
        if isinstance(part, Int8Linear):
            more = part.nothing if bias is None else bias
            self.said += (
                BYTES,
                self.rows,
                columns,
                size,
                x,
                self.address(part.panels),
                self.address(more),
                y,
                self.address(part.scales),
            )
        else:
            more = zeros(columns) if bias is None else bias
            self.said += (
                FLOATS,
                self.rows,
                columns,
                size,
                x,
                self.address(part.weight),
                self.address(more),
                y,
            )

    def join(self, block: Block, last: nn.Module, made: int, norm: Norm) -> None:
        """x ← x + last(made), with its norm where it stands after."""
        x = self.x.data_ptr()
        self.linear(last, made, self.h)
        self.said += (ADD, self.rows, block.dim, x, self.h)
        if block.order == "post":
            self.norm(norm, x, x)

    def attend(self, part: SelfAttention, x: int) -> tuple[int, int, int]:
        """Queries and keys are turned where positions are rotary, new keys and values kept, then looked at."""
        (heads, groups, key, value), (queries, keys, values) = part.shape, part.shape.widths
        row = 4 * (queries + keys + values)
        self.linear(part.project, x, self.asked)
        rotate = len(self.said) if part.position.turns else -1
        if part.position.turns:
            self.said += (
                ROTATE,
                self.rows,
                heads + groups,
                key,
                int(part.position.layout == "halves"),
                self.asked,
                row,
                0,
                0,
            )
        keep = len(self.said)
        self.said += (
            KEEP,
            self.rows,
            groups,
            key,
            value,
            self.asked + 4 * queries,
            self.asked + 4 * (queries + keys),
            row,
            *[0] * 6,
        )
        place = len(self.said)
        self.said += (LOOK, self.rows * groups, self.number(part.score.scale), *part.shape, 0, 0, *[0] * 20)
        self.said[place + 9 : place + 12] = self.asked, row, self.found
        return rotate, keep, place

    def look(self, part: CrossAttention, x: int) -> int:
        heads, groups, key, _ = part.shape
        self.linear(part.query, x, self.asked)
        place = len(self.said)
        self.said += (LOOK, self.rows * groups, self.number(part.score.scale), *part.shape, 0, 0, *[0] * 20)
        self.said[place + 9 : place + 12] = self.asked, 4 * heads * key, self.found
        return place

    def play(self, code: np.ndarray) -> None:
        tape, works = machine()
        tape.play(code, self.floats, *works, compiled()[1].threads())


def known(part: nn.Module, rows: int) -> bool:
    """Whether compiled code has this product for so many rows."""
    if type(part) is Int8Linear:
        return True
    return type(part) is Linear and rows <= FEW and part.weight.dtype is torch.float32


def fits(block: Block, rows: int) -> bool:
    """Whether compiled code knows all parts of the block."""
    attention, cross, forward = block.attention, block.cross, block.feedforward
    if (
        type(attention) is not SelfAttention
        or type(cross) not in (CrossAttention, type(None))
        or type(forward) not in (FeedForward, SwiGLU)
    ):
        return False
    looks, norms = [attention], [block.attention_norm, block.feedforward_norm]
    linears = [attention.project, attention.last, forward.first, forward.last]
    if cross is not None:
        looks, norms, linears = (
            [*looks, cross],
            [*norms, block.cross_norm],
            [*linears, cross.query, cross.last],
        )
    return (
        (not attention.position.turns or type(attention.position) is Rotary)
        and all(type(part.score) in (Dot, ScaledDot) and type(part.weights) is Softmax for part in looks)
        and all(part.shape.key % 8 == 0 and part.shape.value % 8 == 0 for part in looks)
        and all(type(part) in (LayerNorm, RMSNorm) for part in norms)
        and all(known(part, rows) for part in linears)
        and not (block.training and block.dropout.rate)
    )


def angles(part: SelfAttention, places: Places) -> Tensor:
    """Cosines and sines of each row's position, one for all where they agree: (B or 1, K)."""
    here = torch.arange(places.start, places.stop) if isinstance(places, slice) else places.reshape(-1)
    angle = part.position.angles(here, part.shape.key)
    return torch.cat([angle.cos(), angle.sin()], -1).float()


def run(
    blocks: Sequence[Block], x: Tensor, state: Sequence[State], sight: Sight
) -> tuple[Tensor, tuple[State, ...]] | None:
    """What the blocks give for x (B, 1, D), and their states after; None where they must do it themselves."""
    rows, first = len(x), state[0][0]
    seen = sight.view.one(first.length + 1) if rows and first.length and single(x) else None
    if seen is None or not quiet(first.room_keys):
        return None
    plan = first.plan
    if plan is None or plan.rows != rows or plan.first is not blocks[0].attention.project:
        if not all(fits(block, rows) for block in blocks):
            return None
        plan = Plan(blocks, rows, x)
    plan.x.copy_(x)
    code, after, tables = plan.code.copy(), [], {}
    mask, low, high = seen
    mask = mask if mask is None or mask.stride(-1) == 1 else mask.contiguous()
    turns = angles(blocks[0].attention, sight.places) if plan.spots[0].rotate >= 0 else None
    for (past, memory), spots in zip(state, plan.spots, strict=True):
        if turns is not None:
            code[spots.rotate + 7 : spots.rotate + 9] = (
                turns.data_ptr(),
                0 if len(turns) == 1 else 4 * turns.shape[1],
            )
        new = past.reserved(1, rows, sight.known)
        (a, b, c, _), (d, e, f, _) = new.room_keys.stride(), new.room_values.stride()
        keys, values = new.room_keys.data_ptr(), new.room_values.data_ptr()
        code[spots.keep + 8 : spots.keep + 14] = (
            keys + 4 * c * past.length,
            4 * a,
            4 * b,
            values + 4 * f * past.length,
            4 * d,
            4 * e,
        )
        code[spots.look + 7], code[spots.look + 8] = low, high
        code[spots.look + 12 : spots.look + 29] = told(
            new.room_keys, new.room_values, new.table, mask, low, False
        )
        if spots.cross >= 0:
            if id(memory.rows) not in tables:
                tables[id(memory.rows)] = memory.places()
            table = tables[id(memory.rows)]
            code[spots.cross + 8] = memory.room_keys.shape[2]
            code[spots.cross + 12 : spots.cross + 29] = told(
                memory.room_keys, memory.room_values, table, memory.room_visible, 0, True
            )
        after.append((new, memory))
    after[0][0].plan = plan
    plan.play(code)
    return plan.x.clone(), tuple(after)
