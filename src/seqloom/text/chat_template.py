"""Chat templates: a chat → the text that a model reads, and which characters of it are the assistant's turns.

A template is Jinja, as model folders have it in chat_template.jinja. The built-in ones:

    plain     role: content, <eos> after each turn of the assistant; for a model that was trained without special tokens for chats
    chatml    <|im_start|>role … <|im_end|>
    llama     <|start_header_id|>role<|end_header_id|> … <|eot_id|>, of Llama 3
    llama2    [INST] … [/INST] … </s>
    zephyr    <|role|> … </s>

Other templates are rendered by a child process with limits (`template_sandbox.py`). A turn of the assistant is found by rendering the
chat a second time with marks in place of its contents.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import DataError
from seqloom.files import read_limited
from seqloom.text import template_sandbox
from seqloom.text.chat_records import Message

TEMPLATE_FILE = "chat_template.jinja"
MAX_TEMPLATE = 256 << 10  # characters
WALL_SECONDS = 60.0  # that the child may take
# The return codes of a child that has used up its processor time; Windows has no such limit.
OUT_OF_TIME = [-getattr(signal, name) for name in ("SIGXCPU", "SIGKILL") if hasattr(signal, name)]
PROBE = "a chat of a question and an answer"  # that every template must be able to write
MARK = "\ufdd0{}\ufdd1"  # the content of a turn; these characters are refused in chats
SENTINELS = {"bos": "\ufdd2", "eos": "\ufdd3", "unk": "\ufdd4", "pad": "\ufdd5"}  # of tokens without a text

TEMPLATES = {
    "plain": """\
{%- for message in messages -%}
{{ '' if loop.first else '\n' }}{{ message['role'] }}: {{ message['content'] }}{{ eos_token if message['role'] == 'assistant' else '' }}
{%- endfor -%}
{{ ('\n' if messages else '') + 'assistant: ' if add_generation_prompt else '' }}""",
    "chatml": """\
{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "llama": """\
{{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + (message['content'] | trim) + '<|eot_id|>' }}
{%- endfor -%}
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}""",
    "llama2": """\
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
{%- set ns.system = '<<SYS>>\n' + message['content'] + '\n<</SYS>>\n\n' -%}
{%- elif message['role'] == 'assistant' -%}
{{ ' ' + (message['content'] | trim) + ' ' + eos_token }}
{%- else -%}
{{ bos_token + '[INST] ' + ns.system + (message['content'] | trim) + ' [/INST]' }}{% set ns.system = '' %}
{%- endif -%}
{%- endfor -%}""",
    "zephyr": """\
{% for message in messages %}
{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}""",
}


def read_template(folder: Path) -> str | None:
    """The text of a folder's chat_template.jinja; None if it has none."""
    try:
        text = read_limited(folder / TEMPLATE_FILE, 4 * MAX_TEMPLATE).decode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder / TEMPLATE_FILE}: cannot be read ({error}); remove it, or get it again"
        ) from None
    return template_source(text)


def template_name(template: str) -> str:
    """The name of the built-in template with this text, or the text: two runs whose configs spell a template differently read the same data."""
    return next((name for name, source in TEMPLATES.items() if source == template), template)


class RenderedChat(NamedTuple):
    """The text of a chat, and [start, end) of each of the assistant's turns, which includes the text that ends a turn."""

    text: str
    turns: list[tuple[int, int]]


def template_source(template: str) -> str:
    """The Jinja text of a template, which may be the name of a built-in one."""
    source = TEMPLATES.get(template, template)
    if source is template and "{" not in template:
        raise DataError(
            f"{template!r} is not a chat template; choose from {', '.join(TEMPLATES)}, or give the text of one"
        )
    if len(source) > MAX_TEMPLATE:
        raise DataError(
            f"the chat template has {len(source):,} characters, more than {MAX_TEMPLATE:,}; shorten it"
        )
    return source


