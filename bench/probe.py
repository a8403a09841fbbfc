"""What the machine gives right now, and timings that are fair on a machine that changes: shared by every benchmark of this folder.

Shared cores jump by a factor of two within seconds. So variants take turns, a probe of the hardware stands before and after each timing,
and what is printed is ratios and the share of the probe, not seconds. Differences below 15 % are not judged here. Left out: means
and best-of-n, which reward luck.

    python bench/probe.py          prints what both probes see, several times
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing.connection import Connection
from statistics import median
from typing import NamedTuple

import numba
import numpy as np

THREADS = 2
TERMS = (
    8  # multiply-adds for each number loaded: enough to hide the load, few enough for the compiler to unroll
)
ROWS, LENGTH = 10, 512  # 20 KB, at home in the first cache


@numba.njit(nogil=True, fastmath={"contract"}, cache=True)
def multiply_add(x: np.ndarray, y: np.ndarray, repeats: int) -> None:
    """s ← s v + a, TERMS times for each number. Ten rows at once: two units with five cycles of delay stay busy, and registers suffice."""
    v = np.float32(0.5)
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9]
    for repeat in range(repeats):
        a = np.float32(repeat)
        for i in range(len(y)):
            b, c, d, e, f = x0[i], x1[i], x2[i], x3[i], x4[i]
            g, h, j, k, m = x5[i], x6[i], x7[i], x8[i], x9[i]
            for _ in range(TERMS):
                b, c, d, e, f = b * v + a, c * v + a, d * v + a, e * v + a, f * v + a
                g, h, j, k, m = g * v + a, h * v + a, j * v + a, k * v + a, m * v + a
            y[i] = b + c + d + e + f + g + h + j + k + m


@numba.njit(nogil=True, fastmath=True, cache=True)
def add_up(x: np.ndarray) -> float:
    """From four places at once: one stream alone waits for the memory more than it reads."""
    a = b = c = d = np.float32(0)
    quarter = len(x) // 4
    x0, x1, x2, x3 = x[:quarter], x[quarter : 2 * quarter], x[2 * quarter : 3 * quarter], x[3 * quarter :]
    for i in range(quarter):
        a, b, c, d = a + x0[i], b + x1[i], c + x2[i], d + x3[i]
    return a + b + c + d


@cache
def crew() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS)


@cache
def room(length: int) -> np.ndarray:
    """One row of numbers for each thread."""
    return np.full((THREADS, length), 0.5, np.float32)


def together(work: Callable[[int], object]) -> float:
    """Seconds for all threads to do their part."""
    began = time.perf_counter()
    list(crew().map(work, range(THREADS)))
    return time.perf_counter() - began


def probe(seconds: float = 0.02) -> float:
    """GFLOP/s of single-precision multiply-adds that stay in registers, on all threads: the most that training could use."""
    x, y = room(ROWS * LENGTH).reshape(THREADS, ROWS, LENGTH), room(LENGTH)
    work = 2e-9 * TERMS * ROWS * LENGTH  # GFLOP of one repeat on one thread
    repeats = max(1, int(seconds * 50 / work))
    return work * repeats * THREADS / together(lambda row: multiply_add(x[row], y[row], repeats))


def lone(seconds: float = 0.02) -> float:
    """The same of one thread in its own processor seconds, which others that use the machine lengthen little: goes with `process_time`."""
    x, y = room(ROWS * LENGTH).reshape(THREADS, ROWS, LENGTH)[0], room(LENGTH)[0]
    work = 2e-9 * TERMS * ROWS * LENGTH
    repeats = max(1, int(seconds * 50 / work))
    began = time.thread_time()
    multiply_add(x, y, repeats)
    return work * repeats / (time.thread_time() - began)


def bandwidth(megabytes: int = 512) -> float:
    """GB/s read from memory on all threads: the most that decoding one token at a time could use. Waits first: threads of other libraries
    go on spinning for some 0.2 s after their work."""
    x = room(megabytes * 250_000 // THREADS)
    time.sleep(0.3)
    return x.nbytes * 1e-9 / together(lambda row: add_up(x[row]))


_homes: dict[str, Connection] = {}


def apart(
    make: Callable[..., Callable[[], float]], *args: object, home: str | None = None
) -> Callable[[], float]:
    """A variant in a process of its own, as its user would run it: what one does to allocator, threads or caches reaches no other.
    `make(*args)` is called there, and gives the work. Variants of one `home` follow each other in one process, which spares its start."""
    here = _homes.get(home)
    if here is None:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        context.Process(target=obey, args=(there,), daemon=True).start()
        there.close()
        if home is not None:
            _homes[home] = here
    here.send((make, args))

    def work() -> float:
        here.send(None)
        return here.recv()

    return work


def obey(orders: Connection) -> None:
    """What is sent is what to make, or None: do it once."""
    work = None
    while True:
        try:
            order = orders.recv()
        except EOFError:
            return
        if order is None:
            orders.send(work())
        else:
            work = None
            work = order[0](*order[1])


class Row(NamedTuple):
    """One variant's line: units per second, its ratio to the fastest peer (median, lowest and highest round), its share of the probe."""

    name: str
    rate: float
    ratio: float
    low: float
    high: float
    share: float | None


