"""The golden runs by name: how each is trained, and which commands are run on it.

Together they have every kind of model, and the types and options of configs that only some of them use.
They are as small as possible: what matters is that they load, not what they have learned.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

DATA = "GOLDEN/data"
TEXT, TRANSLATED = f"{DATA}/text.txt", f"{DATA}/translated.txt"
TEST, TEST_TRANSLATED = f"{DATA}/text.test.txt", f"{DATA}/translated.test.txt"
Command = list[str]


class Case(NamedTuple):
    """A run: a preset or a whole config, changed by options, trained on files, and used by commands."""

    config: str | dict[str, Any]
    options: list[str]
    data: list[str]
    commands: list[Command]
    valid: list[str] | None = None
    base: str | None = None  # the golden run to begin from
    stop: str | None = None  # how training is interrupted: SIGTERM, SIGKILL, or before its first checkpoint
    checkpoints: bool = False  # whether a finished run keeps them


SHORT = [
    "train.steps=40",
    "train.every=20",
    "train.log=20",
    "train.schedule.warmup=3",
    "train.optimizer.rate=0.02",
]
LONG = ["train.steps=60", "train.every=20", "train.save=20", "train.log=10", "train.keep=2", "train.valid=10"]
TRAIN = {
    "optimizer": {"type": "AdamW", "rate": 0.02, "decay": 0.05},
    "schedule": {"type": "Cosine", "warmup": 3},
    "steps": 40,
    "every": 20,
    "log": 20,
}
WORDS, CHARACTERS = "tokenizer={type: Words}", "tokenizer={type: Characters}"
WINDOWS = ["data.width=12", "data.batch=4"]
TRANSFORMER = ["model.dim=4", "model.stack.layers=1", "model.stack.heads=2"]
NARROW = "feedforward={type: FeedForward, dim: 6}"


def evaluate(*files: str) -> Command:
    """Measures a run on files."""
    return ["evaluate", "RUN", *files, "--json"]


WRITE = [
    evaluate(TEST),
    ["generate", "RUN", "the cat", "a old king", "--length", "12", "--seed", "0", "--json"],
    ["generate", "RUN", "the cat", "--beam", "3", "--nbest", "2", "--length", "8", "--json"],
]
EMBED = ["embed", "RUN", TEST, "--json"]
TRANSLATE = [
    evaluate(TEST, TEST_TRANSLATED),
    ["translate", "RUN", TEST, "--json"],
    ["generate", "RUN", "the cat sees a dog", "--samples", "2", "--length", "10", "--seed", "0", "--json"],
]
ALIGN = ["align", "RUN", TEST, TEST_TRANSLATED, "--json"]
FILL = [
    ["evaluate", "RUN", TEST, "--pseudo", "--json"],
    ["fill", "RUN", "the [MASK] sees a dog", "a [MASK] [MASK] hears the king", "--top", "3", "--json"],
    EMBED,
]


def predict(file: str) -> list[Command]:
    """Measures a run on a file of labelled records, and labels it."""
    return [evaluate(file), ["predict", "RUN", file, "--json"]]


def writer(config: str | dict[str, Any], *options: str, **more: Any) -> Case:
    """A language model."""
    short = SHORT if isinstance(config, str) else []
    return Case(config, [*short, *options], [TEXT], more.pop("commands", WRITE), **more)


def language_model(stack: dict[str, Any], **train: Any) -> Case:
    """A language model of a stack that no preset has."""
    config = {
        "corpus": {"type": "Lines"},
        "tokenizer": {"type": "Words"},
        "data": {"type": "Windows", "width": 8, "batch": 4, "stride": 4},
        "model": {"type": "LanguageModel", "dim": 4, "stack": stack},
        "objective": {"type": "next_token"},
        "train": {**TRAIN, **train},
    }
    return writer(config)


def translator(preset: str, *options: str, align: bool = False, **more: Any) -> Case:
    """A translator of words."""
    sizes = [WORDS, "model.dim=4", "data.tokens=96", "data.longest=20", "data.pool=32"]
    commands = [*TRANSLATE, ALIGN] if align else TRANSLATE
    return Case(preset, [*SHORT, *sizes, *options], [TEXT, TRANSLATED], commands, **more)


def labelled(preset: str, file: str, *options: str, **more: Any) -> Case:
    """A model of labelled records; its test file is named like its training file."""
    stem, _, suffix = file.rpartition(".")
    commands = predict(f"{DATA}/{stem}.test.{suffix}")
    sizes = ["model.dim=4", "data.tokens=64", "data.longest=24", "data.pool=32"]
    return Case(preset, [*SHORT, *sizes, *options], [f"{DATA}/{file}"], commands, **more)


def sides(option: str) -> list[str]:
    """The same change to the encoder and the decoder."""
    return [f"model.encoder.{option}", f"model.decoder.{option}"]


def option(place: str, value: Any) -> str:
    """An override whose value is a tree."""
    return f"{place}={json.dumps(value)}"


CELLS = [
    {"type": "RNN", "cell": {"type": "UGRNN"}},
    {"type": "RNN", "cell": {"type": "Vanilla", "activation": "sigmoid", "bias": "minus"}},
    {"type": "RNN", "cell": {"type": "Gated", "candidate": {"type": "LSTM", "output": "linear"}}, "dim": 3},
    {"type": "RNN", "cell": {"type": "GRU", "bias": "none"}, "dim": 3},
]
LOCAL = [
    {"type": "Convolution", "kernel": 3, "dilation": 2},
    {
        "type": "Residual",
        "layer": {"type": "MixFeatures", "network": {"type": "FeedForward", "dim": 5, "activation": "relu"}},
    },
    {"type": "ConvS2S", "layers": 1, "dim": 3, "position": {"type": "NoPosition"}},
    {"type": "ByteNet", "sets": 1, "dilations": [1, 2], "norm": {"type": "RMSNorm"}},
]
MIXING = [
    {
        "type": "Mixer",
        "length": 10,
        "layers": 1,
        "tokens": {"type": "FeedForward", "dim": 4},
        "features": {"type": "SwiGLU", "dim": 3},
    },
    {"type": "MixTokens", "length": 10, "network": {"type": "FeedForward", "dim": 4, "activation": "tanh"}},
    {"type": "MixAll", "length": 10, "network": {"type": "FeedForward", "dim": 3, "activation": "swish"}},
]
BANDED = {"type": "Banded", "factor": 4.0, "low": 1.0, "high": 4.0, "length": 16}
INTERPOLATED = {"type": "Interpolated", "factor": 2.0}
ROTARY = {
    "type": "Transformer",
    "layers": 1,
    "heads": 2,
    "position": {"type": "Rotary", "layout": "halves", "stretch": INTERPOLATED},
    "attention": {"type": "SelfAttention", "key": 4, "value": 3, "groups": 1, "window": 5},
    "feedforward": {"type": "SwiGLU", "dim": 6},
}
CONCATENATED = {"type": "Concatenated", "width": 2, "code": {"type": "Learned", "length": 16}}
BESIDE = {
    "type": "Transformer",
    "layers": 1,
    "heads": 2,
    "position": CONCATENATED,
    "score": {"type": "Bilinear"},
    "feedforward": {"type": "FeedForward", "dim": 6},
}
EXPERTS = {
    "type": "Experts",
    "experts": 3,
    "top": 2,
    "noisy": True,
    "capacity": 1.5,
    "expert": {"type": "SwiGLU", "dim": 4},
}
SPARSE = {
    "type": "Residual",
    "layer": {
        "type": "MixFeatures",
        "network": {"type": "Experts", "experts": 2, "top": 1, "expert": {"type": "FeedForward", "dim": 4}},
    },
}
FINE = {"type": "LayerNorm", "epsilon": 1e-12}
HEAD = {"type": "Output", "bias": True, "head": {"type": "Transform", "activation": "relu"}}
SHARED_HEADS = {"type": "CrossAttention", "key": 4, "groups": 1}
POOLING = {"type": "Pooling", "score": {"type": "Additive"}, "dim": 3}
ATTENTIVE = {
    "type": "AttentiveRNN",
    "cell": {"type": "GRU"},
    "dim": 3,
    "layers": 2,
    "query": "word",
    "read": "last",
    "thought": True,
    "attention": {"type": "Pooling", "score": {"type": "Bilinear"}, "dim": 3},
}
LUONG = {
    "type": "AttentiveRNN",
    "cell": {"type": "LSTM"},
    "dim": 4,
    "query": "current",
    "read": "mean",
    "attention": {
        "type": "Pooling",
        "score": {"type": "Dot"},
        "project": False,
        "weights": {"type": "Softmax"},
    },
}
READER = {"type": "RNN", "cell": {"type": "LSTM"}, "dim": 2, "direction": "both"}
RESIDUAL = {"type": "RNN", "cell": {"type": "LSTM"}, "dim": 4, "layers": 1, "residual": True, "dropout": 0.1}
ATTENDING = {"type": "AttentiveRNN", "cell": {"type": "LSTM"}, "dim": 4, "attention": POOLING, "dropout": 0.1}
FAST = {"type": "FastForward", "cell": {"type": "LSTM"}, "dim": 3, "layers": 2, "dropout": 0.1}
POST = ["layers=1", "heads=2", "feedforward.dim=6"]


def chain(*layers: dict[str, Any]) -> dict[str, Any]:
    """Layers one after another."""
    return {"type": "Chain", "layers": list(layers)}


ELMO = [WORDS, "model.dim=3", "model.stack.layers=2", option("model.stack.mix", {"type": "LayerMix"})]
BERT = [
    *("tokenizer.size=60", *TRANSFORMER, "model.stack.position.length=24", "model.stack.feedforward.dim=6"),
    *("data.width=16", "data.batch=4", "data.rate=0.2", "data.masked=0.7", "data.replaced=0.2"),
    *("train.accumulate=1", "objective.follows=0.5"),
]
LORA = {
    "rank": 2,
    "alpha": 4,
    "names": ["stack.blocks.*.attention.project", "stack.blocks.*.feedforward.last"],
}
TUNED = [
    "freeze=[embedding, 'stack.blocks.*.attention.last']",
    option("rates", {"stack.entry": 0.1, "stack.blocks.*.feedforward.first": 0.5}),
    "layer_decay=0.9",
    "model.unknown=0.1",
]
GNMT = [
    option("model.encoder", chain(READER, RESIDUAL)),
    option("model.decoder", chain(ATTENDING, RESIDUAL)),
]
LETTERS = {"type": "LetterConvolution", "widths": [2, 3]}
LETTER_RNN = {"type": "LetterRNN", "cell": {"type": "GRU"}}
SPELLING = {"type": "Spelling", "dim": 4, "size": 2}
MOMENTUM = option("train.optimizer", {"type": "SGD", "rate": 0.3, "momentum": 0.8})
GPT = ["model.stack.position.length=16", f"model.stack.{NARROW}", "files.held=0.2"]

CASES: dict[str, Case] = {
    # Language models
    "gpt": writer(
        "gpt",
        *TRANSFORMER,
        *WINDOWS,
        *GPT,
        "train.every=40",
        "train.save=40",
        "train.keep=1",
        checkpoints=True,
        commands=[
            *WRITE,
            EMBED,
            ["generate", "RUN", "the cat", "--length", "12", "--greedy", "--quantize", "int8", "--json"],
        ],
    ),
    "gpt2": writer(
        "gpt2",
        *TRANSFORMER,
        *WINDOWS,
        CHARACTERS,
        "model.stack.position.length=16",
        "train.accumulate=2",
        "model.stack.feedforward.dim=6",
    ),
    "llama": writer(
        "llama",
        *TRANSFORMER,
        *WINDOWS,
        "tokenizer.size=265",
        "model.stack.attention.groups=1",
        option("model.stack.position.stretch", BANDED),
        "model.stack.feedforward.dim=6",
    ),
    "rotary": language_model(ROTARY),
    "alibi": writer(
        "transformer-words",
        *TRANSFORMER,
        *WINDOWS,
        "model.stack.position=ALiBi",
        "model.tied=false",
        "train.minutes=null",
        option("model.output", {"type": "AdaptiveOutput", "cutoffs": [6, 10], "shrink": 2.0}),
    ),
    "concatenated": language_model(
        BESIDE,
        optimizer={"type": "SGD", "rate": 0.5, "momentum": 0.8, "decay": 0.01},
        schedule={"type": "Linear", "warmup": 2, "floor": 0.1},
        clip={"type": "PerTensor", "limit": 0.5},
    ),
    "moe-lm": writer(
        "gpt-moe",
        *TRANSFORMER,
        *WINDOWS,
        CHARACTERS,
        "model.stack.attention.groups=1",
        option("model.stack.feedforward", EXPERTS),
    ),
    "lstm": writer(
        "lstm-lm", "model.dim=4", "model.stack.dim=3", "model.stack.layers=2", "data.width=8", "data.batch=4"
    ),
    "lstm-words": writer(
        "lstm-words", "model.dim=4", "model.stack.dim=3", "data.width=8", "data.batch=4", "train.minutes=null"
    ),
    "gru": language_model(
        {
            "type": "RNN",
            "cell": {"type": "GRU", "reset": "inside"},
            "layers": 2,
            "residual": True,
            "variational": 0.1,
            "zoneout": 0.1,
        },
        clip={"type": "ByValue", "limit": 0.5},
    ),
    "cells": language_model(chain(*CELLS)),
    "convolution": language_model(chain(*LOCAL)),
    "elmo": writer("elmo", *ELMO, "data.width=8", "data.batch=4", commands=[*WRITE, EMBED]),
    # Masked language models
    "bert": writer("bert", *BERT, commands=FILL),
    "bert-small": writer(
        "bert-small",
        "tokenizer.size=60",
        *TRANSFORMER,
        "data.width=12",
        "data.batch=4",
        f"model.stack.{NARROW}",
        option("model.stack.position", {"type": "Concatenated", "width": 2, "code": {"type": "Sinusoidal"}}),
        option("model.output", HEAD),
        "data.pairs=true",
        "model.pooler=Pooler",
        commands=FILL,
    ),
    "distilbert": writer(
        "bert",
        *BERT,
        "data.pairs=false",
        "model.pooler=null",
        "model.embedding=Embedding",
        option("model.stack.norm", FINE),
        option("model.stack.entry", FINE),
        option("model.output", {**HEAD, "head": {"type": "Transform", "norm": FINE}}),
        commands=FILL,
    ),
    # Translators
    "transformer": translator(
        "transformer",
        *sides("layers=1"),
        *sides("heads=2"),
        *sides(NARROW),
        option("model.decoder.cross", SHARED_HEADS),
        align=True,
    ),
    "marian": translator(
        "transformer-base",
        *(one for choice in POST for one in sides(choice)),
        *sides("position.layout=halves"),
        option("model.output", {"type": "Output", "bias": True}),
        "train.average=3",
        "train.save=10",
    ),
    "rnnsearch": translator(
        "rnnsearch",
        "model.encoder.dim=2",
        "model.decoder.dim=3",
        option("model.decoder.attention", POOLING),
        "model.decoder.read=first",
        align=True,
    ),
    "attentive": translator(
        "rnnsearch",
        "model.encoder.dim=2",
        option("model.decoder", ATTENTIVE),
        "model.shared=false",
        "model.tied=false",
    ),
    "luong": translator("rnnsearch", "model.encoder.dim=2", option("model.decoder", LUONG)),
    "encdec": translator("encdec", *sides("dim=4")),
    "seq2seq": translator("seq2seq", "model.encoder.dim=3", "model.decoder.dim=4"),
    "bytenet": translator("bytenet", *sides("sets=1"), *sides("dilations=[1, 2]")),
    "convs2s": translator("convs2s", *sides("layers=1"), *sides("dim=3"), align=True),
    "deep-att": translator(
        "deep-att",
        option("model.encoder", {**FAST, "direction": "both"}),
        option("model.decoder", chain(ATTENDING, FAST)),
    ),
    "gnmt": translator("gnmt", *GNMT),
    "gnmt-rl": translator(
        "gnmt-rl",
        "objective.samples=2",
        "train.optimizer.rate=0.001",
        "train.steps=10",
        "train.every=5",
        base="gnmt",
    ),
    "moe": translator(
        "moe",
        option("model.encoder", chain(READER, SPARSE)),
        option("model.decoder", chain(ATTENDING, SPARSE)),
    ),
    "g2p": Case(
        "g2p",
        [*SHORT, "model.dim=4", *sides("layers=1"), *sides("heads=2"), *sides(NARROW), "data.tokens=64"],
        [f"{DATA}/sounds.dict"],
        [evaluate(f"{DATA}/sounds.dict"), ["generate", "RUN", "cat", "river", "--beam", "2", "--json"]],
    ),
    # Models of labelled records
    "tagger": labelled(
        "tagger",
        "tags.conllu",
        option("model.spelling", {**SPELLING, "letters": LETTERS}),
        "model.stack.dim=3",
        "train.save=10",
    ),
    "tagger-transformer": labelled(
        "tagger-transformer",
        "names.conll",
        "corpus={type: Columns}",
        CHARACTERS,
        "data.longest=48",
        "data.tokens=192",
        option("model.spelling", {**SPELLING, "letters": LETTER_RNN}),
        option("model.head", {"type": "CRF", "spans": True}),
        "model.stack.layers=1",
        "model.stack.heads=2",
        f"model.stack.{NARROW}",
    ),
    "tagger-vectors": labelled(
        "tagger",
        "names.conll",
        "corpus={type: Columns}",
        "tokenizer.also=GOLDEN/GENERATION/vectors-skip-gram",
        option(
            "model.embedding",
            {"type": "Embedding", "vectors": "GOLDEN/GENERATION/vectors-skip-gram", "frozen": True},
        ),
        option("model.head", {"type": "Independent", "spans": True}),
        "model.spelling=null",
        "model.stack.dim=3",
        "train.average=0",
    ),
    "classifier": labelled("classifier", "label.tsv", "model.stack.dim=3"),
    "nli": labelled("nli", "pair.tsv", "model.stack.dim=3"),
    "compared": labelled(
        "nli",
        "pair.jsonl",
        "model.stack.dim=3",
        "model.pair=Compared",
        "model.pool=EndsPool",
        option(
            "corpus",
            {
                "type": "JSONLines",
                "fields": ["premise", "claim", "verdict"],
                "kinds": ["text", "text", "label"],
            },
        ),
    ),
    "similarity": labelled("similarity", "pair.tsv", "corpus.columns=[0, 1, 3]", "model.stack.dim=3"),
    "mixer": labelled(
        "similarity",
        "pair.tsv",
        option("corpus", {"type": "Table", "columns": [0, 3], "kinds": ["text", "number"]}),
        option("model.stack", chain(*MIXING)),
        "model.pair=null",
        "model.pool=MeanPool",
    ),
    "qa": labelled(
        "qa",
        "question.json",
        "tokenizer={type: Words}",
        "model.stack.dim=3",
        "model.stack.layers=1",
        "data.longest=20",
        "data.tokens=96",
        option("model.pair", {"type": "Joined", "match": False}),
    ),
    # Runs that begin from others
    "tuned": labelled("classifier", "label.tsv", *TUNED, base="bert"),
    "lora": writer("gpt", *WINDOWS, *GPT, option("adapt", LORA), base="gpt"),
    "elmo-tagger": labelled(
        "tagger", "tags.conllu", "freeze=[embedding, stack.ahead, stack.back]", "train.average=0", base="elmo"
    ),
    # Interrupted runs
    "stopped-gpt": writer(
        "gpt",
        *LONG,
        *TRANSFORMER,
        *WINDOWS,
        *GPT,
        "train.tokens=3000",
        "train.log=4",
        "model.stack.dropout=0.1",
        stop="SIGTERM",
    ),
    "killed-lstm": writer(
        "lstm-lm",
        *LONG,
        "model.dim=4",
        "model.stack.dim=3",
        "model.stack.layers=1",
        "data.width=8",
        "data.batch=4",
        MOMENTUM,
        stop="SIGKILL",
    ),
    "stopped-classifier": labelled(
        "classifier",
        "label.tsv",
        *LONG,
        "model.stack.dim=2",
        "train.average=2",
        "train.patience=5",
        stop="SIGTERM",
    ),
    "stopped-tagger": labelled(
        "tagger",
        "names.conll",
        *LONG,
        "corpus={type: Columns}",
        "model.head=CRF",
        "model.spelling=null",
        "model.stack.dim=3",
        "train.average=0",
        stop="SIGKILL",
    ),
    "stopped-translator": translator(
        "rnnsearch",
        *LONG,
        "model.encoder.dim=2",
        "model.decoder.dim=3",
        option("model.decoder.attention", POOLING),
        valid=[TEST, TEST_TRANSLATED],
        stop="SIGTERM",
    ),
    "stopped-transformer": translator(
        "world",
        *LONG,
        *sides("layers=1"),
        *sides("heads=2"),
        *sides("feedforward={type: FeedForward, dim: 4}"),
        stop="SIGTERM",
    ),
    "stopped-bert": writer("bert", *LONG, *BERT, commands=FILL, stop="SIGTERM"),
    "stopped-lora": writer("gpt", *LONG, *WINDOWS, *GPT, option("adapt", LORA), base="gpt", stop="SIGTERM"),
    "stopped-tuned": labelled(
        "classifier", "label.tsv", *LONG, *TUNED, "train.average=2", base="bert", stop="SIGTERM"
    ),
    "started-lora": writer("gpt", *WINDOWS, *GPT, option("adapt", LORA), base="gpt", stop="start"),
}

NEAREST = [
    ["vectors", "nearest", "RUN", "king", "--count", "4", "--json"],
    ["vectors", "analogy", "RUN", "cat", "dog", "king", "--count", "3", "--json"],
]
VECTORS: dict[str, Command] = {
    f"vectors-{kind}": ["--kind", kind, "--dim", "4", "--minimum", "1", "--epochs", "3", "--threads", "1"]
    for kind in ("skip-gram", "cbow", "glove", "ppmi-svd")
}
CLASSIFIERS: dict[str, Command] = {
    "classify-label": [f"{DATA}/label.tsv", f"{DATA}/label.test.tsv", "--quick", "--ngrams", "2"],
    "classify-repeated": [f"{DATA}/repeated.tsv", f"{DATA}/repeated.tsv", "--quick"],
    "classify-crossed": [f"{DATA}/crossed.tsv", f"{DATA}/crossed.tsv", "--dim", "3"],
}
