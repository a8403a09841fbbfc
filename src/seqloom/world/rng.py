"""Random integers that are the same on every machine and in
every Python: SplitMix64 (Steele, Lea and Flood, 2014).

Python's `random` does not guarantee this for all its methods,
and seeding it takes longer than drawing a scene.
"""

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(state: int) -> int:
    """Returns the output of SplitMix64 at a state; the next state is `state + GOLDEN` modulo 2^64."""
    z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def stream_state(seed: int, index: int) -> int:
    """Returns the initial state of the stream (seed, index);
    any index can be drawn without those before it."""
    return splitmix64((splitmix64(seed & MASK) + index * GOLDEN) & MASK)
