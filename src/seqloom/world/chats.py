"""Chats about a scene of the world: a sentence, questions about it, and answers that can be checked exactly.

    translate   How do you say that in French?          the French sentence; every translation of the grammar is right
    it          What does "it" refer to?                the street
    bank        What kind of bank is it?                the bank of a river, or a bank for money
    nouns       Which nouns are in it?                  animal, street
    verbs       Which verbs are in it?                  cross
    words       How many words does it have?            11
    negated     Is the sentence negated?                Yes. / No.

A preference is a question with its answer and a wrong one. Everything is a pure function of (seed, index).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from seqloom.world.rng import GOLDEN, MASK, splitmix64, stream_state
from seqloom.world.scene import Scene, describe, scene, translations

BEGIN = "Here is a sentence: "
MAX_QUESTIONS = 3
CHAT_STREAM = 0xC4A7  # so that a chat and a scene of the same seed and index are not related
Turn = dict[str, str]


def it_answer(of: Scene) -> str | None:
    return None if of.antecedent is None else f"the {of.words[of.antecedent[1]]}"


def bank_answer(of: Scene) -> str | None:
    return {None: None, "river": "the bank of a river", "money": "a bank for money"}[of.bank]


def tagged(of: Scene, tag: str) -> str | None:
    return ", ".join(word for word, found in zip(of.words, of.tags, strict=True) if found == tag) or None


class ChatQuestion(NamedTuple):
    """A question in several wordings, and its answer for a scene: None if it does not apply."""

    wordings: tuple[str, ...]
    answer: Callable[[Scene], str | None]


QUESTIONS = {
    "translate": ChatQuestion(
        ("How do you say that in French?", "Translate it into French."), lambda of: of.french
    ),
    "it": ChatQuestion(('What does "it" refer to?', 'What is "it"?'), it_answer),
    "bank": ChatQuestion(("What kind of bank is it?", "Which bank is meant?"), bank_answer),
    "nouns": ChatQuestion(("Which nouns are in it?", "List its nouns."), lambda of: tagged(of, "NOUN")),
    "verbs": ChatQuestion(("Which verbs are in it?", "List its verbs."), lambda of: tagged(of, "VERB")),
    "words": ChatQuestion(
        ("How many words does it have?", "Count its words."),
        lambda of: str(
            sum(tag != "PUNCT" and word != "n't" for word, tag in zip(of.words, of.tags, strict=True))
        ),
    ),
    "negated": ChatQuestion(
        ("Is the sentence negated?", "Does it say no or not?"),
        lambda of: "Yes." if {"n't", "not", "no"} & set(of.words) else "No.",
    ),
}
KIND_OF = {wording: kind for kind, question in QUESTIONS.items() for wording in question.wordings}


class Draw:
    """Random integers of the stream (seed, index)."""

    def __init__(self, seed: int, index: int):
        self.state = stream_state(seed ^ CHAT_STREAM, index)

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""
        self.state = (self.state + GOLDEN) & MASK
        return splitmix64(self.state) * count >> 64


def chat(seed: int, index: int) -> list[Turn]:
    """The chat with the given index in the infinite sequence of a seed: messages with role and content.

    >>> seqloom.world.chat(0, 1)[-1]
    {'role': 'assistant', 'content': 'king, cake'}
    """
    of, draw = scene(seed, index), Draw(seed, index)
    kinds = [kind for kind, question in QUESTIONS.items() if question.answer(of) is not None]
    messages: list[Turn] = []
    for number in range(1 + draw.below(min(MAX_QUESTIONS, len(kinds)))):
        question = QUESTIONS[kinds.pop(draw.below(len(kinds)))]
        wording = question.wordings[draw.below(len(question.wordings))]
        begin = f"{BEGIN}{of.english}\n" if number == 0 else ""
        messages += [
            {"role": "user", "content": begin + wording},
            {"role": "assistant", "content": question.answer(of) or ""},
        ]
    return messages


def chats(count: int, seed: int = 0, start: int = 0) -> Iterator[list[Turn]]:
    """Yields `count` chats of a seed from the index `start` on.

    >>> [len(messages) for messages in seqloom.world.chats(3)]
    [2, 2, 4]
    """
    return (chat(seed, index) for index in range(start, start + count))


def right_answers(messages: Sequence[Turn]) -> set[str]:
    """The right answers to the last question of a chat of the world; raises ValueError for another chat.

    >>> seqloom.world.right_answers(seqloom.world.chat(0, 1)[:1])
    {'king, cake'}
    """
    users = [message["content"] for message in messages if message["role"] == "user"]
    begun = re.match(rf"{re.escape(BEGIN)}(.*)\n", users[0]) if users else None
    wording = users[-1].rpartition("\n")[2] if users else ""
    if begun is None or wording not in KIND_OF:
        raise ValueError("not a chat of the built-in world")
    of, kind = describe(begun[1]), KIND_OF[wording]
    answer = QUESTIONS[kind].answer(of)
    right = set(translations(of.english)) if kind == "translate" else {answer} if answer else set()
    return {text for text in right if text}


def is_right(messages: Sequence[Turn], answer: str) -> bool:
    """Whether an answer to the last question of a chat is right, white space around it aside.

    >>> seqloom.world.is_right(seqloom.world.chat(0, 1)[:1], "king, cake")
    True
    """
    return answer.strip() in right_answers(messages)


def preference(seed: int, index: int) -> dict[str, object]:
    """A preference: the messages of a chat up to its last question as `prompt`, its answer as `chosen`, a wrong one as `rejected`.

    >>> seqloom.world.preference(0, 3)["chosen"]
    '6'
    """
    messages = chat(seed, index)
    draw = Draw(seed ^ MASK, index)
    prompt, chosen = messages[:-1], messages[-1]["content"]
    kind = KIND_OF[prompt[-1]["content"].rpartition("\n")[2]]
    right = set(translations(scene(seed, index).english)) if kind == "translate" else {chosen}
    while True:
        other = scene(seed ^ MASK, draw.below(1 << 40))
        wrong = QUESTIONS[kind].answer(other)
        if wrong is not None and wrong not in right:
            return {"prompt": prompt, "chosen": chosen, "rejected": wrong}
