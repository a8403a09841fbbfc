"""Tiny random checkpoints written by `transformers`, each with a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from support.words import WORDS

SIZE = 40  # rows of every embedding: more than there are tokens

LLAMA = {
    "vocab_size": SIZE,
    "hidden_size": 36,
    "intermediate_size": 50,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "pad_token_id": 0,
}
BERT = {
    "vocab_size": SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 44,
    "max_position_embeddings": 60,
}
MARIAN = {
    "vocab_size": SIZE,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 44,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": 0,
    "eos_token_id": 3,
    "decoder_start_token_id": 0,
    "forced_eos_token_id": 3,
    "max_position_embeddings": 64,
}
GPT2 = {
    "vocab_size": SIZE,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 48,
    "bos_token_id": 3,
    "eos_token_id": 3,
}
KINDS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "gpt2 untied": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {**GPT2, "tie_word_embeddings": False, "activation_function": "relu", "n_inner": 50},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "llama linear": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            **LLAMA,
            "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0},
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "llama 3": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            **LLAMA,
            "head_dim": 8,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 100.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 24,
            },
        },
    ),
    "smollm2": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            **LLAMA,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
            "tie_word_embeddings": True,
        },
    ),
    "llama 3 said outside": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            **LLAMA,
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 100.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
            },
        },
    ),
    "llama 3 not said": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            **LLAMA,
            "max_position_embeddings": 40,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 100.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
            },
        },
    ),
    "bert": ("BertForMaskedLM", "BertConfig", BERT),
    "bert pairs": ("BertForPreTraining", "BertConfig", {**BERT, "hidden_act": "gelu_new"}),
    "bert body": ("BertModel", "BertConfig", BERT),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {
            "vocab_size": SIZE,
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 44,
            "max_position_embeddings": 60,
        },
    ),
    "distilbert body": (
        "DistilBertModel",
        "DistilBertConfig",
        {
            "vocab_size": SIZE,
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 44,
            "max_position_embeddings": 60,
        },
    ),
    "marian": ("MarianMTModel", "MarianConfig", MARIAN),
}
CAUSAL = [kind for kind in KINDS if kind.startswith(("gpt2", "llama", "smollm2"))]
MASKED = ["bert", "bert pairs", "distilbert"]
BODIES = ["bert body", "distilbert body"]


class Trap:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def tokenizer(kind: str) -> tuple[Tokenizer, dict[str, str]]:
    """A word tokenizer with special tokens at the usual ids, and the names of these tokens by role."""
    bert = "bert" in kind
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] if bert else ["<pad>", "<unk>", "<s>", "</s>"]
    words = {word: index for index, word in enumerate([*special, *WORDS])}
    made = Tokenizer(models.WordLevel(words, unk_token=special[1]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = (
        dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], special, strict=True))
        if bert
        else {}
    )
    if not bert:
        names = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return made, names


def make(kind: str, folder: Path, seed: int = 0) -> torch.nn.Module:
    """Writes a checkpoint of random weights, large enough for every term to matter, and returns the model."""
    name, settings, options = KINDS[kind]
    torch.manual_seed(seed)
    model = getattr(transformers, name)(getattr(transformers, settings)(**options)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape) * 0.2)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape))
    model.save_pretrained(folder)
    made, names = tokenizer(kind)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(names), "utf-8")
    return model
