"""A corpus of a gigabyte is tokenized in a memory that does not know its size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import seqloom.text.store

GIGABYTE = 1_000_000_000
# The peak is the sum over this process and all its workers, sampled from /proc while they live: getrusage knows only the largest.
BUILD = """
import os, sys, threading, time
from pathlib import Path
import torch
from seqloom.text.corpus import Lines
from seqloom.text.store import build
from seqloom.text.tokenizer import load

def resident(pid):
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return int(fields["RssAnon"].split()[0]) + int(fields["RssFile"].split()[0])
    except (OSError, KeyError):
        return 0

def family():
    me = os.getpid()
    return sum(map(resident, [me, *Path(f"/proc/self/task/{me}/children").read_text().split()]))

idle, peak, workers = family(), 0, 0
done = threading.Event()

def watch():
    global peak, workers
    while not done.wait(0.05):
        peak = max(peak, family())
        workers = max(workers, len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))

thread = threading.Thread(target=watch)
thread.start()
store = build(Lines([sys.argv[1]]), load(sys.argv[2]), Path(sys.argv[3]), workers=2)
done.set()
thread.join()
print(len(store), idle, peak, workers)
"""


@pytest.mark.big
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="memory is read from /proc")
def test_a_gigabyte_takes_less_than_a_gigabyte(tmp_path):
    from seqloom.text.tokenizer import BPE, save

    # The same lines with a number each, so that chunks keep coming that were never seen before.
    words = [f"word{number * 7919 % 5000}" for number in range(20_000)]
    lines = [" ".join(words[start : start + 15]) for start in range(0, len(words), 15)]
    save(BPE(lines, size=1000), tmp_path / "tokenizer.json")
    path, size, count = tmp_path / "text.txt", 0, 0
    with path.open("w", encoding="utf-8") as file:
        while size < GIGABYTE:
            block = "".join(f"{line} {count + number}\n" for number, line in enumerate(lines))
            file.write(block)
            size, count = size + len(block), count + len(lines)
    environment = os.environ | {"PYTHONPATH": str(Path(seqloom.text.store.__file__).parents[2])}
    output = subprocess.run([sys.executable, "-c", BUILD, str(path), str(tmp_path / "tokenizer.json"), str(tmp_path / "cache")],
                            env=environment, capture_output=True, text=True, check=True).stdout
    records, idle, peak, workers = map(int, output.split())
    assert records == count
    assert workers == 2
    assert peak - idle < GIGABYTE / 1024
