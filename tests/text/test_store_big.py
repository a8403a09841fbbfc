"""A corpus of a gigabyte is tokenized and trained on in a memory that does not know its size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GIGABYTE = 1_000_000_000
# The peak is the sum over this process and all its workers, sampled from /proc while they live: getrusage knows only the largest.
FIT = """
import os, sys, threading, time
from pathlib import Path
import torch
import seqloom

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
seqloom.fit(
    "gpt", "tokenizer={type: BPE, size: 8000}", "train.steps=20", "train.eval_every=20", "train.eval_batches=5",
    data=[sys.argv[1]], out=sys.argv[2], progress=False
)
done.set()
thread.join()
print(idle, peak, workers)
"""


@pytest.mark.big
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="memory is read from /proc")
def test_a_gigabyte_is_tokenized_and_trained_on_in_less_than_a_gigabyte(tmp_path):
    # The same lines with a number each, so that chunks keep coming that were never seen before.
    words = [f"word{number * 7919 % 5000}" for number in range(20_000)]
    lines = [" ".join(words[start : start + 15]) for start in range(0, len(words), 15)]
    path, size, count = tmp_path / "text.txt", 0, 0
    with path.open("w", encoding="utf-8") as file:
        while size < GIGABYTE:
            block = "".join(f"{line} {count + number}\n" for number, line in enumerate(lines))
            file.write(block)
            size, count = size + len(block), count + len(lines)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    finished = subprocess.run(
        [sys.executable, "-c", FIT, str(path), str(tmp_path / "run")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    idle, peak, workers = map(int, finished.stdout.split())
    print(f"idle {idle / 1024:.0f} MiB, peak {peak / 1024:.0f} MiB over all processes, {workers} workers")
    assert workers == 2
    assert peak - idle < GIGABYTE / 1024
