"""Scores of a run on data: likelihood for every task, and BLEU and chrF or error rates if records are pairs."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import nn

from seqloom.batches.batch import Batch, Batches, Blocks, Windows
from seqloom.decoding.options import Decoding, DecodingOptions, DecodingPlan
from seqloom.errors import UserError
from seqloom.measure.number import (
    Number,
    RecordSums,
    likelihood,
    make_signature,
    nats_interval,
    percent,
    wilson,
)
from seqloom.nn.layer import State
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run import Run, RunLike, as_run
from seqloom.text.records import field_class
from seqloom.text.store import Store
from seqloom.text.tokenizer import signature
from seqloom.text.unknown_words import UNKNOWN

if TYPE_CHECKING:
    from seqloom.data.overlap import LeakReport
    from seqloom.inference.evaluation_data import Data, EvaluationData
    from seqloom.inference.prediction import LabelMetrics
    from seqloom.measure.by_length import LengthBucket, ScoredRecords
    from seqloom.measure.classification import Confusion

TOKENS_PER_BLOCK = 1 << 20  # tokens that are counted at a time, which bounds the memory
MIN_TOKENS_PER_UNK = 1000  # bits per byte are left out if more than one token in 1000 is <unk>
RECORD_METRICS = {  # task: the metric of which a record has its part
    "tagging": "accuracy",
    "classification": "accuracy",
    "question answering": "exact_match",
    "regression": "rmse",
}


@dataclass(frozen=True)
class Evaluation(Result):
    """The metrics of a run on data, by name: `evaluation["bleu"].value`. Digests say which data and which weights; `leaks` how much of the data
    is in the training data, None if that is not here any more."""

    numbers: tuple[Number, ...]
    data_sha256: str
    weights_sha256: str | None
    leaks: LeakReport | None = None
    records: ScoredRecords | None = field(default=None, repr=False, compare=False, metadata={"json": False})

    def __getitem__(self, name: str) -> Number:
        for number in self.numbers:
            if number.name == name:
                return number
        raise KeyError(f"{name}: the metrics here are {', '.join(number.name for number in self.numbers)}")

    def __contains__(self, name: object) -> bool:
        return any(number.name == name for number in self.numbers)

    def __iter__(self) -> Iterator[Number]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def by_length(self) -> list[LengthBucket]:
        """The main metric in buckets of source length, with about as many records in each."""
        if self.records is None:
            raise UserError(
                "running text has no records to sort by length; evaluate a translator, or a run that predicts labels"
            )
        from seqloom.measure.by_length import by_length

        return by_length(self.records, self[self.records.name].signature)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(number.title)}</td><td>{number.value:.4f}</td><td>{number.interval}</td>"
            f"<td><small>{html.escape(number.signature)}</small></td></tr>"
            for number in self.numbers
        )
        return f"<table><tr><th>metric</th><th>value</th><th>95 %</th><th>signature</th></tr>{rows}</table>"


@torch.no_grad()
def sum_numbers(
    model: nn.Module, objective: Callable, batches: Iterable[Batch], blocks: RecordSums | None = None
) -> tuple[dict[str, float], int]:
    """Each number that the objective returns, summed over the batches, and the number of counted tokens. `blocks` receives the nats and
    tokens of each batch."""
    was_training = model.training
    sums = Counter({"nats": 0.0})
    count = 0
    state: State = None
    model.eval()
    for batch in batches:
        _, numbers, state = objective(model, batch, state if batch.carry_state else None)
        sums.update(numbers)
        count += batch.num_targets
        if blocks is not None:
            blocks.add(numbers["nats"], batch.num_targets)
    model.train(was_training)
    return dict(sums), count


def total_nll(
    model: nn.Module, objective: Callable, batches: Iterable[Batch], blocks: RecordSums | None = None
) -> tuple[float, int]:
    """Σ -ln P over every counted token of the batches, and the number of these tokens."""
    sums, count = sum_numbers(model, objective, batches, blocks)
    return sums["nats"], count


def held_out_nll(run: Run, store: Store, max_batches: int | None, blocks: RecordSums) -> tuple[float, int]:
    """`total_nll` of the run on at most `max_batches` batches of the store."""
    batches = run.config.data(store).sequential()
    return total_nll(run.model, run.config.objective, islice(batches, max_batches), blocks)


def conditions(run: Run, store: Store) -> dict[str, object]:
    """The conditions that every signature of the run's scores records."""
    return {"data": store.digest[:12], "tokenizer": signature(run.tokenizer), "seed": run.config.seed}


