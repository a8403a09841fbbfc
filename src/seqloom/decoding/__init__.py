"""Decoding: one loop with its samplers, beam search and exact search, for every model that offers the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.lazy import lazy_names

if TYPE_CHECKING:
    from seqloom.decoding.beam import Hypothesis, beam_search
    from seqloom.decoding.coverage import Coverage, forced_attention
    from seqloom.decoding.ensemble import Ensemble
    from seqloom.decoding.exact import exact_search
    from seqloom.decoding.forced import forced_log_probs
    from seqloom.decoding.loop import DecodedSequence, DecodeStep, generate_batch, generate_steps
    from seqloom.decoding.options import Decoding, DecodingOptions, DecodingPlan
    from seqloom.decoding.sampling import Greedy, RandomSampler, Sampler, row_seeds
    from seqloom.decoding.search_report import Branch, SearchReport, SearchTree, explain_search
    from seqloom.decoding.workers import parallel_map

__all__ = [
    "Branch",
    "Coverage",
    "DecodeStep",
    "DecodedSequence",
    "Decoding",
    "DecodingOptions",
    "DecodingPlan",
    "Ensemble",
    "Greedy",
    "Hypothesis",
    "RandomSampler",
    "Sampler",
    "SearchReport",
    "SearchTree",
    "beam_search",
    "exact_search",
    "explain_search",
    "forced_attention",
    "forced_log_probs",
    "generate_batch",
    "generate_steps",
    "parallel_map",
    "row_seeds",
]

NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)
