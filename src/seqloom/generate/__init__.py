"""Generation: one loop, the picks it chooses with, beam search and exact search, for every model that keeps the protocol."""

from seqloom.generate.beam import Hypothesis, beam
from seqloom.generate.loop import Step, Text, complete, generate
from seqloom.generate.picks import Greedy, Pick, Sample, seeds
from seqloom.generate.search import exact

__all__ = ["Greedy", "Hypothesis", "Pick", "Sample", "Step", "Text", "beam", "complete", "exact", "generate", "seeds"]
