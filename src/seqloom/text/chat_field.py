"""Chats as columns of the store: the ids of a chat under its template, and which of them are the assistant's.

A chat is encoded in pieces, cut where a turn of the assistant begins and ends, so that a turn has the ids that decoding after the same
prompt would give it. A special token of our own tokenizers has no text; the template writes a sentinel in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.text.chat_records import Message, parse_chat
from seqloom.text.chat_template import SENTINELS, ChatTemplate, RenderedChat
from seqloom.text.chats import PLAIN
from seqloom.text.corpus import Reader
from seqloom.text.encoder import Encoded, Field, RecordEncoder, integers
from seqloom.text.tokenizer import special_tokens

BLOCK = 256  # chats that are rendered at a time
SENTINEL = re.compile(f"([{''.join(SENTINELS.values())}])")


class ChatEncoder:
    """Chats → ids and which of them count, under a template and a tokenizer."""

    def __init__(self, tokenizer: Tokenizer, template: str):
        self.tokenizer = tokenizer
        specials = special_tokens(tokenizer)
        added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
        roles = {name: getattr(specials, name) for name in SENTINELS}
        self.ids = {SENTINELS[name]: index for name, index in roles.items() if index is not None}
        self.tokens = {
            f"{name}_token": added.get(index, SENTINELS[name]) if index is not None else ""
            for name, index in roles.items()
        }
        self.template = ChatTemplate(template, self.tokens)

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of rendered text, in which sentinels are special tokens."""
        pieces = [SENTINEL.split(text) for text in texts]
        plain = [piece for row in pieces for piece in row[::2]]
        encodings = iter(self.tokenizer.encode_batch_fast(plain, add_special_tokens=False))
        rows = []
        for row in pieces:
            ids: list[int] = []
            for number, piece in enumerate(row):
                ids += [self.ids[piece]] if number % 2 else next(encodings).ids
            rows.append(ids)
        return rows

    def prompts(self, chats: Sequence[Sequence[Message]], locations: Sequence[str] = ()) -> list[list[int]]:
        """The ids after which the assistant answers, for each chat."""
        return self.encode_texts(self.template.prompts(chats, locations))

    def encode(
        self, chats: Sequence[Sequence[Message]], locations: Sequence[str] = (), last_only: bool = False
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """(ids, counted) of each chat."""
        pieces = [cut(chat) for chat in self.template.render(chats, locations, last_only)]
        rows = iter(self.encode_texts([text for chat in pieces for text, _ in chat]))
        encoded = []
        for chat in pieces:
            ids: list[int] = []
            counted: list[int] = []
            for _, is_turn in chat:
                row = next(rows)
                ids += row
                counted += [int(is_turn)] * len(row)
            encoded.append((np.array(ids, np.int64), np.array(counted, np.uint8)))
        return encoded


def cut(chat: RenderedChat) -> list[tuple[str, bool]]:
    """The text of a chat in pieces, each with whether it is a turn that counts."""
    pieces = []
    position = 0
    for start, end in chat.turns:
        pieces += [(chat.text[position:start], False), (chat.text[start:end], True)]
        position = end
    return [(text, counts) for text, counts in [*pieces, (chat.text[position:], False)] if text]


class LocatedChat:
    """A checked chat with its location; its length is that of its text."""

    def __init__(self, messages: Sequence[Message], location: str):
        self.messages = messages
        self.location = location

    def __len__(self) -> int:
        return sum(len(message.content) for message in self.messages)


class ChatField(Field):
    """A chat, as ids of which the assistant's turns count."""

    names: tuple[str, ...] = ("chat", "counted")
    last_only = False
    template: str = PLAIN

    def __init__(self, tokenizer: Tokenizer, adds_eos: bool, labels: dict[str, int]):
        super().__init__(tokenizer, adds_eos, labels)
        self.dtypes = (RecordEncoder(tokenizer, False).dtype, np.dtype(np.uint8))
        self.encoder: ChatEncoder | None = None

    def check(self, value: Any, location: str) -> LocatedChat:
        if not isinstance(value, list) or not all(isinstance(message, Message) for message in value):
            value = parse_chat(location, value)
        return LocatedChat(value, location)

    def encode(self, values: list[LocatedChat]) -> list[Encoded]:
        self.encoder = self.encoder or ChatEncoder(self.tokenizer, self.template)
        chats = [value.messages for value in values]
        encoded = self.encoder.encode(chats, [value.location for value in values], self.last_only)
        for (ids, _), value in zip(encoded, values, strict=True):
            if not len(ids):
                raise DataError(f"{value.location}: the chat is empty under its template; remove it")
        counts = integers(len(ids) for ids, _ in encoded)
        ids = np.concatenate([ids for ids, _ in encoded]).astype(self.dtypes[0])
        counted = np.concatenate([flags for _, flags in encoded])
        sizes = integers(len(value) for value in values)
        return [(ids.tobytes(), counts, sizes), (counted.tobytes(), counts, 0 * counts)]


class AnswerField(ChatField):
    """A chat of which only the last turn counts: an answer to its prompt."""

    names = ("answer", "counted")
    last_only = True


class PromptField(ChatField):
    """The messages before an answer, as the ids after which the assistant answers."""

    names = ("prompt",)

    def __init__(self, tokenizer: Tokenizer, adds_eos: bool, labels: dict[str, int]):
        super().__init__(tokenizer, adds_eos, labels)
        self.dtypes = self.dtypes[:1]

    def encode(self, values: list[LocatedChat]) -> list[Encoded]:
        self.encoder = self.encoder or ChatEncoder(self.tokenizer, self.template)
        rows = self.encoder.prompts(
            [value.messages for value in values], [value.location for value in values]
        )
        ids = np.array([index for row in rows for index in row], self.dtypes[0])
        return [(ids.tobytes(), integers(map(len, rows)), integers(len(value) for value in values))]


def chat_texts(reader: Reader) -> Iterator[str]:
    """Yields the text of each chat of a reader under its template, for training a tokenizer."""
    template = ChatTemplate(reader.template or PLAIN)
    kinds = [index for index, kind in enumerate(reader.kinds) if kind in ("chat", "answer", "prompt")]
    located = ((record[index], reader.location) for record in reader for index in kinds)
    while block := list(islice(located, BLOCK)):
        for chat in template.render([chat for chat, _ in block], [location for _, location in block]):
            yield SENTINEL.sub("", chat.text)
