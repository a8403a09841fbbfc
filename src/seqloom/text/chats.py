"""Readers of chats: dialogues, preferences between two answers, judged answers, and prompts.

Files are JSON Lines, a JSON array, or plain turns (`User: …`, `Assistant: …`, a blank line between chats); `chat_records.py` has the
forms of the objects. `template` renders a chat as text: the name of a built-in template, or the text of a Jinja template
(see `chat_template.py`). `system` is the system message of chats that have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seqloom.errors import DataError
from seqloom.text.annotated import sentences
from seqloom.text.chat_records import (
    TURN,
    Message,
    Messages,
    parse_chat,
    parse_judged,
    parse_preference,
    parse_turns,
    prompt_of,
    text,
)
from seqloom.text.corpus import Paths, Reader
from seqloom.text.json_items import json_items
from seqloom.text.lines import lines, starts_with

PLAIN = "plain"  # the template of a model without one


class ChatReader(Reader):
    """The base class of readers of chats."""

    adds_eos = False  # the template ends a chat
    template: str = PLAIN

    def __init__(self, paths: Paths, template: str = PLAIN, system: str | None = None):
        super().__init__(paths)
        self.template = template
        self.system = None if system is None else text("corpus.system", "system", system)

    def options(self) -> tuple:
        return self.template, self.system

    def with_system(self, chat: Messages) -> Messages:
        """The chat, with the system message of the reader if it has none."""
        if self.system is None or (chat and chat[0].role == "system"):
            return chat
        return [Message("system", self.system), *chat]

    def items(self, path: str | Path, parse: Callable[[str, Any], Any]) -> Iterator[Any]:
        """Yields what `parse` makes of the location and the object of each record."""
        if starts_with(path) not in ("{", "["):
            raise DataError(f"{path}: neither JSON Lines nor a JSON array; give one object per line")
        for self.location, item in json_items(path):
            yield parse(self.location, item)


class Chats(ChatReader):
    """(chat,) of each dialogue: a list of messages."""

    kinds = ("chat",)

    def records(self, path: str | Path) -> Iterator[tuple[Messages]]:
        chats = self.items(path, parse_chat) if starts_with(path) in ("{", "[") else self.turns(path)
        for chat in chats:
            yield (self.with_system(chat),)

    def turns(self, path: str | Path) -> Iterator[Messages]:
        """Yields the chats of plain turns. A turn of the assistant after a blank line belongs to the question before it."""
        chat: Messages = []
        start = ""
        for number, rows in sentences(lines(path)):
            location = f"{path}:{number}"
            if not TURN.match(rows[0].lstrip()):
                raise DataError(
                    f"{location}: a turn begins with User: or Assistant:, and chats are separated by a blank line; correct it"
                )
            group = parse_turns(location, "\n".join(rows))
            answers = group[0].role in ("assistant", "tool") and chat and chat[-1].role != "assistant"
            follows_system = bool(chat) and chat[-1].role == "system"
            if chat and not answers and not follows_system:
                self.location = start
                yield chat
                chat = []
            if not chat:
                start = location
            chat = [*chat, *group]
        if chat:
            self.location = start
            yield chat


class Preferences(ChatReader):
    """(chosen, rejected) of each preference: two chats with the same prompt, each ending with its answer."""

    kinds = ("answer", "answer")

    def records(self, path: str | Path) -> Iterator[tuple[Messages, Messages]]:
        for chosen, rejected in self.items(path, parse_preference):
            yield self.with_system(chosen), self.with_system(rejected)


class Judged(ChatReader):
    """(chat, label) of each judged answer: a chat that ends with the answer, and "true" if it is good, else "false"."""

    kinds = ("answer", "label")

    def records(self, path: str | Path) -> Iterator[tuple[Messages, str]]:
        for chat, label in self.items(path, parse_judged):
            yield self.with_system(chat), label


class Prompts(ChatReader):
    """(prompt, answer) of each chat or preference: the messages before the last turn of the assistant, and the text of that turn, empty
    if there is none. A file that is neither JSON nor turns has one question a line."""

    kinds = ("prompt", "text")

    def records(self, path: str | Path) -> Iterator[tuple[Messages, str]]:
        for chat in self.chats(path):
            prompt = prompt_of(chat)
            if not prompt:
                raise DataError(f"{self.location}: an answer without a prompt; write what it answers")
            answer = chat[-1].content if len(prompt) < len(chat) else ""
            yield self.with_system(prompt), answer

    def chats(self, path: str | Path) -> Iterator[Messages]:
        """Yields the chats of a file of any form."""
        if starts_with(path) in ("{", "["):
            yield from self.items(path, parse_prompt_or_preference)
            return
        first = next((line for line in lines(path) if line.strip()), "")
        if TURN.match(first.lstrip()):
            reader = Chats([path])
            for (chat,) in reader.records(path):
                self.location = reader.location
                yield chat
            return
        for number, line in enumerate(lines(path), 1):
            if line.strip():
                self.location = f"{path}:{number}"
                yield [Message("user", text(self.location, "line", line.strip()))]


def parse_prompt_or_preference(location: str, record: Any) -> Messages:
    """The chat of an object; of a preference, the one with the chosen answer."""
    is_preference = isinstance(record, dict) and ("preferred_output" in record or "chosen" in record)
    return parse_preference(location, record)[0] if is_preference else parse_chat(location, record)
