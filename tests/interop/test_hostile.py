"""Corrupt, truncated and hostile checkpoints: an error of one line, exit code 2, no code run, no files left."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from seqloom.cli import main
from support.hf_folders import KINDS, Trap, make


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    found = {}
    for kind in ("gpt2", "bert", "llama"):
        found[kind] = tmp_path_factory.mktemp(kind)
        make(kind, found[kind])
    return found


@pytest.fixture
def copy(checkpoints, tmp_path) -> Callable[[str], Path]:
    def copied(kind: str) -> Path:
        folder = tmp_path / "theirs"
        folder.mkdir()
        for file in checkpoints[kind].iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        return folder

    return copied


def refused(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> str:
    """The one line that the command prints."""
    with pytest.raises(SystemExit) as left:
        main(["import", str(folder), "--out", str(tmp_path / "run")])
    said = capfd.readouterr()
    assert left.value.code == 2 and said.out == ""
    assert said.err.count("\n") == 1 and len(said.err) < 600 and "Traceback" not in said.err, said.err
    assert not (tmp_path / "run").exists()
    return said.err


def change(path: Path, **values) -> None:
    said = json.loads(path.read_text("utf-8"))
    path.write_text(
        json.dumps({name: value for name, value in {**said, **values}.items() if value != "leave out"}),
        "utf-8",
    )


@pytest.mark.parametrize(
    "values, message",
    [
        ({"auto_map": {"AutoModelForCausalLM": "modeling_evil.Evil"}}, "auto_map names code"),
        ({"trust_remote_code": True}, "trust_remote_code names code"),
        ({"custom_pipelines": {"a": {"impl": "evil.Evil"}}}, "custom_pipelines names code"),
        ({"model_type": "evil"}, "models of type 'evil' cannot be read"),
        ({"model_type": ["gpt2"]}, "cannot be read"),
        ({"model_type": "leave out"}, "cannot be read"),
        ({"n_embd": float("nan")}, "n_embd is nan"),
        ({"n_embd": 10**30}, "n_embd is 1000"),
        ({"n_embd": -4}, "n_embd is -4"),
        ({"n_embd": 0}, "n_embd is 0"),
        ({"n_embd": "64"}, "n_embd is 64"),
        ({"n_embd": True}, "n_embd is True"),
        ({"n_embd": 2**30, "n_inner": 2**30}, "too large for any tensor"),
        ({"n_embd": 2**14, "n_inner": 2**14}, "has shape"),
        ({"n_embd": 33}, "cannot be divided"),
        ({"n_layer": 2**30}, "tensors are too few for"),
        ({"n_layer": 1}, "has no place"),
        ({"n_layer": 3}, "is missing"),
        ({"vocab_size": 41}, "has shape"),
        ({"vocab_size": 3}, "the tokenizer has 21 tokens and the model only 3"),
        ({"n_positions": 2**30}, "has shape"),
        ({"layer_norm_epsilon": float("inf")}, "layer_norm_epsilon is inf"),
        ({"activation_function": "__import__('os')"}, "activation_function is __import__"),
        ({"scale_attn_by_inverse_layer_idx": True}, "only false can be read"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"eos_token_id": "<script>"}, "a token's id is expected"),
        ({"layer_norm_epsilon": 10**400}, "layer_norm_epsilon is 1000"),
        ({"n_layer": 9}, "too few for 9 layers"),
        ({"is_causal": False}, "only true can be read"),
        ({"num_attention_heads": 2}, "num_attention_heads is 2, but n_head, which means the same, is 4"),
    ],
)
def test_a_crafted_config(copy, tmp_path, capfd, values, message):
    folder = copy("gpt2")
    change(folder / "config.json", **values)
    assert message in refused(folder, tmp_path, capfd)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not valid JSON"),
        ("[1, 2]", "a JSON object is expected"),
        ("{" * 10, "not valid JSON"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": ' * 100_000, "nested too deep"),
        (" " * (17 << 20), "but at most 16,777,216 are read"),
        (b"\xff\xfe\x00", "not valid JSON"),
        ('{"model_type": "gpt2", "model_type": "llama"}', "'model_type' is in it twice"),
        ('{"n_embd": ' + "1" * 5000 + "}", "not valid JSON"),
    ],
)
def test_a_broken_config(copy, tmp_path, capfd, text, message):
    folder = copy("gpt2")
    (folder / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert message in refused(folder, tmp_path, capfd)


def test_code_beside_the_weights_is_not_run(copy, tmp_path, capfd):
    """A folder with code and a config that names it, and one with a modules.json that names a class."""
    folder = copy("gpt2")
    (folder / "modeling_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    change(folder / "config.json", auto_map={"AutoConfig": "modeling_evil.Config"})
    refused(folder, tmp_path, capfd)
    change(folder / "config.json", auto_map="leave out")
    (folder / "modules.json").write_text(json.dumps([{"type": "modeling_evil.Evil", "path": ""}]))
    main(["import", str(folder), "--out", str(tmp_path / "run")])
    assert not (tmp_path / "ran").exists()


def header(data: dict) -> bytes:
    text = json.dumps(data).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "corrupt, message",
    [
        (lambda data, trap: data[: len(data) // 2], "not an intact safetensors file"),
        (lambda data, trap: data[:5], "not an intact safetensors file"),
        (lambda data, trap: b"", "not an intact safetensors file"),
        (lambda data, trap: struct.pack("<Q", 2**63) + data[8:], "not an intact safetensors file"),
        (lambda data, trap: struct.pack("<Q", 200 << 20) + b" " * 100, "not an intact safetensors file"),
        (lambda data, trap: pickle.dumps(trap), "not an intact safetensors file"),
        (
            lambda data, trap: (
                header({"wte.weight": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}})
                + b"1234"
            ),
            "safetensors file",
        ),
        (
            lambda data, trap: (
                header({"wte.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}) + b"1234"
            ),
            "is missing",
        ),
        (
            lambda data, trap: (
                header({"wte.weight": {"dtype": "F32", "shape": [1], "data_offsets": [100, 104]}}) + b"1234"
            ),
            "safetensors file",
        ),
    ],
)
def test_corrupt_weights(copy, tmp_path, capfd, corrupt, message):
    folder = copy("gpt2")
    path = folder / "model.safetensors"
    change(folder / "config.json", n_layer=1)
    path.write_bytes(corrupt(path.read_bytes(), Trap(tmp_path / "ran")))
    found = refused(folder, tmp_path, capfd)
    assert message in found or "has shape" in found
    assert not (tmp_path / "ran").exists()


def alter(folder: Path, edit: Callable[[dict], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    "edit, message",
    [
        (lambda t: t.pop("transformer.h.1.mlp.c_fc.weight"), "the tensor h.1.mlp.c_fc.weight is missing"),
        (lambda t: t.update({"evil.weight": torch.zeros(3)}), "the tensor evil.weight has no place"),
        (
            lambda t: t.update({"transformer.wte.weight": torch.zeros(40, 31)}),
            "wte.weight has shape (40, 31)",
        ),
        (lambda t: t.update({"transformer.wte.weight": torch.full((40, 32), torch.nan)}), "holds NaN"),
        (
            lambda t: t.update({"transformer.wte.weight": torch.zeros(40, 32, dtype=torch.int64)}),
            "is stored as I64",
        ),
        (lambda t: t.update({"wte.weight": torch.zeros(40, 32)}), "are the same weight"),
    ],
)
def test_wrong_tensors(copy, tmp_path, capfd, edit, message):
    folder = copy("gpt2")
    alter(folder, edit)
    assert message in refused(folder, tmp_path, capfd)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl"])
def test_pickled_weights_are_not_opened(copy, tmp_path, capfd, name):
    folder = copy("gpt2")
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
    assert f"its weights are pickled ({name})" in refused(folder, tmp_path, capfd)
    assert not (tmp_path / "ran").exists()


def test_a_pickled_file_given_itself_is_not_opened(tmp_path, capfd):
    for name in ("pytorch_model.bin", "a.pkl", "a.pth", "a.pt", "a.bin"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
        refused(tmp_path / name, tmp_path, capfd)
    assert not (tmp_path / "ran").exists()


def test_no_weights_at_all(copy, tmp_path, capfd):
    folder = copy("gpt2")
    (folder / "model.safetensors").unlink()
    assert "no model.safetensors" in refused(folder, tmp_path, capfd)
    assert "no such file or folder" in refused(tmp_path / "nowhere", tmp_path, capfd)


@pytest.mark.parametrize(
    "index, message",
    [
        (
            {"weight_map": {"a": "../../outside.safetensors"}},
            "is not the name of a safetensors file beside it",
        ),
        ({"weight_map": {"a": "/etc/passwd"}}, "is not the name of a safetensors file beside it"),
        ({"weight_map": {"a": "..\\outside.safetensors"}}, "is not the name of a safetensors file beside it"),
        ({"weight_map": {"a": "evil.bin"}}, "is not the name of a safetensors file beside it"),
        ({"weight_map": {"a": "missing.safetensors"}}, "missing.safetensors is missing"),
        ({"weight_map": {"a": ["b"]}}, "no weight_map"),
        ({"weight_map": {}}, "no weight_map"),
        ({"weight_map": None}, "no weight_map"),
        (
            {"weight_map": {"a": "part.safetensors"}},
            "it says that a is in part.safetensors, but it is not there",
        ),
    ],
)
def test_a_crafted_index(copy, tmp_path, capfd, index, message):
    folder = copy("gpt2")
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    (tmp_path / "outside.safetensors").write_bytes((folder / "part.safetensors").read_bytes())
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert message in refused(folder, tmp_path, capfd)


def test_two_shards_with_the_same_tensor(copy, tmp_path, capfd):
    folder = copy("gpt2")
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    (folder / "b.safetensors").write_bytes((folder / "a.safetensors").read_bytes())
    names = list(load_file(folder / "a.safetensors"))
    named = {**dict.fromkeys(names, "a.safetensors"), names[0]: "b.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": named}))
    assert "is in a.safetensors too" in refused(folder, tmp_path, capfd)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not a tokenizer.json"),
        ("{}", "not a tokenizer.json"),
        ("[" * 100_000, "not a tokenizer.json"),
        (
            json.dumps(
                {
                    "version": "1.0",
                    "model": {"type": "WordLevel", "vocab": {"a": 7}, "unk_token": "a"},
                    "added_tokens": [],
                }
            ),
            "highest id is 7",
        ),
        (
            json.dumps(
                {
                    "version": "1.0",
                    "added_tokens": [],
                    "model": {
                        "type": "BPE",
                        "vocab": {"a": 0, "b": 1},
                        "merges": ["a b"],
                        "continuing_subword_prefix": "####",
                        "unk_token": None,
                    },
                }
            ),
            "not a tokenizer.json",
        ),
    ],
)
def test_a_crafted_tokenizer(copy, tmp_path, capfd, text, message):
    folder = copy("gpt2")
    (folder / "tokenizer.json").write_text(text)
    assert message in refused(folder, tmp_path, capfd)


def test_a_template_with_an_unknown_token(copy, tmp_path, capfd):
    folder = copy("bert")
    said = json.loads((folder / "tokenizer.json").read_text())
    piece = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    said["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [piece],
        "pair": [piece],
        "special_tokens": {},
    }
    (folder / "tokenizer.json").write_text(json.dumps(said))
    assert "not a tokenizer.json" in refused(folder, tmp_path, capfd)


def test_a_tokenizer_without_an_end(copy, tmp_path, capfd):
    folder = copy("gpt2")
    (folder / "tokenizer_config.json").unlink()
    change(folder / "config.json", bos_token_id=None, eos_token_id=None)
    assert "no token that begins or ends a text" in refused(folder, tmp_path, capfd)
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer.json" in refused(folder, tmp_path, capfd)


@pytest.mark.parametrize("kind", ["yarn", "dynamic", "longrope", {"a": 1}])
def test_an_unknown_rope_type(copy, tmp_path, capfd, kind):
    folder = copy("llama")
    change(folder / "config.json", rope_parameters={"rope_type": kind, "rope_theta": 10000.0, "factor": 2.0})
    assert "rotary angles of type" in refused(folder, tmp_path, capfd)


def test_an_existing_folder_is_not_changed(copy, tmp_path, capfd):
    folder = copy("gpt2")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(SystemExit):
        main(["import", str(folder), "--out", str(tmp_path / "run")])
    assert "exists and is not empty" in capfd.readouterr().err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    "kind, name, message",
    [
        ("gpt2", "lm_head.weight", "is not the same as wte.weight"),
        ("llama tied", "lm_head.weight", "is not the same as embed_tokens.weight"),
        ("bert", "cls.predictions.decoder.weight", "is not the same as embeddings.word_embeddings.weight"),
        ("bert", "cls.predictions.decoder.bias", "is not the same as cls.predictions.bias"),
        ("distilbert", "vocab_projector.weight", "is not the same as embeddings.word_embeddings.weight"),
        ("marian", "lm_head.weight", "is not the same as shared.weight"),
        ("marian", "model.encoder.embed_tokens.weight", "is not the same as shared.weight"),
        ("marian", "model.decoder.embed_tokens.weight", "is not the same as shared.weight"),
        ("marian", "model.encoder.embed_positions.weight", "is not the same as what is computed"),
    ],
)
@pytest.mark.parametrize("corrupt", ["another", "misshapen", "the same"])
def test_a_second_copy_of_a_tied_weight_must_be_equal(tmp_path, capfd, kind, name, message, corrupt):
    """transformers would use the second copy."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(
            KINDS, "llama tied", (*KINDS["llama"][:2], {**KINDS["llama"][2], "tie_word_embeddings": True})
        )
        theirs = make(kind, folder)
    capfd.readouterr()
    held = load_file(folder / "model.safetensors")
    copy = {**dict(theirs.named_parameters()), **theirs.state_dict()}[name].detach().clone()
    other = copy.clone()
    other[7] += 1
    held[name] = {"another": other, "misshapen": copy[1:], "the same": copy}[corrupt]
    save_file(
        {key: tensor.contiguous() for key, tensor in held.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    if corrupt == "the same":
        main(["import", str(folder), "--out", str(tmp_path / "run")])
    else:
        assert message in refused(folder, tmp_path, capfd)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_devices_and_pipes_are_not_read(copy, tmp_path, capfd, name, kind):
    folder = copy("gpt2")
    (folder / name).unlink()
    os.mkfifo(folder / name) if kind == "pipe" else (folder / name).symlink_to("/dev/zero")
    refused(folder, tmp_path, capfd)


def test_a_file_that_is_a_pipe_is_not_opened(tmp_path, capfd):
    for name in ("a.bin", "a.pt", "a.npz"):
        os.mkfifo(tmp_path / name)
        assert "no such file" in refused(tmp_path / name, tmp_path, capfd)


def with_parts(folder: Path, **parts) -> None:
    change(folder / "tokenizer.json", **parts)


@pytest.mark.parametrize(
    "parts, message",
    [
        (
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "Replace", "pattern": {"String": "l"}, "content": "ll"}] * 40,
                }
            },
            "too long",
        ),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": ""}, "content": "." * 3000}}, "too long"),
        (
            {
                "decoder": {
                    "type": "Sequence",
                    "decoders": [{"type": "Replace", "pattern": {"String": "l"}, "content": "ll"}] * 40,
                }
            },
            "too long",
        ),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA=="}}, "cut short"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////" + "/" * 395}}, "cut short"),
        (
            {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "CAAAAP///////////w=="}},
            "not a tokenizer.json",
        ),
        (
            {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2000]}},
            "the id 2000 but there are only 22",
        ),
    ],
)
def test_a_tokenizer_that_lengthens_text_without_end(copy, tmp_path, capfd, parts, message):
    folder = copy("bert")
    with_parts(folder, **parts)
    assert message in refused(folder, tmp_path, capfd)


