"""Readers of chats: every form gives the same messages; a wrong file is one clear line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqloom.data import show
from seqloom.errors import DataError
from seqloom.text.chat_records import Message, prompt_of
from seqloom.text.chats import Chats, Judged, Preferences
from seqloom.text.split import record_keys

HELLO = [Message("user", "Hello"), Message("assistant", "Good day")]
FORMS = {
    "messages": {
        "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]
    },
    "parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
            {"role": "assistant", "content": "Good day"},
        ]
    },
    "sharegpt": {
        "conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Good day"}]
    },
    "alpaca": {"instruction": "Hello", "input": "", "output": "Good day"},
    "completion": {"prompt": "Hello", "completion": "Good day"},
    "trl": {
        "prompt": [{"role": "user", "content": "Hello"}],
        "completion": [{"role": "assistant", "content": "Good day"}],
    },
}
PREFERENCES = {
    "texts": {"prompt": "Hello", "chosen": "Good day", "rejected": "Go away"},
    "alpaca": {
        "instruction": "Hello",
        "input": "",
        "output": "x",
        "chosen": "Good day",
        "rejected": "Go away",
    },
    "answers": {
        "prompt": [{"role": "user", "content": "Hello"}],
        "chosen": [{"role": "assistant", "content": "Good day"}],
        "rejected": [{"role": "assistant", "content": "Go away"}],
    },
    "chats": {
        "chosen": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}],
        "rejected": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Go away"}],
    },
    "prompt and chats": {
        "prompt": "Hello",
        "chosen": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}],
        "rejected": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Go away"}],
    },
    "turns": {
        "chosen": "\n\nHuman: Hello\n\nAssistant: Good day",
        "rejected": "\n\nHuman: Hello\n\nAssistant: Go away",
    },
    "openai": {
        "input": {"messages": [{"role": "user", "content": "Hello"}]},
        "preferred_output": [{"role": "assistant", "content": "Good day"}],
        "non_preferred_output": [{"role": "assistant", "content": "Go away"}],
    },
}


def write(path: Path, *records: object, array: bool = False) -> str:
    text = json.dumps(list(records), indent=2) if array else "\n".join(map(json.dumps, records)) + "\n"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_chat(tmp_path: Path, form: str, array: bool) -> None:
    path = write(tmp_path / "chats.json", FORMS[form], FORMS[form], array=array)
    assert list(Chats([path])) == [(HELLO,), (HELLO,)]
    assert show(path).form == "chats"


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("form", PREFERENCES)
def test_every_form_gives_the_same_preference(tmp_path: Path, form: str, array: bool) -> None:
    path = write(tmp_path / "preferences.json", PREFERENCES[form], array=array)
    assert list(Preferences([path])) == [(HELLO, [HELLO[0], Message("assistant", "Go away")])]
    assert show(path).form == "preferences"


def test_an_instruction_with_an_input_and_a_history(tmp_path: Path) -> None:
    record = {
        "instruction": "Add.",
        "input": "1 2",
        "output": "3",
        "system": "Be brief.",
        "history": [["Hi", "Ho"]],
    }
    [(chat,)] = Chats([write(tmp_path / "a.jsonl", record)])
    assert chat == [
        Message("system", "Be brief."),
        Message("user", "Hi"),
        Message("assistant", "Ho"),
        Message("user", "Add.\n\n1 2"),
        Message("assistant", "3"),
    ]


def test_plain_turns(tmp_path: Path) -> None:
    path = tmp_path / "turns.txt"
    path.write_text("User: Hello\nAssistant: Good\nday\n\nHuman: And\n\nAssistant: so on\n", encoding="utf-8")
    reader = Chats([path])
    chats = [(chat, reader.location) for (chat,) in reader]
    assert chats[0] == ([HELLO[0], Message("assistant", "Good\nday")], f"{path}:1")
    assert chats[1] == ([Message("user", "And"), Message("assistant", "so on")], f"{path}:5")
    assert show(path).form == "chats"


def test_judged_answers(tmp_path: Path) -> None:
    records = [
        {"messages": [{"role": "user", "content": "Hello"}], "completion": "Good day", "label": True},
        {"prompt": "Hello", "completion": "Go away", "label": False},
        {"messages": [], "completion": "Welcome", "label": True},
    ]
    path = write(tmp_path / "judged.jsonl", *records)
    assert list(Judged([path])) == [
        (HELLO, "true"),
        ([HELLO[0], Message("assistant", "Go away")], "false"),
        ([Message("assistant", "Welcome")], "true"),
    ]
    assert show(path).labels == {"true": 2, "false": 1}


def test_weight_and_system(tmp_path: Path) -> None:
    record = {
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}]
    }
    [(chat,)] = Chats([write(tmp_path / "a.jsonl", record)], system="Be kind.")
    assert chat == [Message("system", "Be kind."), Message("user", "a"), Message("assistant", "b", 0)]


def test_chats_with_one_prompt_are_on_one_side(tmp_path: Path) -> None:
    other = {"prompt": "Hello", "completion": "Something else"}
    path = write(tmp_path / "a.jsonl", FORMS["alpaca"], other, {"prompt": "Bye", "completion": "Good day"})
    keys = record_keys(Chats([path]))
    assert keys[0] == keys[1] != keys[2]
    assert prompt_of(HELLO) == HELLO[:1]


WRONG = {
    "not JSON": ("{oops\n", "a.jsonl:1: not JSON"),
    "role": (
        '{"messages": [{"role": "wizard", "content": "x"}]}',
        "message 1 has the role 'wizard'; choose from",
    ),
    "content": ('{"messages": [{"role": "user", "content": 3}]}', "'content' is int, not text"),
    "image": (
        '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
        "a part of type 'image_url'; only text is read",
    ),
    "tool call": (
        '{"messages": [{"role": "assistant", "content": null, "tool_calls": [1]}]}',
        "calls a tool and has no content",
    ),
    "no messages": ('{"messages": []}', "a chat without messages"),
    "dict": ('{"messages": {}}', "messages are a list"),
    "fields": ('{"foo": 1}', "no chat among the fields 'foo'"),
    "surrogate": ('{"prompt": "\\ud800", "completion": "b"}', "half a surrogate pair"),
    "reserved": ('{"prompt": "\\ufdd0", "completion": "b"}', "U+FDD0"),
    "weight": ('{"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]}', "a weight is 0 or 1"),
    "deep": ('{"messages": ' + "[" * 100_000, "a.jsonl:1: not JSON"),
    "array": ('[{"prompt": "a", "completion": "b"} {"prompt"', "',' is missing before it"),
    "cut": ('[{"prompt": "a", "completion": "b"}, {"prompt"', "item 2: not JSON, or the file ends inside it"),
    "number": ("[1, 2]", "item 1: a int, not an object"),
    "turns": ("Hello there\nUser: x\n", "a turn begins with User: or Assistant:"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_one_line(tmp_path: Path, name: str) -> None:
    text, message = WRONG[name]
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as error:
        list(Chats([path]))
    assert message in str(error.value) and "a.jsonl" in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_wrong_preferences_are_one_line(tmp_path: Path) -> None:
    for record, message in [
        ({"prompt": "a", "chosen": "b"}, "no 'rejected'"),
        ({"chosen": [{"role": "user", "content": "a"}], "rejected": "b"}, "different prompts"),
        (
            {
                "prompt": "a",
                "chosen": [{"role": "user", "content": "b"}],
                "rejected": [{"role": "user", "content": "b"}],
            },
            "'chosen' does not end",
        ),
    ]:
        with pytest.raises(DataError, match=message):
            list(Preferences([write(tmp_path / "a.jsonl", record)]))


@pytest.mark.data
def test_the_real_files(real_data: Path) -> None:
    for folder, form, records in [
        ("instruction/instruction-data.json.gz", "chats", 1100),
        ("preference/instruction-data-with-preference.json.gz", "preferences", 1100),
        ("taskmaster/train.jsonl.gz", "chats", 3242),
        ("taskmaster/reward.train.jsonl.gz", "judged", 2833),
    ]:
        summary = show(real_data / folder)
        assert (summary.form, summary.records) == (form, records)
