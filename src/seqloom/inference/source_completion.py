"""The texts that a model writes for pictures or sounds, and ln P of given texts: `complete` and `score` for what is not text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from seqloom.batches.sources import stack_sources
from seqloom.decoding import DecodedSequence, DecodingPlan, Hypothesis, forced_log_probs, parallel_map
from seqloom.inference.completion import (
    Completion,
    Execution,
    TokenGenerator,
    prepare_prompt,
    text_seeds,
    to_completion,
)
from seqloom.inference.detokenizer import Detokenizer, StopStrings
from seqloom.run import Run

SOURCES_PER_GROUP = 32

LoadSource = Callable[[int], np.ndarray]
"""The array of the source with this index."""


def complete_sources(
    run: Run,
    names: Sequence[str],
    load: LoadSource,
    plan: DecodingPlan = DecodingPlan(),
    execution: Execution = Execution(),
) -> list[list[Completion]]:
    """The `plan.n` texts that the model writes for each source. A source is loaded when its group is decoded, so that
    memory does not grow with their number. The result does not depend on the groups."""
    samples = 1 if plan.searches else plan.n
    seeds = text_seeds(plan.seed, names, samples)
    generator = TokenGenerator(run, plan)
    detokenizer = Detokenizer(run, "", [])

    def generate_group(indices: list[int]) -> list[list[Completion]]:
        source, mask = stack_sources([load(index) for index in indices])
        results: Sequence[Sequence[DecodedSequence | Hypothesis]]
        if plan.searches:
            results = generator.search(source, mask)
        else:
            mask = None if mask is None else mask.repeat_interleave(samples, 0)
            rows = [index * samples + sample for index in indices for sample in range(samples)]
            endings = [StopStrings(detokenizer, plan.stop) for _ in rows]
            texts = generator.generate(
                source.repeat_interleave(samples, 0), mask, [seeds[row] for row in rows], endings
            )
            results = [texts[first : first + samples] for first in range(0, len(texts), samples)]
        if execution.progress:
            execution.progress(len(indices))
        return [[to_completion(text, detokenizer, plan) for text in texts] for texts in results]

    size = max(1, SOURCES_PER_GROUP // plan.beam)
    groups = [list(range(start, min(start + size, len(names)))) for start in range(0, len(names), size)]
    return [texts for found in parallel_map(generate_group, groups, execution.workers) for texts in found]


def source_log_probs(run: Run, sources: Sequence[np.ndarray], texts: Sequence[str]) -> list[list[float]]:
    """ln P(yₜ | y₍<t₎, source) of each token of each text and of its end; one text for each source."""
    source, mask = stack_sources(sources)
    prompt, state, prompt_mask = prepare_prompt(run, source, mask)
    rows = [encoding.ids for encoding in run.tokenizer.encode_batch(list(texts), add_special_tokens=False)]
    return forced_log_probs(run.model, prompt, rows, state, prompt_mask, eos_id=run.specials.eos)
