"""Small files under the names that the pages use: text of the built-in world, labelled texts, vectors, a checkpoint."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from seqloom.world import Scene, scenes
from support import labelled_data

SENTENCES = 480  # enough for each frequent word to occur five times
HELD_OUT = 12  # sentences of files that are translated or measured: a model of three steps writes long texts
PHONEMES = {"a": "AH0", "e": "EH1", "i": "IH0", "o": "OW1", "u": "UW0"}


@cache
def world(seed: int = 0, count: int = SENTENCES) -> list[Scene]:
    return list(scenes(count, seed))


def write(path: Path, text: str) -> None:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))
    else:
        path.write_text(text, "utf-8")


def lines(rows: Sequence[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def sentences(name: str) -> list[Scene]:
    """The sentences of an English file; its translation has the same."""
    trains = name.startswith(("train", "input", "mine", "text", "corpus"))
    return world(len(name))[: None if trains else HELD_OUT]


def english(path: Path) -> None:
    write(path, lines([scene.english for scene in sentences(path.name)]))


def french(path: Path) -> None:
    source = re.sub(r"\.(de|fr)\b", ".en", path.name)
    write(path, lines([scene.french for scene in sentences(source)]))


def prompts(path: Path) -> None:
    write(path, "The king\nThe old queen\n")


def reviews(path: Path, header: bool = True) -> None:
    """Labelled texts with a header, sorted by label."""
    good, bad = ("a fine , funny film", "the king of films"), ("a dull , slow film", "the worst of films")
    chance = random.Random(len(path.name))
    rows = [
        f"{chance.choice(texts)} {chance.choice(['indeed', 'again', 'today', 'for once'])} {number}\t{label}"
        for label, texts in (("neg", bad), ("pos", good))
        for number in range(120)
    ]
    write(path, lines(["text\tlabel", *rows] if header else rows))


def new_texts(path: Path) -> None:
    write(path, "text\na funny film\nthe dull king\n")


def sick(path: Path) -> None:
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    rows = [
        f"{number}\t{a}\t{b}\t{score}\t{'ENTAILMENT' if label == 'same' else 'NEUTRAL'}"
        for number, (a, b, label, score) in enumerate(labelled_data.table(80, len(path.name)), 1)
    ]
    write(path, lines([header, *rows]))


def conllu(path: Path) -> None:
    write(path, labelled_data.conllu(60, len(path.name)))


def conll(path: Path) -> None:
    sentence = "Paul B-PER\nsees O\nthe O\nking O\n\nAnna B-PER\nSmith I-PER\nsleeps O\n\n"
    write(path, sentence * 30)


def squad(path: Path) -> None:
    write(path, labelled_data.squad(40, len(path.name), lacks=False))


def pronunciations(path: Path) -> None:
    words = sorted({word.lower() for scene in world() for word in scene.words if word.isalpha()})
    spelled = [(word, " ".join(PHONEMES.get(letter, letter.upper()) for letter in word)) for word in words]
    write(path, lines([f"{word.upper()}  {phonemes}" for word, phonemes in spelled]))


def pairs(path: Path) -> None:
    write(path, lines([f"{scene.english}\t{scene.french}" for scene in world()]))


def po(path: Path) -> None:
    head = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    write(path, head + '\nmsgid "The king sleeps."\nmsgstr ""\n')


def tmx(path: Path) -> None:
    unit = '<tu><tuv xml:lang="en"><seg>The king sleeps.</seg></tuv></tu>'
    header = '<header creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en" srclang="en" datatype="plaintext"/>'
    write(path, f'<?xml version="1.0"?><tmx version="1.4">{header}<body>{unit}</body></tmx>')


def lexicon(path: Path) -> None:
    write(path, "king\troi\nqueen\treine\n")


def glove(path: Path) -> None:
    """Vectors in which a queen is a king that is a woman."""
    chance = random.Random(0)
    words = sorted({word.lower() for scene in world() for word in scene.words if word.isalpha()})
    words += ["monarch", "throne", "soup", "river", "rivers"]
    table = {word: [chance.gauss(0, 1) for _ in range(20)] for word in dict.fromkeys(words)}
    table["queen"] = [k - m + w for k, m, w in zip(table["king"], table["man"], table["woman"], strict=True)]
    write(path, lines([f"{word} {' '.join(f'{x:.5f}' for x in row)}" for word, row in table.items()]))


def binary_vectors(path: Path) -> None:
    from seqloom.vectors import formats

    text = path.with_name("glove.6B.100d.txt")
    if not text.exists():
        glove(text)
    formats.save(formats.load(text), path, "binary")


def ratings(path: Path) -> None:
    chance = random.Random(0)
    words = ["king", "queen", "man", "woman", "river", "street", "dog", "cat"]
    rows = [f"{a}\t{b}\t{chance.random() * 10:.2f}" for a in words for b in words if a < b]
    write(path, lines(["word 1\tword 2\trating", *rows]))


def analogies(path: Path) -> None:
    write(path, ": family\nman woman king queen\nking queen man woman\n")


def minilm(path: Path) -> None:
    from support import hf_folders

    hf_folders.make("bert body", path)


def gpt2(path: Path) -> None:
    from support import hf_folders

    hf_folders.make("gpt2", path)


def jsonl(path: Path) -> None:
    rows = [{"text": f"a {word} film", "label": word} for word in ("fine", "dull") * 30]
    write(path, lines([json.dumps(row) for row in rows]))


def chats(path: Path) -> None:
    """Chats of the built-in world in OpenAI's form."""
    from seqloom.world import chats as world_chats

    write(path, lines([json.dumps({"messages": messages}) for messages in world_chats(80)]))


