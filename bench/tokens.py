"""Ids per second of the token store beside the tokenizers library, and its memory on a gigabyte.

    python bench/tokens.py [FILE]         store, encode_batch and encode_batch_fast in turn, three rounds, on 20 MB
    python bench/tokens.py --gigabyte     time and peak memory of building half a gigabyte and a whole one

Without a file the text is generated: words of a Zipf law, so it is the same everywhere. Ratios are taken within a round, since
a machine may be busier in one round than in the next.
"""

import argparse
import gzip
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

from seqloom.text.corpus import Lines
from seqloom.text.store import build
from seqloom.text.tokenizer import BPE, save
from seqloom.text.tokenizer_file import load

MEGABYTE = 1_000_000
KINDS = 120_000  # different words, nearly all of which occur: 20 MB of Wikipedia have 116,000


def zipf(size: int, seed: int = 0) -> Iterator[bytes]:
    """About `size` bytes of lines of words; the r-th most frequent word has a probability like 1 / (r + 2.7)."""
    random = np.random.default_rng(seed)
    starts = ("b", "d", "g", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "th")
    syllables = np.array([start + rest for start in starts for rest in ("a", "e", "i", "o", "u", "er")])
    lengths = 1 + random.binomial(4, 0.4, KINDS)
    words = np.array(["".join(random.choice(syllables, length)) for length in lengths], dtype=object)
    words[random.random(KINDS) < 0.1] += ","
    chances = 1 / (np.arange(KINDS) + 2.7)
    bounds = np.cumsum(chances / chances.sum())
    while size > 0:
        drawn = words[np.minimum(np.searchsorted(bounds, random.random(200_000)), KINDS - 1)]
        block = "".join(
            " ".join(drawn[start : start + 20]) + ".\n" for start in range(0, len(drawn), 20)
        ).encode()
        yield block[:size] if len(block) <= size else block[: block.rfind(b"\n", 0, size) + 1]
        size -= len(block)


def write(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.writelines(zipf(size))
    return path


def cut(source: Path, path: Path, size: int) -> Path:
    """The first `size` bytes of a plain or gzip file, up to a line's end; a line above 1,000 characters is broken at spaces."""
    with (gzip.open if source.suffix == ".gz" else open)(source, "rb") as file:
        text = file.read(size).decode(errors="ignore")
    rows = []
    for line in text.splitlines():
        while len(line) > 1000 and (space := line.rfind(" ", 0, 1000)) > 0:
            rows.append(line[:space])
            line = line[space + 1 :]
        rows.append(line)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def compare(path: Path, folder: Path) -> None:
    """The table: our store and the library's two calls, in turn."""
    reader = Lines([path])
    tokenizer = BPE((text for (text,) in reader), size=8000)
    texts = [text for (text,) in reader]
    size = path.stat().st_size / MEGABYTE

    def ours(number: int) -> int:
        # The store also reads the file, adds <eos> and writes to disk; the library starts from strings in memory.
        return len(build(reader, tokenizer, folder / str(number)).fields[0].tokens) - len(texts)

    ways: dict[str, Callable[[int], int]] = {
        "store": ours,
        "encode_batch": lambda _: sum(map(len, tokenizer.encode_batch(texts))),
        "encode_batch_fast": lambda _: sum(map(len, tokenizer.encode_batch_fast(texts))),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    print(
        f"{size:.1f} MB, {len(texts):,} lines, vocabulary {tokenizer.get_vocab_size():,}, {os.cpu_count()} cores"
    )
    print(f"{'round':>5}  {'way':18} {'seconds':>8} {'ids/s':>12} {'MB/s':>7}  store is")
    for number in range(1, 4):
        counts = {}
        for name, way in ways.items():
            begun = time.perf_counter()
            counts[name] = way(number)
            seconds[name].append(time.perf_counter() - begun)
        if len(set(counts.values())) > 1:
            sys.exit(f"the ways disagree: {counts}")
        for name in ways:
            took = seconds[name][-1]
            ratio = took / seconds["store"][-1]
            print(
                f"{number:5}  {name:18} {took:8.2f} {counts[name] / took:12,.0f} {size / took:7.1f}  {ratio:.1f} x as fast"
            )
    for name in list(ways)[1:]:
        ratios = [other / own for other, own in zip(seconds[name], seconds["store"], strict=True)]
        print(f"median: the store is {median(ratios):.1f} x as fast as {name}")


def measure(path: Path, tokenizer: Path, folder: Path) -> None:
    """Build in this process, which does nothing else, and print seconds and peak memory."""
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    store = build(Lines([path]), load(tokenizer), folder)
    took = time.perf_counter() - begun
    own, worker = (
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    size = path.stat().st_size / MEGABYTE
    print(
        f"{size:6.0f} MB  {len(store.fields[0].tokens):12,} ids  {took:6.1f} s  {size / took:5.1f} MB/s  own peak {own / 1024:4.0f} MiB "
        f"(idle {idle / 1024:.0f}), largest worker {worker / 1024:4.0f} MiB",
        flush=True,
    )


def gigabyte(folder: Path) -> None:
    """Twice the text: twice the time and no more memory. Each size in a process of its own, so that peaks do not mix."""
    save(
        BPE((row for block in zipf(20 * MEGABYTE) for row in block.decode().splitlines()), size=8000),
        folder / "tokenizer.json",
    )
    for size in (500 * MEGABYTE, 1000 * MEGABYTE):
        path = write(folder / "text.txt", size)
        subprocess.run(
            [sys.executable, __file__, "--measure", path, folder / "tokenizer.json", folder / "cache"],
            check=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", nargs="?", type=Path, help="a text, plain or .gz, instead of the generated one"
    )
    parser.add_argument("--gigabyte", action="store_true", help="time and memory of 0.5 GB and 1 GB")
    parser.add_argument("--measure", nargs=3, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(*options.measure)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.gigabyte:
            return gigabyte(folder)
        size = 20 * MEGABYTE
        compare(
            cut(options.file, folder / "text.txt", size)
            if options.file
            else write(folder / "text.txt", size),
            folder,
        )


if __name__ == "__main__":
    main()
