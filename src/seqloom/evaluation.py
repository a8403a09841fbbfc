"""Scores of a run on data: likelihood for every task, and BLEU and chrF or error rates if records are pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import nn

from seqloom.batches.batch import Batch, Batches
from seqloom.batches.windows import Blocks, Windows
from seqloom.measure.number import Number, likelihood, make_signature
from seqloom.nn.state import State
from seqloom.run import Run
from seqloom.text.store import Store, build
from seqloom.text.tokenizer import signature

if TYPE_CHECKING:
    from seqloom.inference.prediction import LabelMetrics
    from seqloom.measure.classification import Confusion

TOKENS_PER_BLOCK = 1 << 20  # tokens that are counted at a time, which bounds the memory
MIN_TOKENS_PER_UNK = 1000  # bits per byte are left out if more than one token in 1000 is <unk>


@torch.no_grad()
def sum_numbers(
    model: nn.Module, objective: Callable, batches: Iterable[Batch]
) -> tuple[dict[str, float], int]:
    """Each number that the objective returns, summed over the batches, and the number of counted tokens."""
    was_training = model.training
    sums = Counter({"nats": 0.0})
    count = 0
    state: State = None
    model.eval()
    for batch in batches:
        _, numbers, state = objective(model, batch, state if batch.carry_state else None)
        sums.update(numbers)
        count += batch.num_targets
    model.train(was_training)
    return dict(sums), count


def total_nll(model: nn.Module, objective: Callable, batches: Iterable[Batch]) -> tuple[float, int]:
    """Σ -ln P over every counted token of the batches, and the number of these tokens."""
    sums, count = sum_numbers(model, objective, batches)
    return sums["nats"], count


def held_out_nll(run: Run, store: Store, max_batches: int | None) -> tuple[float, int]:
    """`total_nll` of the run on at most `max_batches` batches of the store."""
    batches = run.recipe.data(store).sequential()
    return total_nll(run.model, run.recipe.objective, islice(batches, max_batches))


def conditions(run: Run, store: Store) -> dict[str, object]:
    """The conditions that every signature of the run's scores records."""
    return {"data": store.digest[:12], "tokenizer": signature(run.tokenizer), "seed": run.recipe.seed}


def utf8_bytes(run: Run, store: Store, count: int) -> int:
    """The UTF-8 bytes of the predicted text: the last field of each record, and a newline if records end with <eos>.

    0 if the `count` tokens are not all of it, or if too many of them are <unk>, which stands for unknown bytes.
    """
    field = store.fields[-1]
    if count != len(field.tokens) or num_unk(run, store) * MIN_TOKENS_PER_UNK > count:
        return 0
    return int(field.bytes[-1] - field.bytes[0]) + (len(store) if run.adds_eos else 0)


def num_unk(run: Run, store: Store) -> int:
    """How often <unk> occurs in the last field of the store."""
    tokens = store.fields[-1].tokens
    unk = run.specials.unk
    if unk is None:
        return 0
    starts = range(0, len(tokens), TOKENS_PER_BLOCK)
    return sum(int((tokens[start : start + TOKENS_PER_BLOCK] == unk).sum()) for start in starts)