class ChatTemplate:
    """Renders chats with a template: the name of a built-in one, or the text of one. `tokens` are the texts of the special tokens."""

    def __init__(self, template: str, tokens: dict[str, str] | None = None):
        self.source = template_source(template)
        self.tokens = tokens or {f"{name}_token": mark for name, mark in SENTINELS.items()}
        self.is_built_in = self.source in TEMPLATES.values()

    def results(self, chats: Sequence[tuple[Sequence[Message], bool]]) -> list[dict[str, str]]:
        """The text or the error of each chat; the flag asks for the beginning of an answer at the end."""
        rows = [([message.to_dict() for message in chat], prompt) for chat, prompt in chats]
        request = {"template": self.source, "tokens": self.tokens, "chats": rows}
        return template_sandbox.render_all(request) if self.is_built_in else render_in_child(request)

    def ending(self) -> str:
        """The text that ends a turn of the assistant."""
        probe = [Message("user", "u"), Message("assistant", MARK.format(0))]
        before, after = self.results([(probe[:1], True), (probe, False)])
        return turn_edges(text_of(before, PROBE), text_of(after, PROBE))[1]

    def prompts(self, chats: Sequence[Sequence[Message]], locations: Sequence[str] = ()) -> list[str]:
        """The text after which the assistant answers, for each chat."""
        results = self.results([(chat, True) for chat in chats])
        return [text_of(result, place(locations, i)) for i, result in enumerate(results)]

    def render(
        self, chats: Sequence[Sequence[Message]], locations: Sequence[str] = (), last_only: bool = False
    ) -> list[RenderedChat]:
        """The text of each chat and its turns that count; of each chat only the last turn if `last_only`."""
        probe = [Message("user", "u"), Message("assistant", MARK.format(0))]
        marked = [mark_contents(chat) for chat in chats]
        rows = [
            (probe[:1], True),
            (probe, False),
            *((chat, False) for pair in zip(chats, marked, strict=True) for chat in pair),
        ]
        before, after, *results = self.results(rows)
        edges = turn_edges(text_of(before, PROBE), text_of(after, PROBE))
        rendered = []
        for i, chat in enumerate(chats):
            location = place(locations, i)
            text, marks = (text_of(result, location) for result in results[2 * i : 2 * i + 2])
            spans = find_turns(chat, text, marks, edges, location)
            rendered.append(RenderedChat(text, spans[-1:] if last_only else spans))
        return rendered


def place(locations: Sequence[str], index: int) -> str:
    return locations[index] if locations else f"chat {index + 1}"


def text_of(result: dict[str, str], location: str) -> str:
    if "error" in result:
        raise DataError(
            f"{location}: the chat template does not accept it: {result['error']}; correct the chat or the template"
        )
    return result["text"]


def mark_contents(chat: Sequence[Message]) -> list[Message]:
    """The chat with a mark in place of each content of the assistant."""
    return [
        message._replace(content=MARK.format(i)) if message.role == "assistant" else message
        for i, message in enumerate(chat)
    ]


def turn_edges(prompt: str, probe: str) -> tuple[str, str]:
    """The text of a template between the end of a prompt and the content, and that which ends a turn, without white space after it."""
    mark = MARK.format(0)
    if mark not in probe:
        raise DataError(f"{PROBE}: the chat template leaves the assistant's words out; use another template")
    before, _, after = probe.partition(mark)
    gap = before[len(prompt) :] if before.startswith(prompt) else ""
    return gap, after.rstrip() or after


def find_turns(
    chat: Sequence[Message], text: str, marked: str, edges: tuple[str, str], location: str
) -> list[tuple[int, int]]:
    """[start, end) of each turn of the assistant that counts, in the order of the text."""
    gap, ending = edges
    spans: list[tuple[int, int]] = []
    turns = [(i, message) for i, message in enumerate(chat) if MARK.format(i) in marked]
    before, *rests = split_at_marks(marked, [i for i, _ in turns])
    position = len(before)
    agrees = text.startswith(before)
    for (_, message), rest in zip(turns, rests, strict=True):
        forms = (message.content, message.content.strip(), message.content.rstrip(), message.content.lstrip())
        content = next((form for form in forms if text.startswith(form + rest, position)), None)
        if content is None:
            agrees = False
            break
        first = position - len(gap) if gap and text.endswith(gap, 0, position) else position
        position += len(content)
        last = position + common_length(rest, ending)
        if message.weight and last > first:
            spans.append((first, last))
        position += len(rest)
    if not agrees or position != len(text):
        raise DataError(
            f"{location}: the chat template changes the assistant's words, so its turns cannot be found; use another template"
        )
    return spans


def common_length(first: str, second: str) -> int:
    """The number of characters with which both texts begin."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(first), len(second)))


def split_at_marks(marked: str, numbers: Sequence[int]) -> list[str]:
    """The text before, between and after the marks of these numbers."""
    parts = []
    for number in numbers:
        before, _, marked = marked.partition(MARK.format(number))
        parts.append(before)
    return [*parts, marked]


def render_in_child(request: dict[str, Any]) -> list[dict[str, str]]:
    """The results of a request from a child process with limits on memory and time."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", template_sandbox.__file__],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogatepass",
            timeout=WALL_SECONDS,
            env={"PATH": os.environ.get("PATH", ""), "PYTHONIOENCODING": "utf-8"},
        )
    except subprocess.TimeoutExpired:
        raise DataError("the chat template takes too long; use another one") from None
    if done.returncode != 0:
        reason = "takes too long" if done.returncode in OUT_OF_TIME else "takes too much memory"
        raise DataError(f"the chat template {reason}; use another one")
    results: list[dict[str, str]] = json.loads(done.stdout)
    return results
