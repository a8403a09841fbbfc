"""Attack: damaged files straight into every parser. A parser may refuse a file with an error of ours; anything else is a failure."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import struct
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from attack import Count
from attack.data_files import mutate
from attack.harness import limit_memory
from seqloom.errors import Error

CASES = 500  # of each parser, on each commit
HANG_SECONDS = 5.0  # of CPU time
CHATS = (
    b'{"messages": [{"role": "system", "content": "short"}, {"role": "user", "content": "a dog?"}, {"role": "assistant", "content": "yes"}]}\n'
    b'{"conversations": [{"from": "human", "value": "a cat?"}, {"from": "gpt", "value": "no"}]}\n'
    b'{"instruction": "count", "input": "1 2", "output": "3"}\n{"prompt": "a", "completion": "b"}\n'
)
PREFERENCES = (
    b'{"prompt": "a dog?", "chosen": "yes", "rejected": "no"}\n'
    b'{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], '
    b'"rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]}\n'
)
JUDGED = b'{"prompt": "a dog?", "completion": "yes", "label": true}\n{"prompt": "a cat?", "completion": "no", "label": false}\n'
TURNS = b"User: a dog?\nAssistant: yes\nUser: sure?\nAssistant: no\n\nUser: a cat?\nAssistant: no\n"
HEADER_BYTES = 4096  # of a GGUF file
GOLDEN = Path(__file__).parents[1] / "golden"
PO = (
    b'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "cat"\nmsgstr ""\n\n'
    b'msgid "a dog"\nmsgid_plural "dogs"\nmsgstr[0] ""\nmsgstr[1] ""\n'
)
TMX = (
    b'<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>a cat</seg></tuv>'
    b"</tu></body></tmx>"
)


def keep(texts: list[str]) -> list[str]:
    return texts


def seeds() -> dict[str, tuple[str, bytes, Callable[[Path], object]]]:
    """By name: the suffix of a file, a right one, and the call that parses it."""
    from seqloom.data.viewing import open_reader
    from seqloom.inference.po_tmx import po, tmx
    from seqloom.interop import gguf_tokenizer
    from seqloom.interop.gguf_header import read_header
    from seqloom.interop.torch_file import TorchFile
    from seqloom.layouts.hf_folder import SafetensorsFiles, read_json
    from seqloom.run_config import Config
    from seqloom.text import tokenizer_file
    from seqloom.vectors.formats import load as load_vectors

    def read_records(form: str) -> Callable[[Path], object]:
        return lambda path: sum(1 for _ in open_reader([str(path)], form, None))

    def read_tensors(path: Path) -> None:
        tensors = SafetensorsFiles([path])
        for name in tensors.shapes:
            tensors.get(name)

    def read_gguf(path: Path) -> None:
        header = read_header(path)
        gguf_tokenizer.read(header)

    golden = GOLDEN / "v1"
    words = [b"king", b"queen", b"dog", b"cat"]
    rows = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
    text = b"4 3\n" + b"".join(
        word + b" " + " ".join(map(str, row.tolist())).encode() + b"\n"
        for word, row in zip(words, rows, strict=True)
    )
    binary = b"4 3\n" + b"".join(
        word + b" " + row.tobytes() + b"\n" for word, row in zip(words, rows, strict=True)
    )
    arrays = io.BytesIO()
    np.savez(arrays, words=np.array(["a", "b", "c", "d"]), vectors=rows)
    return {
        "tokenizer.json": (".json", (golden / "gpt2" / "tokenizer.json").read_bytes(), tokenizer_file.load),
        "config.yaml": (".yaml", (golden / "transformer" / "config.yaml").read_bytes(), lambda path: Config.load(str(path))),
        "config.json": (".json", (golden / "bert" / "config.json").read_bytes(), read_json),
        "safetensors": (".safetensors", (golden / "gpt2" / "model.safetensors").read_bytes(), read_tensors),
        "word2vec text": (".txt", text, load_vectors),
        "word2vec binary": (".bin", binary, load_vectors),
        "npz of vectors": (".npz", arrays.getvalue(), load_vectors),
        "torch file": (".pt", torch_file(), TorchFile),
        "CoNLL-U": (".conllu", (GOLDEN / "data" / "tags.conllu").read_bytes()[:4000], read_records("conllu")),
        "CoNLL": (".conll", (GOLDEN / "data" / "names.conll").read_bytes()[:4000], read_records("conll")),
        "TSV": (".tsv", (GOLDEN / "data" / "pair.tsv").read_bytes()[:4000], read_records("table")),
        "JSON Lines": (".jsonl", (GOLDEN / "data" / "pair.jsonl").read_bytes()[:4000], read_records("jsonl")),
        "SQuAD": (".json", (GOLDEN / "data" / "question.json").read_bytes()[:6000], read_records("squad")),
        "dictionary": (".dict", (GOLDEN / "data" / "sounds.dict").read_bytes()[:2000], read_records("dictionary")),
        "gzip text": (".txt.gz", gzip.compress(text * 20), read_records("lines")),
        "PO": (".po", PO, lambda path: po(path, keep)),
        "TMX": (".tmx", TMX, lambda path: tmx(path, keep, None, "fr")),
        "GGUF": (".gguf", gguf_file(), read_gguf),
        "chats": (".jsonl", CHATS, read_records("chats")),
        "preferences": (".jsonl", PREFERENCES, read_records("preferences")),
        "judged answers": (".jsonl", JUDGED, read_records("judged")),
        "turns": (".txt", TURNS, read_records("chats")),
    }  # fmt: skip


def gguf_file() -> bytes:
    """A GGUF file of a golden run, without its tensors' last bytes: the header is what is parsed."""
    from seqloom.interop.gguf_write import write
    from seqloom.run import load

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.gguf"
        write(load(GOLDEN / "v1" / "gpt2"), path)
        return path.read_bytes()