def windowed_data(run: Run, store: Store, window: int | None, stride: int | None) -> Batches:
    """The run's data over the store, or windows of another width and stride   [I5].

    Each token counts once, and every token but those of the first window has at least window - stride tokens before it.
    """
    data = run.recipe.data(store)
    if window is None and stride is None:
        return data
    if not isinstance(data, Windows | Blocks):
        raise ValueError("--window and --stride are for language models, which read one long text; drop them")
    context = run.model.context
    if window is None:
        window = min(data.width, context or data.width)
    if stride is None:
        stride = window
    if not 0 < stride <= window or (context and window > context):
        limit = f" and a window of at most {context} tokens, the context of the model" if context else ""
        raise ValueError(f"--window {window} --stride {stride}: give a stride from 1 to the window{limit}")
    return Windows(store, window, max(1, data.batch * data.width // window), stride)


def signature_options(data: Batches) -> dict[str, object]:
    """The options of the data that a signature names; its keys are part of published figures and never change."""
    if isinstance(data, Windows):
        return {"width": data.width, "stride": data.stride}
    from seqloom.batches.masked import Masked

    if isinstance(data, Masked):
        return {"width": data.width, "rate": data.rate}
    return {"width": data.width} if isinstance(data, Blocks) else {}


def evaluate_labels(run: Run, store: Store, max_batches: int | None = None) -> LabelMetrics:
    """The scores of a run that predicts labels, and the mean -ln P of the correct ones."""
    from seqloom.inference import prediction

    shared = conditions(run, store)
    metrics = prediction.measure(run, store, shared, max_batches)
    nll, count = held_out_nll(run, store, max_batches)
    label_nll = Number(
        "nats per label", nll / max(count, 1), make_signature("nats", {"labels": count, **shared})
    )
    return metrics._replace(numbers=[*metrics.numbers, label_nll])


def confusion_matrix(run: Run, paths: list[str]) -> Confusion:
    """How often each label was predicted for each correct label."""
    confusion = None
    if run.model.predicts_labels:
        confusion = evaluate_labels(run, read_store(run, paths)).confusion
    if confusion is None:
        raise ValueError(f"{run.folder}: a {type(run.model).__name__} predicts no labels; drop --confusion")
    return confusion


def read_store(run: Run, paths: list[str]) -> Store:
    """The files as a store, under the run's tokenizer and labels."""
    return build(run.recipe.reader(paths), run.tokenizer, labels=run.labels)


def held_out(run: Run, store: Store, max_batches: int) -> list[Number]:
    """The scores on at most `max_batches` batches: of labels, or the likelihood, with bits per byte if that is all data."""
    if run.model.predicts_labels:
        return evaluate_labels(run, store, max_batches).numbers
    nll, count = held_out_nll(run, store, max_batches)
    return likelihood(nll, count, utf8_bytes(run, store, count), conditions(run, store))


def evaluate(
    run: Run,
    paths: list[str],
    width: int = 1,
    penalty: float = 0.6,
    progress: Callable[[int], None] | None = None,
    window: int | None = None,
    stride: int | None = None,
) -> list[Number]:
    """Every score of a run on the given files, each with its signature.

    `width` and `penalty` are the beam and its length penalty for records that are pairs; `window` and `stride` are the
    windows in which a language model reads the text.
    """
    store = read_store(run, paths)
    if run.model.predicts_labels:
        return evaluate_labels(run, store).numbers
    if not run.model.predicts_tokens:
        raise ValueError(
            f"{run.folder}: an {type(run.model).__name__} has no output to measure; "
            "embed texts with it, or fine-tune it for a task"
        )
    data = windowed_data(run, store, window, stride)
    shared = conditions(run, store) | signature_options(data)
    sums, count = sum_numbers(run.model, run.recipe.objective, data.sequential())
    numbers = likelihood(sums["nats"], count, utf8_bytes(run, store, count), shared)
    numbers += accuracies(sums, count, shared)
    if len(store.fields) == 2:
        numbers += evaluate_pairs(run, paths, width, penalty, progress, shared)
    return numbers


def accuracies(sums: dict[str, float], count: int, shared: dict[str, object]) -> Iterator[Number]:
    """The accuracies of a masked language model: of tokens, and of next-segment predictions if it makes them."""
    totals = {"accuracy": ("correct", count), "next segment": ("nsp_correct", sums.get("pairs", 0))}
    for name, (key, total) in totals.items():
        if key in sums:
            percentage = 100 * sums[key] / max(total, 1)
            yield Number(name, percentage, make_signature("accuracy", {"of": int(total), **shared}))


def evaluate_pairs(
    run: Run,
    paths: list[str],
    width: int,
    penalty: float,
    progress: Callable[[int], None] | None,
    shared: dict[str, object],
) -> list[Number]:
    """The scores of the texts that the run generates from the first field of each record."""
    from seqloom.decoding import Decoding
    from seqloom.inference.generation import Execution, generate
    from seqloom.measure.pronunciation import pronunciation
    from seqloom.measure.translation import translation

    reader = run.recipe.reader(paths)
    sources, targets = zip(*reader, strict=True)
    decoding = Decoding(beam=width, length_penalty=penalty)
    completions = generate(run, list(sources), decoding, Execution(progress=progress))
    texts = [candidates[0].text for candidates in completions]
    search = {"search": f"beam{width}-{penalty}" if width > 1 else "greedy"}
    if reader.measure == "pronunciation":
        return pronunciation(sources, texts, targets, shared | search)
    return translation(texts, targets, shared | search)
