"""Mistakes in Python are one clear error: a model that did not run, changes that are no functions, texts that are no texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import seqloom
from seqloom.errors import ConfigError, DataError, UserError

HEAD = "stack.blocks.0.attention.head.0"
TEXT = "the old cat"


def test_a_model_that_did_not_run_inside_is_said(runs):
    run = runs("gpt")
    with (
        pytest.raises(ConfigError, match="run the model of this run inside it"),
        seqloom.change(run, {HEAD: torch.zeros_like}),
    ):
        pass
    with pytest.raises(ConfigError, match="run the model of this run inside it"), seqloom.capture(run):
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: None, "the change returns None instead of a tensor"),
        (lambda value: 0.0, "the change returns a float instead of a tensor"),
        (lambda value: value[..., :1], "keep the shape"),
        (lambda value: value.sum(), "keep the shape"),
        (torch.zeros(3), "the change is a Tensor instead of a function"),
        (None, "the change is None instead of a function"),
        (0.0, "the change is a float instead of a function"),
    ],
)
@pytest.mark.parametrize("name", [HEAD, "stack.blocks.0"])
def test_a_change_that_gives_no_new_value_is_said(runs, name: str, change, message: str):
    run = runs("gpt")
    ids, _ = run.encode([TEXT])
    with pytest.raises(ConfigError, match=message) as error, seqloom.change(run, {name: change}):
        run.model(ids)
    assert name in str(error.value)


@pytest.mark.parametrize("changes", [[HEAD], HEAD, torch.zeros_like, {3: torch.zeros_like}, None])
def test_changes_that_are_no_dict_of_names_are_said(runs, changes):
    with pytest.raises(ConfigError, match="give"), seqloom.change(runs("gpt"), changes):
        pass


def test_what_is_captured_are_names_of_a_run(runs):
    with (
        pytest.raises(ConfigError, match="a list instead of the name of a value"),
        seqloom.capture(runs("gpt"), ["stack.blocks.0"]),
    ):
        pass
    with pytest.raises(ConfigError, match="a str has no model"), seqloom.capture("runs/gpt"):
        pass


ONE_TEXT = {
    "attention": "gpt",
    "activations": "gpt",
    "trace": "gpt",
    "gates": "gru",
    "tokens": "gpt",
    "beam": "transformer",
    "read": "gpt",
}


@pytest.mark.parametrize("name", ONE_TEXT)
@pytest.mark.parametrize("text", [["a", "b"], 3, None, b"a"])
def test_a_text_that_is_none_is_said(runs, name: str, text):
    with pytest.raises(DataError, match=r"the text is (a list|an? \w+|None).*; give one text, as a str"):
        getattr(seqloom.inspect, name)(runs(ONE_TEXT[name]), text)


def test_other_texts_of_one_function_are_said(runs):
    with pytest.raises(DataError, match="the corrupted text is a list"):
        seqloom.inspect.patch(runs("gpt"), TEXT, [TEXT])
    with pytest.raises(DataError, match="the target is an int"):
        seqloom.inspect.attention(runs("transformer"), TEXT, 3)
    with pytest.raises(DataError, match="`why` is a list"):
        seqloom.inspect.beam(runs("transformer"), TEXT, ["tac"])
    with pytest.raises(DataError, match="the word is an int"):
        seqloom.inspect.contexts(runs("gpt"), 3, [TEXT, TEXT])


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        ("abc", ["a"], "the sources are of type str; give a list of texts"),
        (["a"], 3, "the targets are of type int; give a list of texts"),
        (["a"], [3], "target 1 is a int, not a str"),
        (["a", "b"], ["a"], "2 sources and 1 targets; give one target for each source"),
    ],
)
def test_sources_and_targets_of_an_alignment_are_lists(runs, sources, targets, message: str):
    with pytest.raises(UserError, match=message):
        seqloom.inspect.alignment(runs("transformer"), sources, targets)


def test_an_array_of_texts_is_a_list_of_texts(runs):
    texts = [TEXT, "a cat", "the cat", "a river"]
    gpt, found = runs("gpt"), np.array(texts)
    assert seqloom.inspect.geometry(gpt, found) == seqloom.inspect.geometry(gpt, texts)
    assert seqloom.inspect.heads(gpt, found).loss == seqloom.inspect.heads(gpt, texts).loss
    assert np.array_equal(
        seqloom.inspect.similarity(gpt, gpt, found).cka, seqloom.inspect.similarity(gpt, gpt, texts).cka
    )


MANY_TEXTS = ("heads", "gradients", "geometry", "similarity", "contexts", "coreference")


@pytest.mark.parametrize("name", MANY_TEXTS)
@pytest.mark.parametrize("texts", [TEXT, 3, None, [TEXT, 3], [[TEXT]] * 4])
def test_texts_that_are_no_list_of_texts_are_said(runs, name: str, texts):
    gpt = runs("gpt")
    first = {"similarity": (gpt, gpt), "contexts": (gpt, "cat"), "coreference": (runs("transformer"),)}
    with pytest.raises(UserError, match="give a list of texts"):
        getattr(seqloom.inspect, name)(*first.get(name, (gpt,)), texts)