def interleave(
    variants: dict[str, Callable[[], float]],
    rounds: int,
    cost: float | dict[str, float] | None = None,
    hardware: Callable[[], float] = probe,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Row]:
    """Times the variants in turns. The first is ours, the others are the peers it is compared with.

    A variant does its work and returns how many units (tokens, words, sentences) it did. `cost` is what a unit takes of the hardware, in
    billions of what `hardware` counts: GFLOP for `probe`, GB for `bandwidth`, one for all or by name; without it there is no share. Medians
    over the rounds; a ratio is taken within a round, where both sides saw the same machine.
    """
    names = list(variants)
    if len(names) < 2 or rounds < 1:
        raise ValueError(
            f"a comparison needs two variants and one round at least, not {len(names)} and {rounds}"
        )
    for name in names:
        variants[name]()  # what is made once is not timed
    costs = cost if isinstance(cost, dict) else dict.fromkeys(names, cost or 0)
    rates: dict[str, list[float]] = {name: [] for name in names}
    shares: dict[str, list[float]] = {name: [] for name in names}
    hardware()
    before = hardware()
    for number in range(rounds):
        for name in rotated(names, number):
            began = clock()
            units = variants[name]()
            rates[name].append(units / (clock() - began))
            after = hardware()
            shares[name].append(rates[name][-1] * costs[name] / ((before + after) / 2))
            before = after
    best = max(names[1:], key=lambda name: median(rates[name]))
    rows = []
    for name in names:
        ratios = [ours / theirs for ours, theirs in zip(rates[name], rates[best], strict=True)]
        share = median(shares[name]) if cost else None
        rows.append(Row(name, median(rates[name]), median(ratios), min(ratios), max(ratios), share))
    return rows


def rotated(names: list[str], number: int) -> list[str]:
    """Each round begins with another variant, so that none always follows the same one."""
    start = number % len(names)
    return names[start:] + names[:start]


def show(title: str, rows: list[Row], unit: str = "tok/s") -> None:
    """Prints a table for people."""
    print(f"\n{title}")
    print(f"  {'':28}{unit:>10}  ratio  (lowest - highest)  share of probe")
    for row in rows:
        share = "" if row.share is None else f"{row.share:14.0%}"
        rate = f"{row.rate:10,.0f}" if row.rate >= 100 else f"{row.rate:10.1f}"
        print(
            f"  {row.name:28}{rate}  {row.ratio:5.2f}  ({row.low:5.2f} - {row.high:5.2f}){share}", flush=True
        )


def record(title: str, rows: list[Row]) -> str:
    """One line for machines."""
    return json.dumps({"case": title, "rows": [row._asdict() for row in rows]})


def benchmark_options(description: str, quick: str) -> argparse.ArgumentParser:
    """The options that benchmarks share; `quick` says what --quick leaves out."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--rounds", type=int, help="timings of each variant")
    parser.add_argument("--only", default="", help="cases whose title contains this")
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="one thread and processor seconds: a first look while others use the machine",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each case")
    return parser


if __name__ == "__main__":
    probe(), bandwidth()
    for _ in range(10):
        print(f"{probe():7.1f} GFLOP/s {bandwidth():7.1f} GB/s")
