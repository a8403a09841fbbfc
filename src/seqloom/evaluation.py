"""What a model is worth on data: likelihood for all, and BLEU and chrF where records are pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import nn

from seqloom.batches import Blocks, Masked, Windows
from seqloom.batches.batch import Batch, Batches
from seqloom.inference import prediction
from seqloom.inference.generation import (
    MAX_UNK_RATIO,
    TOKENS_PER_BLOCK,
    generate,
)
from seqloom.measure import Number, likelihood, make_signature, pronunciation, translation
from seqloom.measure.classification import Confusion
from seqloom.nn.state import State
from seqloom.run import Run
from seqloom.text.store import Store, build
from seqloom.text.tokenizer import signature


@torch.no_grad()
def sum_numbers(
    model: nn.Module, objective: Callable, batches: Iterator[Batch]
) -> tuple[dict[str, float], int]:
    """The sum over the batches of each number that the objective gives, and how many tokens count."""
    training, sums, count = model.training, Counter({"nats": 0.0}), 0
    state: State = None
    model.eval()
    for batch in batches:
        _, numbers, state = objective(model, batch, state if batch.carry_state else None)
        sums.update(numbers)
        count += batch.num_targets
    model.train(training)
    return dict(sums), count


def total_nll(model: nn.Module, objective: Callable, batches: Iterator[Batch]) -> tuple[float, int]:
    """Σ -ln P over every counted token of the batches, and how many there are."""
    sums, count = sum_numbers(model, objective, batches)
    return sums["nats"], count


def utf8_bytes(run: Run, store: Store, count: int) -> int:
    """The UTF-8 bytes of what is predicted, the last field of each record, with a line's end where a record has one; 0 where `count` tokens are
    not all of it, or where the tokenizer knows so little of it that its bytes are not what the tokens say."""
    field, unk = store.fields[-1], run.specials.unk
    steps = range(0, len(field.tokens), TOKENS_PER_BLOCK)
    unknown = (
        0
        if unk is None
        else sum(int((field.tokens[begin : begin + TOKENS_PER_BLOCK] == unk).sum()) for begin in steps)
    )
    if count != len(field.tokens) or unknown * MAX_UNK_RATIO > count:
        return 0
    return int(field.bytes[-1] - field.bytes[0]) + (len(store) if run.ends else 0)


def windowed_data(run: Run, store: Store, window: int | None, stride: int | None) -> Batches:
    """The run's own data over the store, or windows of another width and stride: each token counts once, and all but those of the first window
    have at least window - stride tokens before them   [I5]"""
    if window is None and stride is None:
        return run.recipe.data(store)
    own = run.recipe.data(store)
    if not isinstance(own, Windows | Blocks):
        raise ValueError(
            "--window and --stride are for language models, which read one long text; leave them out"
        )
    window = min(own.width, run.model.context or own.width) if window is None else window
    stride = window if stride is None else stride
    if not 0 < stride <= window or (run.model.context and window > run.model.context):
        most = (
            f" and at most the {run.model.context} tokens that the model reads at once"
            if run.model.context
            else ""
        )
        raise ValueError(f"--window {window} --stride {stride}: give a stride from 1 to the window{most}")
    return Windows(store, window, max(1, own.batch * own.width // window), stride)


def signature_options(data: Batches) -> dict[str, object]:
    """The options of the data that a signature names; its keys are part of published figures and never change."""
    if isinstance(data, Windows):
        return {"width": data.width, "stride": data.stride}
    if isinstance(data, Masked):
        return {"width": data.width, "rate": data.rate}
    return {"width": data.width} if isinstance(data, Blocks) else {}


def evaluate_labels(run: Run, store: Store, most: int | None = None) -> prediction.LabelMetrics:
    """The numbers of a run that gives labels: what its answers are worth, and -ln P of the right ones."""
    facts = {"data": store.digest[:12], "tokenizer": signature(run.tokenizer), "seed": run.recipe.seed}
    found = prediction.measure(run, store, facts, most)
    total, count = total_nll(
        run.model, run.recipe.objective, islice(run.recipe.data(store).sequential(), most)
    )
    return found._replace(
        numbers=[
            *found.numbers,
            Number(
                "nats per label", total / max(count, 1), make_signature("nats", {"labels": count, **facts})
            ),
        ]
    )


def confusion_matrix(run: Run, paths: list[str]) -> Confusion:
    """How often each label was taken for which."""
    found = (
        evaluate_labels(run, build(run.recipe.reader(paths), run.tokenizer, labels=run.labels)).confusion
        if prediction.task_of(run.model)
        else None
    )
    if found is None:
        raise ValueError(f"{run.folder}: a {type(run.model).__name__} gives no labels; leave --confusion out")
    return found


def held_out(run: Run, store: Store, most: int) -> list[Number]:
    """The numbers of at most `most` batches: the likelihood, or what labels are worth; bits per byte only where that is all of them."""
    if prediction.task_of(run.model):
        return evaluate_labels(run, store, most).numbers
    total, count = total_nll(
        run.model, run.recipe.objective, islice(run.recipe.data(store).sequential(), most)
    )
    facts = {"data": store.digest[:12], "tokenizer": signature(run.tokenizer), "seed": run.recipe.seed}
    return likelihood(total, count, utf8_bytes(run, store, count), facts)


def evaluate(
    run: Run,
    paths: list[str],
    width: int = 1,
    penalty: float = 0.6,
    progress: Callable[[int], None] | None = None,
    window: int | None = None,
    stride: int | None = None,
) -> list[Number]:
    """Every number of a run on the given files, each with its signature. `window` and `stride` are of a language model's reading."""
    store = build(run.recipe.reader(paths), run.tokenizer, labels=run.labels)
    if prediction.task_of(run.model):
        return evaluate_labels(run, store).numbers
    if not run.model.predicts_tokens:
        raise ValueError(
            f"{run.folder}: an {type(run.model).__name__} has no output to measure; embed texts with it, or train a task from it"
        )
    facts = {"data": store.digest[:12], "tokenizer": signature(run.tokenizer), "seed": run.recipe.seed}
    source = windowed_data(run, store, window, stride)
    facts |= signature_options(source)
    sums, count = sum_numbers(run.model, run.recipe.objective, source.sequential())
    numbers = likelihood(sums["nats"], count, utf8_bytes(run, store, count), facts)
    for name, right, of in (
        ("accuracy", "correct", count),
        ("next segment", "nsp_correct", sums.get("pairs", 0)),
    ):
        if right in sums:
            numbers.append(
                Number(
                    name, 100 * sums[right] / max(of, 1), make_signature("accuracy", {"of": int(of), **facts})
                )
            )
    if len(store.fields) == 2:
        records = list(run.recipe.reader(paths))
        outputs = generate(
            run, [record[0] for record in records], width=width, penalty=penalty, progress=progress
        )
        facts |= {"search": f"beam{width}-{penalty}" if width > 1 else "greedy"}
        texts, (sources, targets) = [found[0].text for found in outputs], zip(*records, strict=True)
        spoken = run.recipe.parts["corpus"].func.measure == "pronunciation"
        numbers += (
            pronunciation(sources, texts, targets, facts) if spoken else translation(texts, targets, facts)
        )
    return numbers
