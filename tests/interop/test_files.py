"""Files of llama2.c, nanoGPT and letters to phonemes, each against an independent reading of the same numbers."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models

from seqloom.decoding import DecodingPlan, Greedy, generate_batch
from seqloom.inference.completion import complete
from seqloom.interop import export_checkpoint, import_checkpoint
from support.hf_folders import Trap

STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball."


# llama2.c


@pytest.fixture(scope="module")
def stories(real_data: Path, tmp_path_factory):
    return import_checkpoint(
        real_data / "weights" / "stories260K" / "stories260K.bin", tmp_path_factory.mktemp("runs") / "stories"
    )


@pytest.mark.data
def test_llama2c_generates_the_reference_story(stories):
    """The ids of a prompt equal the reference's: <s>, then the pieces."""
    assert complete(stories, [""], DecodingPlan(max_tokens=80))[0][0].text.strip().startswith(STORY)
    ids, _ = stories.encode(["Once upon a time"], as_prompt=True)
    assert ids[0].tolist() == [1, 403, 407, 261, 378]
    assert stories.decode(ids[0].tolist()).strip() == "Once upon a time"


@pytest.mark.data
def test_llama2c_exports_to_transformers_with_the_same_logits(stories, tmp_path):
    """Rotary pairs are halves in transformers and interleaved here: the export converts them."""
    export_checkpoint(stories, tmp_path / "out")
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids = torch.randint(3, 512, (2, 30), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(stories.model(ids)[0], theirs(ids).logits, rtol=1e-4, atol=1e-4)
    text = "Lily's cat saw 3 dogs;\nthen it ran."
    assert (
        transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(text)["input_ids"]
        == stories.encode([text], as_prompt=True)[0][0].tolist()
    )


@pytest.mark.data
def test_llama2c_with_and_without_a_cache_for_every_split(stories):
    ids, _ = stories.encode(["Once upon a time, there was a dog"], as_prompt=True)
    whole = generate_batch(stories.model, ids, sampler=Greedy(), max_tokens=30, stop_ids=())[0].ids
    read = ids[0].tolist()
    with torch.inference_mode():
        for _ in range(30):
            read.append(int(stories.model(torch.tensor([read]))[0][0, -1].argmax()))
        assert read[ids.shape[1] :] == whole
        for cut in range(1, ids.shape[1]):
            _, state = stories.model.features(ids[:, :cut])
            assert (
                generate_batch(
                    stories.model, ids[:, cut:], state, sampler=Greedy(), max_tokens=30, stop_ids=()
                )[0].ids
                == whole
            )


def tiny_llama(path: Path, tied: bool = True, sizes=(8, 12, 2, 2, 1, 20, 16)) -> None:
    dim, inner, layers, heads, groups, vocabulary, context = sizes
    size = dim // heads
    count = (
        vocabulary * dim
        + layers * (2 * dim + 2 * dim * dim + 2 * groups * size * dim + 3 * inner * dim)
        + dim
        + context * size
    )
    count += 0 if tied else vocabulary * dim
    numbers = np.random.default_rng(0).normal(size=count).astype("<f4")
    path.write_bytes(
        struct.pack("<7i", *sizes[:5], vocabulary if tied else -vocabulary, context) + numbers.tobytes()
    )
    pieces = [b"<unk>", b"<s>", b"</s>", *(bytes([97 + index]) for index in range(vocabulary - 3))]
    path.with_name("tok.bin").write_bytes(
        struct.pack("<i", 5) + b"".join(struct.pack("<fi", 0.0, len(piece)) + piece for piece in pieces)
    )


def test_llama2c_with_an_untied_output(tmp_path):
    tiny_llama(tmp_path / "m.bin", tied=False)
    run = import_checkpoint(tmp_path / "m.bin", tmp_path / "run")
    assert run.model.output.table is not run.model.embedding.table
    last = np.frombuffer((tmp_path / "m.bin").read_bytes()[-20 * 8 * 4 :], "<f4").reshape(20, 8)
    np.testing.assert_array_equal(run.model.output.table.detach().numpy(), last)


@pytest.mark.parametrize(
    "corrupt, message",
    [
        (lambda data: data[:-4], "cut short"),
        (lambda data: data + b"1234", "cut short"),
        (lambda data: data[:20], "too few"),
        (
            lambda data: struct.pack("<7i", 2**30, 2**30, 2**30, 1, 1, 2**30, 1) + data[28:],
            "no model has the sizes",
        ),
        (lambda data: struct.pack("<7i", 0, 12, 2, 2, 1, 20, 16) + data[28:], "no model has the sizes"),
        (lambda data: struct.pack("<7i", 2**19, 2**19, 2**19, 2, 1, 2**19, 2**19) + data[28:], "cut short"),
        (lambda data: b"24ka" + data[4:], "later version"),
        (lambda data: data[:28] + struct.pack("<f", float("nan")) + data[32:], "NaN"),
    ],
)
def test_a_corrupt_llama2c_file_is_an_error_of_one_line(tmp_path, corrupt, message):
    tiny_llama(tmp_path / "m.bin")
    (tmp_path / "m.bin").write_bytes(corrupt((tmp_path / "m.bin").read_bytes()))
    with pytest.raises(ValueError, match=message):
        import_checkpoint(tmp_path / "m.bin", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_corrupt_llama2c_tokenizer_is_an_error_of_one_line(tmp_path):
    tiny_llama(tmp_path / "m.bin")
    data = (tmp_path / "tok.bin").read_bytes()
    for spoilt in (
        data[:-1],
        data + b"x",
        b"",
        data[:4] + struct.pack("<fi", 0.0, -5) + data[12:],
        data[:4] + struct.pack("<fi", 0, 2**31 - 1),
    ):
        (tmp_path / "tok.bin").write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"not a tokenizer of llama2\.c"):
            import_checkpoint(tmp_path / "m.bin", tmp_path / "run")
    (tmp_path / "tok.bin").unlink()
    with pytest.raises(ValueError, match="--tokenizer"):
        import_checkpoint(tmp_path / "m.bin", tmp_path / "run")


# Letters to phonemes


@pytest.fixture(scope="module")
def speaker(real_data: Path, tmp_path_factory):
    return import_checkpoint(
        real_data / "weights" / "g2p_en_gru" / "checkpoint20.npz", tmp_path_factory.mktemp("runs") / "g2p"
    )


@pytest.mark.data
def test_g2p_pronounces_attention(speaker):
    words = ["attention", "translation", "phoneme", "a", "lengthening"]
    together = [found[0].text for found in complete(speaker, words, DecodingPlan(max_tokens=20))]
    assert together[0] == "AH0 T EH1 N SH AH0 N"
    assert together == [complete(speaker, [word], DecodingPlan(max_tokens=20))[0][0].text for word in words]


@pytest.mark.data
def test_g2p_equals_a_loop_in_numpy(speaker, real_data):
    """Every word of a list, by the equations of torch's GRU as a loop."""
    arrays = dict(np.load(real_data / "weights" / "g2p_en_gru" / "checkpoint20.npz", allow_pickle=False))
    from seqloom.interop.g2p import PHONEMES

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def step(x, h, side):
        a, b = (arrays[f"{side}_w_{k}h"] @ v + arrays[f"{side}_b_{k}h"] for k, v in (("i", x), ("h", h)))
        (ar, az, an), (br, bz, bn) = np.split(a, 3), np.split(b, 3)
        r, z = sigmoid(ar + br), sigmoid(az + bz)
        return (1 - z) * np.tanh(an + r * bn) + z * h

    def say(word):
        h = np.zeros(256)
        for letter in [*(ord(c) - 97 + 3 for c in word), 2]:
            h = step(arrays["enc_emb"][letter], h, "enc")
        said, last = [], 2
        while len(said) < 20:
            h = step(arrays["dec_emb"][last], h, "dec")
            last = int((arrays["fc_w"] @ h + arrays["fc_b"]).argmax())
            if last == 3:
                break
            said.append(PHONEMES[last - 4])
        return " ".join(said)

    words = ["attention", "xylophone", "zymurgy", "recurrent", "qwerty", "sequence", "loom"]
    assert [found[0].text for found in complete(speaker, words, DecodingPlan(max_tokens=20))] == [
        say(word) for word in words
    ]


def test_another_npz_file_is_an_error(tmp_path):
    np.savez(tmp_path / "a.npz", enc_emb=np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"it has no enc_w_ih"):
        import_checkpoint(tmp_path / "a.npz", tmp_path / "run")
    np.savez(tmp_path / "b.npz", enc_emb=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="not a checkpoint of letters"):
        import_checkpoint(tmp_path / "b.npz", tmp_path / "run")
    (tmp_path / "c.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ValueError, match="not a checkpoint of letters"):
        import_checkpoint(tmp_path / "c.npz", tmp_path / "run")


def test_pickled_arrays_are_never_opened(tmp_path):
    names = [
        f"{side}_{key}" for side in ("enc", "dec") for key in ("emb", "w_ih", "w_hh", "b_ih", "b_hh")
    ] + ["fc_w", "fc_b"]
    np.savez(tmp_path / "a.npz", **{name: np.array([Trap(tmp_path / "ran")], dtype=object) for name in names})
    with pytest.raises(ValueError, match="not a checkpoint of letters"):
        import_checkpoint(tmp_path / "a.npz", tmp_path / "run")
    assert not (tmp_path / "ran").exists()


# nanoGPT


class Nano(torch.nn.Module):
    """nanoGPT's model, written from its equations, which saves checkpoints."""

    def __init__(self, vocabulary=20, dim=16, layers=2, heads=2, length=12, bias=False):
        super().__init__()
        self.heads = heads
        linear = lambda a, b: torch.nn.Linear(a, b, bias)  # noqa: E731
        norm = lambda: torch.nn.LayerNorm(dim, bias=bias)  # noqa: E731
        blocks = [
            torch.nn.ModuleDict(
                {
                    "ln_1": norm(),
                    "attn": torch.nn.ModuleDict({"c_attn": linear(dim, 3 * dim), "c_proj": linear(dim, dim)}),
                    "ln_2": norm(),
                    "mlp": torch.nn.ModuleDict(
                        {"c_fc": linear(dim, 4 * dim), "c_proj": linear(4 * dim, dim)}
                    ),
                }
            )
            for _ in range(layers)
        ]
        self.transformer = torch.nn.ModuleDict(
            {
                "wte": torch.nn.Embedding(vocabulary, dim),
                "wpe": torch.nn.Embedding(length, dim),
                "h": torch.nn.ModuleList(blocks),
                "ln_f": norm(),
            }
        )
        self.lm_head = torch.nn.Linear(dim, vocabulary, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, ids):
        t = self.transformer
        x = t["wte"](ids) + t["wpe"](torch.arange(ids.shape[1]))
        for block in t["h"]:
            q, k, v = (
                one.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for one in block["attn"]["c_attn"](block["ln_1"](x)).chunk(3, -1)
            )
            y = (
                torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                .transpose(1, 2)
                .flatten(2)
            )
            x = x + block["attn"]["c_proj"](y)
            x = x + block["mlp"]["c_proj"](torch.nn.functional.gelu(block["mlp"]["c_fc"](block["ln_2"](x))))
        return self.lm_head(t["ln_f"](x))


def nano(path: Path, bias: bool = False, prefix: str = "_orig_mod.") -> Nano:
    """A checkpoint as nanoGPT's train.py saves it, and a tokenizer of characters beside it."""
    torch.manual_seed(0)
    model = Nano(bias=bias)
    args = {
        "n_layer": 2,
        "n_head": 2,
        "n_embd": 16,
        "block_size": 12,
        "bias": bias,
        "vocab_size": 20,
        "dropout": 0.0,
    }
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 3, dtype=torch.int64)).sum().backward()
    optimizer.step()
    state = {f"{prefix}{name}": weight for name, weight in model.state_dict().items()}
    saved = {
        "model": state,
        "optimizer": optimizer.state_dict(),
        "model_args": args,
        "iter_num": 7,
        "best_val_loss": torch.tensor(1.5),
    }
    torch.save({**saved, "config": {"learning_rate": 6e-4, "compile": True, "dataset": "shakespeare"}}, path)
    letters = {character: index for index, character in enumerate("\n abcdefghijklmnopqr")}
    Tokenizer(models.BPE(letters, [])).save(str(path.with_name("tokenizer.json")))
    return model


