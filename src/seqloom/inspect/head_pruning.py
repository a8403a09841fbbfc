"""A run without some of its heads, as a smaller run: their rows and columns are cut out of the weights   [K3]"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom import run_files
from seqloom.errors import RunError
from seqloom.files import digest, draft_folder, sha256, write_atomic
from seqloom.fused.dispatch import plain
from seqloom.inspect.reading import Reading
from seqloom.nn.attention import SelfAttention
from seqloom.nn.capture import StepChange, change
from seqloom.nn.cross_attention import CrossAttention
from seqloom.nn.position import Position
from seqloom.nn.transformer import Transformer
from seqloom.results import Result
from seqloom.run import Run, load, named_weights, save_weights
from seqloom.run_files import ParameterCounts, Results, write_results

COPIED = ("tokenizer.json", "labels.json", "generation_config.json")


@dataclass(frozen=True)
class Pruned(Result):
    """A smaller run, and how it compares with the same heads masked in the old one."""

    folder: Path
    removed: tuple[str, ...]
    parameters: tuple[int, int]  # before and after
    bytes: tuple[int, int]  # of the files of weights
    seconds: tuple[float, float]  # of the texts, the best of five passes
    masked_loss: float
    loss: float
    largest_difference: float  # of a score, between masked and pruned


def choose_heads(removed: Sequence[str], count: int, heads: Mapping[str, int]) -> list[str]:
    """The first `count` of the heads in the order in which they are removed; the last head of a layer stays."""
    left = dict(heads)
    chosen: list[str] = []
    for name in removed:
        layer = name.rpartition(".")[0]
        if len(chosen) < count and left[layer] > 1:
            left[layer] -= 1
            chosen.append(name)
    if len(chosen) < count:
        raise RunError(
            f"{count} heads cannot be removed: {len(heads)} layers keep one head each, so at most {len(chosen)} can"
        )
    return chosen


def kept_heads(model: torch.nn.Module, removed: Sequence[str]) -> dict[str, list[int]]:
    """The heads that stay in each layer of attention that loses some."""
    lost: dict[str, set[int]] = {}
    for name in removed:
        layer, _, head = name.rpartition(".")
        lost.setdefault(layer, set()).add(int(head))
    kept = {}
    for layer, heads in lost.items():
        part = model.get_submodule(layer)
        stack_path = layer.rpartition(".blocks.")[0]
        stack = model.get_submodule(stack_path) if ".blocks." in layer else None
        if not isinstance(part, SelfAttention | CrossAttention) or not isinstance(stack, Transformer):
            raise RunError(
                f"{layer}: a {type(part).__name__} cannot be pruned; only heads of a Transformer can"
            )
        if part.shape.kv_heads != part.shape.heads:
            raise RunError(f"{layer}: its heads share keys and values, so they cannot be pruned one by one")
        if type(stack.position).bias is not Position.bias:
            raise RunError(
                f"{layer}: each head has its own bias of distance ({type(stack.position).__name__}), so it cannot be pruned"
            )
        kept[layer] = [head for head in range(part.shape.heads) if head not in heads]
    return kept


def pruned_tree(run: Run, kept: Mapping[str, list[int]]) -> dict[str, Any]:
    """The config with the number of heads of each layer."""
    changes: dict[str, Any] = {}
    stacks = {layer.rpartition(".blocks.")[0] for layer in kept}
    for path in sorted(stacks):
        stack = run.model.get_submodule(path)
        tree: Any = run.config.tree["model"]
        for name in path.split("."):
            tree = tree.get(name) if isinstance(tree, dict) else None
        if (
            not isinstance(stack, Transformer)
            or not isinstance(tree, dict)
            or tree.get("type") != "Transformer"
        ):
            raise RunError(
                f"{path}: the config has no Transformer of this name, so its heads cannot be pruned"
            )
        blocks = stack.typed_blocks()
        for name, option, kind in (
            ("attention", "heads", "SelfAttention"),
            ("cross", "cross_heads", "CrossAttention"),
        ):
            if getattr(blocks[0], name) is None:
                continue
            layers = [f"{path}.blocks.{number}.{name}" for number in range(len(blocks))]
            parts = [run.model.get_submodule(layer) for layer in layers]
            shapes = [part.shape for part in parts if isinstance(part, SelfAttention | CrossAttention)]
            sizes = [
                len(kept[layer]) if layer in kept else shape.heads
                for layer, shape in zip(layers, shapes, strict=True)
            ]
            shape = shapes[0]
            old = tree.get(name)
            options = dict(old) if isinstance(old, dict) else {"type": old or kind}
            changes[f"model.{path}.{option}"] = sizes
            changes[f"model.{path}.{name}"] = {
                **options,
                "key_dim": shape.key_dim,
                "value_dim": shape.value_dim,
            }
    return changes


def cut_weights(run: Run, kept: Mapping[str, list[int]]) -> dict[str, Tensor]:
    """The weights without the rows and columns of the removed heads."""
    weights = dict(named_weights(run.model))
    for layer, heads in kept.items():
        part = run.model.get_submodule(layer)
        if not isinstance(part, SelfAttention | CrossAttention):
            continue
        shape = part.shape
        keys = rows_of(heads, shape.key_dim)
        values = rows_of(heads, shape.value_dim)
        q_width, k_width, _ = shape.proj_widths
        if isinstance(part, SelfAttention):
            groups = {"qkv_proj": torch.cat([keys, q_width + keys, q_width + k_width + values])}
        else:
            groups = {"q_proj": keys, "kv_proj": torch.cat([keys, k_width + values])}
        for name, rows in groups.items():
            for kind in ("weight", "bias"):
                full = f"{layer}.{name}.{kind}"
                if full in weights:
                    weights[full] = weights[full][rows]
        full = f"{layer}.out_proj.weight"
        weights[full] = weights[full][:, values]
    return weights


def rows_of(heads: Sequence[int], size: int) -> Tensor:
    """The rows of heads of a size."""
    return (torch.tensor(heads)[:, None] * size + torch.arange(size)).flatten()


def prune(run: Run, removed: Sequence[str], out: Path) -> Run:
    """Writes the run without these heads into a new folder, and loads it."""
    kept = kept_heads(run.model, removed)
    config = run.config.change(pruned_tree(run, kept))
    with torch.device("meta"):
        model = config.model(run.tokenizer.get_vocab_size(), run.labels)
    weights = cut_weights(run, kept)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out}: exists and is not empty; choose another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with draft_folder(out.parent) as place:
        draft = place / out.name
        draft.mkdir()
        for name in COPIED:
            if (run.folder / name).is_file():
                shutil.copyfile(run.folder / name, draft / name)
        save_weights(draft, model, weights, run.tokenizer)
        write_results(draft, pruned_results(run, weights, removed, sha256(draft / "model.safetensors")))
        text, data = config.to_yaml(), run_files.data_digests(run.folder)
        if data is not None:
            run_files.write_manifest(draft, run_files.make_manifest(draft, text, digest(text.encode()), data))
        write_atomic(draft / "config.yaml", text)
        draft.replace(out)
    return load(out)


def pruned_results(run: Run, weights: Mapping[str, Tensor], removed: Sequence[str], digest: str) -> Results:
    """The content of results.json: the run that was pruned and its heads; its scores are not those of the smaller model."""
    by_part: dict[str, int] = {}
    for name, tensor in weights.items():
        part = name.partition(".")[0]
        by_part[part] = by_part.get(part, 0) + tensor.numel()
    old = run.results
    origin = {**(old.base or {}), "pruned": str(run.folder), "removed_heads": list(removed)}
    return Results(
        steps=old.steps,
        tokens=old.tokens,
        valid=[],
        parameters=ParameterCounts(sum(by_part.values()), by_part),
        base=origin,
        versions=old.versions,
        weights_sha256=digest,
    )


def compare(view: Run, smaller: Run, readings: Sequence[Reading], removed: Sequence[str]) -> Pruned:
    """The smaller run beside the old one with the same heads masked. The readings are those of `view`, whose model is replaced."""
    sizes = [(one.folder / "model.safetensors").stat().st_size for one in (view, smaller)]
    counts = [sum(weight.numel() for weight in one.model.parameters()) for one in (view, smaller)]
    heads_of: dict[str, list[tuple[int, int]]] = {}
    for name in removed:
        layer, _, head = name.rpartition(".")
        heads_of.setdefault(f"{layer}.head", []).append((0, int(head)))
    with torch.no_grad():
        with change(view.model, {name: RemoveHeads(np.array(rows), True) for name, rows in heads_of.items()}):
            masked = [reading.scores(1)[0].double() for reading in readings]
        before = seconds_of(readings)
        view.model = smaller.model
        with plain():
            ours = [reading.scores(1)[0].double() for reading in readings]
        after = seconds_of(readings)
    difference = max(float((one - other).abs().max()) for one, other in zip(ours, masked, strict=True))
    return Pruned(
        smaller.folder,
        tuple(removed),
        (counts[0], counts[1]),
        (sizes[0], sizes[1]),
        (before, after),
        -float(torch.cat(masked).mean()),
        -float(torch.cat(ours).mean()),
        difference,
    )


def seconds_of(readings: Sequence[Reading]) -> float:
    """The best of five passes over all texts."""
    passes = []
    for _ in range(5):
        start = time.perf_counter()
        for reading in readings:
            reading.scores(1)
        passes.append(time.perf_counter() - start)
    return min(passes)


class RemoveHeads(StepChange):
    """Sets heads to zero in some copies of a text; `rows` has (copy, head). A value without an axis of heads is one head."""

    def __init__(self, rows: np.ndarray, has_heads: bool):
        self.rows = rows
        self.has_heads = has_heads

    def at(self, value: Tensor, step: int) -> Tensor:
        changed = value.clone()
        copies, heads = self.rows.T
        if self.has_heads:
            changed[copies, heads] = 0
        else:
            changed[copies] = 0
        return changed
