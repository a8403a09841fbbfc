"""Writes a run as a GGUF file, which llama.cpp and our own import read: models in the shape of a Llama or a GPT-2.

Matrices are float32, float16 or Q8_0 (32 values share one scale), vectors float32. The complete tokenizer.json is stored beside the lists of
tokens that llama.cpp reads, so that an import gives the same ids.
"""

from __future__ import annotations

import json
from io import BufferedWriter
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from safetensors.numpy import load
from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.files import open_atomic
from seqloom.interop.bpe_pieces import byte_level_pieces
from seqloom.interop.gguf_files import INSTALL, LLAMA3_ROPE, NAMES, ROPE_FREQUENCIES
from seqloom.interop.gguf_tokenizer import CONTROL, JSON_KEY, PREFIX, ROLE_KEYS, USER_DEFINED
from seqloom.layouts import Unsupported, export_files, family_of
from seqloom.run import Run, named_weights
from seqloom.text.tokenizer import BYTES, LITERALS, special_tokens

Precision = Literal["F32", "F16", "Q8_0"]
NORMAL, UNUSED = 1, 5  # types of tokens
FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7}
Q8_BLOCK = 32
PIECES = ("default", "smollm", "llama-bpe", "qwen2")
TANH_GELU = ("gelu_new", "gelu_pytorch_tanh")


def write(run: Run, path: Path, precision: Precision = "F32") -> str:
    """Writes a run as a GGUF file; returns its architecture."""
    try:
        from gguf import GGMLQuantizationType, GGUFWriter
        from gguf.gguf_writer import WriterState
        from gguf.quants import quantize
    except ImportError:
        raise DataError(f"{path}: {INSTALL.replace('reading', 'writing')}") from None
    if path.suffix != ".gguf":
        raise DataError(f"{path}: name a file that ends with .gguf")
    if path.exists():
        raise DataError(f"{path}: exists; choose another name")
    family, config = family_of(run.model)
    kind = family.model_type
    check_family(kind, config)
    tensors = load(export_files(run.model, named_weights(run.model), run.tokenizer).weights)
    writer = GGUFWriter(None, kind)
    writer.add_name(run.folder.name)
    writer.add_file_type(FILE_TYPES[precision])
    add_sizes(writer, kind, config, run)
    add_tokenizer(writer, run, config["vocab_size"])
    if (template := run.chat_template) is not None:
        writer.add_chat_template(template)
    for name, values in gguf_tensors(kind, config, tensors).items():
        exact = values.ndim < 2 or precision == "F32" or name == "position_embd.weight"
        if exact or (precision == "Q8_0" and values.shape[-1] % Q8_BLOCK):
            writer.add_tensor(name, values)
        elif precision == "F16":
            writer.add_tensor(name, values.astype(np.float16))
        else:
            block = GGMLQuantizationType.Q8_0
            writer.add_tensor(name, quantize(values, block), raw_dtype=block)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(path) as file:
        writer.fout = [cast(BufferedWriter, file)]
        writer.state = WriterState.EMPTY
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    return kind


def check_family(kind: str, config: dict[str, Any]) -> None:
    """Raises if GGUF cannot hold a model of this config.json."""
    if kind not in NAMES:
        raise Unsupported(f"GGUF holds a Llama or a GPT-2, not a {kind}")
    if kind == "gpt2" and config["activation_function"] not in TANH_GELU:
        name = config["activation_function"]
        raise Unsupported(
            f"a GPT-2 in GGUF has GELU by tanh, and this model {name}; train it with activation=gelu_tanh"
        )
    if config.get("mlp_bias"):
        raise Unsupported("a Llama in GGUF has no biases in its feed-forward parts, and this model has")


def add_sizes(writer: Any, kind: str, config: dict[str, Any], run: Run) -> None:
    """The sizes of the model."""
    if kind == "gpt2":
        writer.add_context_length(config["n_positions"])
        writer.add_embedding_length(config["n_embd"])
        writer.add_block_count(config["n_layer"])
        writer.add_head_count(config["n_head"])
        writer.add_feed_forward_length(config["n_inner"] or 4 * config["n_embd"])
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
        return
    writer.add_context_length(run.context)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        from gguf import RopeScalingType

        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])