@pytest.mark.parametrize("bias", [False, True])
def test_nanogpt_has_the_same_logits(tmp_path, bias):
    theirs = nano(tmp_path / "ckpt.pt", bias)
    run = import_checkpoint(tmp_path / "ckpt.pt", tmp_path / "run", tmp_path / "tokenizer.json")
    ids = torch.randint(0, 20, (3, 12))
    with torch.no_grad():
        torch.testing.assert_close(run.model(ids)[0], theirs(ids), rtol=1e-5, atol=1e-5)
    assert (
        len(complete(run, ["abc"], DecodingPlan(max_tokens=30))[0][0].ids) == 30
    )  # a character tokenizer has no end token, and a newline is not one
    assert (
        json.loads((export_checkpoint(run, tmp_path / "out") / "config.json").read_text("utf-8"))[
            "model_type"
        ]
        == "gpt2"
    )
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, theirs(ids), rtol=1e-5, atol=1e-5)


def test_nanogpt_needs_its_tokenizer(tmp_path):
    nano(tmp_path / "ckpt.pt")
    with pytest.raises(ValueError, match=r"--tokenizer .* is pickled and is not opened"):
        import_checkpoint(tmp_path / "ckpt.pt", tmp_path / "run")


@pytest.mark.parametrize(
    "value, message",
    [
        (lambda path: {"model": Trap(path)}, "names __builtin__.getattr"),
        (
            lambda path: {"model_args": {}, "model": {"a": __import__("fractions").Fraction(1, 2)}},
            "names fractions.Fraction",
        ),
        (lambda path: [1, 2], "no model_args"),
        (
            lambda path: {"model_args": {"n_layer": 10**9, "n_embd": 16, "n_head": 2}, "model": {}},
            "its 0 tensors are too few",
        ),
        (lambda path: {"model_args": {"n_layer": float("nan"), "n_embd": 16}, "model": {}}, "n_layer is nan"),
        (
            lambda path: {"model_args": {}, "model": {"a": torch.zeros(3, dtype=torch.int64)}},
            "is not a matrix of floats",
        ),
        (
            lambda path: {"model_args": {}, "model": {"a": torch.zeros(3), "transformer.a": torch.zeros(3)}},
            "a is in it twice",
        ),
        (lambda path: {"model_args": {(1, 2): 3}, "model": {}}, "neither a string nor an integer"),
    ],
)
def test_a_hostile_torch_file_runs_nothing(tmp_path, value, message):
    nano(tmp_path / "good.pt")
    torch.save(value(tmp_path / "ran"), tmp_path / "ckpt.pt")
    with pytest.raises(ValueError, match=message):
        import_checkpoint(tmp_path / "ckpt.pt", tmp_path / "run", tmp_path / "tokenizer.json")
    assert not (tmp_path / "ran").exists() and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "program", [b"}](]]u.", b"K\x01K\x02a.", b"K\x01" + b"\x85q\x00h\x00h\x00\x86" * 64 + b"}h\x00K\x01s."]
)
def test_a_malformed_pickle_is_an_error_of_one_line(tmp_path, program):
    """A list filled as a dict, a number that is appended to, a deep nest of tuples as a key, whose hash takes for ever."""
    nano(tmp_path / "good.pt")
    with zipfile.ZipFile(tmp_path / "ckpt.pt", "w") as packed:
        packed.writestr("a/data.pkl", b"\x80\x02" + program)
    with pytest.raises(ValueError, match="cannot be read without running"):
        import_checkpoint(tmp_path / "ckpt.pt", tmp_path / "run", tmp_path / "tokenizer.json")


