"""Speed of speech: log-mel features beside librosa's, a training step of CTC beside plain torch, transcription beside real time.

    python bench/speech.py [features|step|transcribe …]

One thread. SoundFeatures and steps are timed alternately with their peers, and the smallest of several times counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from seqloom import world
from seqloom.media.features import SoundFeatures
from seqloom.run_config import Config

ROUNDS = 7


def best_seconds(*calls: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """The least seconds of each call, all taken in turn."""
    for call in calls:
        call()
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
    return [min(found) for found in times]


def features() -> None:
    """80 log-mel energies every 10 ms."""
    import librosa

    ours = SoundFeatures(bins=80, normalize=False)
    for seconds in (3, 60):
        samples = np.random.default_rng(0).normal(size=16_000 * seconds).astype(np.float32) / 10

        def theirs(samples: np.ndarray = samples) -> np.ndarray:
            mel = librosa.feature.melspectrogram(
                y=samples,
                sr=16_000,
                n_fft=512,
                win_length=400,
                hop_length=160,
                n_mels=80,
                pad_mode="constant",
            )
            return librosa.power_to_db(mel, top_db=None)

        ours_time, their_time = best_seconds(lambda samples=samples: ours(samples), theirs, rounds=15)
        print(
            f"log-mel of {seconds:2} s: {1e3 * ours_time:7.2f} ms, librosa {1e3 * their_time:7.2f} ms, "
            f"{their_time / ours_time:.1f} times as fast"
        )


class PlainRecognizer(nn.Module):
    """The model of ctc-blstm or ctc-lstm in plain torch: three layers, the upper two with a residual connection."""

    def __init__(self, bins: int, dim: int, both: bool, vocabulary: int, dropout: float):
        super().__init__()
        width = dim * (2 if both else 1)
        sizes = (3 * bins, width, width)
        self.layers = nn.ModuleList(
            nn.LSTM(size, dim, batch_first=True, bidirectional=both) for size in sizes
        )
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, frames: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length, bins = frames.shape
        length -= length % 3
        x = frames[:, :length].reshape(batch, length // 3, 3 * bins)
        lengths = (lengths // 3).clamp(min=1)
        x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        for index, lstm in enumerate(self.layers):
            y, _ = lstm(x._replace(data=self.dropout(x.data)) if index else x)
            x = y._replace(data=y.data + x.data) if index else y
        y, _ = nn.utils.rnn.pad_packed_sequence(x, batch_first=True)
        return self.out(self.dropout(y)).log_softmax(-1), lengths


def step() -> None:
    """A step of AdamW on a batch of 20 recordings of about 3 seconds."""
    from seqloom.batches.batch import SourceBatch

    random = np.random.default_rng(0)
    bins, rows, vocabulary = 40, 20, 32
    lengths = torch.from_numpy(random.integers(240, 301, rows))
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    frames = torch.randn(rows, int(lengths.max()), bins) * mask[..., None]
    sizes = torch.from_numpy(random.integers(15, 26, rows))
    targets = torch.from_numpy(random.integers(5, vocabulary, (rows, int(sizes.max()) + 1)))
    real = torch.arange(targets.shape[1]) <= sizes[:, None]
    targets = torch.where(real, targets, 0)
    batch = SourceBatch(frames, mask, targets, targets, real)
    for name in ("ctc-blstm", "ctc-lstm"):
        config = Config.preset(name)
        stack = config.tree["model"]["encoder"]["stack"]
        ours = config.model(vocabulary)
        both = stack.get("direction") == "both"
        plain = PlainRecognizer(bins, stack["dim"], both, vocabulary, stack["dropout"])
        optimizers = [torch.optim.AdamW(model.parameters(), 1e-3, fused=True) for model in (ours, plain)]

        def our_step(ours: nn.Module = ours, optimizer=optimizers[0], config: Config = config) -> None:
            loss, _, _ = config.objective(ours, batch, None)
            (loss / batch.num_targets).backward()
            nn.utils.clip_grad_norm_(ours.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        def plain_step(plain: nn.Module = plain, optimizer=optimizers[1]) -> None:
            log_probs, frames_left = plain(frames, lengths)
            loss = F.ctc_loss(log_probs.transpose(0, 1), targets, frames_left, sizes, reduction="sum")
            (loss / batch.num_targets).backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        our_time, plain_time = best_seconds(our_step, plain_step)
        print(
            f"{name}: {1e3 * our_time:.0f} ms a step, plain torch {1e3 * plain_time:.0f} ms, "
            f"{plain_time / our_time:.2f} times as fast"
        )


def transcribe() -> None:
    """A minute of speech in files of about 3 seconds, from the files to the text; the weights are those of a new model."""
    from seqloom.inference.transcription import make_job, transcribe_all
    from seqloom.run import Run
    from seqloom.text.tokenizer import Characters

    texts = ["the park behind the garden is too wet", "some beautiful kings work on the bank"]
    tokenizer = Characters(texts)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        seconds = 0.0
        for index in range(24):
            speech = world.speak(texts[index % 2], number=index)
            seconds += len(speech.samples) / 8_000
            paths.append(Path(folder) / f"{index}.wav")
            paths[-1].write_bytes(speech.wav())
        for name in ("ctc-blstm", "ctc-lstm"):
            config = Config.preset(name)
            run = Run(Path(folder), config, tokenizer, config.model(tokenizer.get_vocab_size()).eval())
            for beam in (1, 16):
                job = make_job(run, beam, None, 0.0, 0.0, 1, True)
                (spent,) = best_seconds(
                    lambda run=run, job=job: list(transcribe_all(run, job, paths)), rounds=3
                )
                print(
                    f"{name}, beam {beam}: {seconds:.0f} s of sound in {spent:.2f} s, {seconds / spent:.0f} times real time"
                )


if __name__ == "__main__":
    tables = {"features": features, "step": step, "transcribe": transcribe}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", choices=[*tables, []], help="all of them by default")
    torch.set_num_threads(1)
    for name in parser.parse_args().tables or tables:
        tables[name]()
