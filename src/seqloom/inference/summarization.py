"""Summaries of documents, and how good they are  [T6]."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Unpack, overload

import numpy as np

from seqloom.batches.summaries import MAX_SOURCE, Summaries
from seqloom.decoding import Decoding, DecodingOptions, DecodingPlan
from seqloom.inference.completion import Completion, Execution, complete
from seqloom.inference.one_or_many import Texts, apply, require_texts
from seqloom.inference.unknown_text import UnknownText
from seqloom.inference.verbs import wrong_verb
from seqloom.measure.by_length import ScoredRecords
from seqloom.measure.number import Number, make_signature, percent, wilson
from seqloom.measure.rouge import mean_percent, rouge_scores
from seqloom.measure.rouge import summarization as rouge_numbers
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run import Run, RunLike, as_run
from seqloom.text.unknown_words import has_unknown_words

logger = logging.getLogger("seqloom.inference")
MAX_TOKENS = 120


@dataclass(frozen=True)
class Summary(Result):
    """A document and its summaries, best first. `num_cut` is how many tokens at the end of the document were not read."""

    source: str = field(repr=False)
    outputs: tuple[Completion, ...]
    num_cut: int = 0

    @property
    def text(self) -> str:
        """The best summary."""
        return self.outputs[0].text


class CutDocuments(NamedTuple):
    """Documents as far as a model reads them, and how many tokens of each are left out."""

    texts: list[str]
    num_cut: list[int]


@overload
def summarize(run: RunLike, texts: str, **decoding: Unpack[DecodingOptions]) -> Summary: ...
@overload
def summarize(run: RunLike, texts: Texts, **decoding: Unpack[DecodingOptions]) -> list[Summary]: ...
@overload
def summarize(
    run: RunLike, texts: Iterator[str], **decoding: Unpack[DecodingOptions]
) -> Iterator[Summary]: ...
def summarize(run: RunLike, texts: str | Texts | Iterator[str], **decoding: Unpack[DecodingOptions]) -> Any:
    """The summaries of each document, `n` of each, best first.

    The options are those of `Decoding`; a summary has at most 120 tokens unless `max_tokens` says otherwise. Of a document that is longer
    than those of the training, `batches.max_source` tokens, the beginning is read, and a warning says so.

    >>> seqloom.summarize(translator, "the cat")
    Traceback (most recent call last):
    seqloom.errors.RunError: ...: summarize does not fit this run, which translates; use: seqloom translate ...
    """
    run = as_run(run)
    check_summarizes(run)
    plan = summary_plan(run, decoding)
    unknown = UnknownText(run)
    work = unknown.watch(partial(summarize_texts, run, plan))
    return apply(texts, work, noun="document", after=unknown.warn)


def check_summarizes(run: Run) -> None:
    """Raises if a run does not summarize, and says what it is for."""
    if run.model.task != "summarization":
        raise wrong_verb(run, "summarize")


def summary_plan(run: Run, options: DecodingOptions) -> DecodingPlan:
    """The search for summaries; its length is bounded."""
    if options.get("max_tokens") is None:
        options = {**options, "max_tokens": MAX_TOKENS}
    return Decoding().with_options(options).plan(run.decoding)


def summarize_texts(
    run: Run, plan: DecodingPlan, texts: list[str], execution: Execution = Execution()
) -> list[Summary]:
    """The summaries of documents; warns of those that are cut."""
    require_texts(texts, "document")
    documents = cut_documents(run, texts)
    warn_of_cuts(run, documents.num_cut)
    found = complete(run, documents.texts, plan, execution)
    return [
        Summary(text, tuple(outputs), num_cut)
        for text, outputs, num_cut in zip(texts, found, documents.num_cut, strict=True)
    ]


def max_source(run: Run) -> int | None:
    """How many tokens of a document the run reads, <eos> included; None for all of them."""
    batches = run.config.parts["batches"]
    return batches.keywords.get("max_source", MAX_SOURCE) if batches.func is Summaries else None


def cut_documents(run: Run, texts: Sequence[str]) -> CutDocuments:
    """The documents as far as the run reads them."""
    limit = max_source(run)
    cut, left_out = [], []
    for text in texts:
        offsets = run.tokenizer.encode(text, add_special_tokens=False).offsets if limit else []
        more = len(offsets) - (limit - 1) if limit else 0
        cut.append(text if limit is None or more <= 0 else text[: offsets[limit - 2][1]])
        left_out.append(max(more, 0))
    return CutDocuments(cut, left_out)


def warn_of_cuts(run: Run, num_cut: Sequence[int]) -> None:
    """Says how many documents are longer than the run reads."""
    longer = [count for count in num_cut if count]
    if longer:
        limit = (max_source(run) or 1) - 1
        documents = "document has" if len(num_cut) == 1 else "documents have"
        logger.warning(
            "%d of %d %s more than %d tokens, of which only the first %d are read; %d are left out",
            *(len(longer), len(num_cut), documents, limit, limit, sum(longer)),
        )


def evaluate_summaries(
    run: Run,
    sources: Sequence[str],
    references: Sequence[str],
    plan: DecodingPlan,
    progress: ProgressOption,
    conditions: dict[str, object],
) -> tuple[list[Number], ScoredRecords]:
    """ROUGE of the run's summaries with its baselines, novelty, and how many unknown words it writes."""
    with Reporter("summarizing", len(sources), progress) as report:
        summaries = summarize_texts(run, plan, list(sources), Execution(progress=report.advance))
    texts = [summary.text for summary in summaries]
    conditions = {**conditions, "cut": sum(summary.num_cut > 0 for summary in summaries)}
    numbers = rouge_numbers(texts, references, sources, conditions)
    numbers += unknown_words(run, texts, references, sources, conditions)
    scores = rouge_scores(texts, references)[:, 2]
    statistics = np.stack([scores, np.ones(len(scores))], 1)
    return numbers, ScoredRecords(
        "rouge_l", [len(text.split()) for text in sources], statistics, mean_percent
    )


def unknown_words(
    run: Run,
    outputs: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    conditions: dict[str, object],
) -> list[Number]:
    """The share of words that the run's vocabulary does not have, but source and reference have, which the summary has too."""
    if not has_unknown_words(run.tokenizer):
        return []
    right = total = 0
    for output, reference, source in zip(outputs, references, sources, strict=True):
        wanted = words_of(run, reference, unknown_only=True) & words_of(run, source)
        right += len(wanted & words_of(run, output))
        total += len(wanted)
    if not total:
        return []
    interval = percent(wilson(right, total))
    signature = make_signature("unknown words copied", {"words": total, **conditions})
    return [Number("unknown_words", 100 * right / total, signature, *interval, n=total)]


def words_of(run: Run, text: str, unknown_only: bool = False) -> set[str]:
    """The words of a text, as the tokenizer divides and spells them; only those that it does not know if asked."""
    encoding = run.tokenizer.encode(text, add_special_tokens=False)
    spelt = run.tokenizer.normalizer.normalize_str if run.tokenizer.normalizer else str
    return {
        spelt(text[start:end])
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
        if not unknown_only or token == run.specials.unk
    }
