"""How many cases of each class failed when the class was attacked first, before what it found was mended."""

from __future__ import annotations

BEFORE = {
    "crash before each operation of a young run": "32 of 114",
    "disk full from an operation of a young run on": "5 of 23",
    "disks that are too small": "1 of 5",
    "bit flips of an interrupted run": "8 of 40",
    "truncations of an interrupted run": "1 of 20",
    "missing files of an interrupted run": "2 of 15",
    "swapped files and checkpoints of an interrupted run": "5 of 20",
    "renamed checkpoints of an interrupted run": "4 of 15",
    "added files and checkpoints of an interrupted run": "4 of 15",
    "random option sets": "3 of 500",
    "extreme values, one at a time": "6 of 623",
    "malformed corpora x readers": "15 of 770",
    "malformed corpora, pipes and devices x verbs": "9 of 201",
    "damaged npz of vectors": "13 of 100",
    "hostile texts x verbs": "2 of 336",
    "one of two processes is killed": "4 of 6",
    "one of two processes is stopped (SIGSTOP)": "1 of 1",
    "NaN and infinity on one of two ranks": "1 of 9",
}
