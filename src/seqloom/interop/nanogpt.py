"""Checkpoints of nanoGPT: GPT-2's shape in a torch file, whose tensors are read and whose program is not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.interop import tokenizer
from seqloom.interop.import_run import ForeignCheckpoint, shapes, with_vocab_size
from seqloom.interop.torch_file import LazyTensor
from seqloom.interop.torch_file import TorchFile as Torch
from seqloom.layouts import check_equal, gpt2, mapping
from seqloom.layouts.hf_folder import HFConfig

COMPILED = "_orig_mod."
MIN_TENSORS_PER_LAYER = 6  # tensors of a layer without biases


def read(path: Path, tokenizer: Path | None = None) -> ForeignCheckpoint:
    """The checkpoint at `path`; its tokenizer must be said, since nanoGPT keeps it elsewhere."""
    opened = Torch(path)
    whole = opened.value
    said, found = (whole.get(name) if isinstance(whole, dict) else None for name in ("model_args", "model"))
    if not isinstance(said, dict) or not isinstance(found, dict):
        raise ValueError(
            f"{path}: it has no model_args and model; only checkpoints of nanoGPT are read from torch files"
        )
    lazy: dict[str, LazyTensor] = {}
    for full, one in found.items():
        name = str(full).removeprefix(COMPILED).removeprefix("transformer.")
        if not isinstance(one, LazyTensor) or name.endswith(".attn.bias"):  # the causal mask
            continue
        if name in lazy or not one.stored.dtype.is_floating_point:
            raise ValueError(
                f"{path}: {name} stands there twice, or is no matrix of real numbers; get the file again"
            )
        lazy[name] = one
    if tokenizer is None:
        raise ValueError(
            f"{path}: say its tokenizer with --tokenizer tokenizer.json; nanoGPT's own meta.pkl is pickled and is not opened"
        )
    args = HFConfig(said, str(path))
    learnt, dim, bias = read_tokenizer(tokenizer, args), args.count("n_embd"), args.flag("bias", True)
    layers = args.count("n_layer")
    if layers > 1 + len(lazy) // MIN_TENSORS_PER_LAYER:
        raise ValueError(
            f"{path}: {layers} layers are more than its {len(lazy)} tensors make; get the file again"
        )
    tree = gpt2.config_tree(
        dim,
        layers,
        args.count("n_head"),
        args.count("block_size"),
        4 * dim,
        "gelu",
        1e-5,
        True,
        args.number("dropout", 0.0),
        bias,
    )
    tree = with_vocab_size(tree, args.count("vocab_size"), learnt.get_vocab_size(), path)

    def get(model: nn.Module) -> dict[str, Tensor]:
        ours = shapes(model)
        entries = [
            one._replace(optional=not bias and one.ours.endswith("bias"))
            for one in gpt2.entries(model, "", transposed=False)
        ]
        theirs = {name: one.size for name, one in lazy.items() if name not in gpt2.GPT2.copies}
        mapping.check(entries, ours, theirs, str(path))
        for name, one in gpt2.GPT2.copies.items():
            if name in lazy:
                check_equal(name, one, opened.read(lazy[name]), opened.read(lazy[one]), 0.0, str(path))
        return mapping.read(
            entries, ours, lambda name: opened.read(lazy[name]).to(torch.float32) if name in lazy else None
        )

    return ForeignCheckpoint("nanogpt", tree, learnt, get)


def read_tokenizer(path: Path, args: HFConfig) -> Any:
    """The tokenizer: GPT-2's ends texts with <|endoftext|>, one of characters opens them with a new line and never ends."""
    return tokenizer.read(path, args, None, usual={"bos": ("<|endoftext|>", "\n"), "eos": ("<|endoftext|>",)})
