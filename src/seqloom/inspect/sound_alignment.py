"""When a recognizer hears each word and each letter: the frames of a recording, and the most probable alignment of its text.

Times are those of the CTC alignment. A recognizer that reads left to right writes a letter after it has heard it, so its times are late.
"""

from __future__ import annotations

import base64
import os
import struct
import zlib
from dataclasses import dataclass, field

import numpy as np
import torch

from seqloom.batches.sources import stack_sources
from seqloom.decoding.ctc import CTCSearch, align_text
from seqloom.errors import DataError, UserError
from seqloom.inference.transcription import SpokenWord, allowed, features_of, word_times
from seqloom.inference.verbs import wrong_verb
from seqloom.inspect.given_texts import a_type, check_target
from seqloom.inspect.pages import picture_page
from seqloom.inspect.refusals import refusal
from seqloom.models.recognizer import JointRecognizer, Recognizer
from seqloom.report.page import escape, shown_token, table
from seqloom.results import Result
from seqloom.run import RunLike, as_run
from seqloom.text.speech import recording_of

MAX_SECONDS = 120.0
PIXELS = 130  # of a second
MIN_WIDTH, LEFT, RIGHT = 640, 8, 14
HEIGHT, ROW, AXIS = 200, 30, 24
SHADES = np.array([(0, 0, 4), (81, 18, 124), (183, 55, 121), (252, 137, 97), (252, 253, 191)])
STYLE = """
svg.sound text { font: 13px system-ui, sans-serif; fill: var(--ink); text-anchor: middle; }
svg.sound image { image-rendering: pixelated; } svg.sound text.soft { fill: var(--soft); font-size: 11px; }
svg.sound line { stroke: var(--line); } svg.sound rect.word { fill: var(--mark); stroke: var(--mark); }
"""
NAMES = {"logmel": "log-mel energies", "mfcc": "cepstral coefficients", "ready": "ready features"}


@dataclass(frozen=True)
class SoundAlignment(Result):
    """A recording's text with the time of each word and each token, and ln P of the alignment; `frames`, (T, F), are what the model reads."""

    file: str
    text: str
    seconds: float
    logprob: float
    given: bool
    features: str
    words: tuple[SpokenWord, ...]
    tokens: tuple[SpokenWord, ...]
    frames: np.ndarray = field(repr=False, compare=False, metadata={"json": False})


@torch.inference_mode()
def sound(run: RunLike, file: str | os.PathLike[str], target: str | None = None) -> SoundAlignment:
    """The times of the text that a recognizer writes for a recording, or of a given text.

    >>> seqloom.inspect.sound(translator, "a.wav")
    Traceback (most recent call last):
    seqloom.errors.RunError: ...: inspect sound does not fit this run, which translates; use: seqloom translate ...
    """
    opened = as_run(run)
    model = opened.model
    if model.task != "speech recognition":
        raise wrong_verb(opened, "inspect sound")
    if not isinstance(model, Recognizer | JointRecognizer):
        raise refusal(
            opened, "sound", "needs a recognizer with CTC, and a decoder alone gives no times", "attention"
        )
    if check_target(target) is not None and not str(target).strip():
        raise UserError("the target is empty; give the text of the recording, or none")
    features = features_of(opened)
    if not isinstance(file, str | os.PathLike):
        raise DataError(f"the recording is {a_type(file)}; give the name of its file")
    name = os.fspath(file)
    frames = recording_of(name, features).frames()
    seconds = len(frames) * features.step
    if seconds > MAX_SECONDS:
        raise UserError(
            f"{name}: {seconds:.0f} s are too long for a page; give a recording of at most {MAX_SECONDS:.0f} s"
        )
    log_probs, mask = model.frame_log_probs(*stack_sources([frames]))
    scores = allowed(opened, log_probs[0, : int(mask[0].sum())].numpy())
    if target is None:
        ids = list(CTCSearch()(scores)[0].ids)
    else:
        ids = opened.tokenizer.encode(target, add_special_tokens=False).ids
    try:
        spans, logprob = align_text(scores, ids)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    step = features.step * len(frames) / max(1, len(scores))
    tokens = [
        SpokenWord(
            opened.decode([token]),
            round(first * step, 3),
            round(last * step, 3),
            round(float(np.exp(scores[first:last, token].max())), 4),
        )
        for token, (first, last) in zip(ids, spans, strict=True)
    ]
    return SoundAlignment(
        name,
        " ".join(opened.decode(ids).split()),
        round(seconds, 3),
        round(logprob, 4),
        target is not None,
        features.kind,
        tuple(word_times(opened, scores, ids, step)),
        tuple(tokens),
        frames,
    )


