"""What `data show` tells about chats: turns by role, and what looks wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from seqloom.text.chat_records import Message


class TurnCounts:
    """Counts over the chats of a corpus."""

    def __init__(self) -> None:
        self.roles: Counter[str] = Counter()
        self.without_answer = 0
        self.empty: list[str] = []  # locations of chats with an empty turn of the assistant
        self.equal: list[str] = []  # of preferences between two equal answers

    def add(self, record: Sequence[Any], location: str) -> None:
        """Counts the chats of a record."""
        chats = [value for value in record if is_chat(value)]
        for chat in chats:
            self.roles.update(message.role for message in chat)
            answers = [message for message in chat if message.role == "assistant"]
            self.without_answer += not answers
            if any(not message.content.strip() for message in answers):
                self.empty.append(location)
        if len(chats) == 2 and chats[0] == chats[1]:
            self.equal.append(location)

    def shown(self, record: Sequence[Any]) -> list[Any]:
        """A record as a summary shows it: chats in OpenAI's form."""
        return [[message.to_dict() for message in value] if is_chat(value) else value for value in record]

    def warnings(self, kinds: Sequence[str], records: int) -> list[str]:
        """What is wrong with the chats."""
        found = []
        if "chat" in kinds and self.without_answer == records:
            found.append("no chat has a turn of the assistant: there is nothing to learn")
        elif self.without_answer and "prompt" not in kinds:
            found.append(f"{self.without_answer:,} chats have no turn of the assistant")
        if self.empty:
            found.append(
                f"{len(self.empty):,} chats have an empty turn of the assistant, first {self.empty[0]}"
            )
        if self.equal:
            found.append(
                f"{len(self.equal):,} preferences are between two equal answers, first {self.equal[0]}"
            )
        return found


def is_chat(value: Any) -> bool:
    """Whether a field is a list of messages."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Message)