@pytest.mark.parametrize("field, value", [(6, 1), (8, 99)])
@pytest.mark.parametrize("name", ["ckpt.pt", "ckpt.npz"])
def test_an_encrypted_or_compressed_torch_file_is_an_error(tmp_path, name, field, value):
    nano(tmp_path / "good.pt")
    arrays = {
        f"{side}_{key}": np.zeros(3, np.float32)
        for side in ("enc", "dec")
        for key in ("emb", "w_ih", "w_hh", "b_ih", "b_hh")
    }
    np.savez(tmp_path / "good.npz", fc_w=np.zeros(3), fc_b=np.zeros(3), **arrays)
    data = bytearray((tmp_path / f"good{Path(name).suffix}").read_bytes())
    for mark, more in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        for place in [match.start() for match in re.finditer(re.escape(mark), bytes(data))]:
            data[place + field + more : place + field + more + 2] = value.to_bytes(2, "little")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=r"not a checkpoint of|cannot be read without"):
        import_checkpoint(
            tmp_path / name, tmp_path / "run", tmp_path / "tokenizer.json" if name == "ckpt.pt" else None
        )


def test_nanogpt_with_an_untied_output_is_an_error(tmp_path):
    nano(tmp_path / "ckpt.pt", prefix="")
    saved = torch.load(tmp_path / "ckpt.pt", weights_only=True)
    saved["model"]["lm_head.weight"] = saved["model"]["lm_head.weight"] + 1
    torch.save(saved, tmp_path / "ckpt.pt")
    with pytest.raises(ValueError, match=r"lm_head\.weight is not the same as wte\.weight"):
        import_checkpoint(tmp_path / "ckpt.pt", tmp_path / "run", tmp_path / "tokenizer.json")


