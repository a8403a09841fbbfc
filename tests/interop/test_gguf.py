"""GGUF: files come back as they were written, llama.cpp's own types are read, and a damaged file is one clear line."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import seqloom
from seqloom.errors import UserError
from seqloom.interop import export_checkpoint, gguf_files, import_checkpoint
from seqloom.interop.gguf_header import TYPES, GGUFHeader, TensorPlace, read_header
from seqloom.layouts.hf_folder import HFConfig
from seqloom.run import Run

gguf = pytest.importorskip("gguf")
GPT = (
    "model.stack.feedforward={type: FeedForward, activation: gelu_tanh}",
    "tokenizer={type: BPE, size: 300}",
)
SMALL = ("model.dim=32", "model.stack.heads=4", "model.stack.layers=2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("gguf")
    text = folder / "input.txt"
    text.write_text("the king sees the queen. 12 dogs run! où?\n" * 60, encoding="utf-8")
    made = {}
    for preset, changes in (("gpt", GPT), ("llama", ("model.stack.attention.kv_heads=2", GPT[1]))):
        made[preset] = seqloom.fit(
            preset, *SMALL, *changes, data=str(text), out=folder / preset, steps=2, progress=False
        )
    return made


def logits(run: Run) -> torch.Tensor:
    ids, _ = run.encode(["the queen sees 12 dogs"])
    with torch.no_grad():
        return run.model(ids)[0]


@pytest.mark.parametrize("preset", ["gpt", "llama"])
def test_a_file_comes_back_as_it_was(runs: dict[str, Run], preset: str, tmp_path: Path) -> None:
    path = export_checkpoint(runs[preset], tmp_path / "model.gguf", "gguf")
    back = import_checkpoint(path, tmp_path / "back")
    assert back.tokenizer.to_str() == runs[preset].tokenizer.to_str()
    # Rotary positions of a file are in halves, those of a run in pairs: the same sums in another order.
    assert torch.allclose(logits(back), logits(runs[preset]), atol=1e-6)
    again = export_checkpoint(back, tmp_path / "again.gguf", "gguf")
    first, second = (
        {tensor.name: tensor.data for tensor in gguf.GGUFReader(one).tensors} for one in (path, again)
    )
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("kind", "tolerance"), [("gguf-f16", 2e-3), ("gguf-q8_0", 3e-2)])
def test_fewer_bits_are_nearly_the_same(
    runs: dict[str, Run], kind: str, tolerance: float, tmp_path: Path
) -> None:
    path = export_checkpoint(runs["llama"], tmp_path / "model.gguf", kind)
    back = import_checkpoint(path, tmp_path / "back")
    difference = (logits(back) - logits(runs["llama"])).abs().max()
    assert 0 < difference < tolerance


@pytest.mark.parametrize("preset", ["gpt", "llama"])
def test_transformers_reads_our_file_to_the_same_logits(
    runs: dict[str, Run], preset: str, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    path = export_checkpoint(runs[preset], tmp_path / "model.gguf", "gguf")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).eval()
    ids, _ = runs[preset].encode(["the queen sees 12 dogs"])
    with torch.no_grad():
        assert torch.allclose(theirs(ids).logits, logits(runs[preset]), atol=1e-4)


def test_a_chat_template_comes_back(runs: dict[str, Run], tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.role + m.content }}{% endfor %}"
    (runs["llama"].folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    try:
        path = export_checkpoint(runs["llama"], tmp_path / "model.gguf", "gguf")
    finally:
        (runs["llama"].folder / "chat_template.jinja").unlink()
    back = import_checkpoint(path, tmp_path / "back")
    assert back.chat_template == template
    folder = export_checkpoint(back, tmp_path / "hf")
    assert import_checkpoint(folder, tmp_path / "again").chat_template == template


def test_the_lists_of_tokens_give_the_same_ids(tmp_path: Path) -> None:
    """Without tokenizer.json in the file, as llama.cpp writes it."""
    from tokenizers import Tokenizer

    from seqloom.interop import bpe_pieces, gguf_tokenizer

    pieces = bpe_pieces.byte_level_pieces("smollm")
    assert pieces is not None
    alphabet = sorted(
        {token for token, _ in pieces.pre_tokenize_str("héllo the 12 dogs, the")} | {"t", "h", "e", "Ġ"}
    )
    vocab = {
        token: index
        for index, token in enumerate(
            ["<|end|>", *sorted({char for word in alphabet for char in word}), "th", "the", "Ġthe"]
        )
    }
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
    expected: Tokenizer = bpe_pieces.byte_level_bpe(vocab, merges, pieces)
    bpe_pieces.add_special(expected, ["<|end|>"])
    values = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": list(vocab),
        "tokenizer.ggml.token_type": [3] + [1] * (len(vocab) - 1),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.eos_token_id": 0,
    }
    found = gguf_tokenizer.read(GGUFHeader(tmp_path / "x.gguf", values, {}))
    for text in ("the dogs, the the", "12<|end|>the"):
        assert found.encode(text).ids == expected.encode(text).ids
        assert found.decode(found.encode("the dogs").ids) == "the dogs"


@pytest.mark.parametrize(
    "name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "BF16"]
)
def test_the_types_of_tensors_have_the_sizes_of_the_package(name: str) -> None:
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    assert (name, block, size) == TYPES[gguf.GGMLQuantizationType[name].value]


@pytest.mark.parametrize("name", [name for name, _, _ in TYPES.values() if name not in ("F16", "F32")])
def test_every_type_is_dequantised_as_by_the_package(name: str, tmp_path: Path) -> None:
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    raw = np.random.default_rng(0).integers(0, 256, (4, 512 // block * size), dtype=np.uint8)
    path = tmp_path / "one.gguf"
    path.write_bytes(raw.tobytes())
    place = TensorPlace(name, (4, 512), 0, raw.size)
    source = GGUFHeader(path, {}, {"a": place})
    gguf_files.dequantize(source, {"a": ("b", "same")}, HFConfig({}, "x"), tmp_path / "out.safetensors")
    found = load_file(tmp_path / "out.safetensors")["b"]
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    assert found.shape == (4, 512) and np.array_equal(found, expected, equal_nan=True)


def text_bytes(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def setting(key: str, kind: int, value: bytes) -> bytes:
    return text_bytes(key) + struct.pack("<I", kind) + value


def header(tensors: int, settings: int, body: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, settings) + body


ARRAY = struct.pack("<IQ", 9, 2**60)
NESTED = b"".join(struct.pack("<IQ", 9, 1) for _ in range(10_000))
LLAMA = setting("general.architecture", 8, text_bytes("llama"))


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    shape = b"".join(struct.pack("<Q", size) for size in dims)
    return text_bytes(name) + struct.pack("<I", len(dims)) + shape + struct.pack("<IQ", kind, offset)


HOSTILE = {
    "empty": (b"", "does not begin with GGUF"),
    "other": (b"PK\x03\x04" + b"x" * 100, "does not begin with GGUF"),
    "magic only": (b"GGUF", "it ends inside the version"),
    "version": (header(0, 0, version=99), "version 99 of the format"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little-endian"),
    "49 bytes": (header(0, 1, setting("a", 9, ARRAY))[:49], "unknown type 9"),
    "many settings": (header(0, 2**63), "settings are more than"),
    "many tensors": (header(2**63, 0), "tensors are more than"),
    "long text": (header(0, 1, struct.pack("<Q", 2**62) + b"abc"), "it ends inside the name of a setting"),
    "long list": (header(0, 1, setting("a", 9, struct.pack("<IQ", 4, 2**60))), "numbers of a"),
    "long texts": (header(0, 1, setting("a", 9, struct.pack("<IQ", 8, 2**60))), "texts of a"),
    "nested": (header(0, 1, setting("a", 9, NESTED)), "list of the unknown type 9"),
    "unknown type": (header(0, 1, setting("a", 77, b"")), "unknown type 77"),
    "not UTF-8": (header(0, 1, struct.pack("<Q", 2) + b"\xff\xff"), "is not UTF-8"),
    "twice": (header(0, 2, LLAMA * 2), "is in it twice"),
    "alignment": (
        header(0, 1, setting("general.alignment", 4, struct.pack("<I", 3))),
        "general.alignment is 3",
    ),
    "dimensions": (header(1, 0, tensor("a", (1,) * 9)), "has 9 dimensions"),
    "huge tensor": (header(1, 0, tensor("a", (2**40, 2**40))), "it ends inside the tensor a"),
    "far tensor": (header(1, 0, tensor("a", (4,), 0, 2**60)), "it ends inside the tensor a"),
    "zero": (header(1, 0, tensor("a", (0, 4))), "does not fit F32"),
    "type": (header(1, 0, tensor("a", (4,), 99)), "has the type 99, which cannot be read"),
    "overlap": (header(2, 0, tensor("a", (4,)) + tensor("b", (4,))) + bytes(200), "overlap"),
    "same name": (
        header(2, 0, tensor("a", (4,)) + tensor("a", (4,))) + bytes(200),
        "the tensor 'a' is in it twice",
    ),
    "no architecture": (header(0, 0), "models of type 'None'"),
    "architecture": (
        header(0, 1, setting("general.architecture", 8, text_bytes("rwkv"))),
        "models of type 'rwkv' cannot be read; only llama, gpt2",
    ),
    "architecture is a number": (
        header(0, 1, setting("general.architecture", 4, struct.pack("<I", 3))),
        "general.architecture is a int",
    ),
    "no weights": (header(0, 1, LLAMA), "no token_embd.weight"),
    "strange tensor": (header(1, 1, LLAMA + tensor("surprise", (4,))) + bytes(200), "is none of a llama"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_line(name: str, tmp_path: Path) -> None:
    content, message = HOSTILE[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        import_checkpoint(path, tmp_path / "out")
    text = str(error.value)
    assert message in text and "model.gguf" in text and "\n" not in text and len(text) < 400
    assert not (tmp_path / "out").exists()


def test_every_truncation_is_one_line(runs: dict[str, Run], tmp_path: Path) -> None:
    whole = export_checkpoint(runs["llama"], tmp_path / "model.gguf", "gguf").read_bytes()
    rng = np.random.default_rng(0)
    cut = tmp_path / "cut.gguf"
    for size in [*rng.integers(0, len(whole), 60).tolist(), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(UserError) as error:
            import_checkpoint(cut, tmp_path / "out")
        assert "\n" not in str(error.value)


def test_a_changed_byte_never_hangs_or_crashes(runs: dict[str, Run], tmp_path: Path) -> None:
    whole = export_checkpoint(runs["llama"], tmp_path / "model.gguf", "gguf").read_bytes()
    end = min(tensor.offset for tensor in read_header(tmp_path / "model.gguf").tensors.values())
    rng = np.random.default_rng(1)
    changed = tmp_path / "changed.gguf"
    for _ in range(200):
        data = bytearray(whole)
        data[int(rng.integers(0, end))] ^= 1 << int(rng.integers(0, 8))
        changed.write_bytes(data)
        try:
            read_header(changed)
        except UserError as error:
            assert "\n" not in str(error)


def test_a_model_without_a_place_in_gguf_says_why(tmp_path: Path, runs: dict[str, Run]) -> None:
    with pytest.raises(UserError, match=r"ends with \.gguf"):
        export_checkpoint(runs["llama"], tmp_path / "model", "gguf")
    with pytest.raises(UserError, match="choose a format from huggingface"):
        export_checkpoint(runs["llama"], tmp_path / "model", "onnx")


@pytest.fixture
def smollm2() -> Path:
    place = os.environ.get("SEQLOOM_SMOLLM2")
    if not place or not Path(place).is_file():
        pytest.skip("needs SmolLM2-135M-Instruct as GGUF: set SEQLOOM_SMOLLM2 to the file")
    return Path(place)


@pytest.mark.data
def test_smollm2_gives_the_logits_of_transformers(smollm2: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = import_checkpoint(smollm2, tmp_path / "run")
    theirs = AutoModelForCausalLM.from_pretrained(
        smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert run.chat_template == tokenizer.chat_template
    ids, _ = run.encode([text])
    assert ids[0].tolist() == tokenizer(text, add_special_tokens=False).input_ids
    with torch.no_grad():
        difference = (run.model(ids)[0] - theirs(ids).logits).abs().max()
    assert difference < 1e-3
