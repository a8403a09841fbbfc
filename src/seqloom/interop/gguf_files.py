"""Reads and writes GGUF files, the format of llama.cpp: models of the Llama and GPT-2 families.

The header is checked here (`gguf_header.py`). Its settings become a config.json and its tensors those of a Hugging Face folder, which
the tables of `layouts/` read. Weights are dequantised by the package `gguf` in a child process with limits.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.errors import DataError
from seqloom.interop import gguf_child, gguf_tokenizer
from seqloom.interop import tokenizer as hf_tokenizer
from seqloom.interop.gguf_header import GGUFHeader, read_header
from seqloom.interop.import_run import ForeignCheckpoint, with_vocab_size
from seqloom.layouts import find_family, import_weights
from seqloom.layouts.hf_folder import HFConfig, SafetensorsFiles
from seqloom.text.chat_template import template_source

INSTALL = "reading GGUF needs the package gguf; install seqloom[gguf]"
MIN_TENSORS_PER_LAYER = 9
BYTES_PER_SECOND = 4 << 20  # of weights, on a slow machine
MEMORY = 2 << 30  # bytes that the child may use besides the weights
# The names of GGUF by those of transformers, {} for the number of a layer, and what must be done with a weight.
LLAMA_NAMES = {
    "token_embd.weight": ("model.embed_tokens.weight", "same"),
    "output_norm.weight": ("model.norm.weight", "same"),
    "output.weight": ("lm_head.weight", "same"),
    "blk.{}.attn_norm.weight": ("model.layers.{}.input_layernorm.weight", "same"),
    "blk.{}.ffn_norm.weight": ("model.layers.{}.post_attention_layernorm.weight", "same"),
    "blk.{}.attn_q.weight": ("model.layers.{}.self_attn.q_proj.weight", "query"),
    "blk.{}.attn_k.weight": ("model.layers.{}.self_attn.k_proj.weight", "key"),
    "blk.{}.attn_v.weight": ("model.layers.{}.self_attn.v_proj.weight", "same"),
    "blk.{}.attn_q.bias": ("model.layers.{}.self_attn.q_proj.bias", "query"),
    "blk.{}.attn_k.bias": ("model.layers.{}.self_attn.k_proj.bias", "key"),
    "blk.{}.attn_v.bias": ("model.layers.{}.self_attn.v_proj.bias", "same"),
    "blk.{}.attn_output.weight": ("model.layers.{}.self_attn.o_proj.weight", "same"),
    "blk.{}.attn_output.bias": ("model.layers.{}.self_attn.o_proj.bias", "same"),
    "blk.{}.ffn_gate.weight": ("model.layers.{}.mlp.gate_proj.weight", "same"),
    "blk.{}.ffn_up.weight": ("model.layers.{}.mlp.up_proj.weight", "same"),
    "blk.{}.ffn_down.weight": ("model.layers.{}.mlp.down_proj.weight", "same"),
}
GPT2_NAMES = {
    "token_embd.weight": ("transformer.wte.weight", "same"),
    "position_embd.weight": ("transformer.wpe.weight", "same"),
    "output_norm.weight": ("transformer.ln_f.weight", "same"),
    "output_norm.bias": ("transformer.ln_f.bias", "same"),
    "output.weight": ("lm_head.weight", "same"),
}
for ours, theirs in (
    ("attn_norm", "ln_1"),
    ("ffn_norm", "ln_2"),
    ("attn_qkv", "attn.c_attn"),
    ("attn_output", "attn.c_proj"),
    ("ffn_up", "mlp.c_fc"),
    ("ffn_down", "mlp.c_proj"),
):
    change = "same" if ours.endswith("norm") else "transposed"
    GPT2_NAMES[f"blk.{{}}.{ours}.weight"] = (f"transformer.h.{{}}.{theirs}.weight", change)
    GPT2_NAMES[f"blk.{{}}.{ours}.bias"] = (f"transformer.h.{{}}.{theirs}.bias", "same")
NAMES = {"llama": LLAMA_NAMES, "gpt2": GPT2_NAMES}
ROPE_FREQUENCIES = "rope_freqs.weight"  # the factors of Llama 3.1 on the rotary frequencies
LLAMA3_ROPE = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3_LENGTH = 8192


def read(path: Path, tokenizer: Path | None = None) -> ForeignCheckpoint:
    """Reads the checkpoint at `path`; its tokenizer is inside, unless another one is given."""
    try:
        header = read_header(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    kind = header.get("general.architecture", str)
    if kind not in NAMES:
        raise DataError(f"{path}: models of type {str(kind)[:40]!r} cannot be read; only {', '.join(NAMES)}")
    names = {name: hf_name(header, kind, name) for name in header.tensors if name != ROPE_FREQUENCIES}
    config = HFConfig(hf_values(header, kind), str(path))
    family = find_family(kind)
    loaded = hf_tokenizer.read(tokenizer) if tokenizer else gguf_tokenizer.read(header)
    tree = family.model_tree(config, {name for name, _ in names.values()})
    layers = tree["stack"]["layers"]
    if layers > 1 + len(names) // MIN_TENSORS_PER_LAYER:
        raise DataError(
            f"{path}: {len(names)} tensors are too few for {layers} layers; they do not belong together"
        )
    tree = with_vocab_size(tree, header.tensors["token_embd.weight"].shape[0], loaded.get_vocab_size(), path)

    def weights(model: nn.Module) -> dict[str, Tensor]:
        with tempfile.TemporaryDirectory(prefix="seqloom-gguf-") as folder:
            target = Path(folder) / "model.safetensors"
            dequantize(header, names, config, target)
            found = import_weights(family, model, SafetensorsFiles([target]), str(path))
            return {name: tensor.clone() for name, tensor in found.items()}

    template = header.get("tokenizer.chat_template", str)
    context = header.get(f"{kind}.context_length", int)
    return ForeignCheckpoint(
        f"gguf {kind}", tree, loaded, weights, template and template_source(template), context
    )


def hf_name(header: GGUFHeader, kind: str, name: str) -> tuple[str, str]:
    """The name of a tensor in `transformers`, and what must be done with it."""
    parts = name.split(".")
    layer = parts[1] if parts[0] == "blk" and len(parts) > 2 and parts[1].isdecimal() else None
    pattern = name if layer is None else ".".join([parts[0], "{}", *parts[2:]])
    if pattern not in NAMES[kind]:
        raise DataError(
            f"{header.path}: the tensor {name[:60]} is none of a {kind}; such a model cannot be read"
        )
    found, change = NAMES[kind][pattern]
    return found.format(layer), change


def hf_values(header: GGUFHeader, kind: str) -> dict[str, Any]:
    """The settings of a file as config.json has them."""

    def number(key: str, kinds: Any = int, default: Any = None) -> Any:
        return header.get(f"{kind}.{key}", kinds, default)

    if "token_embd.weight" not in header.tensors:
        raise DataError(f"{header.path}: it has no token_embd.weight; it is not a real checkpoint")
    if number("expert_count", int, 0):
        raise DataError(f"{header.path}: a mixture of experts cannot be read from GGUF")
    tied = "output.weight" not in header.tensors
    if kind == "gpt2":
        return {
            "n_embd": number("embedding_length"),
            "n_layer": number("block_count"),
            "n_head": number("attention.head_count"),
            "n_positions": number("context_length"),
            "n_inner": number("feed_forward_length"),
            "layer_norm_epsilon": number("attention.layer_norm_epsilon", float, 1e-5),
            "tie_word_embeddings": tied,
        }
    values = {
        "hidden_size": number("embedding_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": number("attention.head_count"),
        "num_key_value_heads": number("attention.head_count_kv"),
        "head_dim": number("attention.key_length", int, number("rope.dimension_count")),
        "intermediate_size": number("feed_forward_length"),
        "rms_norm_eps": round(number("attention.layer_norm_rms_epsilon", float, 1e-5), 12),
        "rope_theta": number("rope.freq_base", float, 10000.0),
        "attention_bias": "blk.0.attn_output.bias" in header.tensors,
        "tie_word_embeddings": tied,
    }
    return values | rope_scaling(
        header, number("rope.scaling.type", str), number("rope.scaling.factor", float)
    )


def rope_scaling(header: GGUFHeader, kind: str | None, factor: float | None) -> dict[str, Any]:
    """The scaling of the rotary angles: linear, or that of Llama 3, which is stored as one factor for each frequency."""
    if kind == "linear":
        return {"rope_scaling": {"rope_type": "linear", "factor": factor}}
    if kind not in (None, "none"):
        raise DataError(
            f"{header.path}: rotary angles scaled as {kind[:40]!r} cannot be read; only linear and Llama 3's"
        )
    place = header.tensors.get(ROPE_FREQUENCIES)
    if place is None:
        return {}
    if place.type != "F32" or len(place.shape) != 1 or place.shape[0] > 4096:
        raise DataError(
            f"{header.path}: {ROPE_FREQUENCIES} is no list of float32; it is not a real checkpoint"
        )
    with header.path.open("rb") as file:
        file.seek(place.offset)
        factors = torch.frombuffer(bytearray(file.read(place.size)), dtype=torch.float32)
    from seqloom.nn.position import Llama3Scaling

    base = header.get("llama.rope.freq_base", float, 10000.0)
    plain = base ** (-torch.arange(place.shape[0], dtype=torch.float64) / place.shape[0])
    for candidate in (8.0, 32.0):
        scaled = Llama3Scaling(candidate, 1.0, 4.0, LLAMA3_LENGTH)(plain)
        if torch.allclose((plain / scaled).float(), factors, rtol=1e-3):
            return {
                "rope_scaling": {
                    **LLAMA3_ROPE,
                    "factor": candidate,
                    "original_max_position_embeddings": LLAMA3_LENGTH,
                }
            }
    raise DataError(
        f"{header.path}: its rotary frequencies are scaled in a way that is not known; it cannot be read"
    )


def dequantize(header: GGUFHeader, names: dict[str, tuple[str, str]], config: HFConfig, target: Path) -> None:
    """Writes the tensors as float32 under the names of `transformers`, by a child process with limits."""
    heads = config.values.get("num_attention_heads")
    heads_of = {"query": heads, "key": config.values.get("num_key_value_heads") or heads}
    rows = []
    total = 0
    for name, (hf, change) in names.items():
        place = header.tensors[name]
        count = heads_of.get(change) or 1
        if change in heads_of and (place.shape[0] % (2 * count) or not isinstance(count, int)):
            raise DataError(
                f"{header.path}: {name} has {place.shape[0]} rows, which {count} heads cannot share"
            )
        if change == "transposed" and len(place.shape) != 2:
            raise DataError(f"{header.path}: {name} is no matrix; it is not a real checkpoint")
        kind = "paired" if change in heads_of else change
        rows.append([hf, place.type, place.shape, place.offset, place.size, kind, count])
        total += 4 * prod(place.shape)
    seconds = 60 + total // BYTES_PER_SECOND
    job = {
        "source": str(header.path.resolve()),
        "target": str(target),
        "memory": MEMORY + 4 * total,
        "seconds": seconds,
        "tensors": rows,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", gguf_child.__file__],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=4 * seconds,
        )
    except subprocess.TimeoutExpired:
        raise DataError(
            f"{header.path}: reading its weights takes too long; it is not a real checkpoint"
        ) from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["the process was stopped by its limits"]
        if "No module named 'gguf'" in last[0]:
            raise DataError(f"{header.path}: {INSTALL}")
        raise DataError(f"{header.path}: its weights cannot be read ({last[0][:160]})")
