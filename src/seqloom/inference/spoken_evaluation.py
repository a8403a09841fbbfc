"""Word and character error rates of a recognizer on data."""

from __future__ import annotations

from seqloom.batches.recordings import Recordings
from seqloom.inference.evaluation_data import EvaluationData
from seqloom.inference.transcription import features_of, make_job, transcribe_group
from seqloom.measure.by_length import ScoredRecords
from seqloom.measure.number import Number
from seqloom.measure.speech import error_rates, transcription
from seqloom.results import ProgressOption, Reporter
from seqloom.run import Run, RunLike, as_run

GROUP = 64  # recordings transcribed at a time


def evaluate_speech(
    run: Run,
    test: EvaluationData,
    search: tuple[int | None, RunLike | None, float, float],
    progress: ProgressOption,
    shared: dict[str, object],
) -> tuple[list[Number], ScoredRecords]:
    """The error rates of the transcripts of all recordings. The search is a beam, a language model, its weight, and the bonus of a token."""
    beam, lm, weight, bonus = search
    job = make_job(run, beam, None if lm is None else as_run(lm), weight, bonus, 1, False)
    store = test.store
    source = Recordings(store, max_length=1 << 40)
    features = features_of(run)
    references = [record[-1] for record in test.records]
    texts: list[str] = []
    with Reporter("transcribing", len(store), progress) as report:
        for start in range(0, len(store), GROUP):
            group = [("", source.frames(record)) for record in range(start, min(start + GROUP, len(store)))]
            texts += [found.text for found in transcribe_group(run, job, group, features)]
            report.advance(len(group))
    numbers, by_word = transcription(texts, references, {**shared, "search": job.search.signature()})
    lengths = [len(reference.split()) for reference in references]
    return numbers, ScoredRecords("wer", lengths, by_word, error_rates)
