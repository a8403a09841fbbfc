"""Transcribes recordings: texts with the time of each word, from sound files or ready features."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast, overload

import numpy as np
import torch

from seqloom.batches.sources import stack_sources
from seqloom.decoding.ctc import CTCSearch, CTCText, align_text
from seqloom.errors import UserError
from seqloom.inference.one_or_many import apply
from seqloom.inference.verbs import wrong_verb
from seqloom.media.features import SoundFeatures
from seqloom.models.recognizer import JointRecognizer, Recognizer, Speller
from seqloom.nn.frames import SoundEncoder
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run
from seqloom.text.speech import Speech, recording_of

MAX_SECONDS = 30.0  # of a piece that is recognized at once
MIN_SHARE = 0.6  # of it, after which the quietest frame is looked for
BATCH_FRAMES = 12_000
DEFAULT_BEAM = 16  # with a language model
PathOrFrames = str | os.PathLike[str] | np.ndarray


@dataclass(frozen=True)
class SpokenWord(Result):
    """A word with the seconds at which it begins and ends, None if the model has no times; and its probability in the best alignment."""

    text: str
    start: float | None
    end: float | None
    probability: float | None = None


@dataclass(frozen=True)
class SpokenText(Result):
    """One transcript. `logprob` is ln P(text | sound), `lm_logprob` that of the language model, `score` ranks the transcripts."""

    text: str
    logprob: float
    score: float
    lm_logprob: float | None = None


@dataclass(frozen=True)
class Transcript(Result):
    """A recording of `seconds`, its transcripts, best first, and the words of the best with their times."""

    file: str
    seconds: float
    outputs: tuple[SpokenText, ...]
    words: tuple[SpokenWord, ...] = ()

    @property
    def text(self) -> str:
        """The best transcript."""
        return self.outputs[0].text


class TranscriptionJob(NamedTuple):
    """How to transcribe: the search, how many transcripts, whether words get their times."""

    search: CTCSearch = CTCSearch()
    n: int = 1
    timestamps: bool = True


@overload
def transcribe(
    run: RunLike,
    files: str | os.PathLike[str] | np.ndarray,
    *,
    beam: int | None = None,
    lm: RunLike | None = None,
    lm_weight: float = 0.5,
    bonus: float = 0.0,
    n: int = 1,
    timestamps: bool = True,
) -> Transcript: ...
@overload
def transcribe(
    run: RunLike,
    files: list[Any],
    *,
    beam: int | None = None,
    lm: RunLike | None = None,
    lm_weight: float = 0.5,
    bonus: float = 0.0,
    n: int = 1,
    timestamps: bool = True,
) -> list[Transcript]: ...
@overload
def transcribe(
    run: RunLike,
    files: Iterator[PathOrFrames],
    *,
    beam: int | None = None,
    lm: RunLike | None = None,
    lm_weight: float = 0.5,
    bonus: float = 0.0,
    n: int = 1,
    timestamps: bool = True,
) -> Iterator[Transcript]: ...
def transcribe(
    run: RunLike,
    files: Any,
    *,
    beam: int | None = None,
    lm: RunLike | None = None,
    lm_weight: float = 0.5,
    bonus: float = 0.0,
    n: int = 1,
    timestamps: bool = True,
) -> Any:
    """The transcript of each recording: a sound file, or ready features as a .npy or .npz file or an array (frames, numbers).

    A `beam` above 1 searches the most probable texts, over all their alignments; with a language model `lm`, of any kind, its ln P
    counts `lm_weight` times, and every token gets the `bonus`. One recording gives one transcript, a list a list, an iterator an iterator.

    >>> import pathlib
    >>> spoken = seqloom.world.speak("The dog sleeps.")
    >>> size = pathlib.Path("a.wav").write_bytes(spoken.wav())
    >>> recognizer = seqloom.fit("ctc-lstm", "model.encoder.stack.dim=8", data=[("a.wav", spoken.text)] * 2, steps=1, progress=False)
    >>> transcript = seqloom.transcribe(recognizer, "a.wav")
    >>> transcript.file, transcript.seconds
    ('a.wav', 1.19)
    """
    opened = as_run(run)
    job = make_job(opened, beam, None if lm is None else as_run(lm), lm_weight, bonus, n, timestamps)
    return apply(
        files,
        lambda block: list(transcribe_all(opened, job, block)),
        is_one=lambda item: isinstance(item, str | os.PathLike | np.ndarray),
        noun="recording",
    )


def make_job(
    run: Run, beam: int | None, lm: Run | None, lm_weight: float, bonus: float, n: int, timestamps: bool
) -> TranscriptionJob:
    """A checked job; raises if the run does not transcribe, or cannot do what is asked for."""
    if run.model.task != "speech recognition":
        raise wrong_verb(run, "transcribe")
    speller = isinstance(run.model, Speller)
    if speller and lm is not None:
        raise UserError(f"{run.folder}: a decoder of its own writes the text; leave the language model out")
    if n < 1 or (n > 1 and (beam or 1) < n and lm is None):
        raise UserError(f"{n} transcripts of each recording: give a beam of at least as many")
    scorer = None
    if lm is not None:
        from seqloom.inference.spoken_lm import make_scorer

        scorer = make_scorer(run, lm)
    width = beam or (DEFAULT_BEAM if lm is not None else 1)
    return TranscriptionJob(CTCSearch(max(width, n), scorer, lm_weight if lm else 0.0, bonus), n, timestamps)


def features_of(run: Run) -> SoundFeatures:
    """How the run turns sound into frames."""
    return Speech.features_of(run.config.parts["corpus"].keywords)


class SoundPiece(NamedTuple):
    """A part of a recording that is recognized at once: which recording, its first frame, its frames."""

    recording: int
    start: int
    frames: np.ndarray


def transcribe_all(run: Run, job: TranscriptionJob, sources: Sequence[PathOrFrames]) -> Iterator[Transcript]:
    """The transcript of each source, in order. Recordings longer than half a minute are cut at quiet places."""
    features = features_of(run)
    pending: list[tuple[str, np.ndarray]] = []
    size = 0
    for source in sources:
        name = "array" if isinstance(source, np.ndarray) else os.fspath(source)
        frames = recording_of(source, features).frames()
        pending.append((name, frames))
        size += len(frames)
        if size > BATCH_FRAMES:
            yield from transcribe_group(run, job, pending, features)
            pending, size = [], 0
    if pending:
        yield from transcribe_group(run, job, pending, features)


def transcribe_group(
    run: Run, job: TranscriptionJob, group: list[tuple[str, np.ndarray]], features: SoundFeatures
) -> Iterator[Transcript]:
    """The transcripts of some recordings, whose pieces are computed in batches of similar length."""
    limit = round(MAX_SECONDS / features.step)
    pieces = [
        SoundPiece(index, start, frames[start:end])
        for index, (_, frames) in enumerate(group)
        for start, end in cut_points(frames, limit, features.kind == "logmel")
    ]
    results: dict[int, Transcript] = {}
    order = sorted(range(len(pieces)), key=lambda i: len(pieces[i].frames))
    while order:
        longest = len(pieces[order[-1]].frames)
        batch = order[-max(1, BATCH_FRAMES // longest) :]
        del order[-len(batch) :]
        found = recognize(run, job, [pieces[i].frames for i in batch])
        results.update(zip(batch, found, strict=True))
    for index, (name, frames) in enumerate(group):
        parts = [(pieces[i], results[i]) for i in range(len(pieces)) if pieces[i].recording == index]
        yield joined(name, len(frames) * features.step, parts, features.step)


def cut_points(frames: np.ndarray, limit: int, logmel: bool) -> Iterator[tuple[int, int]]:
    """The first frame of each piece and the one after its last: at most `limit` frames, cut where it is quietest in the last third."""
    loudness = frames.mean(1) if logmel else frames[:, 0]
    start = 0
    while len(frames) - start > limit:
        earliest = start + int(MIN_SHARE * limit)
        window = np.convolve(loudness[earliest : start + limit], np.ones(9) / 9, mode="same")
        end = earliest + int(window.argmin())
        yield start, end
        start = end
    yield start, len(frames)


def joined(name: str, seconds: float, parts: list[tuple[SoundPiece, Transcript]], step: float) -> Transcript:
    """The transcript of a recording from those of its pieces."""
    count = min(len(found.outputs) for _, found in parts)
    outputs = []
    for rank in range(count):
        ranked = [found.outputs[rank] for _, found in parts]
        lm = [output.lm_logprob for output in ranked]
        outputs.append(
            SpokenText(
                " ".join(output.text for output in ranked if output.text),
                sum(output.logprob for output in ranked),
                sum(output.score for output in ranked),
                None if None in lm else sum(cast(list[float], lm)),
            )
        )
    words = [
        word
        if word.start is None or word.end is None
        else replace(word, start=shift(word.start, piece, step), end=shift(word.end, piece, step))
        for piece, found in parts
        for word in found.words
    ]
    return Transcript(name, round(seconds, 3), tuple(outputs), tuple(words))


def shift(seconds: float, piece: SoundPiece, step: float) -> float:
    return round(seconds + piece.start * step, 3)


@torch.inference_mode()
def recognize(run: Run, job: TranscriptionJob, frames: list[np.ndarray]) -> list[Transcript]:
    """The transcripts of pieces, with times from the beginning of each piece."""
    source, mask = stack_sources(frames)
    model = run.model
    if isinstance(model, Recognizer | JointRecognizer):
        log_probs, frame_mask = model.frame_log_probs(source, mask)
        arrays = [
            row[:length].numpy() for row, length in zip(log_probs, frame_mask.sum(1).tolist(), strict=True)
        ]
    if isinstance(model, Speller):
        texts = spelled(run, job, frames)
    else:
        texts = [job.search(allowed(run, array), job.n) for array in arrays]
    results = []
    seconds = features_of(run).step * cast(SoundEncoder, model.encoder).step
    for index, found in enumerate(texts):
        outputs = tuple(spoken_text(run, text, job.search.scorer is not None) for text in found)
        words: tuple[SpokenWord, ...] = ()
        if job.timestamps and isinstance(model, Recognizer | JointRecognizer):
            words = tuple(word_times(run, arrays[index], found[0].ids, seconds))
        elif job.timestamps:
            words = tuple(SpokenWord(word, None, None) for word in outputs[0].text.split())
        results.append(Transcript("", len(frames[index]) * features_of(run).step, outputs, words))
    return results


def allowed(run: Run, log_probs: np.ndarray) -> np.ndarray:
    """The log-probabilities without the special tokens, of which only the blank occurs in alignments."""
    banned = [token for token in run.banned_ids if token] + [run.specials.eos]
    log_probs = log_probs.copy()
    log_probs[:, [token for token in banned if token is not None]] = -np.inf
    return log_probs


def spoken_text(run: Run, text: CTCText, has_lm: bool) -> SpokenText:
    words = " ".join(run.decode(list(text.ids)).split())
    return SpokenText(words, text.logprob, text.score, text.lm_logprob if has_lm else None)


def spelled(run: Run, job: TranscriptionJob, frames: list[np.ndarray]) -> list[list[CTCText]]:
    """The texts that a decoder writes, as many as the job asks for."""
    from seqloom.decoding import Decoding
    from seqloom.inference.source_completion import complete_sources

    longest = max(map(len, frames))
    settings = Decoding(beam=job.search.beam, n=job.n, max_tokens=max(8, longest // 2))
    plan = settings.plan(run.decoding)
    found = complete_sources(
        run, [str(index) for index in range(len(frames))], lambda index: frames[index], plan
    )
    return [[CTCText(text.ids, text.logprob, 0.0, text.score) for text in texts] for texts in found]


def word_times(run: Run, log_probs: np.ndarray, ids: Sequence[int], seconds: float) -> Iterator[SpokenWord]:
    """Each word of a text with the frames of its tokens in the most probable alignment; a frame lasts `seconds`."""
    if len(ids) == 0:
        return
    try:
        spans, _ = align_text(log_probs, ids)
    except UserError:  # a decoder may write a text that is longer than the sound
        spans = []
    pieces = [run.decode([token]) for token in ids]
    begin = 0
    for index in range(len(ids) + 1):
        if index < len(ids) and not pieces[index][:1].isspace():
            continue
        tokens = [i for i in range(begin, index) if pieces[i].strip()]
        begin = index
        text = "".join(pieces[i] for i in tokens).strip()
        if not text:
            continue
        if not spans:
            yield SpokenWord(text, None, None)
            continue
        first, last = spans[tokens[0]][0], spans[tokens[-1]][1]
        best = [log_probs[slice(*spans[i]), ids[i]].max() for i in tokens]
        probability = float(np.exp(np.mean(best)))
        yield SpokenWord(text, round(first * seconds, 3), round(last * seconds, 3), round(probability, 4))