def utf8_bytes(run: Run, store: Store, count: int) -> int:
    """The UTF-8 bytes of the predicted text: the last field of each record, and a newline if records end with <eos>.

    0 if the `count` tokens are not all of it, or if too many of them are <unk>, which stands for unknown bytes. The first token of a
    text that nothing precedes is not predicted.
    """
    field = store.fields[-1]
    if num_unk(run, store) * MIN_TOKENS_PER_UNK > count:
        return 0
    if run.starts_bare and count == field.num_tokens - 1:
        first = run.decode([int(next(field.blocks())[0])])
        return 0 if "\ufffd" in first else field.num_bytes - len(first.encode())
    if count != field.num_tokens:
        return 0
    return field.num_bytes + (len(store) if run.adds_eos else 0)


def num_unk(run: Run, store: Store) -> int:
    """How often <unk> occurs in the last field of the store."""
    unk = run.specials.unk
    if unk is None:
        return 0
    return sum(int(((tokens == unk) | (tokens >= UNKNOWN)).sum()) for tokens in store.fields[-1].blocks())


def windowed_data(run: Run, store: Store, window: int | None, stride: int | None) -> Batches:
    """The run's data over the store, or windows of another width and stride   [I5].

    Each token counts once, and every token but those of the first window has at least window - stride tokens before it.
    """
    data = run.config.data(store)
    if window is None and stride is None:
        return data
    if not isinstance(data, Windows | Blocks):
        raise UserError("--window and --stride need running text; this model reads records, so drop them")
    context = run.model.context
    if window is None:
        window = min(data.width, context or data.width)
    if stride is None:
        stride = window
    if not 0 < stride <= window or (context and window > context):
        limit = f" and a window of at most {context} tokens, the context of the model" if context else ""
        raise UserError(f"--window {window} --stride {stride}: give a stride from 1 to the window{limit}")
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
    blocks = RecordSums(2)
    nll, count = held_out_nll(run, store, max_batches, blocks)
    label_signature = make_signature("nats", {"labels": count, **shared})
    label_nll = Number(
        "nats_per_label", nll / max(count, 1), label_signature, *nats_interval(blocks), n=count
    )
    return metrics._replace(numbers=[*metrics.numbers, label_nll])


def confusion_matrix(run: Run, data: Data, limit: int | None = None) -> Confusion:
    """How often each label was predicted for each correct label."""
    from seqloom.inference.evaluation_data import read_data

    confusion = None
    if run.model.predicts_labels:
        confusion = evaluate_labels(run, read_data(run, data, limit).store).confusion
    if confusion is None:
        raise UserError(f"{run.folder}: a {type(run.model).__name__} predicts no labels; drop --confusion")
    return confusion


def held_out(run: Run, store: Store, max_batches: int) -> list[Number]:
    """The scores on at most `max_batches` batches: of labels, or the likelihood, with bits per byte if that is all data."""
    if run.model.predicts_labels:
        return evaluate_labels(run, store, max_batches).numbers
    blocks = RecordSums(2)
    nll, count = held_out_nll(run, store, max_batches, blocks)
    return likelihood(nll, count, utf8_bytes(run, store, count), conditions(run, store), blocks)


