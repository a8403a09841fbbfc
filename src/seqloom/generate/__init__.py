"""Generation: one loop, the picks it chooses with, beam search and exact search, for every model that keeps the protocol."""

from seqloom.generate.beam import Hypothesis, beam
from seqloom.generate.coverage import Coverage, weigh
from seqloom.generate.ensemble import Ensemble
from seqloom.generate.force import force
from seqloom.generate.loop import Step, Text, complete, generate
from seqloom.generate.picks import Greedy, Pick, Sample, seeds
from seqloom.generate.search import exact
from seqloom.generate.why import Branch, Reason, Tree, why
from seqloom.generate.workers import shared

__all__ = [
    "Branch",
    "Coverage",
    "Ensemble",
    "Greedy",
    "Hypothesis",
    "Pick",
    "Reason",
    "Sample",
    "Step",
    "Text",
    "Tree",
    "beam",
    "complete",
    "exact",
    "force",
    "generate",
    "seeds",
    "shared",
    "weigh",
    "why",
]
