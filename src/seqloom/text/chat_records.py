"""One JSON object, or a text of turns → a chat: a list of messages, each with a role and a content.

    messages                       OpenAI: [{"role": "user", "content": "…"}, …]
    conversations                  ShareGPT: [{"from": "human", "value": "…"}, …]
    instruction, input, output     Alpaca; `system` and `history` are read too
    prompt, completion             texts, or lists of messages

A preference is a prompt with two answers: prompt, chosen, rejected (texts, lists of messages, or complete chats), Alpaca's instruction
with chosen and rejected, or OpenAI's input, preferred_output, non_preferred_output. A judged answer is a prompt or messages with
`completion` and `label`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from seqloom.errors import DataError

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
TURN = re.compile(
    rf"(?P<role>{'|'.join(sorted(ROLES, key=len, reverse=True))}):(?:[ \t]|$)", re.IGNORECASE | re.MULTILINE
)
CHAT_KEYS = ("messages", "conversations", "conversation")
ANSWER_KEYS = ("completion", "response", "output", "answer")
MAX_MESSAGES = 10_000  # of one chat
RESERVED = re.compile("[\ufdd0-\ufdef]")  # characters that Unicode reserves for programs; templates use them


class Message(NamedTuple):
    """One turn of a chat. `weight` 0 leaves an assistant's turn out of the loss, as OpenAI's files do."""

    role: str  # system, user, assistant or tool
    content: str
    weight: int = 1

    def to_dict(self) -> dict[str, str]:
        """The message in OpenAI's form."""
        return {"role": self.role, "content": self.content}


Messages = list[Message]


def prompt_of(chat: Sequence[Message]) -> Messages:
    """The messages before the last turn of the assistant; all of them if the assistant does not end the chat."""
    return list(chat[:-1] if chat and chat[-1].role == "assistant" else chat)


def parse_chat(location: str, record: Any) -> Messages:
    """The chat in an object, in any of the forms above."""
    if isinstance(record, list):
        return parse_messages(location, record)
    record = require_object(location, record)
    for key in CHAT_KEYS:
        if key in record:
            chat = parse_messages(location, record[key])
            if "completion" in record:
                return [*chat, *parse_answer(location, record["completion"], chat)]
            if not chat:
                raise DataError(f"{location}: a chat without messages; write some, or remove it")
            return chat
    prompt = parse_prompt(location, record)
    answer = next((key for key in ANSWER_KEYS if key in record), None)
    if answer is None:
        if "chosen" in record:
            return [*prompt, *parse_answer(location, record["chosen"], prompt)]
        return prompt
    return [*prompt, *parse_answer(location, record[answer], prompt)]


def parse_preference(location: str, record: Any) -> tuple[Messages, Messages]:
    """Two chats with the same prompt: that with the chosen answer, and that with the rejected one."""
    record = require_object(location, record)
    good, bad = (
        ("preferred_output", "non_preferred_output")
        if "preferred_output" in record
        else ("chosen", "rejected")
    )
    for key in (good, bad):
        if key not in record:
            raise DataError(f"{location}: no {key!r}; a preference has a prompt, chosen and rejected")
    given = [key for key in ("prompt", "instruction", "question", "input", *CHAT_KEYS) if key in record]
    prompt = parse_prompt(location, record) if given else []
    chosen, rejected = ([*prompt, *parse_answer(location, record[key], prompt)] for key in (good, bad))
    if prompt_of(chosen) != prompt_of(rejected):
        raise DataError(f"{location}: chosen and rejected answer different prompts; give both the same one")
    for chat, key in ((chosen, good), (rejected, bad)):
        if not chat or chat[-1].role != "assistant":
            raise DataError(f"{location}: {key!r} does not end with an answer of the assistant; correct it")
    return chosen, rejected


def parse_judged(location: str, record: Any) -> tuple[Messages, str]:
    """A chat that ends with an answer, and whether the answer is good: "true" or "false"."""
    record = require_object(location, record)
    label = record.get("label")
    if not isinstance(label, bool | int | str) or str(label).lower() not in ("true", "false", "0", "1"):
        raise DataError(
            f"{location}: 'label' is {label!r}; it says whether the answer is good: true or false"
        )
    chat = parse_chat(location, record)
    if not chat or chat[-1].role != "assistant":
        raise DataError(f"{location}: the chat does not end with an answer; give 'completion'")
    return chat, "true" if str(label).lower() in ("true", "1") else "false"


def require_object(location: str, record: Any) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise DataError(
            f"{location}: a {type(record).__name__}, not an object; give messages, or a prompt and an answer"
        )
    return record


