"""Groups of prompts: their errors say what is wrong with the prompts or with which option."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqloom.batches import PromptGroups
from seqloom.errors import ConfigError
from seqloom.text.chats import Prompts
from seqloom.text.store import build
from seqloom.text.tokenizer import Characters


def groups(folder: Path, prompts: list[str], **options: int) -> PromptGroups:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), "utf-8")
    return PromptGroups(build(Prompts([str(path)]), Characters(["say hello"]), folder), **options)


def test_a_wrong_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"batches\.batch is 0: give"):
        groups(tmp_path, ["say hello"], batch=0)
    with pytest.raises(ConfigError, match=r"batches\.max_length is -1: give"):
        groups(tmp_path, ["say hello"], max_length=-1)


def test_long_prompts_are_left_out(tmp_path: Path) -> None:
    made = groups(tmp_path, ["say", "say hello"])
    short, long = sorted(len(made.prompts.row(number)) for number in range(2))
    assert len(groups(tmp_path, ["say", "say hello"], max_length=long - 1).index) == 1
    with pytest.raises(ConfigError, match=f"longer than batches.max_length={short - 1} tokens: raise it"):
        groups(tmp_path, ["say", "say hello"], max_length=short - 1)


def test_empty_prompts_are_not_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.batches.prompts.row_lengths", lambda column, index: 0 * index)
    with pytest.raises(ConfigError, match="every prompt is empty"):
        groups(tmp_path, ["say hello"])
