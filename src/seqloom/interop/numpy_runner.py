"""Runs a language model of seqloom with numpy alone.

    python run.py "To be" --tokens 20          a text, if the package tokenizers is installed
    python run.py --ids 5 12 7 --logits        token ids; prints the logits of the next token

As a module: `model = NumpyModel(folder)`, `model.logits(ids)` (T,) → (T, V), `model.generate(ids, 20)`. The folder has weights.npz,
model.json and tokenizer.json. Three kinds of models: GPT-2 (learned positions, norms before each part), Llama (rotary positions, RMS
norms, gated feed-forward parts, shared keys and values), and layers of LSTM, GRU or plain recurrent cells.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
erf = np.vectorize(math.erf, otypes=[np.float32])


def sigmoid(x: Array) -> Array:
    """1 / (1 + e⁻ˣ), without overflow."""
    return (0.5 * (1 + np.tanh(0.5 * x))).astype(x.dtype)


def softmax(x: Array) -> Array:
    """eˣ / Σ eˣ over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.float32(math.sqrt(2)))),
    "gelu_new": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * sigmoid(x),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
}


class NumpyModel:
    """A language model in a folder."""

    def __init__(self, folder: str | Path):
        folder = Path(folder)
        self.config: dict[str, Any] = json.loads((folder / "model.json").read_text("utf-8"))
        with np.load(folder / "weights.npz", allow_pickle=False) as weights:
            self.weights = {name: weights[name] for name in weights.files}
        self.context: int | None = self.config.get("context")
        self.forward = {"gpt2": self.gpt2, "llama": self.llama, "rnn": self.rnn}[self.config["kind"]]

    def logits(self, ids: Sequence[int]) -> Array:
        """The logits of the token after each of the ids: (T,) → (T, V)."""
        if not len(ids) or (self.context is not None and len(ids) > self.context):
            raise ValueError(f"{len(ids)} tokens; give 1 to {self.context or 'any number'}")
        return self.forward(np.asarray(ids, np.int64))

    def generate(
        self,
        ids: Sequence[int],
        tokens: int = 20,
        temperature: float = 0.0,
        seed: int = 0,
        stop: Sequence[int] = (),
    ) -> list[int]:
        """The ids that follow: the most probable ones, or samples if the temperature is above 0. It ends at an id of `stop`."""
        rng = np.random.default_rng(seed)
        found: list[int] = []
        for _ in range(tokens):
            history = [*ids, *found]
            scores = self.logits(history if self.context is None else history[-self.context :])[-1]
            if temperature > 0:
                new = int(rng.choice(len(scores), p=softmax(scores.astype(np.float64) / temperature)))
            else:
                new = int(scores.argmax())
            if new in stop:
                break
            found.append(new)
        return found

    def linear(self, x: Array, name: str) -> Array:
        """x Wᵀ + b, with W (out, in)"""
        y = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        return y if bias is None else y + bias

    def conv1d(self, x: Array, name: str) -> Array:
        """x W + b, with W (in, out): GPT-2 stores its matrices so."""
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attend(self, q: Array, k: Array, v: Array) -> Array:
        """softmax(q kᵀ / √K) v for each head, (H, T, K), to earlier positions only: (T, H K)."""
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        length = q.shape[1]
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
        return (softmax(scores).astype(q.dtype) @ v).transpose(1, 0, 2).reshape(length, -1)

    def heads(self, x: Array, count: int) -> Array:
        """(T, H K) → (H, T, K)"""
        return x.reshape(len(x), count, -1).transpose(1, 0, 2)

    def layer_norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config["layer_norm_epsilon"])
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def gpt2(self, ids: Array) -> Array:
        config = self.config
        activation = ACTIVATIONS[config["activation_function"]]
        x = self.weights["wte.weight"][ids] + self.weights["wpe.weight"][: len(ids)]
        for layer in range(config["n_layer"]):
            name = f"h.{layer}"
            qkv = self.conv1d(self.layer_norm(x, f"{name}.ln_1"), f"{name}.attn.c_attn")
            q, k, v = (self.heads(part, config["n_head"]) for part in np.split(qkv, 3, -1))
            x = x + self.conv1d(self.attend(q, k, v), f"{name}.attn.c_proj")
            hidden = activation(self.conv1d(self.layer_norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc"))
            x = x + self.conv1d(hidden, f"{name}.mlp.c_proj")
        return self.layer_norm(x, "ln_f") @ self.weights.get("lm_head.weight", self.weights["wte.weight"]).T

    def rms_norm(self, x: Array, name: str) -> Array:
        scale = np.sqrt((x**2).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return x / scale * self.weights[f"{name}.weight"]

    def rotate(self, x: Array) -> Array:
        """Rotates the pair (x[i], x[i + K/2]) of each head at position t by t θᵢ: (H, T, K)."""
        half = x.shape[-1] // 2
        angles = np.arange(x.shape[1])[:, None] * np.array(self.config["theta"])  # (T, K/2)
        cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    def llama(self, ids: Array) -> Array:
        config = self.config
        count, shared = config["num_attention_heads"], config["num_key_value_heads"]
        x = self.weights["embed_tokens.weight"][ids]
        for layer in range(config["num_hidden_layers"]):
            name = f"layers.{layer}"
            h = self.rms_norm(x, f"{name}.input_layernorm")
            q = self.rotate(self.heads(self.linear(h, f"{name}.self_attn.q_proj"), count))
            k = self.rotate(self.heads(self.linear(h, f"{name}.self_attn.k_proj"), shared))
            v = self.heads(self.linear(h, f"{name}.self_attn.v_proj"), shared)
            k, v = (np.repeat(part, count // shared, 0) for part in (k, v))
            x = x + self.linear(self.attend(q, k, v), f"{name}.self_attn.o_proj")
            h = self.rms_norm(x, f"{name}.post_attention_layernorm")
            gate = ACTIVATIONS["silu"](self.linear(h, f"{name}.mlp.gate_proj"))
            x = x + self.linear(gate * self.linear(h, f"{name}.mlp.up_proj"), f"{name}.mlp.down_proj")
        table = self.weights.get("lm_head.weight", self.weights["embed_tokens.weight"])
        return self.rms_norm(x, "norm") @ table.T

    def rnn(self, ids: Array) -> Array:
        config = self.config
        x = self.weights["embedding.table"][ids] * np.float32(config["embedding_factor"])
        for layer in range(config["layers"]):
            y = self.cell(x, f"stack.layers.{layer}.0.cell")
            x = x + y if config["residual"] and x.shape == y.shape else y
        if "out_proj.weight" in self.weights:
            x = self.linear(x, "out_proj")
        y = x @ self.weights.get("output.table", self.weights["embedding.table"]).T
        bias = self.weights.get("output.bias")
        return y if bias is None else y + bias

    def cell(self, x: Array, name: str) -> Array:
        """A recurrent layer over all steps: (T, D) → (T, D)."""
        sign = self.config["bias_sign"]
        bias = self.weights.get(f"{name}.bias")
        inputs = x @ self.weights[f"{name}.input"].T
        inputs = inputs if bias is None else inputs + sign * bias
        hidden = self.weights[f"{name}.hidden"]
        size = hidden.shape[1]
        h = c = np.zeros(size, x.dtype)
        outputs = []
        for step in inputs:
            if self.config["cell"] == "LSTM":
                i, f, g, o = np.split(step + hidden @ h, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * (np.tanh(c) if self.config["cell_output"] == "tanh" else c)
            elif self.config["cell"] == "GRU":
                h = self.gru(step, h, hidden, name, sign)
            else:
                h = ACTIVATIONS[self.config["cell_activation"]](step + hidden @ h)
            outputs.append(h)
        return np.stack(outputs)

    def gru(self, step: Array, h: Array, hidden: Array, name: str, sign: int) -> Array:
        size = len(h)
        r, z = np.split(sigmoid(step[: 2 * size] + hidden[: 2 * size] @ h), 2)
        if self.config["cell_reset"] == "inside":
            n = np.tanh(step[2 * size :] + hidden[2 * size :] @ (r * h))
        else:
            product = hidden[2 * size :] @ h
            bias = self.weights.get(f"{name}.hidden_bias")
            n = np.tanh(step[2 * size :] + r * (product if bias is None else product + sign * bias))
        return z * h + (1 - z) * n


def main() -> None:
    """The program of the folder."""
    parser = argparse.ArgumentParser(description="Continues a text with numpy alone.")
    parser.add_argument("prompt", nargs="?", default="", help="a text; it needs the package tokenizers")
    parser.add_argument("--ids", type=int, nargs="+", help="token ids instead of a text")
    parser.add_argument("--tokens", type=int, default=20, help="most new tokens")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logits", action="store_true", help="print the logits of the next token instead")
    options = parser.parse_args()
    folder = Path(__file__).resolve().parent
    model = NumpyModel(folder)
    ids, tokenizer = options.ids, None
    if ids is None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            parser.error("a text needs the package tokenizers; give token ids with --ids")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        before = model.config["before"]
        ids = [*before, *tokenizer.encode(options.prompt, add_special_tokens=False).ids] or [
            model.config["first_id"]
        ]
    if options.logits:
        print(" ".join(f"{value:.6g}" for value in model.logits(ids)[-1]))
        return
    found = model.generate(ids, options.tokens, options.temperature, options.seed, model.config["stop_ids"])
    print(options.prompt + tokenizer.decode(found) if tokenizer is not None else " ".join(map(str, found)))


if __name__ == "__main__":
    main()