def sound_page(found: SoundAlignment) -> str:
    """The frames as a picture, with the words and the letters beneath, and a table of the words."""
    title = found.text or "(no text)"
    source = "the given text" if found.given else "the text of the best alignment"
    rows = [[word.text, *map(number, (word.start, word.end, word.probability))] for word in found.words]
    body = (
        f"<h1>{escape(title)}</h1><p class=soft>{escape(found.file)}, {found.seconds:.2f} s; {source}, "
        f"ln P of its alignment {number(found.logprob).replace('-', '−')}</p>"
        f"<p>The picture shows the {NAMES[found.features]} as the model reads them: time from left to right, "
        f"{'low frequencies below' if found.features == 'logmel' else 'the first number below'}, large values bright. Beneath are the words "
        "and the tokens of the most probable alignment; ␣ is a space. A fuller colour is a more probable one.</p>"
        f"<div class=wide>{drawing(found)}</div>"
        f"{table(['word', 'begins, s', 'ends, s', 'probability'], rows)}"
    )
    return picture_page(f"Sound: {title}", body, STYLE)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def drawing(found: SoundAlignment) -> str:
    """The picture of a recording, with an axis of seconds and two rows of boxes."""
    wide = max(MIN_WIDTH, round(PIXELS * found.seconds))
    scale = wide / found.seconds
    data = base64.b64encode(spectrogram_png(found.frames)).decode()
    top = HEIGHT + AXIS
    parts = [
        f'<image x="{LEFT}" y="0" width="{wide}" height="{HEIGHT}" preserveAspectRatio="none" href="data:image/png;base64,{data}"/>'
    ]
    ticks = 0.5 if found.seconds <= 10 else 1
    for index in range(int(found.seconds / ticks) + 1):
        x = LEFT + index * ticks * scale
        anchor = ' style="text-anchor:start"' if index == 0 else ""
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT}" y2="{HEIGHT + 5}"/>')
        parts.append(
            f'<text class="soft" x="{x:.1f}" y="{HEIGHT + 17}"{anchor}>{index * ticks:g}{" s" if not index else ""}</text>'
        )
    parts += [box(word, top, scale) for word in found.words]
    parts += [box(token, top + ROW + 6, scale) for token in found.tokens]
    size = f"{wide + LEFT + RIGHT} {top + 2 * ROW + 12}"
    label = escape(f"{found.file}: {found.text}")
    width, height = size.split()
    return f'<svg class="sound" width="{width}" height="{height}" viewBox="0 0 {size}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def box(word: SpokenWord, y: float, scale: float) -> str:
    """A word at its time, in a colour by its probability."""
    if word.start is None or word.end is None:
        return ""
    x, width = LEFT + word.start * scale, max(3.0, (word.end - word.start) * scale)
    strength = 0.08 + 0.27 * (word.probability or 0.0)
    hint = escape(f"{word.text}: {word.start:.2f} to {word.end:.2f} s, P {number(word.probability)}")
    return (
        f'<rect class="word" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" rx="3" fill-opacity="{strength:.2f}" stroke-opacity=".5">'
        f'<title>{hint}</title></rect><text x="{x + width / 2:.1f}" y="{y + ROW / 2 + 5}">{escape(shown_token(word.text))}</text>'
    )


def spectrogram_png(frames: np.ndarray) -> bytes:
    """Frames, (T, F), as a PNG of T × F pixels, the first number below: from the 1 % smallest values, dark, to the 1 % largest."""
    low, high = np.quantile(frames, [0.01, 0.99])
    level = np.clip((frames.T[::-1] - low) / max(float(high - low), 1e-9), 0, 1)
    places = np.linspace(0, 1, len(SHADES))
    pixels = np.stack([np.interp(level, places, SHADES[:, i]) for i in range(3)], -1).round().astype(np.uint8)
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    coded = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(coded)


def summary(found: SoundAlignment) -> list[str]:
    """The text, and the times of its words, as lines."""
    lines = [f"{found.file}: {found.text or '(no text)'}"]
    return lines + [f"  {number(w.start):>6} – {number(w.end):>6} s  {w.text}" for w in found.words]
