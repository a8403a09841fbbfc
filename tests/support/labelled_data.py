"""Small labelled corpora whose answers follow from the text, and the options that learn them in seconds."""

import json
import random
from pathlib import Path

NOUNS, VERBS = ["dog", "cat", "king", "queen", "river"], ["sees", "hears", "finds"]
SMALL = [
    "train.steps=60",
    "train.eval_every=30",
    "train.log_every=20",
    "train.optimizer.lr=1e-2",
    "model.dim=16",
    "model.dropout=0",
]
STACK = ["model.stack.dim=16"]


def sentence(chance: random.Random) -> list[tuple[str, str]]:
    def noun() -> list[tuple[str, str]]:
        return [(chance.choice(["the", "The", "a"]), "DET"), (chance.choice(NOUNS), "NOUN")]

    return [*noun(), (chance.choice(VERBS), "VERB"), *noun(), (".", "PUNCT")]


def conllu(count: int, seed: int) -> str:
    chance = random.Random(seed)
    out = []
    for number in range(count):
        rows = [
            f"{place}\t{word}\t_\t{tag}\t_\t_\t0\tdep\t_\tKept={place}"
            for place, (word, tag) in enumerate(sentence(chance), 1)
        ]
        out.append(
            "\n".join(
                [
                    f"# sent_id = {number}",
                    "1-2\tthedog\t_\t_\t_\t_\t_\t_\t_\t_",
                    *rows,
                    "6.1\tghost\t_\t_\t_\t_\t_\t_\t_\t_",
                ]
            )
        )
    return "\n\n".join(out) + "\n\n"


def table(count: int, seed: int) -> list[tuple[str, str, str, float]]:
    """Two texts, whether they have the same verb, and how many words they share."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        first, second = ([word for word, _ in sentence(chance)] for _ in range(2))
        if chance.random() < 0.5:
            second[2] = first[2]
        rows.append(
            (
                " ".join(first),
                " ".join(second),
                "same" if second[2] == first[2] else "other",
                float(len(set(first) & set(second))),
            )
        )
    return rows


def squad(count: int, seed: int, lacks: bool) -> str:
    """Who sees …? in a passage of several sentences, one of which says it."""
    chance, articles = random.Random(seed), []
    for number in range(count):
        animals = chance.sample(NOUNS, 4)
        passage = " ".join(
            f"the {a} {VERBS[0]} the {b} ." for a, b in zip(animals[:2], animals[2:], strict=True)
        )
        asked = chance.randrange(2)
        empty = lacks and number % 3 == 0
        found = [] if empty else [{"answer_start": passage.index(animals[asked]), "text": animals[asked]}]
        question = f"who sees the {'street' if empty else animals[2 + asked]} ?"
        articles.append(
            {
                "paragraphs": [
                    {"context": passage, "qas": [{"id": str(number), "question": question, "answers": found}]}
                ]
            }
        )
    return json.dumps({"data": articles})


def put(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


OPTIONS = {
    "tagger": [*SMALL, *STACK, "model.chars.dim=8", "batches.batch_tokens=200"],
    "classifier": [*SMALL, *STACK, "batches.batch_tokens=400"],
    "nli": [*SMALL, *STACK, "batches.batch_tokens=400"],
    "similarity": [*SMALL, *STACK, "batches.batch_tokens=400"],
    "qa": [
        *SMALL,
        *STACK,
        "tokenizer.size=300",
        "model.stack.layers=1",
        "batches.batch_tokens=600",
        "train.steps=150",
    ],
}
