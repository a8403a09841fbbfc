"""Attack: texts that no model expects (very long, empty, NUL, half characters, escape sequences), chats, preferences and chat templates
made to fail, through every verb that reads them."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attack import Count
from attack.harness import judge_all, limit_memory
from attack.playground import QUICK, Playground

TEXTS = {
    "empty": "",
    "blank": " \n\t",
    "NUL": "a\0b",
    "half character": "a \udcff b",
    "surrogate": "\ud83d",
    "bidi": "\u202eabc\u2066",
    "escape": "\x1b[2J\x1b]0;title\x07",
    "marks": "e" + "\u0301" * 2000,
    "emoji": "👩‍👩‍👧‍👦" * 50,
    "masks": "[MASK] " * 300,
    "markup": "</script><script>alert(1)</script><img src=x onerror=alert(1)>&amp;",
    "special": "<bos><eos><pad><unk>",
    "one word": "x" * 100_000,
    "long": "the old king sees a dog " * 16_000,  # 96,000 words
}
VERBS = {
    "chat": ["gpt", "--once={}", "--max-tokens=2"],
    "embed": ["bert-small", "{}"],
    "fill-mask": ["bert-small", "{}"],
    "generate": ["gpt", "{}", "--max-tokens=2"],
    "generate (recurrent)": ["lstm", "{}", "--max-tokens=2"],
    "predict": ["classifier", "{}"],
    "predict (tags)": ["tagger", "{}"],
    "score": ["lstm", "{}"],
    "translate": ["rnnsearch", "{}", "--max-tokens=2"],
    "translate (Transformer)": ["transformer", "{}", "--max-tokens=2"],
    "inspect attention": ["transformer", "{}", "--target=DOG"],
    "inspect attention (target)": ["transformer", "the dog", "--target={}"],
    "inspect gates": ["lstm", "{}"],
    "inspect activations": ["lstm", "{}"],
    "inspect patch": ["gpt", "{}", "the dog"],
    "inspect heads": ["gpt", "{}"],
    "inspect gradients": ["lstm", "{}"],
    "inspect beam": ["rnnsearch", "{}", "--beam=2", "--max-tokens=3"],
    "inspect tokens": ["gpt", "{}"],
    "inspect trace": ["gpt", "{}"],
    "inspect contexts": ["gpt", "{}", "--file=text.test.txt"],
    "vectors nearest": ["vectors-glove", "{}"],
    "vectors analogy": ["vectors-glove", "{}", "king", "dog"],
    "classify predict": ["classify-label", "{}"],
}
GOOD = {"messages": [{"role": "user", "content": "a dog"}, {"role": "assistant", "content": "a cat"}]}
CHATS: dict[str, object] = {
    "no messages": {"messages": []},
    "not a list": {"messages": "hello"},
    "numbers": {"messages": [1, 2]},
    "no role": {"messages": [{"content": "x"}]},
    "unknown role": {"messages": [{"role": "hacker", "content": "x"}]},
    "role is a list": {"messages": [{"role": ["user"], "content": "x"}]},
    "content is null": {"messages": [{"role": "user", "content": None}, {"role": "assistant", "content": None}]},
    "content is a number": {"messages": [{"role": "user", "content": 5}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "file:///etc/passwd"}]}]},
    "half characters": {"messages": [{"role": "user", "content": "\ud800"}, {"role": "assistant", "content": "\udfff"}]},
    "NUL": {"messages": [{"role": "user", "content": "\0"}, {"role": "assistant", "content": "\0"}]},
    "only the system": {"messages": [{"role": "system", "content": "x"}]},
    "assistant first": {"messages": [{"role": "assistant", "content": "x"}]},
    "ten thousand turns": {"messages": GOOD["messages"] * 5000},
    "a long turn": {"messages": [{"role": "user", "content": "dog " * 200_000}, {"role": "assistant", "content": "x"}]},
    "template in the content": {"messages": [{"role": "user", "content": "{{ 7 * 7 }}{% for x in y %}"}, {"role": "assistant", "content": "{{"}]},
    "special tokens": {"messages": [{"role": "user", "content": "<eos><bos><|im_end|>"}, {"role": "assistant", "content": "<eos>"}]},
    "nested": {"messages": json.loads("[" * 400 + "]" * 400)},
    "prompt and chosen": {"prompt": 1, "chosen": [], "rejected": {}},
    "equal answers": {"prompt": "a", "chosen": "b", "rejected": "b"},
    "empty answers": {"prompt": "", "chosen": "", "rejected": ""},
    "other prompts": {
        "chosen": GOOD["messages"],
        "rejected": [{"role": "user", "content": "other"}, {"role": "assistant", "content": "x"}],
    },
    "label is a text": {"prompt": "a", "completion": "b", "label": "maybe"},
    "label is NaN": {"prompt": "a", "completion": "b", "label": float("nan")},
}  # fmt: skip
TEMPLATES = {
    "loop": "{% for a in range(10**9) %}{% endfor %}{{ messages[0].content }}",
    "memory": "{{ 'x' * 10**10 }}",
    "number": "{{ 10 ** 10 ** 10 }}",
    "class": "{{ messages.__class__.__mro__[-1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__.os.mkdir('canary') }}",
    "import": "{% import 'os' as os %}{{ os }}",
    "include": "{% include '/etc/passwd' %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "change": "{{ messages.append(1) }}",
    "open tag": "{% for m in messages %}",
    "raise": "{{ raise_exception('no') }}",
    "nothing": "{# nothing #}",
    "half character": "{{ '\\ud800' }}{{ messages[0].content }}",
    "changes words": "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
    "date": "{{ strftime_now('%' * 100000) }}",
    "filter": "{{ messages | map(attribute='content.__class__') | list }}",
    "format": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "deep": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
}
CHAT_MODEL = [
    *("model.dim=8", "model.stack.layers=1", "model.stack.heads=2"),
    *("tokenizer={type: Characters}", "batches.max_length=48", "batches.batch=2"),
]


def text_commands() -> Iterator[list[str]]:
    """Every text through every verb that takes one."""
    for verb, arguments in VERBS.items():
        for name, text in TEXTS.items():
            words = verb.split(" (")[0].split()
            if "\0" in text and name != "NUL":
                continue
            pages = [f"--out=page-{name}.html"] if words[0] == "inspect" else []
            yield [*words, *(word.replace("{}", text) for word in arguments), *pages, "--json"]


def chat_commands() -> Iterator[list[str]]:
    """Every chat beside good ones, through the readers and verbs of chats."""
    quick = [word for word in QUICK if word.startswith("train.")]
    for number, chat in enumerate(CHATS.values()):
        path = Path(f"chats-{number}.jsonl")
        rows = [json.dumps(row) for row in (GOOD, chat, *[GOOD] * 8)]
        for form in ("chats", "preferences", "judged", "auto"):
            path.write_text("\n".join(rows), "utf-8")
            yield ["data", "show", str(path), "--format", form, "--json"]
        for verb in (
            [
                "train",
                "chat",
                *CHAT_MODEL,
                *quick,
                "--data",
                str(path),
                "--out",
                f"out-chat-{number}",
                "--json",
            ],
            ["evaluate", "gpt", str(path), "--json"],
            ["data", "leaks", str(path), str(path), "--json"],
            ["chat", "gpt", "--file", str(path), "--once", "a", "--max-tokens", "2"],
            [
                "prefer",
                "gpt",
                "--file",
                str(path),
                "--page",
                "--max-tokens",
                "2",
                "--out",
                f"out-{number}.jsonl",
            ],
        ):
            path.write_text("\n".join(rows), "utf-8")
            yield verb


def template_commands() -> Iterator[list[str]]:
    """Every template as the option of a corpus, and as that of a run."""
    quick = [word for word in QUICK if word.startswith("train.")]
    for number, template in enumerate(TEMPLATES.values()):
        path = Path("good.jsonl")
        path.write_text("\n".join([json.dumps(GOOD)] * 9), "utf-8")
        change = f"corpus.template={json.dumps(template)}"
        yield [
            "train",
            "chat",
            *CHAT_MODEL,
            *quick,
            change,
            "--data",
            str(path),
            "--out",
            f"out-template-{number}",
        ]
        run = Path(f"run-{number}")
        shutil.copytree("lstm", run)
        (run / "chat_template.jinja").write_text(template, "utf-8")
        yield ["chat", str(run), "--once", "a dog", "--max-tokens", "2"]


def some(commands: Iterator[list[str]], amount: float, chance: random.Random) -> Iterator[list[str]]:
    """A share of the commands; each is made, with its files, when its turn comes."""
    return (words for words in commands if amount >= 1 or chance.random() < amount)


def attack(seed: int, amount: float) -> list[Count]:
    from support.quick_training import at_once

    limit_memory()
    before = os.getcwd()
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="seqloom-texts-") as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        folder = Path(name) / "here"
        folder.mkdir()
        playground = Playground(folder)
        os.chdir(folder)
        canaries: list[str] = []

        def after_template() -> None:
            if Path("canary").exists():
                canaries.append("a template ran code: the canary is there")
            playground.restore()

        try:
            with at_once():
                counts = [
                    judge_all("R9", "hostile texts x verbs", some(text_commands(), amount, chance), playground.restore),
                    judge_all("R9", "hostile chats and preferences", some(chat_commands(), amount, chance), playground.restore),
                    judge_all("R19", "hostile chat templates", some(template_commands(), amount, chance), after_template),
                ]  # fmt: skip
            counts[-1].failures.extend(canaries)
            return counts
        finally:
            os.chdir(before)
