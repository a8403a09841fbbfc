"""Attack: forty malformed corpora through every reader, and real files with random damage through the verbs that read them."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from attack import Count
from attack.harness import judge_all, limit_memory
from attack.playground import QUICK, TINY, build
from seqloom.text import lines
from seqloom.text.formats import FORMATS

WORDS = b"the old king sees a dog and the queen hears a cat near the river "
MUTATED = 60  # files with random damage on each commit


def table(rows: list[bytes]) -> bytes:
    return b"\n".join(rows) + b"\n"


def contents(line_bytes: int) -> dict[str, bytes]:
    """The content of malformed files by name; `line_bytes` is the length of the longest lines."""
    good = WORDS * 3
    nested = b"[" * 100_000
    return {
        "empty.txt": b"",
        "bom-only.txt": codecs.BOM_UTF8,
        "bom.txt": codecs.BOM_UTF8 + good,
        "utf16-bom.txt": good.decode().encode("utf-16"),
        "utf16.txt": good.decode().encode("utf-16-le"),
        "utf32.txt": good.decode().encode("utf-32"),
        "latin1.txt": "café crème\n".encode("latin-1") * 9,
        "invalid-utf8.txt": good + b"\n\xff\xfe\n" + good,
        "truncated-utf8.txt": good + "é".encode()[:1],
        "surrogate-bytes.txt": good + b"\xed\xa0\x80" + good,
        "nul.txt": good + b"\0" + good,
        "control.txt": bytes(range(1, 32)) * 20 + b"\n",
        "cr.txt": good.replace(b" ", b"\r"),
        "crlf-mix.txt": b"one\r\ntwo\nthree\rfour\r\n\r\n\n" * 9,
        "no-newline.txt": b"the last line has no end",
        "blank.txt": b"\n" * 5000,
        "spaces.txt": b" \t \n" * 5000,
        "one-line.txt": b"x" * line_bytes,
        "one-line-words.txt": WORDS * (line_bytes // len(WORDS)),
        "letters.txt": b"a\n" * 100_000,
        "bidi.txt": "\u202eabc\u202c \u2066x\u2069 שלום\n".encode() * 50,
        "emoji.txt": "👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200d\n".encode() * 50,
        "combining.txt": ("e" + "\u0301" * 3000 + "\n").encode() * 3,
        "ragged.tsv": table([b"text\tlabel", b"one\ta", b"two", b"three\tb\tc"]),
        "quotes.csv": table([b"text,label", b'"open,a', b"two,b"] * 30),
        "tabs.tsv": b"\t" * 5000 + b"\n",
        "columns.tsv": b"\t".join([b"x"] * 20_000) + b"\n" + b"\t".join([b"y"] * 20_000) + b"\n",
        "broken.conllu": table([b"1\tthe\t_\tDET", b"x\ty", b"", b"2-1\ta\t_\tX\t_\t_\t0\tdep\t_\t_"] * 9),
        "ids.conllu": table([b"9999999999999999999\ta\t_\tX\t_\t_\t0\tdep\t_\t_", b""] * 9),
        "broken.conll": table([b"king B-PER", b"I-PER", b"", b"x y z"] * 9),
        "broken.jsonl": table([b'{"text": "a", "label": "b"}', b'{"text": ', b"[]", b"null", b'"x"'] * 9),
        "surrogates.jsonl": table([b'{"text": "\\ud800 lone", "label": "a"}'] * 9),
        "nested.jsonl": b'{"text": ' + nested + b"\n",
        "numbers.jsonl": table([b'{"text": 1e400, "label": NaN}', b'{"text": ' + b"9" * 5000 + b"}"] * 9),
        "nested.json": b'{"version": "1", "data": ' + nested,
        "broken-squad.json": json.dumps(
            {"data": [{"paragraphs": [{"context": "x", "qas": [{"question": "?", "id": 1, "answers": [{"text": "y", "answer_start": 99}]}]}]}]}
        ).encode(),
        "squad-types.json": b'{"data": [1, null, {"paragraphs": 5}]}',
        "broken.dict": table([b"WORD", b"  AH0", b"WORD(2  AH0", b";;; x", b"A  \xc3\x28"] * 9),
        "bomb.txt.gz": gzip.compress(b"\0" * (8 * line_bytes)),
        "lines-bomb.txt.gz": gzip.compress(b"a b\n" * (line_bytes // 4)),
        "cut.txt.gz": gzip.compress(WORDS * 500)[:-40],
        "garbage.txt.gz": gzip.compress(WORDS) + b"garbage",
        "not.txt.gz": WORDS * 9,
        "broken.txt.zst": b"\x28\xb5\x2f\xfd" + b"\xff" * 99,
        "elf.txt": b"\x7fELF" + bytes(range(256)) * 20,
        "pickle.txt": b"\x80\x04cos\nsystem\n(S'touch canary'\ntR.",
        "bomb.tmx": b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "' + b"x" * 999 + b'"><!ENTITY b "' + b"&a;" * 999 + b'">]><tmx>&b;</tmx>',
        "broken.po": b'msgid "open\nmsgstr 5\n',
    }  # fmt: skip


SPECIAL = ("loop.txt", "fifo.txt", "folder.txt", "/dev/zero", "/dev/null", "/dev/full", "missing.txt")


def write_files(folder: Path, line_bytes: int) -> list[str]:
    """Writes the malformed files, and a loop of links, a pipe that nobody writes into and a folder; their names."""
    found = contents(line_bytes)
    for name, content in found.items():
        (folder / name).write_bytes(content)
    (folder / "loop.txt").symlink_to("loop.txt")
    os.mkfifo(folder / "fifo.txt")
    (folder / "folder.txt").mkdir()
    return [*found, *SPECIAL]


def reader_commands(names: list[str]) -> Iterator[list[str]]:
    """Every malformed file through every reader."""
    for name in names:
        for form in FORMATS:
            files = [name, "text.txt"] if form == "pairs" else [name]
            yield ["data", "show", *files, "--format", form, "--json"]


def verb_commands(names: list[str], chance: random.Random) -> Iterator[list[str]]:
    """Every malformed file through a verb that reads such files, in turn."""
    ways: list[Callable[[str, str], list[str]]] = [
        lambda name, out: ["train", "gpt", *TINY, *QUICK, "--data", name, "--out", out, "--json"],
        lambda name, out: ["evaluate", "lstm", name, "--limit", "20", "--json"],
        lambda name, out: ["predict", "classifier", "--file", name, "--json"],
        lambda name, out: ["translate", "transformer", "--file", name, "--max-tokens", "4", "--out", out],
        lambda name, out: ["vectors", "train", name, "--dim", "4", "--epochs", "1", "--min-count", "1", "--out", out],
        lambda name, out: ["data", "split", name, "--out", out, "--json"],
        lambda name, out: ["data", "tokenizer", name, "--size", "300", "--out", out],
        lambda name, out: ["data", "leaks", "text.txt", name, "--json"],
        lambda name, out: ["vectors", "nearest", name, "king", "--json"],
        lambda name, out: ["check", name, "--json"],
        lambda name, out: ["embed", "bert-small", "--file", name, "--json"],
        lambda name, out: ["generate", "gpt", "--file", name, "--max-tokens", "2", "--json"],
        lambda name, out: ["import", name, "--out", out],
    ]  # fmt: skip
    for index, name in enumerate(names):
        for turn in range(2):
            yield ways[(2 * index + turn) % len(ways)](name, f"out-{index}-{turn}")
    for name in SPECIAL:
        for turn, way in enumerate(ways):
            yield way(name, f"special-{Path(name).stem}-{turn}")


def mutate(data: bytes, chance: random.Random) -> bytes:
    """The data with some bytes flipped, cut, doubled or replaced by others that parsers mind."""
    minds = (
        b"\n",
        b"\t",
        b"\r",
        b"\0",
        b'"',
        b"\\",
        b"\xff",
        b"{",
        b"}",
        b"[",
        b",",
        b":",
        b"1e999",
        b"\\ud800",
        b"-",
        b" ",
    )
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        start = chance.randrange(len(changed) + 1)
        stop = min(len(changed), start + chance.choice((1, 1, 4, 40)))
        kind = chance.randrange(5)
        if kind == 0 and start < len(changed):
            changed[start] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[start:stop]
        elif kind == 2:
            changed[start:start] = changed[start:stop] * chance.choice((1, 3))
        elif kind == 3:
            changed[start:stop] = chance.choice(minds)
        else:
            changed[start:start] = chance.choice(minds)
    return bytes(changed[:1_000_000])


def mutated_commands(count: int, chance: random.Random) -> Iterator[list[str]]:
    """Data files with random damage through the reader that their suffix or content chooses."""
    sources = [
        path
        for path in sorted(Path().iterdir())
        if path.suffix in (".tsv", ".jsonl", ".json", ".conllu", ".conll", ".dict")
    ]
    sources = [
        path
        for path in sources
        if path.name in {one.name for one in (Path(__file__).parents[1] / "golden" / "data").iterdir()}
    ]
    for index in range(count):
        source = chance.choice(sources)
        target = Path(f"mutated-{index}{source.suffix}")
        target.write_bytes(mutate(source.read_bytes(), chance))
        verb = chance.choice((["data", "show"], ["data", "split"], ["data", "leaks", source.name]))
        yield [*verb, str(target), *(["--out", f"split-{index}"] if verb[-1] == "split" else []), "--json"]


def attack(seed: int, amount: float) -> list[Count]:
    from support.quick_training import at_once

    limit_memory()
    lines.WRITER_SECONDS = 0.3  # a pipe that nobody writes into is given up soon
    before = os.getcwd()
    chance = random.Random(seed)
    line_bytes = 50 << 20 if amount > 1 else 2 << 20
    with tempfile.TemporaryDirectory(prefix="seqloom-files-") as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        folder = Path(name) / "here"
        folder.mkdir()
        build(folder)
        os.chdir(folder)
        try:
            names = write_files(folder, line_bytes)
            with at_once():
                return [
                    judge_all("R9", "malformed corpora x readers", reader_commands(names)),
                    judge_all("R9", "malformed corpora, pipes and devices x verbs", verb_commands(names, chance)),
                    judge_all("R9", "data files with random damage", mutated_commands(int(MUTATED * amount), chance)),
                ]  # fmt: skip
        finally:
            os.chdir(before)
