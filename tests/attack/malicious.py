"""Attack: files made to run code, to read other files or to fill the memory. Each must be refused, and no canary may appear."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from attack import Count
from attack.harness import limit_memory, run_command
from attack.playground import QUICK, TINY, build

CANARY = "canary-that-must-not-appear"


class Trap:
    """An object that creates the canary when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (CANARY,)


def archive(entries: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in entries.items():
            target.writestr(name, content)
    return file.getvalue()


def safetensors(header: Any, size: int | None = None, tail: bytes = b"\0" * 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + tail


def tensor(start: int = 0, stop: int = 64, shape: Any = (4, 4), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


def pickled_files() -> dict[str, bytes]:
    """Pickles under the names of every format that may hold one."""
    trap = pickle.dumps({"model": Trap()})
    objects = io.BytesIO()
    np.savez(objects, words=np.array([Trap()], dtype=object), vectors=np.zeros((1, 2)))
    one = io.BytesIO()
    np.save(one, np.array([Trap()], dtype=object))
    return {
        **{f"trap{suffix}": trap for suffix in (".pt", ".pth", ".bin", ".pkl", ".ckpt", ".kv", ".model", ".npz", ".npy", ".txt")},
        "zip.pt": archive({"x/data.pkl": trap, "x/version": b"3"}),
        "bomb.pt": archive({"x/data.pkl": b"\x80\x02" + b"N" * (80 << 20)}),
        "memo.pt": archive({"x/data.pkl": b"\x80\x02]" + b"q\x00h\x00a" * 50_000 + b"."}),
        "outside.pt": archive({"../../data.pkl": trap, "x/data.pkl": trap}),
        "objects.npz": objects.getvalue(),
        "object.npy": one.getvalue(),
        "bomb.npz": archive({"words.npy": b"\x93NUMPY\x01\x00" + b"\0" * (80 << 20)}),
    }  # fmt: skip


CONFIGS = {
    "apply.yaml": f"model: !!python/object/apply:os.mkdir ['{CANARY}']\n",
    "new.yaml": f"model: !!python/object/new:os.mkdir ['{CANARY}']\n",
    "name.yaml": "model: !!python/name:os.system\n",
    "module.yaml": "model: !!python/module:antigravity\n",
    "type.yaml": "model: {type: os.mkdir, path: x}\n",
    "dotted.yaml": "model: {type: seqloom.cli.main}\n",
    "builtin.yaml": "model: {type: eval, source: '1'}\n",
    "import.yaml": "model: {type: __import__, name: antigravity}\n",
    "class_path.yaml": "model: {class_path: subprocess.Popen, init_args: {args: [touch, x]}}\n",
    "laughs.yaml": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]\n" for before, after in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "deep.yaml": "model: " + "[" * 50_000 + "\n",
}  # fmt: skip
WEIGHTS: dict[str, bytes] = {
    "length": safetensors({"w": tensor()}, size=2**63),
    "longer than the file": safetensors({"w": tensor()}, size=10**6),
    "no JSON": safetensors(b"\xff" * 64),
    "deep": safetensors(b"[" * 100_000),
    "overlap": safetensors({"a": tensor(0, 64), "b": tensor(32, 96)}, tail=b"\0" * 96),
    "hole": safetensors({"a": tensor(32, 96)}, tail=b"\0" * 96),
    "outside": safetensors({"a": tensor(0, 2**40)}),
    "backwards": safetensors({"a": tensor(64, 0)}),
    "shape": safetensors({"a": tensor(shape=(2**62, 2**62))}),
    "negative": safetensors({"a": tensor(shape=(-4, -4))}),
    "type": safetensors({"a": tensor(dtype="PICKLE")}),
    "duplicate": safetensors(b'{"a":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]},"a":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]}}'),
}  # fmt: skip
HF_CONFIGS = {
    "auto_map": {"auto_map": {"AutoModelForCausalLM": "evil.Evil"}},
    "remote code": {"trust_remote_code": True},
    "pipelines": {"custom_pipelines": {"a": {"impl": "evil.Evil"}}},
    "huge": {"n_embd": 2**30, "n_inner": 2**30},
    "layers": {"n_layer": 2**30},
}
TOKENIZERS: dict[str, Any] = {
    "merges": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}},
    "vocabulary": {"model": {"type": "BPE", "vocab": {"a": 2**40}, "merges": []}},
    "regex": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}, "model": {}},
    "template": {
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}], "pair": []},
        "model": {},
    },
    "nothing": {},
}  # fmt: skip
EXTERNAL = (
    '<?xml version="1.0"?><!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]><tmx version="1.4">'
    '<header srclang="en"/><body><tu><tuv xml:lang="en"><seg>&x;</seg></tuv></tu></body></tmx>'
)


