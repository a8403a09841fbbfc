"""The verb evaluate: the metrics of one run on test files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from seqloom.cli.app import COMPARE, app, print_result
from seqloom.cli.decoding_options import Search, SearchOptions
from seqloom.cli.inputs import open_run
from seqloom.cli.options import (
    Common,
    CommonOptions,
    Count,
    Kind,
    Machine,
    MachineOptions,
    RunPath,
    complete_run,
)
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.evaluation import Evaluation
    from seqloom.measure.by_length import LengthBucket
    from seqloom.measure.number import Number
    from seqloom.run import Run


@app.command(group=COMPARE)
def evaluate(
    run: RunPath,
    /,
    *files: str,
    decoding: SearchOptions = Search(),
    window: Count | None = None,
    stride: Count | None = None,
    confusion: bool = False,
    pseudo_perplexity: bool = False,
    by_length: bool = False,
    against: Annotated[Path | None, Parameter(completer=complete_run)] = None,
    judge: Annotated[Path | None, Parameter(completer=complete_run)] = None,
    limit: Count | None = None,
    lm: Annotated[Path | None, Parameter(completer=complete_run)] = None,
    lm_weight: float = 0.5,
    bonus: float = 0.0,
    quantize: Kind | None = None,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Measure a run on test files, with intervals.

    Likelihood for language models, BLEU and chrF for translators, accuracy and F1 for labels. A signature says how each number was measured;
    two numbers can be compared if their signatures agree.

    Examples:
      seqloom evaluate runs/gpt test.txt --window 128 --stride 64
      seqloom evaluate runs/transformer test.en test.de --by-length
      seqloom evaluate runs/reviews test.tsv --confusion

    Parameters
    ----------
    run
        The run folder.
    files
        The files to measure on, in the form that the run was trained on.
    window
        Tokens that a language model reads at once; default: as in training.
    stride
        Tokens from one window to the next; below the window, each token has at least window - stride tokens before it. Each counts once.
    confusion
        Also the confusion matrix of a run that predicts labels.
    pseudo_perplexity
        Also the pseudo-perplexity of a masked model: every token of every line masked by itself, one pass each.
    by_length
        Also the main metric in buckets of source length.
    against
        Compare the answers of a policy with those of this run, which it began from: win rate, KL, length, diversity; FILES are prompts.
        On preferences: how often the chosen answer has gained more probability than the rejected one.
    judge
        The reward run that judges these answers.
    limit
        Measure on at most so many records.
    lm
        A language model that counts in the search of a recognizer of speech.
    lm_weight
        How often ln P of this language model counts.
    bonus
        What every token adds to the score of a transcript.
    quantize
        int8: also measure with one byte per weight, and compare with float32.
    """
    from seqloom.evaluation import evaluate as measure

    loaded = open_run(run, machine.threads)
    if not files:
        raise UserError("no data: give the files to measure on, as in: seqloom evaluate RUN FILE")
    data = list(files)
    if by_length and loaded.config.kinds() == ("text",):
        raise UserError(
            "--by-length: running text has no records to sort by length; drop it, or evaluate a translator or a run that predicts labels"
        )
    if against is not None:
        found = measure_against(loaded, against, data[0], judge, limit, machine.seed)
        policies = {
            "run": str(run),
            "against": str(against),
            "numbers": [number.to_dict() for number in found],
        }
        print_result(policies, [format_number(number) for number in found], common.json)
        return
    if judge is not None:
        raise UserError("--judge compares two policies: give --against RUN too")

    def measured() -> Evaluation:
        return measure(
            loaded,
            data,
            window=window,
            stride=stride,
            limit=limit,
            lm=lm,
            lm_weight=lm_weight,
            bonus=bonus,
            progress=common.progress,
            **decoding.options(machine.seed),
        )

    evaluation = measured()
    numbers = list(evaluation)
    report: dict[str, Any] = {"run": str(run), **evaluation.to_dict()}
    if pseudo_perplexity:
        from seqloom.inference.mask_filling import pseudo_perplexity as measure_pseudo

        numbers.append(measure_pseudo(loaded, data, limit=limit))
        report["numbers"] = [number.to_dict() for number in numbers]
    lines = [format_number(number) for number in numbers]
    if by_length:
        buckets = evaluation.by_length()
        report["by_length"] = [bucket.to_dict() for bucket in buckets]
        lines += ["", *format_buckets(buckets)]
    if confusion:
        from seqloom.evaluation import confusion_matrix

        matrix = confusion_matrix(loaded, data, limit)
        report["confusion"] = matrix.json()
        lines += ["", *matrix.lines()]
    if quantize:
        from seqloom.nn import quantize as quantize_model

        not_quantized = quantize_model(loaded.model, quantize)
        quantized = measured()
        report[quantize] = [number.to_dict() for number in quantized]
        report["not_quantized"] = not_quantized
        pairs = zip(evaluation, quantized, strict=True)
        lines += ["", *(format_change(number, other, quantize) for number, other in pairs)]
        if not_quantized:
            lines.append(f"not quantized: {', '.join(not_quantized)}")
    print_result(report, lines, common.json)


def measure_against(
    run: Run, against: Path, file: str, judge: Path | None, limit: int | None, seed: int
) -> list[Number]:
    """The metrics of a policy beside the run it began from: on preferences those of its implied reward, on prompts those of its answers."""
    from seqloom.studies.policy_measures import compare_policies, implicit_rewards
    from seqloom.text.formats import detect_format

    if detect_format([file]) != "preferences" or judge is not None:
        return compare_policies(run, against, file, judge=judge, limit=limit or 100, seed=seed)
    return implicit_rewards(run, against, file, limit)


def format_number(number: Number) -> str:
    """A metric in one line: name, value, interval, signature."""
    return f"{number.title:17} {number.value:10.4f} {number.interval:20} {number.signature}"


def format_buckets(buckets: list[LengthBucket]) -> list[str]:
    """A table of a metric by source length."""
    title = buckets[0].number.title if buckets else ""
    rows = [
        f"{f'{bucket.shortest}-{bucket.longest}':12} {bucket.number.n or 0:8,} {bucket.number.value:10.2f} "
        f"{bucket.number.interval}".rstrip()
        for bucket in buckets
    ]
    return [f"{'source words':12} {'records':>8} {title:>10} 95 %", *rows]


def format_change(number: Number, quantized: Number, dtype: str) -> str:
    """A number in float32 and with quantised weights."""
    change = f" ({100 * (quantized.value / number.value - 1):+.2f} %)" if number.value else ""
    return f"{number.title:17} {number.value:10.4f} fp32, {quantized.value:.4f} {dtype}{change}"