def gguf_tensors(kind: str, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a Hugging Face folder under the names and in the layout of GGUF."""
    patterns = {hf: (name, change) for name, (hf, change) in NAMES[kind].items()}
    heads = config.get("num_attention_heads", 1)
    heads_of = {"query": heads, "key": config.get("num_key_value_heads", heads)}
    result: dict[str, np.ndarray] = {}
    for hf, values in tensors.items():
        parts = hf.split(".")
        layer = next((part for part in parts if part.isdecimal()), "")
        name, change = patterns[".".join("{}" if part.isdecimal() else part for part in parts)]
        if change in heads_of:
            halves = values.reshape(
                heads_of[change], 2, values.shape[0] // heads_of[change] // 2, *values.shape[1:]
            )
            values = halves.swapaxes(1, 2).reshape(values.shape)
        elif change == "transposed":
            values = values.T
        result[name.format(layer)] = np.ascontiguousarray(values, np.float32)
    rope = config.get("rope_parameters", {})
    if rope.get("rope_type") == "llama3":
        result[ROPE_FREQUENCIES] = llama3_factors(config, rope)
    return result


def llama3_factors(config: dict[str, Any], rope: dict[str, Any]) -> np.ndarray:
    """The factor on each rotary frequency, with which llama.cpp stores the scaling of Llama 3."""
    import torch

    from seqloom.nn.position import Llama3Scaling

    if any(rope[key] != value for key, value in LLAMA3_ROPE.items()):
        raise Unsupported("GGUF holds only Llama 3's own scaling of the rotary angles")
    pairs = config["head_dim"] // 2
    plain = rope["rope_theta"] ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    scaling = Llama3Scaling(rope["factor"], 1.0, 4.0, rope["original_max_position_embeddings"])
    return (plain / scaling(plain)).float().numpy()


def add_tokenizer(writer: Any, run: Run, rows: int) -> None:
    """The tokenizer: tokenizer.json, the ids of the special tokens, and the lists of llama.cpp if it knows such a tokenizer."""
    parts = json.loads(run.tokenizer.to_str())
    writer.add_string(JSON_KEY, json.dumps(parts, ensure_ascii=False))
    specials = special_tokens(run.tokenizer)
    for role, name in ROLE_KEYS.items():
        if (index := getattr(specials, role)) is not None:
            writer.add_uint32(f"{PREFIX}{name}_token_id", index)
    writer.add_add_bos_token(bool(specials.before))
    vocab = run.tokenizer.get_vocab(with_added_tokens=True)
    tokens = [f"[PAD{index}]" for index in range(rows)]
    types = [UNUSED] * rows
    for token, index in vocab.items():
        tokens[index] = token
        types[index] = NORMAL
    for index, added in run.tokenizer.get_added_tokens_decoder().items():
        types[index] = CONTROL if added.special else USER_DEFINED
    for index in (specials.pad, specials.unk, specials.bos, specials.eos, specials.mask):
        if index is not None:
            types[index] = CONTROL
    division = pieces_name(run.tokenizer)
    writer.add_tokenizer_model("none" if division is None else "gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if division is not None:
        writer.add_tokenizer_pre(division)
        merges = parts["model"]["merges"]
        writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])


def pieces_name(tokenizer: Tokenizer) -> str | None:
    """The name that llama.cpp gives to the way in which a byte-level tokenizer divides texts; None if it knows no such tokenizer."""
    parts = json.loads(tokenizer.to_str())
    if parts["model"]["type"] != "BPE" or parts["normalizer"] not in (
        None,
        json.loads(LITERALS.__getstate__()),
    ):
        return None
    if parts["pre_tokenizer"] == json.loads(BYTES.__getstate__()):
        return "gpt-2"  # ours differs from it only in marks on letters
    for name in PIECES:
        pieces = byte_level_pieces(name)
        if pieces is not None and without_offsets(json.loads(pieces.__getstate__())) == without_offsets(
            parts["pre_tokenizer"]
        ):
            return name
    return None


def without_offsets(pieces: Any) -> Any:
    """The JSON of a pre-tokenizer without options that do not change ids."""
    if isinstance(pieces, dict):
        return {key: without_offsets(value) for key, value in pieces.items() if key != "trim_offsets"}
    return [without_offsets(piece) for piece in pieces] if isinstance(pieces, list) else pieces
