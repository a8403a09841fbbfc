"""What the options of a generation mean over the defaults of a run, and where a run keeps its defaults."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import GenerationConfig

from seqloom.decoding import Decoding, DecodingPlan, Greedy, RandomSampler
from seqloom.decoding.generation_config import (
    FILE,
    default_decoding,
    keep_generation_config,
    read_generation_config,
    write_generation_config,
)
from seqloom.decoding.options import LANGUAGE_MODEL, TRANSLATOR
from seqloom.errors import RunError

LM_PLAN = DecodingPlan(sampler=RandomSampler())
BEAM_PLAN = DecodingPlan(beam=5)


@pytest.mark.parametrize(
    "defaults, options, plan",
    [
        (LANGUAGE_MODEL, {}, LM_PLAN),
        (TRANSLATOR, {}, BEAM_PLAN),
        (LANGUAGE_MODEL, {"temperature": 0}, DecodingPlan()),
        (LANGUAGE_MODEL, {"top_p": 0.9}, DecodingPlan(sampler=RandomSampler(1.0, None, 0.9))),
        (LANGUAGE_MODEL, {"beam": 3}, DecodingPlan(beam=3)),
        (
            replace(LANGUAGE_MODEL, top_k=5, repetition_penalty=1.2),
            {"beam": 3, "n": 2},
            DecodingPlan(beam=3, n=2),
        ),
        (
            replace(LANGUAGE_MODEL, top_k=5, top_p=0.5, min_p=0.1),
            {"top_k": 0, "top_p": 1, "min_p": 0},
            LM_PLAN,
        ),
        (TRANSLATOR, {"beam": 1}, DecodingPlan()),
        (TRANSLATOR, {"temperature": 0}, DecodingPlan()),
        (
            TRANSLATOR,
            {"top_k": 3, "n": 4, "stop": "."},
            DecodingPlan(sampler=RandomSampler(1.0, 3), n=4, stop=(".",)),
        ),
        (TRANSLATOR, {"coverage_penalty": 0.2}, replace(BEAM_PLAN, coverage_penalty=0.2)),
        (TRANSLATOR, {"length_penalty": 1.0, "max_tokens": 9}, DecodingPlan(9, beam=5, length_penalty=1.0)),
    ],
)
def test_options_stand_over_the_defaults_of_a_run(
    defaults: Decoding, options: dict, plan: DecodingPlan
) -> None:
    assert Decoding().with_options(options).plan(defaults) == plan


@pytest.mark.parametrize(
    "options, message",
    [
        ({"beam": 3, "temperature": 0.5}, "does not sample: drop temperature"),
        ({"temperature": 0, "top_k": 3}, "temperature 0 is greedy"),
        ({"temperature": -1.0}, "above 0, or 0 for greedy"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"length_penalty": 1.0}, "length_penalty is for beam search"),
        ({"n": 2, "temperature": 0}, "one text, not 2"),
        ({"n": 3, "beam": 2}, "use a beam of 3"),
        ({"n": 0}, "at least 1 text"),
        ({"beam": 0}, "at least 1"),
        ({"max_tokens": 0}, "at least 1"),
        ({"beam": 2, "stop": "a"}, "neither repetition_penalty nor stop"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoding().with_options(options).plan(LANGUAGE_MODEL)


def test_the_options_of_other_libraries_are_answered_with_ours() -> None:
    for name, ours in (("max_new_tokens", "max_tokens"), ("num_beams", "beam"), ("length", "max_tokens")):
        with pytest.raises(TypeError, match=f"here it is {ours}"):
            Decoding().with_options({name: 3})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match="choose from max_tokens, temperature"):
        Decoding().with_options({"heat": 3})  # type: ignore[typeddict-unknown-key]


@pytest.mark.parametrize(
    "decoding",
    [
        LANGUAGE_MODEL,
        TRANSLATOR,
        replace(LANGUAGE_MODEL, temperature=0.0),
        replace(LANGUAGE_MODEL, top_k=40, top_p=0.9, min_p=0.05, temperature=0.7, repetition_penalty=1.1),
        replace(TRANSLATOR, beam=8, length_penalty=1.0, coverage_penalty=0.2, max_tokens=64),
    ],
)
def test_a_run_keeps_its_defaults_under_the_names_of_transformers(decoding: Decoding, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 3, "bos_token_id": None, "dim": 8}))
    write_generation_config(tmp_path, decoding)
    translates = decoding.searches
    assert read_generation_config(tmp_path, translates) == decoding
    theirs = GenerationConfig.from_pretrained(tmp_path)
    theirs.validate(strict=True)
    assert theirs.max_new_tokens == decoding.max_tokens and theirs.eos_token_id == 3
    assert theirs.num_beams == decoding.beam and theirs.do_sample == bool(decoding.temperature)
    assert theirs.repetition_penalty == decoding.repetition_penalty
    assert theirs.length_penalty == GenerationConfig(length_penalty=1.0).length_penalty  # not ours
    if decoding.temperature:
        assert theirs.temperature == decoding.temperature and theirs.top_k == (decoding.top_k or 0)
        assert theirs.top_p == (decoding.top_p or 1.0) and theirs.min_p == decoding.min_p


def test_a_file_of_another_program_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    def read(content: dict, translates: bool = False) -> Decoding:
        (tmp_path / FILE).write_text(json.dumps(content))
        return read_generation_config(tmp_path, translates)

    assert read({"_from_model_config": True, "eos_token_id": 50256}) == LANGUAGE_MODEL
    llama = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 4096}
    assert read(llama) == replace(LANGUAGE_MODEL, temperature=0.6, top_p=0.9)
    assert read({"do_sample": False}) == replace(LANGUAGE_MODEL, temperature=0.0)
    marian = {"num_beams": 6, "max_length": 512, "bad_words_ids": [[58100]], "length_penalty": 1.0}
    assert read(marian, True) == replace(TRANSLATOR, beam=6)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"temperature": "hot"}', '{"num_beams": 0}', '{"top_p": 7}', '{"seqloom": 3}']
)
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RunError, match=rf"{FILE}: .*; mend the file, or delete it"):
        read_generation_config(tmp_path, False)


def test_what_a_user_changed_stays(tmp_path: Path) -> None:
    write_generation_config(tmp_path, replace(TRANSLATOR, beam=2))
    keep_generation_config(tmp_path, tmp_path, True)
    assert read_generation_config(tmp_path, True).beam == 2
    (tmp_path / "other").mkdir()
    keep_generation_config(tmp_path, tmp_path / "other", True)
    assert (tmp_path / "other" / FILE).read_bytes() == (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).unlink()
    keep_generation_config(tmp_path, tmp_path, True)
    assert read_generation_config(tmp_path, True) == default_decoding(True)


def test_greedy_is_temperature_0() -> None:
    assert Decoding(temperature=0).plan().sampler == Greedy()