def cases(folder: Path) -> dict[str, list[str]]:
    """The malicious files, written into the folder, and the command that opens each."""
    commands: dict[str, list[str]] = {}
    for name, content in pickled_files().items():
        (folder / name).write_bytes(content)
        vectors = name.endswith((".kv", ".model", ".npz", ".npy", ".txt"))
        commands[f"pickle {name}"] = (
            ["vectors", "nearest", name, "king"] if vectors else ["import", name, "--out", "imported"]
        )
    for name, text in CONFIGS.items():
        (folder / name).write_text(text, "utf-8")
        commands[f"config {name}"] = ["check", name]
    for name, content in WEIGHTS.items():
        run = shutil.copytree(folder / "lstm", folder / f"weights {name}")
        (run / "model.safetensors").write_bytes(content)
        commands[f"weights {name}"] = ["score", str(run), "the king"]
    for name, changes in HF_CONFIGS.items():
        theirs = shutil.copytree(folder / "gpt2", folder / f"theirs {name}")
        (theirs / "config.yaml").unlink()
        config = json.loads((theirs / "config.json").read_text("utf-8"))
        (theirs / "config.json").write_text(json.dumps({**config, **changes}), "utf-8")
        commands[f"checkpoint {name}"] = ["import", str(theirs), "--out", "imported"]
    for name, content in TOKENIZERS.items():
        run = shutil.copytree(folder / "gpt", folder / f"tokenizer {name}")
        (run / "tokenizer.json").write_text(json.dumps(content), "utf-8")
        commands[f"tokenizer {name}"] = ["generate", str(run), "a", "--max-tokens", "2"]
    index = shutil.copytree(folder / "gpt2", folder / "theirs index")
    (index / "model.safetensors").unlink()
    (index / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"w": "../lstm/model.safetensors"}}), "utf-8"
    )
    commands["index that leaves its folder"] = ["import", str(index), "--out", "imported"]
    (folder / "external.tmx").write_text(EXTERNAL, "utf-8")
    commands["TMX with an external entity"] = [
        "translate",
        "transformer",
        "--file",
        "external.tmx",
        "--target-lang",
        "fr",
        "--out",
        "x.tmx",
    ]
    endless = shutil.copytree(folder / "gpt", folder / "endless")
    (endless / "tokenizer.json").unlink()
    (endless / "tokenizer.json").symlink_to("/dev/zero")
    commands["tokenizer that never ends"] = ["generate", "endless", "a"]
    commands["data that never ends"] = ["train", "gpt", *TINY, *QUICK, "--data", "/dev/zero", "--out", "out"]
    return commands  # fmt: skip


def attack(seed: int, amount: float) -> list[Count]:
    limit_memory()
    failures = []
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="seqloom-malicious-") as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        folder = Path(name) / "here"
        folder.mkdir()
        build(folder)
        os.chdir(folder)
        try:
            commands = cases(folder)
            for case, words in commands.items():
                ended = run_command(words)
                if ended.problem:
                    failures.append(f"{case}: {ended.problem[:300]}")
                elif ended.code != 2:
                    failures.append(f"{case}: ended with {ended.code}, not refused: {ended.err[-200:]}")
                if (folder / CANARY).exists():
                    failures.append(f"{case}: its code ran")
                    (folder / CANARY).rmdir()
        finally:
            os.chdir(before)
    return [Count("R19", "malicious files", len(commands), failures)]
