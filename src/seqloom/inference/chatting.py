"""`Chat`: a conversation with a language model, whose answers are streamed or returned.

The chat becomes text by the run's chat template, or by the built-in plain one if the run has none. What does not fit into the model's context is
left out from the beginning, by complete turns; the system message stays.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import torch

from seqloom import files
from seqloom.decoding import Decoding, DecodingOptions, DecodingPlan
from seqloom.errors import UserError
from seqloom.inference.completion import TokenGenerator, text_seeds
from seqloom.inference.detokenizer import Detokenizer, StopStrings
from seqloom.inference.generation import check_continues
from seqloom.inference.streaming import stream_tokens
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run
from seqloom.text.chat_field import SENTINEL, ChatEncoder
from seqloom.text.chat_records import Message, text
from seqloom.text.chats import PLAIN, Chats

CALM = 0.7  # the temperature of a chat with a run whose own is 1
PLAIN_STOPS = ("\nuser:", "\nsystem:", "\nassistant:")  # of a model that was not trained to end its turns


@dataclass(frozen=True)
class Reply(Result):
    """An answer. `finish_reason` is "stop" if the model ended its turn, else "length"; `left_out` is the number of earlier messages that
    did not fit into the context."""

    text: str
    tokens: int
    prompt_tokens: int
    finish_reason: str
    left_out: int


class Chat:
    """A conversation with a run. `messages` are its turns so far, which `say` and `stream` continue.

    >>> chat = seqloom.Chat(run, system="the king", max_tokens=3, temperature=0)
    >>> reply = chat.say("the queen")
    >>> [message.role for message in chat.messages]
    ['system', 'user', 'assistant']
    """

    def __init__(
        self,
        run: RunLike,
        system: str | None = None,
        settings: Decoding | None = None,
        **decoding: Unpack[DecodingOptions],
    ):
        self.run = as_run(run)
        check_continues(self.run, "chat")
        self.messages: list[Message] = []
        self.settings = (settings or Decoding()).with_options(decoding)
        template = self.run.chat_template
        self.encoder = ChatEncoder(self.run.tokenizer, template or PLAIN)
        self.stops: tuple[str, ...] = () if template else PLAIN_STOPS
        self.reply: Reply | None = None  # to the latest message
        self.speaker = self.run_with_stops()
        self.plan()
        if system is not None:
            self.set_system(system)

    def run_with_stops(self) -> Run:
        """The run, which also stops at the token that ends a turn; a longer ending is a stop string."""
        ending = self.encoder.template.ending()
        ids = self.encoder.encode_texts([ending])[0]
        speaker = copy.copy(self.run)
        specials = self.run.specials
        known = self.run.tokenizer.get_added_tokens_decoder()
        if len(ids) == 1 and (SENTINEL.fullmatch(ending) or ids[0] in known):
            speaker.specials = specials._replace(stop_ids=tuple({*specials.stop_ids, ids[0]}))
        elif plain := SENTINEL.split(ending)[0]:
            self.stops = (*self.stops, plain)
        return speaker

    def plan(self) -> DecodingPlan:
        """How the next answer is generated."""
        settings = self.settings
        samples = settings.temperature is None and not settings.searches
        if samples and self.run.decoding.temperature == 1.0:
            settings = settings.with_options({"temperature": CALM})
        settings = settings.with_options({"stop": (*settings.stop, *self.stops)})
        plan = settings.plan(self.run.decoding)
        if plan.searches or plan.n > 1:
            raise UserError("a chat has one answer, which is sampled or greedy: drop n and beam")
        return plan

    def set_system(self, system: str) -> None:
        """Replaces the system message; an empty one removes it."""
        rest = [message for message in self.messages if message.role != "system"]
        text("system", "system", system)
        self.messages = [Message("system", system), *rest] if system else rest

    def undo(self) -> bool:
        """Takes the latest question and its answer back; returns whether there was one."""
        last = [i for i, message in enumerate(self.messages) if message.role == "user"]
        self.messages = self.messages[: last[-1]] if last else self.messages
        return bool(last)

    def say(self, message: str) -> Reply:
        """The answer to a message, which becomes part of the chat."""
        for _ in self.stream(message):
            pass
        if self.reply is None:
            raise UserError("the answer was interrupted")
        return self.reply

    def stream(self, message: str) -> Iterator[str]:
        """The answer to a message, piece by piece. If the caller leaves early, what was generated becomes the answer."""
        chat = [*self.messages, Message("user", text("the message", "message", message))]
        plan = self.plan()
        first, prompt, ids = self.fit(chat, plan.max_tokens)
        room = self.run.context - len(ids)
        generator = TokenGenerator(self.speaker, plan)
        [seed] = text_seeds(plan.seed, [prompt])
        ending = StopStrings(Detokenizer(self.speaker, prompt, ids), plan.stop)
        limit = max(1, min(plan.max_tokens, room))
        steps = generator.steps(torch.tensor([ids]), limit, seed)
        self.reply = None
        pieces: list[str] = []
        count = 0
        try:
            for token in stream_tokens(generator, steps, ids, ending, seed):
                count += 1
                pieces.append(token.text)
                if token.text:
                    yield token.text
                if count >= limit:
                    break
        finally:
            answer = "".join(pieces)
            reason = "length" if count >= limit else "stop"
            self.reply = Reply(answer, count, len(ids), reason, first)
            self.messages = [*chat, Message("assistant", answer)]

    def fit(self, chat: Sequence[Message], max_tokens: int) -> tuple[int, str, list[int]]:
        """The number of messages that must be left out so that prompt and answer fit into the context, the prompt, and its ids."""
        context = self.run.context
        room = context - min(max_tokens, context // 2)
        system = [message for message in chat[:1] if message.role == "system"]
        starts = [i for i, message in enumerate(chat) if message.role == "user"]
        for start in [0, *starts[1:]]:
            kept = list(chat) if start == 0 else [*system, *chat[start:]]
            [prompt] = self.encoder.template.prompts([kept], ["the chat"])
            [ids] = self.encoder.encode_texts([prompt])
            if len(ids) <= room:
                return len(chat) - len(kept), SENTINEL.sub("", prompt), ids or [self.run.specials.first_id]
        raise UserError(
            f"the message has {len(ids)} tokens with the system message, but only {room} of the context of {context} are free; shorten it"
        )

    def to_dict(self) -> dict[str, list[dict[str, str]]]:
        """The chat in OpenAI's form."""
        return {"messages": [message.to_dict() for message in self.messages]}

    def save(self, path: str | Path) -> None:
        """Writes the chat as one line of JSON Lines, which training reads too."""
        files.write_atomic(Path(path), json.dumps(self.to_dict(), ensure_ascii=False) + "\n")

    def load(self, path: str | Path) -> None:
        """Goes on with the first chat of a file."""
        [messages] = next(iter(Chats([path])))
        self.messages = messages