def torch_file() -> bytes:
    """A checkpoint as torch writes it."""
    import torch

    file = io.BytesIO()
    torch.save({"model": {"w": torch.zeros(2, 3)}, "step": 3}, file)
    return file.getvalue()


def damage(name: str, data: bytes, chance: random.Random) -> bytes:
    """A damaged copy: of JSON also one with another value in some place, of safetensors one with another header, of a zip another pickle."""
    kind = chance.random()
    try:
        if name in ("tokenizer.json", "config.json", "SQuAD") and kind < 0.5:
            return json.dumps(replace_value(json.loads(data), chance)).encode()
        if name in ("JSON Lines", "chats", "preferences", "judged answers") and kind < 0.5:
            rows = [json.loads(line) for line in data.splitlines()]
            return "\n".join(map(json.dumps, replace_rows(rows, chance))).encode()
        if name == "GGUF" and kind < 0.5:
            place = chance.randrange(HEADER_BYTES)
            number = chance.choice((0, 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1, chance.randrange(2**16)))
            return data[:place] + struct.pack("<Q", number) + data[place + 8 :]
        if name == "safetensors" and kind < 0.5:
            size = struct.unpack("<Q", data[:8])[0]
            header = json.dumps(replace_value(json.loads(data[8 : 8 + size]), chance)).encode()
            return struct.pack("<Q", len(header)) + header + data[8 + size :]
        if name in ("torch file", "npz of vectors") and kind < 0.5:
            target = io.BytesIO()
            with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as copy:
                for entry in source.namelist():
                    content = source.read(entry)
                    copy.writestr(entry, mutate(content, chance) if chance.random() < 0.6 else content)
            return target.getvalue()
    except (ValueError, struct.error):
        pass
    return mutate(data, chance)


def replace_rows(rows: list[object], chance: random.Random) -> list[object]:
    """The rows with another value in some places of one of them."""
    index = chance.randrange(len(rows))
    for _ in range(chance.choice((1, 1, 3))):
        rows[index] = replace_value(rows[index], chance)
    return rows


def replace_value(value: object, chance: random.Random) -> object:
    """The value with something else in one place."""
    other = [
        None,
        -1,
        0,
        2**63,
        1e308,
        float("nan"),
        "",
        "x" * 999,
        [],
        {},
        True,
        [[[]]],
        {"type": "x"},
        "\ud800",
    ]
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: replace_value(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        index = chance.randrange(len(value))
        return [*value[:index], replace_value(value[index], chance), *value[index + 1 :]]
    return chance.choice(other)


def attack(seed: int, amount: float) -> list[Count]:
    limit_memory()
    counts = []
    with tempfile.TemporaryDirectory(prefix="seqloom-parsers-") as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        for kind, (suffix, data, parse) in seeds().items():
            chance = random.Random(f"{seed} {kind}")
            failures = []
            for index in range(int(CASES * amount)):
                path = Path(name) / f"{index}{suffix}"
                path.write_bytes(damage(kind, data, chance))
                start = time.process_time()
                try:
                    parse(path)
                except (Error, OSError, MemoryError):
                    pass
                except BaseException as error:
                    failures.append(f"case {index}: {type(error).__name__}: {str(error)[:150]}")
                if time.process_time() - start > HANG_SECONDS:
                    failures.append(f"case {index}: over {HANG_SECONDS:g} s of CPU")
                path.unlink()
            counts.append(Count("R10", f"damaged {kind}", int(CASES * amount), failures))
    return counts
