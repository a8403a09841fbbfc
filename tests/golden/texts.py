"""Little texts to train golden runs on: one small grammar, written as every kind of file that a corpus reads.

The files are made once; a run that was stopped resumes only on the very same bytes.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

DETERMINERS, ADJECTIVES = ("the", "a"), ("old", "red")
NOUNS, VERBS = ("cat", "dog", "king", "queen", "river"), ("sees", "hears", "finds")
TAGS = {
    **dict.fromkeys(DETERMINERS, "DET"),
    **dict.fromkeys(ADJECTIVES, "ADJ"),
    **dict.fromkeys(NOUNS, "NOUN"),
    **dict.fromkeys(VERBS, "VERB"),
}
SOUNDS = {letter: letter.upper() for letter in "dfgklnrstv"}
SOUNDS |= {"a": "AE1", "e": "EH1", "i": "IH1", "o": "AO1", "u": "AH1", "h": "HH", "c": "K", "q": "K"}
Phrase = list[str]


def phrase(rng: random.Random) -> Phrase:
    """A determiner, perhaps an adjective, and a noun."""
    adjective = [rng.choice(ADJECTIVES)] if rng.random() < 0.4 else []
    return [rng.choice(DETERMINERS), *adjective, rng.choice(NOUNS)]


def sentences(count: int, seed: int) -> list[tuple[Phrase, str, Phrase]]:
    """Subject, verb and object."""
    rng = random.Random(seed)
    return [(phrase(rng), rng.choice(VERBS), phrase(rng)) for _ in range(count)]


def words(sentence: tuple[Phrase, str, Phrase]) -> list[str]:
    subject, verb, target = sentence
    return [*subject, verb, *target]


def translated(sentence: tuple[Phrase, str, Phrase]) -> str:
    """Every word backwards, and adjectives after their nouns."""
    subject, verb, target = sentence
    parts = [[part[0], *reversed(part[1:])] for part in (subject, target)]
    return " ".join(word[::-1] for word in [*parts[0], verb, *parts[1]])


def label(sentence: tuple[Phrase, str, Phrase]) -> str:
    """Whom the sentence is about."""
    return {"king": "court", "queen": "court", "river": "land"}.get(sentence[0][-1], "animal")


def shared(first: list[str], second: list[str]) -> float:
    """The fraction of the words of both texts that both have."""
    return round(len({*first} & {*second}) / len({*first} | {*second}), 2)


def span_tags(part: Phrase) -> list[str]:
    """Persons and places, marked where they begin and go on."""
    kind = {"king": "PER", "queen": "PER", "river": "LOC"}.get(part[-1])
    marked = [f"{'I' if index else 'B'}-{kind}" for index in range(len(part) - 1)]
    return ["O", *(marked if kind else ["O"] * (len(part) - 1))]


def question(
    number: int, sentence: tuple[Phrase, str, Phrase], other: tuple[Phrase, str, Phrase]
) -> dict[str, Any]:
    """A passage of two sentences and a question about the first; every fifth has no answer."""
    passage, answer = f"{' '.join(words(sentence))} . {' '.join(words(other))} .", " ".join(sentence[2])
    asked: dict[str, Any] = {"id": str(number), "question": f"what {sentence[1]} {' '.join(sentence[0])}"}
    if number % 5 == 4:
        asked |= {"question": "what is now", "answers": [], "is_impossible": True}
    else:
        asked["answers"] = [{"text": answer, "answer_start": passage.index(answer)}]
    return {"context": passage, "qas": [asked]}


def files(count: int, seed: int, suffix: str) -> dict[str, str]:
    """Every file of a part of the data by name, from so many sentences."""
    rows = sentences(count, seed)
    plain = [" ".join(words(row)) for row in rows]
    pairs = list(zip(rows, [*rows[1:], rows[0]], strict=True))
    texts = [(" ".join(words(one)), " ".join(words(other))) for one, other in pairs]
    same = ["same" if label(one) == label(other) else "other" for one, other in pairs]
    numbers = [shared(words(one), words(other)) for one, other in pairs]
    objects = [
        {"premise": one, "claim": other, "verdict": verdict}
        for (one, other), verdict in zip(texts, same, strict=True)
    ]
    tagged = [
        "".join(f"{n}\t{word}\t_\t{TAGS[word]}" + "\t_" * 6 + "\n" for n, word in enumerate(words(row), 1))
        for row in rows
    ]
    spans = [[*span_tags(subject), "O", *span_tags(target)] for subject, _, target in rows]
    columns = [
        "".join(f"{word} {tag}\n" for word, tag in zip(words(row), tags, strict=True))
        for row, tags in zip(rows, spans, strict=True)
    ]
    passages = [question(number, one, other) for number, (one, other) in enumerate(pairs)]
    made = {
        "text.txt": "".join(f"{line}\n" for line in plain),
        "translated.txt": "".join(f"{translated(row)}\n" for row in rows),
        "label.tsv": "".join(f"{text}\t{label(row)}\n" for text, row in zip(plain, rows, strict=True)),
        "pair.tsv": "".join(
            f"{one}\t{other}\t{verdict}\t{number}\n"
            for (one, other), verdict, number in zip(texts, same, numbers, strict=True)
        ),
        "pair.jsonl": "".join(json.dumps(row) + "\n" for row in objects),
        "tags.conllu": "".join(f"{block}\n" for block in tagged),
        "names.conll": "".join(f"{block}\n" for block in columns),
        "question.json": json.dumps({"data": [{"title": "court", "paragraphs": passages}]}) + "\n",
    }
    return {f"{Path(name).stem}{suffix}{Path(name).suffix}": text for name, text in made.items()}


def dictionary() -> str:
    """Words of the grammar and their sounds, letter by letter."""
    known = sorted({*TAGS} | {word[::-1] for word in TAGS})
    return "".join(f"{word.upper()}  {' '.join(SOUNDS[letter] for letter in word)}\n" for word in known)


def repeated() -> str:
    """Labelled texts in which a frequent word misleads whoever counts it as often as it occurs."""
    rng, rows = random.Random(7), []
    for number in range(45):
        kind = number % 3
        noise = kind if rng.random() < 0.6 else rng.randrange(3)
        rows.append(f"{(*ADJECTIVES, 'new')[noise]} " * 8 + f"{NOUNS[kind]}\t{VERBS[kind]}\n")
    return "".join(rows)


def crossed() -> str:
    """Labelled texts that no straight line separates: two words, and whether both come from the same pair."""
    rows = ["cat king", "dog queen"] * 15 + ["cat queen", "dog king"] * 10
    return "".join(f"{text}\t{'same' if number < 30 else 'crossed'}\n" for number, text in enumerate(rows))


def write(folder: Path) -> None:
    """Writes the files that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    test = files(4, 2, ".test")
    made = {**files(40, 1, ""), **test, "sounds.dict": dictionary()}
    made |= {"repeated.tsv": repeated(), "crossed.tsv": crossed()}
    for name, text in made.items():
        if not (folder / name).exists():
            (folder / name).write_text(text, "utf-8")