def parse_prompt(location: str, record: dict[str, Any]) -> Messages:
    """The messages before the answer: `prompt`, `instruction` with `input`, `question`, or messages."""
    system = [Message("system", text(location, "system", record["system"]))] if record.get("system") else []
    if isinstance(record.get("input"), dict):
        return [*system, *parse_chat(location, record["input"])]
    for key in CHAT_KEYS:
        if key in record:
            return [*system, *parse_messages(location, record[key])]
    if isinstance(record.get("prompt"), list):
        return [*system, *parse_messages(location, record["prompt"])]
    question_key = next((key for key in ("prompt", "instruction", "question") if key in record), None)
    if question_key is None:
        names = ", ".join(map(repr, list(record)[:8])) or "none"
        raise DataError(
            f"{location}: no chat among the fields {names}; give messages, conversations, or instruction and output"
        )
    question = text(location, question_key, record[question_key])
    more = record.get("input")
    if question_key == "instruction" and more:
        question = f"{question}\n\n{text(location, 'input', more)}"
    return [*system, *parse_history(location, record.get("history")), Message("user", question)]


def parse_history(location: str, history: Any) -> Messages:
    """The earlier turns of an Alpaca record: pairs of question and answer."""
    chat: Messages = []
    for pair in history if isinstance(history, list) else []:
        if not isinstance(pair, list) or len(pair) != 2:
            raise DataError(f"{location}: 'history' is a list of [question, answer]; correct it")
        chat += [
            Message("user", text(location, "history", pair[0])),
            Message("assistant", text(location, "history", pair[1])),
        ]
    return chat


def parse_answer(location: str, value: Any, prompt: Sequence[Message]) -> Messages:
    """The messages that an answer adds to its prompt: a text, a message, a list of messages, or a complete chat with the prompt."""
    if isinstance(value, dict):
        value = value.get("messages", [value])
    if isinstance(value, str) and not prompt and is_turns(value):
        return parse_turns(location, value)
    if isinstance(value, str):
        return [Message("assistant", text(location, "answer", value))]
    chat = parse_messages(location, value)
    size = len(prompt)
    return chat[size:] if size and chat[:size] == list(prompt) else chat


def parse_messages(location: str, value: Any) -> Messages:
    """Messages of OpenAI or ShareGPT."""
    if not isinstance(value, list):
        raise DataError(f"{location}: messages are a list of objects with role and content; correct them")
    if len(value) > MAX_MESSAGES:
        raise DataError(
            f"{location}: {len(value):,} messages in one chat, more than {MAX_MESSAGES:,}; divide it"
        )
    return [parse_message(f"{location}: message {number}", item) for number, item in enumerate(value, 1)]


def parse_message(location: str, item: Any) -> Message:
    if not isinstance(item, dict):
        raise DataError(f"{location} is a {type(item).__name__}; write an object with role and content")
    role = item.get("role", item.get("from"))
    known = ROLES.get(role.lower()) if isinstance(role, str) else None
    if known is None:
        raise DataError(f"{location} has the role {role!r}; choose from system, user, assistant and tool")
    content = item.get("content", item.get("value"))
    if isinstance(content, list):
        content = "".join(part_text(location, part) for part in content)
    if content is None and item.get("tool_calls"):
        raise DataError(f"{location} calls a tool and has no content; write the call as its content")
    weight = item.get("weight", 1)
    if weight not in (0, 1):
        raise DataError(f"{location} has the weight {weight!r}; a weight is 0 or 1")
    return Message(known, text(location, "content", content), int(weight))


def part_text(location: str, part: Any) -> str:
    """The text of a part of a content; images and sounds are refused."""
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return part["text"]
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    raise DataError(f"{location} has a part of type {kind!r}; only text is read")


def text(location: str, key: str, value: Any) -> str:
    """A text of a chat, checked."""
    if not isinstance(value, str):
        raise DataError(f"{location}: {key!r} is {type(value).__name__}, not text; correct it")
    if (found := RESERVED.search(value)) is not None:
        raise DataError(
            f"{location}: {key!r} contains U+{ord(found[0]):04X}, which is no character; remove it"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{location}: half a surrogate pair in {key!r}; write the complete character"
        ) from None
    return value


def is_turns(value: str) -> bool:
    """Whether a text begins with a role and a colon."""
    return TURN.match(value.lstrip()) is not None


def parse_turns(location: str, value: str) -> Messages:
    """The chat of a text whose turns begin with `User:`, `Human:`, `Assistant:` and so on, each on a new line."""
    starts = [
        match for match in TURN.finditer(value) if value[: match.start()].rstrip(" \t")[-1:] in ("", "\n")
    ]
    if not starts or value[: starts[0].start()].strip():
        raise DataError(f"{location}: a turn begins with User: or Assistant:; put a blank line between chats")
    ends = [match.start() for match in starts[1:]] + [len(value)]
    return [
        Message(ROLES[match["role"].lower()], text(location, "turn", value[match.end() : end].strip()))
        for match, end in zip(starts, ends, strict=True)
    ]