def evaluate(
    run: RunLike,
    data: Data,
    *,
    window: int | None = None,
    stride: int | None = None,
    limit: int | None = None,
    lm: RunLike | None = None,
    lm_weight: float = 0.5,
    bonus: float = 0.0,
    progress: ProgressOption = False,
    **decoding: Unpack[DecodingOptions],
) -> Evaluation:
    """Every metric of a run on data, each with its 95 % interval and its signature.

    `data` is a file, a list of files, or a list of records as tuples. `window` and `stride` are the windows in which a language model
    reads the text. A translator translates with its own search unless the decoding options say otherwise; `lm`, `lm_weight` and `bonus`
    are those of `transcribe`.

    >>> evaluate(run, "input.txt", window=8, stride=4)["perplexity"].interval
    '[11.08, 12.24]'
    >>> evaluate(translator, ["text.en", "text.fr"], beam=2)["bleu"].signature
    'BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...|search:beam2-0.6'
    >>> evaluate(classifier, [("the old king", "court"), ("a red cat", "animal")])["accuracy"].value
    50.0
    """
    from seqloom.inference.evaluation_data import as_language_model, read_data
    from seqloom.inference.training_overlap import log_leaks, training_leaks
    from seqloom.inference.verbs import wrong_verb

    run = as_run(run)
    training, weights = run.config, run.weights_sha256
    run = as_language_model(run, data)
    if run.model.task == "reward" or run.config.kinds() == ("answer", "answer"):
        return evaluate_feedback(run, data, limit, weights)
    if not run.model.predicts_labels and not run.model.predicts_tokens:
        raise wrong_verb(
            run, "evaluate", f"embed texts with it, seqloom embed {run.folder}, or fine-tune it for a task"
        )
    check_options(run, window is not None or stride is not None, decoding)
    test = read_data(run, data, limit)
    leaks = training_leaks(training, test.records, run.config.kinds(), test.digest)
    log_leaks(leaks, training)
    if run.model.predicts_labels:
        metrics = evaluate_labels(run, test.store)
        scored = label_records(run, test, metrics)
        return Evaluation(tuple(metrics.numbers), test.digest, weights, leaks, scored)
    windows = windowed_data(run, test.store, window, stride)
    if run.starts_bare and isinstance(windows, Windows):
        windows = windows.without_start()
    shared = conditions(run, test.store) | signature_options(windows)
    blocks = RecordSums(2)
    sums, count = sum_numbers(run.model, run.config.objective, windows.sequential(), blocks)
    numbers = likelihood(sums["nats"], count, utf8_bytes(run, test.store, count), shared, blocks)
    numbers += accuracies(sums, count, shared)
    records = None
    if run.model.task == "speech recognition":
        from seqloom.inference.spoken_evaluation import evaluate_speech

        search = (decoding.get("beam"), lm, lm_weight, bonus)
        scores, records = evaluate_speech(run, test, search, progress, shared)
        numbers += scores
    elif run.model.generates and not run.model.continues:
        plan = Decoding().with_options(decoding).plan(run.decoding)
        scores, records = evaluate_pairs(run, test.records, plan, progress, shared)
        numbers += scores
    return Evaluation(tuple(numbers), test.digest, weights, leaks, records)


def evaluate_feedback(run: Run, data: Data, limit: int | None, weights: str) -> Evaluation:
    """Accuracy and calibration of a reward model; or how often a language model finds the chosen answer more probable."""
    from seqloom.inference import feedback_numbers
    from seqloom.inference.evaluation_data import read_data

    test = read_data(run, data, limit)
    batches = run.config.data(test.store).sequential()
    numbers = feedback_numbers.measure(run.model, run.config.objective, batches, conditions(run, test.store))
    return Evaluation(tuple(numbers), test.digest, weights)


