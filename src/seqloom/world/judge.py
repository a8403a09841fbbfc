"""A judge of sentences about a thing of the world, for learning from feedback  [I8].

A prompt asks for a sentence about a noun. The judge knows the grammar, so its reward is exact:

    r(noun, text) = [the text is a sentence of the world] + [it mentions the noun] + 3 min(different words, 16) / 16

Chats for supervised tuning answer such prompts with sentences of the world, every second of which is about something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from seqloom.world.rng import splitmix64
from seqloom.world.scene import log_probability, scenes

NOUNS = ("animal", "bank", "boy", "car", "cat", "dog", "girl", "horse", "man", "river", "street", "woman")
FULL_DETAIL = 16  # different words of a text that has all the detail that counts
DETAIL_WEIGHT = 3.0
WORD = re.compile(r"[A-Za-z']+")


def prompt_for(noun: str) -> str:
    return f"Tell me about the {noun}."


def noun_of(prompt: str) -> str:
    """The noun that a prompt asks about."""
    words = WORD.findall(prompt)
    return words[-1].lower() if words else ""


class Judgement(NamedTuple):
    """What the judge finds in a text."""

    is_sentence: bool
    mentions: bool
    words: int  # different ones

    @property
    def reward(self) -> float:
        return self.is_sentence + self.mentions + DETAIL_WEIGHT * min(self.words, FULL_DETAIL) / FULL_DETAIL


def judge(prompt: str, text: str) -> Judgement:
    """The judgement of an answer to a prompt."""
    words = {word.lower() for word in WORD.findall(text)}
    mentions = noun_of(prompt) in words
    return Judgement(log_probability(text) > float("-inf"), mentions, len(words))


def gold_reward(prompt: str, text: str) -> float:
    """r(noun, text), exact."""
    return judge(prompt, text).reward


def described_nouns(count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """`count` prompts with sentences of the world; every second sentence is about the noun, the others only by chance."""
    found = 0
    for index, scene in enumerate(scenes(60 * count + 1000, seed)):
        if found == count:
            return
        nouns = [noun for noun in NOUNS if noun in scene.words]
        if nouns:
            draw = splitmix64(seed * 1_000_003 + index)
            noun = nouns[draw % len(nouns)] if found % 2 else NOUNS[draw % len(NOUNS)]
            found += 1
            yield prompt_for(noun), scene.english