def preferences(path: Path) -> None:
    from seqloom.world import preference

    write(path, lines([json.dumps(preference(0, index)) for index in range(60)]))


def smollm2(path: Path) -> None:
    """A tiny Llama with a chat template, as GGUF."""
    from seqloom.interop import export_checkpoint, import_checkpoint
    from seqloom.text.chat_template import TEMPLATES
    from support import hf_folders

    folder = path.with_name(".smollm2")
    hf_folders.make("llama", folder / "hf")
    (folder / "hf" / "chat_template.jinja").write_text(TEMPLATES["chatml"], "utf-8")
    export_checkpoint(import_checkpoint(folder / "hf", folder / "run"), path, "gguf")


def chat_prompts(path: Path) -> None:
    """Questions, some with an answer."""
    rows = [{"prompt": f"Tell me about the {scene.words[-2]}."} for scene in world()[:40]]
    write(path, lines([json.dumps(row) for row in rows]))


def sound(path: Path) -> None:
    """A sentence of the world's voice."""
    from seqloom.world import speak

    path.write_bytes(speak("The king sleeps.", number=len(path.name)).wav())


def recordings(path: Path, label: bool = False) -> None:
    """A table of sound files, which are beside it, with their texts or labels."""
    from seqloom.world import speak

    rows = ["file\tlabel" if label else "file\ttext"]
    for number in range(12):
        spoken = speak(("The king sleeps.", "A queen sees me.")[number % 2], number=number)
        name = f"{path.stem}-{number}.wav"
        path.with_name(name).write_bytes(spoken.wav())
        rows.append(f"{name}\t{('asleep', 'awake')[number % 2] if label else spoken.text}")
    write(path, lines(rows))


def labelled_sounds(path: Path) -> None:
    recordings(path, label=True)


def solubility(path: Path) -> None:
    """Molecules of the built-in world with their property."""
    from seqloom.world import molecule

    rows = [molecule(len(path.name), index) for index in range(60)]
    write(path, lines(["smiles\tvalue", *(f"{smiles}\t{value}" for smiles, value in rows)]))


def articles(path: Path) -> None:
    """Reports of the built-in world with their summaries."""
    from seqloom.world import report

    rows = [report(len(path.name), index) for index in range(60 if path.stem == "articles" else HELD_OUT)]
    write(path, lines(["document\tsummary", *(f"{row.document}\t{row.summary}" for row in rows)]))


