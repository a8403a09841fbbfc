"""Freed memory stays with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from seqloom.train.process import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(4_000_000, np.uint64)  # 32 MB: 8,000 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before, kept, after = faults(), keep_freed_memory(), (faults(), faults())[1]
print(int(kept), before, after)
"""


def test_memory_that_is_asked_for_again_is_not_fetched_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    kept, before, after = map(int, done.stdout.split())
    if not kept:
        pytest.skip("this C library has no such setting")
    assert after < before / 10, f"{before} page faults became {after}"
