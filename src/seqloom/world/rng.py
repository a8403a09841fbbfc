"""Random integers that are the same on every machine and under every Python: SplitMix64 (Steele, Lea and Flood, 2014).

Python's own `random` promises no such thing for every method it has, and seeding it costs more than a whole scene does.
"""

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(state: int) -> int:
    """The output of SplitMix64 at a state; the next state is `state + GOLDEN` modulo 2^64."""
    z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def stream_state(seed: int, index: int) -> int:
    """The state with which the stream of (seed, index) begins, so that any index can be drawn without the ones before it."""
    return splitmix64((splitmix64(seed & MASK) + index * GOLDEN) & MASK)