def article(path: Path) -> None:
    from seqloom.world import report

    write(path, report(0, 0).document.replace(". ", ".\n") + "\n")


def drawn(number: int) -> tuple[bytes, str, str]:
    """A picture of the world as a PNG file, its caption, and the name of its first thing."""
    from seqloom.media.images import encode_png
    from seqloom.world import drawing

    picture = drawing(0, number)
    return encode_png(picture.pixels), picture.caption, picture.things[0].noun


def photo(path: Path) -> None:
    path.write_bytes(drawn(len(path.name))[0])


def captions(path: Path, label: bool = False) -> None:
    """A list of pictures, which are beside it, with captions or labels."""
    rows = []
    for number in range(24):
        picture, caption, noun = drawn(number)
        name = f"{path.stem}-{number}.png"
        path.with_name(name).write_bytes(picture)
        rows.append(f"{name}\t{noun if label else caption}")
    write(path, lines(rows))


def labelled_pictures(path: Path) -> None:
    captions(path, label=True)


def no_picture(path: Path) -> None:
    path.write_bytes(b"%PDF-1.7")


def given_captions(path: Path) -> None:
    write(path, lines([drawn(number)[1] for number in range(3)]))


# Patterns of file names, in order: the first that matches makes the file.
MAKERS: list[tuple[str, Callable[[Path], None]]] = [
    (r"(?!nothing)[\w-]+\.wav", sound),
    (r"recordings(?:-test)?\.tsv", recordings),
    (r"sounds\.tsv", labelled_sounds),
    (r"photo\.jpg", photo),
    (r"text\.jpg", no_picture),
    (r"captions\.tsv", captions),
    (r"labels\.tsv", labelled_pictures),
    (r"(?:captions|texts)\.txt", given_captions),
    (r"prompts\.txt", prompts),
    (r"questions-words\.txt", analogies),
    (r"EN-[A-Z0-9-]+\.txt", ratings),
    (r"SICK_\w+\.txt", sick),
    (r"glove[\w.]*\.txt(?:\.gz)?", glove),
    (r"vectors\.bin", binary_vectors),
    (r"lexicon\.tsv", lexicon),
    (r"pairs\.tsv", pairs),
    (r"new\.tsv", new_texts),
    (r"(?:reviews|sst2|train|dev|valid|test)\.tsv", reviews),
    (r"solubility(?:-\w+)?\.tsv", solubility),
    (r"articles(?:-\w+)?\.tsv", articles),
    (r"article\.txt", article),
    (r"chats\.jsonl", chats),
    (r"preferences\.jsonl", preferences),
    (r"SmolLM2-[\w.-]+\.gguf", smollm2),
    (r"prompts\.jsonl", chat_prompts),
    (r"[\w-]+\.jsonl", jsonl),
    (r"[\w-]+\.conllu", conllu),
    (r"[\w-]+\.conll", conll),
    (r"(?:train|dev)-v1\.1\.json", squad),
    (r"cmudict\.gz", pronunciations),
    (r"[\w-]+\.po", po),
    (r"[\w-]+\.tmx", tmx),
    (r"all-MiniLM-L6-v2", minilm),
    (r"gpt2-checkpoint", gpt2),
    (r"[\w-]+\.en(?:\.gz)?", english),
    (r"[\w-]+\.(?:de|fr)(?:\.gz)?", french),
    (r"(?:input|mine|test|text|corpus|valid|lines|shakespeare|reviews)\.txt", english),
]
NAME = re.compile(r"(?<![\w./$-])(?:[\w-][\w.-]*)")


def make_files(code: str, folder: Path) -> list[str]:
    """Writes the files that the code names and we can make, but for those that verbs on texts write; returns their names."""
    made = []
    written = re.findall(
        r"seqloom (?:predict|translate|embed|summarize|transcribe|caption)\b.*--out (\S+)", code
    )
    for name in dict.fromkeys(NAME.findall(code)):
        name = name.rstrip(".")
        if name in written:
            continue
        for pattern, maker in MAKERS:
            if re.fullmatch(pattern, name):
                maker(folder / name)
                made.append(name)
                break
    return made