def check_options(run: Run, has_windows: bool, decoding: DecodingOptions) -> None:
    """Raises for options that would change nothing."""
    name = type(run.model).__name__
    searches = (run.model.generates and not run.model.continues) or run.model.task == "speech recognition"
    # A seed is no option of the search: the command line always has one.
    given = [option for option, value in decoding.items() if value is not None and option != "seed"]
    if given and not searches:
        raise UserError(f"{run.folder}: a {name} is measured without a search; drop {given[0]}")
    if has_windows and (searches or run.model.predicts_labels):
        raise UserError(
            f"{run.folder}: --window and --stride are for language models, which read one long text; drop them"
        )


def accuracies(sums: dict[str, float], count: int, shared: dict[str, object]) -> Iterator[Number]:
    """The accuracies of a masked language model: of tokens, and of next-segment predictions if it makes them."""
    totals = {"accuracy": ("correct", count), "next_segment_accuracy": ("nsp_correct", sums.get("pairs", 0))}
    for name, (key, total) in totals.items():
        if key in sums:
            total = int(total)
            interval = percent(wilson(int(sums[key]), total))
            percentage = 100 * sums[key] / max(total, 1)
            yield Number(
                name, percentage, make_signature("accuracy", {"of": total, **shared}), *interval, n=total
            )


def label_records(run: Run, test: EvaluationData, metrics: LabelMetrics) -> ScoredRecords:
    """What is right of each record, and the words that the model reads of it."""
    from seqloom.measure.by_length import ScoredRecords, percentage, root_mean

    inputs = [index for index, kind in enumerate(run.config.kinds()) if field_class(kind).is_input]

    def num_words(value: Any) -> int:
        items = value.split() if isinstance(value, str) else value
        return len(items) if isinstance(items, Sized) else 1

    lengths = [sum(num_words(record[index]) for index in inputs) for record in test.records]
    name = RECORD_METRICS[run.model.task]
    return ScoredRecords(
        name, lengths, np.array(metrics.by_record, np.float64), root_mean if name == "rmse" else percentage
    )


def evaluate_pairs(
    run: Run,
    records: Iterable[tuple[Any, ...]],
    plan: DecodingPlan,
    progress: ProgressOption,
    shared: dict[str, object],
) -> tuple[list[Number], ScoredRecords]:
    """The scores of the texts that the run generates from the first field of each record."""
    search = {"search": plan.signature}
    if run.model.task == "captioning":
        from seqloom.inference.caption_evaluation import evaluate_captions

        return evaluate_captions(run, records, plan, progress, shared | search)
    from seqloom.inference.completion import Execution, complete
    from seqloom.inference.language_check import warn_if_swapped, warn_of_swapped_files
    from seqloom.measure.by_length import ScoredRecords
    from seqloom.measure.pronunciation import phoneme_error_rates, pronunciation, pronunciation_errors
    from seqloom.measure.translation import bleu_scores, bleu_statistics, translation

    sources, targets = zip(*records, strict=True)
    if run.model.task == "summarization":
        from seqloom.inference.summarization import evaluate_summaries

        return evaluate_summaries(run, sources, targets, plan, progress, shared | search)
    with Reporter("translating", len(sources), progress) as report:
        completions = complete(run, list(sources), plan, Execution(progress=report.advance))
    texts = [candidates[0].text for candidates in completions]
    if run.config.reader_class.measure == "pronunciation":
        by_word = pronunciation_errors(sources, texts, targets)
        statistics = np.array([*by_word.values()], np.float64)
        scored = ScoredRecords("per", [len(word) for word in by_word], statistics, phoneme_error_rates)
        return pronunciation(sources, texts, targets, shared | search), scored
    numbers = translation(texts, targets, shared | search)
    if not warn_if_swapped(run, sources):
        warn_of_swapped_files(sources, texts, numbers[0])
    lengths = [len(source.split()) for source in sources]
    return numbers, ScoredRecords("bleu", lengths, bleu_statistics(texts, targets), bleu_scores)
