"""Chat templates: rendered as `transformers` renders them, turns found, hostile ones stopped."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from seqloom.errors import DataError
from seqloom.text import chat_template, template_sandbox
from seqloom.text.chat_records import Message
from seqloom.text.chat_template import TEMPLATES, ChatTemplate

CHAT = [
    Message("system", "Be brief."),
    Message("user", "Hello <b>\n"),
    Message("assistant", " Good\nday "),
    Message("user", "So?"),
    Message("assistant", "é 漢"),
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": ""}
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI "
    "assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TRICKY = (
    "{%- for m in messages %}\n  {%- if loop.index > 4 %}{% break %}{% endif %}\n  {{- m | tojson }}\n{% endfor %}"
    "{% generation %}{{ bos_token }}{% endgeneration %}{{ tools is none }}"
)


def theirs(template: str, messages: list[dict[str, str]], prompt: bool) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered, _ = render_jinja_template(
        conversations=[messages], chat_template=template, add_generation_prompt=prompt, **TOKENS
    )
    text: str = rendered[0]
    return text


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("template", [*TEMPLATES.values(), SMOLLM2, TRICKY])
def test_templates_render_as_in_transformers(template: str, prompt: bool) -> None:
    for chat in (CHAT, CHAT[1:], CHAT[1:2]):
        [result] = ChatTemplate(template, TOKENS).results([(chat, prompt)])
        assert result["text"] == theirs(template, [message.to_dict() for message in chat], prompt)


@pytest.mark.parametrize("template", [*TEMPLATES, SMOLLM2])
def test_turns_follow_the_prompt_and_end_with_the_stop_token(template: str) -> None:
    maker = ChatTemplate(template, TOKENS)
    [rendered] = maker.render([CHAT])
    prompts = maker.prompts([CHAT[:2], CHAT[:4]])
    assert len(rendered.turns) == 2
    for (start, end), prompt, content in zip(rendered.turns, prompts, ("Good\nday", "é 漢"), strict=True):
        assert rendered.text[:start] == prompt
        turn = rendered.text[start:end]
        assert content in turn and turn.rstrip() == turn
        assert turn.endswith((">", "</s>"))
    [last] = maker.render([CHAT], last_only=True)
    assert last.turns == rendered.turns[1:]
    silent = [message._replace(weight=0) for message in CHAT]
    assert maker.render([silent])[0].turns == []


def test_a_chat_that_the_assistant_begins() -> None:
    [rendered] = ChatTemplate(SMOLLM2, TOKENS).render(
        [[Message("assistant", "Welcome"), Message("user", "Hi")]]
    )
    assert [rendered.text[start:end] for start, end in rendered.turns] == ["Welcome<|im_end|>"]


def check_template(source: str) -> None:
    """Raises if a template cannot render a question and its answer."""
    ChatTemplate(source).render([[Message("user", "a"), Message("assistant", "b")]])


HOSTILE = {
    "{{ 'a' * 10 ** 10 }}": "memory",
    "{{ ''.__class__.__mro__ }}": "unsafe",
    "{{ messages.append(1) }}": "unsafe",
    "{% for a in range(10 ** 9) %}{% endfor %}": "Range too big",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "without end",
    "{% include '/etc/passwd' %}": "no loader",
    "{% for a in range(99999) %}{{ 'a' * 99999 }}{% endfor %}": "characters for one chat",
    "{{ raise_exception('roles must alternate') }}": "roles must alternate",
    "{% if %}": "line 1: Expected an expression",
    "{{ " + "(" * 20_000: "not a template",
    "{{ messages }}": "a chat of a question and an answer: the chat template leaves the assistant's words out",
    "{{ messages[-1].content | upper }}": "changes the assistant's words",
    "{{ 1 }}": "leaves the assistant's words out",
    "{{ messages[7]['content'] }}": "list object has no element 7",
    "no template": "is not a chat template; choose from plain",
    "{" * 300_000: "characters, more than",
}


@pytest.mark.parametrize("template", HOSTILE, ids=lambda text: text[:20])
def test_a_hostile_template_is_one_line(template: str) -> None:
    with pytest.raises(DataError) as error:
        check_template(template)
    assert HOSTILE[template] in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_an_endless_template_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert template_sandbox.SECONDS < chat_template.WALL_SECONDS
    # a busy machine may need minutes for seconds of computing
    monkeypatch.setattr(chat_template, "WALL_SECONDS", 600.0)
    ended = []
    run = subprocess.run

    def watched(*arguments: Any, **options: Any) -> Any:
        ended.append(run(*arguments, **options))
        return ended[-1]

    monkeypatch.setattr(chat_template.subprocess, "run", watched)
    loops = "{% for a in range(99999) %}" * 4 + "{% endfor %}" * 4
    with pytest.raises(DataError, match="takes too long"):
        check_template(loops)
    assert ended[0].returncode in chat_template.OUT_OF_TIME  # by its own limit, before the parent's clock
