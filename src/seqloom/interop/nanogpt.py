"""Reads nanoGPT checkpoints: GPT-2's shape in a torch file, whose pickle is not run."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from seqloom.errors import DataError
from seqloom.interop import tokenizer as hf_tokenizer
from seqloom.interop.import_run import ForeignCheckpoint, shapes, with_vocab_size
from seqloom.interop.torch_file import LazyTensor, TorchFile
from seqloom.layouts import check_equal, family, gpt2
from seqloom.layouts.hf_folder import HFConfig

COMPILED_PREFIX = "_orig_mod."
MIN_TENSORS_PER_LAYER = 6  # of a layer without biases


def read(path: Path, tokenizer: Path | None = None) -> ForeignCheckpoint:
    """Reads the checkpoint at `path`; `tokenizer` is required, since nanoGPT stores it elsewhere."""
    file = TorchFile(path)
    contents = file.value if isinstance(file.value, dict) else {}
    model_args = contents.get("model_args")
    state_dict = contents.get("model")
    if not isinstance(model_args, dict) or not isinstance(state_dict, dict):
        raise DataError(
            f"{path}: it has no model_args and model; only checkpoints of nanoGPT are read from torch files"
        )
    tensors: dict[str, LazyTensor] = {}
    for full, tensor in state_dict.items():
        name = str(full).removeprefix(COMPILED_PREFIX).removeprefix("transformer.")
        if not isinstance(tensor, LazyTensor) or name.endswith(".attn.bias"):  # the causal mask
            continue
        if name in tensors or not tensor.storage.dtype.is_floating_point:
            raise DataError(
                f"{path}: {name} is in it twice, or is not a matrix of floats; get the file again"
            )
        tensors[name] = tensor
    if tokenizer is None:
        raise DataError(
            f"{path}: pass its tokenizer with --tokenizer tokenizer.json; "
            "nanoGPT's own meta.pkl is pickled and is not opened"
        )
    args = HFConfig(model_args, str(path))
    loaded = read_tokenizer(tokenizer, args)
    dim = args.count("n_embd")
    bias = args.flag("bias", True)
    layers = args.count("n_layer")
    if layers > 1 + len(tensors) // MIN_TENSORS_PER_LAYER:
        raise DataError(
            f"{path}: its {len(tensors)} tensors are too few for {layers} layers; get the file again"
        )
    tree = gpt2.config_tree(
        dim,
        layers,
        heads=args.count("n_head"),
        length=args.count("block_size"),
        ffn_dim=4 * dim,
        activation="gelu",
        epsilon=1e-5,
        tied=True,
        dropout=args.number("dropout", 0.0),
        bias=bias,
    )
    tree = with_vocab_size(tree, args.count("vocab_size"), loaded.get_vocab_size(), path)

    def weights(model: nn.Module) -> dict[str, Tensor]:
        mappings = [
            entry._replace(optional=not bias and entry.name.endswith("bias"))
            for entry in gpt2.mappings(model, "", transposed=False)
        ]
        copies = gpt2.GPT2.tied_copies
        torch_shapes = {name: tensor.size for name, tensor in tensors.items() if name not in copies}
        family.check(mappings, shapes(model), torch_shapes, str(path))
        for name, original in copies.items():
            if name in tensors:
                first = file.read(tensors[original])
                check_equal(name, original, file.read(tensors[name]), first, 0.0, str(path))

        def get(name: str) -> Tensor | None:
            return file.read(tensors[name]).to(torch.float32) if name in tensors else None

        return family.read(mappings, shapes(model), get)

    return ForeignCheckpoint("nanogpt", tree, loaded, weights)


def read_tokenizer(path: Path, args: HFConfig) -> Tokenizer:
    """The tokenizer. GPT-2's ends a text with <|endoftext|>; one of characters starts it with a newline."""
    names = {"bos": ("<|endoftext|>", "\n"), "eos": ("<|endoftext|>",)}
    return hf_tokenizer.read(path, args, None, default_tokens=names)