def test_a_bare_pickle_is_not_opened(tmp_path):
    nano(tmp_path / "good.pt")
    torch.save({"model": Trap(tmp_path / "ran")}, tmp_path / "ckpt.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match="not a checkpoint of torch in its zip format"):
        import_checkpoint(tmp_path / "ckpt.pt", tmp_path / "run", tmp_path / "tokenizer.json")
    assert not (tmp_path / "ran").exists()


def test_a_truncated_torch_file_is_an_error_of_one_line(tmp_path):
    nano(tmp_path / "ckpt.pt")
    data = (tmp_path / "ckpt.pt").read_bytes()
    for cut in (len(data) // 2, 100, 0):
        (tmp_path / "cut.pt").write_bytes(data[:cut])
        with pytest.raises(ValueError, match="not a checkpoint of torch"):
            import_checkpoint(tmp_path / "cut.pt", tmp_path / "run", tmp_path / "tokenizer.json")


def test_tensors_equal_those_that_torch_loads(tmp_path):
    """Views, transposes, integers and shared storage included."""
    from seqloom.interop.torch_file import TorchFile

    base = torch.randn(6, 4)
    tree = {
        "a": base,
        "b": base.T,
        "c": base[2:4, 1:],
        "d": torch.arange(5),
        "e": torch.randn(3).bfloat16(),
        "f": torch.nn.Parameter(base[0]),
    }
    torch.save({**tree, "g": [True, None, 1.5, -7, 2**40, "é", ({},)]}, tmp_path / "a.pt")
    opened = TorchFile(tmp_path / "a.pt")
    for name, tensor in tree.items():
        assert torch.equal(opened.read(opened.value[name]), tensor), name
    assert opened.value["g"] == [True, None, 1.5, -7, 2**40, "é", ({},)]
    assert json.dumps(opened.value["g"])
