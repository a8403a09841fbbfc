"""Attack: random options, values and changes of configs on every verb, extremes among them."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from attack import Count
from attack.harness import judge_all, limit_memory
from attack.playground import COMMANDS, Playground, command_line, verbs

CASES = 500
LEFT_OUT = ("demo", "classify")  # they train for minutes; an older verb
HEAVY = ("compare", "vectors train", "data world", "data cache", "vectors map")  # a few of each
INTEGERS = ["0", "-1", "1", "2", "3", "7", "64", "1000000000", str(2**63), str(2**200), "1k", "0.5", "x", ""]
FLOATS = [
    *(
        "0",
        "-1",
        "1",
        "0.5",
        "0.999",
        "2",
        "1e-300",
        "1e-7",
        "1e308",
        "-1e308",
        "nan",
        "inf",
        "-inf",
        "x",
        "",
    ),
    *("1e400", "1,5", "0x10"),
]
TEXTS = [
    "",
    " ",
    "\n",
    "\t",
    "x",
    "é" * 50,
    "\u202eabc",
    "🏳️‍🌈",
    "a" * 5000,
    "[MASK]",
    "-",
    "--",
    "../x",
    "%s%n",
    "{}",
    "\x1b[31m",
]
PATHS = [
    *(
        "missing",
        "text.txt",
        "label.tsv",
        "gpt",
        "lstm",
        "bert-small",
        "classifier",
        "tagger",
        "qa",
        "rnnsearch",
        "killed-lstm",
    ),
    *(
        "vectors-glove",
        "classify-label",
        "transformer",
        "gpt/config.yaml",
        "gpt/model.safetensors",
        ".",
        "/dev/null",
        "/proc",
        "",
    ),
    *(
        "question.json",
        "tags.conllu",
        "sounds.dict",
        "elmo",
        "stopped-gpt",
        "similarity",
        "gpt/tokenizer.json",
    ),
]
COUNTS = [
    "--steps",
    "--epochs",
    "--tokens",
    "--flops",
    "--minutes",
    "--seeds",
    "--train",
    "--valid",
    "--test",
    "--limit",
    "--n",
]
PRESETS = [
    "gpt",
    "lstm-lm",
    "bert-small",
    "classifier",
    "tagger",
    "transformer",
    "rnnsearch",
    "elmo",
    "gpt-moe",
    "qa",
    "llama",
    "bytenet",
    "naive-bayes",
]
CHANGES = [
    *(
        "model.dim",
        "model.stack.dim",
        "model.stack.layers",
        "model.stack.heads",
        "model.stack.feedforward.dim",
        "batches.width",
    ),
    *(
        "batches.batch",
        "batches.batch_tokens",
        "batches.max_length",
        "tokenizer.size",
        "model.encoder.layers",
        "seed",
        "size",
    ),
    *(
        "train.accumulate",
        "train.eval_every",
        "train.save_every",
        "train.log_every",
        "train.eval_batches",
        "train.patience",
    ),
    *(
        "train.keep_checkpoints",
        "train.average_checkpoints",
        "train.schedule.warmup",
        "model.stack.position.length",
    ),
]
RATES = [
    *(
        "train.optimizer.lr",
        "train.optimizer.beta1",
        "train.optimizer.beta2",
        "train.optimizer.epsilon",
        "train.optimizer.weight_decay",
    ),
    *(
        "train.clip.limit",
        "model.stack.dropout",
        "model.dropout",
        "batches.rate",
        "objective.smoothing",
        "train.schedule.floor",
    ),
]
VALUES = [
    "null",
    "true",
    "[]",
    "{}",
    "{type: LSTM}",
    "{type: Rotary}",
    "{type: x}",
    "x",
    "[1, 2]",
    "'1'",
    "{a: {b: {c: 1}}}",
    "!!python/name:os.system",
]


def value_of(hint: object, chance: random.Random) -> str:
    """A value for an option with this annotation: of its kind, of another kind, or an extreme."""
    if chance.random() < 0.08:
        return chance.choice([*INTEGERS, *FLOATS, *TEXTS, *PATHS])
    kinds = [hint, *get_args(hint)]
    for kind in kinds:
        if get_origin(kind) is Literal:
            return str(chance.choice([*get_args(kind), "x"]))
        if kind is int:
            return chance.choice(INTEGERS)
        if kind is float:
            return chance.choice(FLOATS)
        if kind is Path or kind == list[Path]:
            return chance.choice(PATHS)
    return chance.choice([*TEXTS, *PATHS])


def change(chance: random.Random) -> str:
    """A change of a config."""
    if chance.random() < 0.5:
        return f"{chance.choice(CHANGES)}={chance.choice(INTEGERS if chance.random() < 0.8 else VALUES)}"
    return f"{chance.choice(RATES)}={chance.choice(FLOATS if chance.random() < 0.8 else VALUES)}"


def option_sets(seed: int, count: int) -> Iterator[list[str]]:
    """Commands whose options, values and changes are drawn by chance."""
    chance = random.Random(seed)
    known = {name: verb for name, verb in verbs().items() if name in COMMANDS and name not in LEFT_OUT}
    names = list(known) + ["train", "check", "generate", "translate", "evaluate", "explain"] * 5
    for index in range(count):
        name = chance.choice(names)
        if name in HEAVY and chance.random() < 0.7:
            name = chance.choice(["train", "generate"])
        words = command_line(name, f"out-{index}")
        arguments = [
            one for one in known[name].assemble_argument_collection() if one.names[0].startswith("--")
        ]
        for argument in chance.sample(arguments, min(len(arguments), chance.choice((0, 1, 1, 2, 3)))):
            option = argument.names[0]
            if option in (
                "--open",
                "--help",
                "--code",
                "--quiet",
                "--verbose",
                "--overwrite",
                "--threads",
                "--workers",
            ):
                continue
            if argument.hint is bool:
                words.append(option)
                continue
            value = value_of(argument.hint, chance)
            if option in COUNTS and value.isdigit() and int(value) > 64:
                value = "3"  # an honest wish that takes hours
            if option in words:  # instead of the value that it has
                place = words.index(option)
                del words[place : place + 2]
            words.append(f"{option}={value}")
        if name in ("train", "check", "explain"):
            if chance.random() < 0.3:
                words[1] = chance.choice(PRESETS)
            changes = [change(chance) for _ in range(chance.choice((1, 1, 2, 3)))]
            changed = {one.partition("=")[0] for one in changes}
            words = [word for word in words if word.partition("=")[0] not in changed]
            words[2:2] = changes
        if chance.random() < 0.1:
            position = chance.randrange(1, len(words) + 1)
            words.insert(position, chance.choice([*TEXTS, *PATHS, "--nothing", "--json=1", "a=b", "model=1"]))
        if "--json" not in words and chance.random() < 0.5:
            words.append("--json")
        yield words


def extremes() -> Iterator[list[str]]:
    """Values at the ends of what numbers can be, one at a time, on commands that work without them."""
    train = command_line("train", "out-extreme")
    for index, value in enumerate(("1e308", "-1e308", "1e-300", "1e38", "1e39", "0", "-1")):
        for path in RATES:
            words = [word for word in train if not word.startswith(path)]
            yield [*words[:-1], f"out-rate-{index}-{path}", f"{path}={value}", "--json"]
    for index, value in enumerate(("0", "-1", "1000000000", str(2**31), str(2**62))):
        for path in CHANGES:
            words = [word for word in train if not word.startswith(path)]
            yield [*words[:-1], f"out-size-{index}-{path}", f"{path}={value}", "--json"]
            yield ["check", "gpt", f"{path}={value}", "--json"]
            yield ["explain", "lstm-lm", f"{path}={value}", "--json"]
    for verb in ("generate", "translate", "inspect beam"):
        base = command_line(verb, "out-decoding")
        for option in (
            "--temperature",
            "--top-p",
            "--min-p",
            "--repetition-penalty",
            "--length-penalty",
            "--coverage-penalty",
        ):
            for value in ("1e-300", "1e308", "-1e308", "0", "-1", "nan", "inf"):
                yield [*base, f"{option}={value}", "--json"]
        for option in ("--top-k", "--beam", "--n", "--top-logprobs", "--seed"):
            for value in ("0", "-1", "1000000000", str(2**63), str(2**64)):
                yield [*base, f"{option}={value}", "--json"]


def attack(seed: int, amount: float) -> list[Count]:
    from support.quick_training import at_once

    limit_memory()
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="seqloom-options-") as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        folder = Path(name) / "here"
        folder.mkdir()
        playground = Playground(folder)
        os.chdir(folder)
        try:
            with at_once():
                counts = [
                    judge_all(
                        "", "random option sets", option_sets(seed, int(CASES * amount)), playground.restore
                    ),
                    judge_all("", "extreme values, one at a time", extremes(), playground.restore),
                ]
            print(f"{playground.num_restored} cases changed files of the playground", file=sys.stderr)
            return counts
        finally:
            os.chdir(before)
