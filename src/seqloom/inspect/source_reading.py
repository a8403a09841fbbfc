"""A picture or a sound as a run's model reads it, and ln P of the text that it writes for it.

The positions of the source are those of the encoder's memory; `SourceEncoder.position_names` says what a reader calls them, such as
rows and columns of a picture.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.batches.sources import stack_sources
from seqloom.decoding import Decoding
from seqloom.errors import RunError
from seqloom.inference.source_completion import complete_sources
from seqloom.inference.sources import source_of
from seqloom.inspect.reading import Reading, picked, pieces
from seqloom.models.source_to_text import SourceToText
from seqloom.run import Run


def read_source(run: Run, file: str, target: str | None, max_tokens: int | None) -> Reading:
    """The reading of a file and its text, the run's own or a given one, of which at most `max_tokens` are read."""
    model = run.model
    if not isinstance(model, SourceToText):
        raise RunError(
            f"{run.folder}: a {type(model).__name__} does not write text word by word, so it cannot be read so; inspect a model that does"
        )
    array = source_of(run, file, file).array()
    if target is None:
        limit = None if max_tokens is None else max(1, max_tokens - 1)
        plan = Decoding(max_tokens=limit).plan(run.decoding)
        [[best, *_]] = complete_sources(run, [file], lambda _: array, plan)
        written = list(best.ids)
    else:
        written = run.tokenizer.encode(target, add_special_tokens=False).ids
    written = written if max_tokens is None else written[: max(1, max_tokens - 1)]
    targets = torch.tensor([[*written, run.specials.eos]])
    bos = run.specials.bos
    first = run.specials.first_id if bos is None else bos

    def scores(batch: int) -> Tensor:
        source, mask = stack_sources([array] * batch)
        start, state, _ = model.prepare_prompt(source, mask, first)
        ids = torch.cat([start, targets[:, :-1].expand(batch, -1)], 1)
        return picked(model(ids, state)[0], targets)

    source, mask = stack_sources([array])
    memory_mask = model.encoder.memory_mask(source, mask)
    names = model.encoder.position_names(memory_mask.shape[1])
    return Reading(
        pieces(run, [first, *written]),
        tuple(names),
        pieces(run, targets[0].tolist()),
        "ln P of the next token",
        scores,
    )
