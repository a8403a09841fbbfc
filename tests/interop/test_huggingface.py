"""Folders of the Hugging Face layout, read and written, compared with `transformers`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor

from seqloom.decoding import DecodingPlan, Greedy, generate_batch
from seqloom.inference.completion import complete
from seqloom.interop import export_checkpoint, import_checkpoint
from seqloom.run import Run, load
from support.hf_folders import BODIES, CAUSAL, KINDS, MASKED, SIZE, WORDS, make

IDS = torch.randint(5, 5 + len(WORDS) - 2, (3, 11), generator=torch.Generator().manual_seed(1))
LENGTHS = (11, 7, 1)
MASK = torch.arange(11) < torch.tensor(LENGTHS)[:, None]


@pytest.fixture(scope="module", params=list(KINDS))
def both(request, tmp_path_factory) -> tuple[str, torch.nn.Module, Run, Path]:
    """The model type, the model of transformers, our run, and the folder."""
    folder = tmp_path_factory.mktemp("theirs")
    theirs = make(request.param, folder)
    return request.param, theirs, import_checkpoint(folder, tmp_path_factory.mktemp("runs") / "run"), folder


def logits(kind: str, run: Run, ids: Tensor, mask: Tensor) -> Tensor:
    model = run.model
    if kind == "marian":
        first = torch.cat([torch.zeros(len(ids), 1, dtype=torch.int64), ids[:, :-1]], 1)
        return model(first, model.start(ids, mask), mask)[0]
    return model(ids, None, mask)[0]


def expected(kind: str, model: torch.nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    if kind == "marian":
        first = torch.cat([torch.zeros(len(ids), 1, dtype=torch.int64), ids[:, :-1]], 1)
        return model(input_ids=ids, attention_mask=mask.long(), decoder_input_ids=first).logits
    found = model(input_ids=ids, attention_mask=mask.long())
    if kind in BODIES:
        return found.last_hidden_state
    return found.prediction_logits if kind == "bert pairs" else found.logits


@torch.no_grad()
def test_logits_equal_those_of_transformers(both):
    kind, theirs, run, _ = both
    ours, wanted = logits(kind, run, IDS, MASK), expected(kind, theirs, IDS, MASK)
    torch.testing.assert_close(ours[MASK], wanted[MASK], rtol=1e-4, atol=1e-4)
    assert wanted[MASK].std() > 0.1  # the weights matter


@torch.no_grad()
def test_an_exported_folder_loads_in_transformers_with_the_same_logits(both, tmp_path):
    """Importing it again gives the same weights."""
    kind, theirs, run, _ = both
    written = json.loads((export_checkpoint(run, tmp_path / "out") / "config.json").read_text("utf-8"))
    assert written["model_type"] == kind.split()[0].replace("smollm2", "llama")
    again = type(theirs).from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(
        expected(kind, again, IDS, MASK)[MASK], expected(kind, theirs, IDS, MASK)[MASK], rtol=1e-5, atol=1e-5
    )
    back = import_checkpoint(tmp_path / "out", tmp_path / "run")
    assert back.specials == run.specials
    for name, weight in run.model.named_parameters():
        assert torch.equal(dict(back.model.named_parameters())[name], weight), name


@torch.no_grad()
def test_an_imported_run_loads_in_transformers(both):
    kind, theirs, run, _ = both
    again = type(theirs).from_pretrained(run.folder).eval()
    torch.testing.assert_close(
        expected(kind, again, IDS, MASK)[MASK], expected(kind, theirs, IDS, MASK)[MASK], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("exported", [True, False])
def test_token_ids_equal_those_of_transformers(both, exported, tmp_path):
    """Also for the tokenizer that we export; texts get the same special tokens."""
    kind, _, run, _ = both
    text = "the old king sees nothing and finds a river"
    if exported:
        export_checkpoint(run, tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out" if exported else run.folder)
    ids, _ = run.encode([text], as_prompt=run.model.continues)
    assert theirs(text)["input_ids"] == ids[0].tolist()
    assert theirs.decode(ids[0], skip_special_tokens=True).replace(" ", "") == run.decode(
        ids[0].tolist()
    ).replace(" ", "")
    if kind in MASKED + BODIES:
        assert ids[0, 0] == 2 and ids[0, -1] == 3 and theirs.mask_token_id == run.specials.mask == 4


@pytest.mark.parametrize("kind", CAUSAL)
def test_greedy_decoding_equals_transformers_and_decoding_without_a_cache(kind, tmp_path):
    """For every split of the prompt, and in a batch of unequal prompts."""
    theirs = make(kind, tmp_path / "theirs", seed=3)
    theirs.generation_config.eos_token_id = None  # neither stops at the end token
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    prompts = [IDS[row, :length] for row, length in enumerate(LENGTHS)]
    together = generate_batch(
        run.model, IDS, None, MASK, sampler=Greedy(), max_tokens=20, stop_ids=(), banned=()
    )
    for prompt, found in zip(prompts, together, strict=True):
        alone = generate_batch(
            run.model, prompt[None], sampler=Greedy(), max_tokens=20, stop_ids=(), banned=()
        )[0]
        options = transformers.GenerationConfig(
            max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        wanted = theirs.generate(
            prompt[None], attention_mask=torch.ones(1, len(prompt)), generation_config=options
        )
        assert found.ids == alone.ids == uncached(run, prompt, 20) == wanted[0, len(prompt) :].tolist()
        for cut in range(1, len(prompt)):
            with torch.inference_mode():
                _, state = run.model.features(prompt[None, :cut])
            split = generate_batch(
                run.model, prompt[None, cut:], state, sampler=Greedy(), max_tokens=20, stop_ids=(), banned=()
            )[0]
            assert split.ids == alone.ids


def uncached(run: Run, prompt: Tensor, length: int) -> list[int]:
    """Reads the full text again for each token."""
    ids = prompt.tolist()
    with torch.inference_mode():
        for _ in range(length):
            ids.append(int(run.model(torch.tensor([ids]))[0][0, -1].argmax()))
    return ids[len(prompt) :]


def test_marian_translates_greedily_like_transformers(tmp_path):
    """With a cache, without, alone and in a batch."""
    theirs = make("marian", tmp_path / "theirs", seed=5)
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    state = run.model.start(IDS, MASK)
    first = torch.zeros(3, 1, dtype=torch.int64)
    together = generate_batch(
        run.model, first, state, sampler=Greedy(), max_tokens=15, stop_ids=(3,), banned=(0,)
    )
    for row, length in enumerate(LENGTHS):
        source = IDS[row : row + 1, :length]
        begin = run.model.start(source)
        alone = generate_batch(
            run.model, first[:1], begin, sampler=Greedy(), max_tokens=15, stop_ids=(3,), banned=(0,)
        )[0]
        options = transformers.GenerationConfig(
            max_new_tokens=16,
            do_sample=False,
            num_beams=1,
            eos_token_id=3,
            pad_token_id=0,
            decoder_start_token_id=0,
            bad_words_ids=[[0]],
        )
        wanted = theirs.generate(source, attention_mask=torch.ones_like(source), generation_config=options)[
            0, 1:
        ].tolist()
        wanted = [token for token in wanted if token not in (0, 3)][
            :15
        ]  # transformers forces an end token at the maximum length
        slow: list[int] = []
        with torch.inference_mode():
            while len(slow) < 15:
                scores = run.model(torch.tensor([[0, *slow]]), run.model.start(source))[0][0, -1]
                scores[0] = -torch.inf
                if (token := int(scores.argmax())) == 3:
                    break
                slow.append(token)
        assert together[row].ids == alone.ids == slow == wanted


def test_a_run_generates_with_its_own_special_tokens(tmp_path):
    make("marian", tmp_path / "theirs", seed=5)
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    assert (run.specials.bos, run.specials.eos, run.specials.pad) == (0, 3, 0)
    found = complete(run, ["the old king", "a dog"], DecodingPlan(max_tokens=12))
    assert [len(one) for one in found] == [1, 1]
    assert not set(found[0][0].ids) & {0, 1, 3} and all(token < 4 + len(WORDS) for token in found[0][0].ids)
    again = load(tmp_path / "run")
    assert complete(again, ["a dog"], DecodingPlan(max_tokens=12))[0][0].ids == found[1][0].ids


def test_rows_without_a_token_are_kept_and_never_generated(tmp_path):
    theirs = make("gpt2", tmp_path / "theirs")
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    assert (
        len(run.model.embedding.table)
        == SIZE
        == len(theirs.transformer.wte.weight)
        > run.tokenizer.get_vocab_size()
    )
    with torch.no_grad():
        run.model.embedding.table[run.tokenizer.get_vocab_size() :] *= 100
    assert complete(run, ["the king"], DecodingPlan(max_tokens=10))[0][0].text


def test_shards_are_read_as_one(tmp_path):
    theirs = make("llama", tmp_path / "one")
    theirs.save_pretrained(tmp_path / "many", max_shard_size="10KB")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "many" / name).write_bytes((tmp_path / "one" / name).read_bytes())
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    whole, cut = (
        import_checkpoint(tmp_path / "one", tmp_path / "a"),
        import_checkpoint(tmp_path / "many", tmp_path / "b"),
    )
    for name, weight in whole.model.named_parameters():
        assert torch.equal(weight, dict(cut.model.named_parameters())[name])


def test_the_older_keys_of_rotary_angles(tmp_path):
    """rope_theta and rope_scaling, as in every Llama before 2025."""
    theirs = make("llama 3", tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    said = json.loads(path.read_text())
    rope = said.pop("rope_parameters")
    said |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    path.write_text(json.dumps(said))
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    with torch.no_grad():
        torch.testing.assert_close(
            logits("llama", run, IDS, MASK)[MASK],
            expected("llama", theirs, IDS, MASK)[MASK],
            rtol=1e-4,
            atol=1e-4,
        )


def test_half_precision_is_read_as_float32(tmp_path):
    theirs = make("llama", tmp_path / "theirs")
    theirs.to(torch.bfloat16).save_pretrained(tmp_path / "theirs")
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    assert run.model.embedding.table.dtype == torch.float32
    assert torch.equal(run.model.embedding.table, theirs.model.embed_tokens.weight.float())


@pytest.mark.parametrize(
    "kind, left_out, said",
    [
        (
            "llama",
            "rope_theta",
            {
                "rope_scaling": {"rope_type": "linear", "factor": 4.0},
                "rope_parameters": {"rope_type": "default"},
            },
        ),
        ("gpt2", "n_head", {"num_attention_heads": 2}),
    ],
)
@torch.no_grad()
def test_alternative_config_keys_are_read_as_transformers_reads_them(tmp_path, kind, left_out, said):
    """The older keys of rotary angles take precedence; a key may have its alternative name."""
    (tmp_path / "theirs").mkdir()
    make(kind, tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(
        json.dumps(
            {name: value for name, value in json.loads(path.read_text()).items() if name != left_out} | said
        )
    )
    theirs = getattr(transformers, KINDS[kind][0]).from_pretrained(tmp_path / "theirs").eval()
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    torch.testing.assert_close(run.model(IDS)[0], theirs(input_ids=IDS).logits, rtol=1e-4, atol=1e-4)


def test_a_missing_special_id_is_written_as_null(tmp_path):
    """Otherwise transformers would use its class's default."""
    (tmp_path / "theirs").mkdir()
    make("llama", tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "pad_token_id": None, "eos_token_id": None}))
    (tmp_path / "theirs" / "tokenizer_config.json").unlink()
    export_checkpoint(import_checkpoint(tmp_path / "theirs", tmp_path / "run"), tmp_path / "out")
    back = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert back.eos_token_id is None and back.pad_token_id is None and back.bos_token_id == 2


