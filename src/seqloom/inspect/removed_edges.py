"""Edges of attention that are removed: one key is hidden from one query of one head, in many copies of a text at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import RunError
from seqloom.inspect.reading import Reading
from seqloom.inspect.refusals import input_of
from seqloom.nn.attention import SelfAttention
from seqloom.nn.attention_core import AttentionWeights, Softmax
from seqloom.nn.capture import StepChange, capture, change
from seqloom.nn.cells import Cell
from seqloom.nn.layer import HasPoints
from seqloom.nn.pool import AttentionPool
from seqloom.nn.transformer import Block, Transformer, resume
from seqloom.run import Run


class AttentionLayer(NamedTuple):
    """A part that attends: its path, and whether its weights are a softmax."""

    path: str
    reads: str
    softmax: bool


def attention_layers(model: torch.nn.Module, has_source: bool) -> list[AttentionLayer]:
    """The parts of a model that attend, in the order of its modules."""
    found = []
    for path, part in model.named_modules():
        if isinstance(part, HasPoints) and isinstance(
            weights := dict(part.named_children()).get("weights"), AttentionWeights
        ):
            reads = "cross" if part.reads_memory else "source" if path.startswith("encoder") else "target"
            found.append(AttentionLayer(path, reads if has_source else "text", isinstance(weights, Softmax)))
    return found


def no_attention(run: Run, verb: str) -> RunError:
    """The error for a model without layers that attend: what to look at instead."""
    name = type(run.model).__name__
    text = input_of(run)
    if any(isinstance(part, AttentionPool) for part in run.model.modules()):
        return RunError(
            f"{run.folder}: inspect {verb} shows attention, and a {name} of this config has no attention between tokens; only its pooling "
            f"attends: seqloom inspect trace {run.folder} {text} shows its weights"
        )
    other = "gates" if any(isinstance(part, Cell) for part in run.model.modules()) else "activations"
    return RunError(
        f"{run.folder}: inspect {verb} shows attention, and a {name} of this config has no attention; "
        f"use: seqloom inspect {other} {run.folder} {text}"
    )


class HideEdges(StepChange):
    """Hides one key from one query of one head in each copy of a text; `edges` has a row (copy, head, query, key) for each."""

    def __init__(self, edges: np.ndarray, value: float):
        self.edges = edges
        self.value = value

    def at(self, value: Tensor, step: int) -> Tensor:
        copies, heads, queries, keys = self.edges.T
        if value.shape[2] == 1 and (queries.max(initial=0) > 0 or step):  # one step of a loop over time
            now = queries == step
            copies, heads, queries, keys = copies[now], heads[now], 0 * queries[now], keys[now]
        changed = value.clone()
        changed[copies, heads, queries, keys] = self.value
        return changed


def hidden(model: torch.nn.Module, layer: AttentionLayer, edges: np.ndarray) -> AbstractContextManager[None]:
    """Inside, copy i of the text lacks edge i of the layer, (head, query, key): for attention of any kind."""
    rows = np.concatenate([np.arange(len(edges))[:, None], edges], 1)
    name, value = ("score", float("-inf")) if layer.softmax else ("weights", 0.0)
    return change(model, {f"{layer.path}.{name}": HideEdges(rows, value)})


@dataclass(frozen=True)
class BlockEdges:
    """Edges of self-attention in a Transformer. Without one, only the query's own position of that block differs, and in the next block
    only that position's q, k and v: they are computed from the values of the unchanged text, and the model goes on after these blocks, in
    its fast form."""

    stack: Transformer
    number: int  # of the block
    values: Mapping[str, Tensor]  # of the unchanged text: of the block, and q, k and v of the next one

    @classmethod
    def create(
        cls, model: torch.nn.Module, reading: Reading, layers: Sequence[AttentionLayer]
    ) -> dict[str, BlockEdges]:
        """By the path of the layer; those that are not self-attention of a Transformer without cross-attention are left out."""
        names: dict[str, dict[str, str]] = {}
        places: dict[str, tuple[Transformer, int]] = {}
        for layer in layers:
            path, _, name = layer.path.rpartition(".")
            stack_path, _, number = path.rpartition(".blocks.")
            stack = model.get_submodule(stack_path) if number.isdigit() else None
            if not isinstance(stack, Transformer) or name != "attention" or not layer.softmax:
                continue
            if not all(is_plain(block) for block in stack.typed_blocks()):
                continue
            index = int(number)
            before = f"{stack_path}.blocks.{index - 1}" if index else f"{stack_path}.input"
            wanted = {"x": before, "y": path}
            wanted |= {one: f"{layer.path}.{one}" for one in ("score", "v", "head")}
            if index + 1 < stack.depth:
                after = f"{stack_path}.blocks.{index + 1}.attention"
                wanted |= {f"next {one}": f"{after}.{one}" for one in "qkv"}
            names[layer.path], places[layer.path] = wanted, (stack, index)
        if not names:
            return {}
        with capture(model, *{full for wanted in names.values() for full in wanted.values()}) as captured:
            reading.scores(1)
        values = captured.all()
        return {
            path: cls(*places[path], {short: values[full][0] for short, full in wanted.items()})
            for path, wanted in names.items()
        }

    def without(self, edges: np.ndarray) -> AbstractContextManager[None]:
        """Inside, copy i of the text lacks edge i: (head, query, key)."""
        block = self.stack.typed_blocks()[self.number]
        heads, queries, keys = torch.from_numpy(edges).T
        copies = torch.arange(len(edges))
        scores = self.values["score"][heads, queries]  # (N, S)
        scores[copies, keys] = float("-inf")
        shared = block.attention.shape.heads // block.attention.shape.kv_heads
        values = self.values["v"][heads // shared]  # (N, S, K)
        head = torch.einsum("ns,nsk->nk", scores.softmax(-1), values)
        every = self.values["head"][:, queries].transpose(0, 1).clone()  # (N, H, K)
        every[copies, heads] = head
        a = block.attention.out_proj(every.flatten(1)[:, None])  # (N, 1, D)
        x = block.add(self.values["x"][queries][:, None], a, block.attention_norm)
        row = finish_block(block, x)  # (N, 1, D)
        outputs = replace_rows(self.values["y"], queries, row[:, 0])
        if self.number + 1 == self.stack.depth:
            return resume(self.stack, self.number + 1, outputs)
        following = self.stack.typed_blocks()[self.number + 1]
        return resume(self.stack, self.number + 2, self.next_block(following, outputs, row, queries))

    def next_block(self, block: Block, x: Tensor, row: Tensor, queries: Tensor) -> Tensor:
        """The output (N, T, D) of the next block for inputs x of which one row, (N, 1, D) at `queries`, differs from the unchanged text."""
        attention = block.attention
        visibility = attention.visibility(x)
        if block.order == "pre":
            row = block.attention_norm(row)
        parts = attention.split_heads(row, visibility._replace(positions=queries[:, None]))
        q, k, v = (
            replace_rows(self.values[f"next {name}"].transpose(0, 1), queries, part[:, 0]).transpose(1, 2)
            for name, part in zip("qkv", parts, strict=True)
        )
        state = attention.start(len(x)).append(k, v, visibility.key_mask)
        head, _ = state.attend(visibility.plan, q, attention.score, attention.weights)
        y = attention.out_proj(head.transpose(1, 2).flatten(2))
        return finish_block(block, block.add(x, y, block.attention_norm))


def is_plain(block: Block) -> bool:
    """Whether a block is self-attention and feed-forward, computed as `Block` does."""
    return type(block) is Block and type(block.attention) is SelfAttention and block.cross is None


def finish_block(block: Block, x: Tensor) -> Tensor:
    """The output of a block from x after its attention."""
    y = block.feedforward(block.feedforward_norm(x) if block.order == "pre" else x)
    return block.add(x, y, block.feedforward_norm)


def replace_rows(values: Tensor, positions: Tensor, rows: Tensor) -> Tensor:
    """A copy of the values (T, …) for each position, with a row in its place: (N, T, …)."""
    copies = values.expand(len(rows), *values.shape).clone(memory_format=torch.contiguous_format)
    copies[torch.arange(len(rows)), positions] = rows
    return copies
