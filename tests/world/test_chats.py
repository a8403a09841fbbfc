"""Chats about the world: answers can be checked, wrong ones are wrong, and every question occurs."""

from __future__ import annotations

from collections import Counter

import pytest

from seqloom import world
from seqloom.world.chats import BEGIN, KIND_OF, QUESTIONS


def test_answers_are_right_and_others_are_not() -> None:
    kinds: Counter[str] = Counter()
    for messages in world.chats(400, seed=1):
        for i in range(1, len(messages), 2):
            assert messages[i]["role"] == "assistant"
            assert world.is_right(messages[:i], messages[i]["content"])
            assert not world.is_right(messages[:i], messages[i]["content"] + " x")
            kinds[KIND_OF[messages[i - 1]["content"].rpartition("\n")[2]]] += 1
    assert set(kinds) == set(QUESTIONS) and min(kinds.values()) >= 5


def test_answers_known_by_hand() -> None:
    sentence = "The animal didn't cross the street because it was too wide."
    for question, answer in [
        ('What does "it" refer to?', "the street"),
        ("Which nouns are in it?", "animal, street"),
        ("Is the sentence negated?", "Yes."),
        ("How many words does it have?", "11"),
        ("How do you say that in French?", world.translate(sentence)),
    ]:
        prompt = [{"role": "user", "content": f"{BEGIN}{sentence}\n{question}"}]
        assert world.is_right(prompt, answer), question
    river = [
        {
            "role": "user",
            "content": f"{BEGIN}Two cats sleep on the bank of the river.\nWhat kind of bank is it?",
        }
    ]
    assert world.is_right(river, "the bank of a river") and not world.is_right(river, "a bank for money")


def test_every_translation_is_right() -> None:
    sentence = "Anna opened an account at the bank."
    prompt = [{"role": "user", "content": f"{BEGIN}{sentence}\nTranslate it into French."}]
    assert all(world.is_right(prompt, french) for french in world.translations(sentence))


def test_preferences_have_one_right_answer() -> None:
    for index in range(100):
        record = world.preference(0, index)
        assert world.is_right(record["prompt"], record["chosen"])
        assert not world.is_right(record["prompt"], record["rejected"])
    assert world.preference(0, 7) == world.preference(0, 7) != world.preference(1, 7)


def test_another_chat_is_refused() -> None:
    with pytest.raises(ValueError, match="not a chat of the built-in world"):
        world.is_right([{"role": "user", "content": "Hello"}], "Hi")