def test_tokenizer_config_decides_about_lower_case(tmp_path):
    """transformers follows tokenizer_config.json too where it differs from tokenizer.json."""
    (tmp_path / "theirs").mkdir()
    make("bert", tmp_path / "theirs")
    path = tmp_path / "theirs" / "tokenizer.json"
    said = json.loads(path.read_text())
    said["normalizer"] = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": False,
    }
    path.write_text(json.dumps(said))
    settings = tmp_path / "theirs" / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "do_lower_case": True}))
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    assert run.tokenizer.encode("The KING").ids == run.tokenizer.encode("the king").ids


@pytest.mark.parametrize("kind", ["BertProcessing", "RobertaProcessing"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_tokenizer_without_a_template_gets_one(tmp_path, kind, inside):
    (tmp_path / "theirs").mkdir()
    make("llama", tmp_path / "theirs")
    path = tmp_path / "theirs" / "tokenizer.json"
    said = json.loads(path.read_text())
    frame = {"type": kind, "sep": [said_token(said, 3), 3], "cls": [said_token(said, 2), 2]}
    frame |= {"trim_offsets": True, "add_prefix_space": False} if kind == "RobertaProcessing" else {}
    said["post_processor"] = {"type": "Sequence", "processors": [frame]} if inside else frame
    path.write_text(json.dumps(said))
    theirs = Tokenizer.from_file(str(path)).encode("the king").ids
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    assert run.tokenizer.encode("the king").ids == theirs and theirs[0] == 2 and theirs[-1] == 3
    assert run.specials.before == (2,) and run.specials.after == (3,)


def said_token(said: dict, index: int) -> str:
    known = {**said["model"]["vocab"], **{one["content"]: one["id"] for one in said["added_tokens"]}}
    return next(token for token, number in known.items() if number == index)