def test_a_template_with_an_unknown_id(copy, tmp_path, capfd):
    folder = copy("bert")
    text = {"Sequence": {"id": "A", "type_id": 0}}
    table = {"[CLS]": {"id": "[CLS]", "ids": [5000], "tokens": ["[CLS]"]}}
    with_parts(
        folder,
        post_processor={
            "type": "TemplateProcessing",
            "single": [text],
            "pair": [text, text],
            "special_tokens": table,
        },
    )
    assert "the id 5000 but there are only 22" in refused(folder, tmp_path, capfd)


@pytest.mark.parametrize("token", ["[CLS]", "[SEP]"])
def test_an_encoder_needs_its_special_tokens(copy, tmp_path, capfd, token):
    folder = copy("bert")
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace(token, "[OTHER]"))
    (folder / "tokenizer_config.json").unlink(missing_ok=True)
    assert "it has no token that" in refused(folder, tmp_path, capfd)


def test_a_failed_import_removes_the_folders_it_created(copy, tmp_path, capfd, monkeypatch):
    """It also removes new parents; a folder that existed and was empty is empty again."""
    folder = copy("gpt2")
    monkeypatch.setattr(
        "seqloom.interop.import_run.load", lambda out: (_ for _ in ()).throw(ValueError("no"))
    )
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "new" / "deep" / "run", tmp_path / "empty"):
        with pytest.raises(SystemExit):
            main(["import", str(folder), "--out", str(out)])
    assert not (tmp_path / "new").exists() and list((tmp_path / "empty").iterdir()) == []


def test_a_shard_with_a_name_too_long(copy, tmp_path, capfd):
    folder = copy("gpt2")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "a" * 5000 + ".safetensors"}})
    )
    assert "is not the name of a safetensors file" in refused(folder, tmp_path, capfd)
