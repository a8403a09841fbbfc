"""Transcribes while somebody speaks: pieces of sound in, the text so far out, for recognizers that read left to right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from seqloom.errors import RunError
from seqloom.inference.transcription import allowed, features_of
from seqloom.inference.verbs import wrong_verb
from seqloom.media.features import FrameStream
from seqloom.models.recognizer import BLANK, Recognizer
from seqloom.nn.frames import SoundEncoder
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run


@dataclass(frozen=True)
class LiveText(Result):
    """The text so far: `seconds` of sound were heard, of which the text covers `covered`."""

    text: str
    seconds: float
    covered: float


class LiveTranscriber:
    """Greedy transcription of sound that arrives piece by piece; the final text is that of the whole recording.

    `latency` is how many seconds of sound after a moment must be heard before that moment is decided: half of a Fourier window, and
    the frames that are read as one.

    >>> live = LiveTranscriber(recognizer)
    >>> texts = [live.push(samples).text for samples in pieces]
    >>> live.finish().text
    'the dog sleeps'
    """

    def __init__(self, run: RunLike):
        self.run = as_run(run)
        self.features = features_of(self.run)
        self.model = check_streams(self.run)
        self.encoder: SoundEncoder = self.model.encoder
        front = self.encoder.front
        self.latency = (
            self.features.fft_size / 2 / self.features.rate + (front.width - 1) * self.features.step
        )
        self.frames = FrameStream(self.features)
        self.state = self.encoder.start_stream()
        self.last = BLANK
        self.ids: list[int] = []
        self.outputs = 0

    def push(self, samples: np.ndarray) -> LiveText:
        """Hears more samples, at the rate of the run, and returns the text so far."""
        return self.read(self.frames.push(samples), last=False)

    def finish(self) -> LiveText:
        """Returns the text of the whole recording."""
        return self.read(self.frames.finish(), last=True)

    @torch.inference_mode()
    def read(self, frames: np.ndarray, last: bool) -> LiveText:
        h, self.state = self.encoder.stream(torch.from_numpy(frames)[None], self.state, last)
        if h.shape[1]:
            log_probs = self.model.output(h).float().log_softmax(-1)[0].numpy()
            best = allowed(self.run, log_probs).argmax(1)
            before = np.concatenate([[self.last], best[:-1]])
            self.ids += best[(best != before) & (best != BLANK)].tolist()
            self.last = int(best[-1])
            self.outputs += len(best)
        seconds = self.frames.num_samples / self.features.rate
        covered = min(seconds, self.outputs * self.encoder.step * self.features.step)
        return LiveText(" ".join(self.run.decode(self.ids).split()), round(seconds, 3), round(covered, 3))


def check_streams(run: Run) -> Recognizer:
    """The model of a run that can transcribe live; raises with the reason for any other."""
    if run.model.task != "speech recognition":
        raise wrong_verb(run, "transcribe --live")
    features = features_of(run)
    model = run.model
    if not isinstance(model, Recognizer) or not model.encoder.streams:
        raise RunError(
            f"{run.folder}: the model hears the whole recording before it writes; train ctc-lstm to transcribe live"
        )
    if features.kind == "ready" or features.normalize or features.deltas:
        raise RunError(
            f"{run.folder}: its features need the whole recording; train with corpus.normalize=false corpus.deltas=0 on sound files"
        )
    return model


def live_texts(run: RunLike, blocks: Iterable[np.ndarray]) -> Iterator[LiveText]:
    """The text after each block of samples, and the final one."""
    live = LiveTranscriber(run)
    for block in blocks:
        yield live.push(block)
    yield live.finish()
