"""The times of what is said in a recording: the alignment of a text, its page, and inputs that are wrong."""

from __future__ import annotations

import json
import re
import struct
import zlib
from base64 import b64decode
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

import seqloom
from seqloom.cli import main
from seqloom.errors import DataError, RunError, UserError
from seqloom.inspect.sound_alignment import sound_page, spectrogram_png
from seqloom.run import Run
from seqloom.world import speak

TEXTS = ("my sun", "no man", "a moth", "on me")
SMALL = ("corpus.rate=8000", "corpus.bins=24", "train.eval_every=2", "train.schedule.warmup=2")
SIZES = ("model.encoder.stack.dim=8", "model.encoder.stack.layers=1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four recordings with their table."""
    folder = tmp_path_factory.mktemp("sounds")
    for index, text in enumerate(TEXTS):
        (folder / f"{index}.wav").write_bytes(speak(text).wav())
    (folder / "train.tsv").write_text("".join(f"{i}.wav\t{text}\n" for i, text in enumerate(TEXTS)))
    return folder


def trained(place: Path, preset: str, *changes: str) -> Run:
    table = str(place / "train.tsv")
    return seqloom.fit(
        *(preset, *SMALL, *changes),
        data=table,
        valid=table,
        out=str(place / preset),
        steps=2,
        threads=1,
        progress=False,
    )


@pytest.fixture(scope="module")
def run(place: Path) -> Run:
    return trained(place, "ctc-blstm", *SIZES)


def frame_scores(run: Run, path: Path) -> np.ndarray:
    """ln P of each token at each frame, from the layers of the model."""
    frames = seqloom.inspect.sound(run, path).frames
    with torch.inference_mode():
        states = run.model.encoder(
            torch.from_numpy(frames)[None], torch.ones(1, len(frames), dtype=torch.bool)
        )[0]
        scores = run.model.output(states)[0].double().log_softmax(-1).numpy()
    return scores


def best_alignment(scores: np.ndarray, ids: list[int]) -> float:
    """The largest ln P of an alignment of a text, by recursion over (frames left, tokens left, the token of the frame before)."""

    @lru_cache(None)
    def best(time: int, done: int, before: int) -> float:
        if time == len(scores):
            return 0.0 if done == len(ids) else -np.inf
        choices = [scores[time, 0] + best(time + 1, done, 0)]
        if before != 0:
            choices.append(scores[time, before] + best(time + 1, done, before))
        if done < len(ids) and ids[done] != before:
            choices.append(scores[time, ids[done]] + best(time + 1, done + 1, ids[done]))
        return max(choices)

    return best(0, 0, 0)


@pytest.mark.parametrize("text", ["my sun", "oo", "no no", "a"])
def test_the_alignment_is_the_best_of_all(run: Run, place: Path, text: str) -> None:
    found = seqloom.inspect.sound(run, place / "0.wav", text)
    scores = frame_scores(run, place / "0.wav")
    ids = run.tokenizer.encode(text, add_special_tokens=False).ids
    assert found.text == text and found.given
    assert found.logprob == pytest.approx(best_alignment(scores, ids), abs=2e-3)
    # The spans of the tokens are an alignment with this probability.
    step = found.seconds / len(scores)
    path = np.zeros(len(scores), int)
    for token, spoken in zip(ids, found.tokens, strict=True):
        first, last = round(spoken.start / step), round(spoken.end / step)
        assert 0 <= first < last <= len(scores) and not path[first:last].any()
        path[first:last] = token
        assert spoken.probability == pytest.approx(np.exp(scores[first:last, token].max()), abs=2e-4)
    assert scores[np.arange(len(scores)), path].sum() == pytest.approx(found.logprob, abs=2e-3)
    assert "".join(token.text for token in found.tokens) == text
    assert [word.text for word in found.words] == text.split()


def test_the_text_is_that_of_transcribe(run: Run, place: Path) -> None:
    transcript = seqloom.transcribe(run, str(place / "1.wav"))
    found = seqloom.inspect.sound(run, place / "1.wav")
    assert (found.text, found.words) == (transcript.text, transcript.words)
    assert found.seconds == pytest.approx(transcript.seconds, abs=0.02)
    assert not found.given


def test_the_page_has_every_word_and_token_at_its_time(run: Run, place: Path) -> None:
    found = seqloom.inspect.sound(run, place / "0.wav", "my sun")
    page = sound_page(found)
    boxes = re.findall(r'<rect class="word" x="([\d.]+)".*?<title>(.*?): ([\d.]+) to', page)
    assert [name for _, name, _ in boxes] == ["my", "sun", *"my sun"]
    scale = {round((float(x) - 8) / float(start)) for x, _, start in boxes if float(start) > 0.2}
    assert max(scale) - min(scale) <= 0.03 * max(scale)  # the times in the page are rounded to 0.01 s
    data = re.search(r"data:image/png;base64,([^\"]+)", page)
    assert data is not None and b64decode(data[1]) == spectrogram_png(found.frames)


def test_the_picture_has_a_pixel_for_each_number() -> None:
    frames = np.arange(12, dtype=np.float32).reshape(4, 3)
    data = spectrogram_png(frames)
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (4, 3)
    size = struct.unpack(">I", data[33:37])[0]
    rows = np.frombuffer(zlib.decompress(data[41 : 41 + size]), np.uint8).reshape(3, 1 + 3 * 4)
    brightness = (
        rows[:, 1:].reshape(3, 4, 3).astype(int).sum(-1)[::-1].T
    )  # the first number is the lowest row
    assert (np.argsort(brightness.ravel(), kind="stable") == np.arange(12)).all()
    assert spectrogram_png(np.zeros((2, 2), np.float32))  # silence has no range


def test_the_command(run: Run, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["inspect", "sound", str(run.folder), str(place / "0.wav"), "--target", "my sun"]
    main([*words, "--json", "-q"])
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == "my sun" and [word["text"] for word in found["words"]] == ["my", "sun"]
    assert len(found["tokens"]) == 6 and "frames" not in found
    main([*words, "--out", str(place / "page.html"), "-q"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("0.wav: my sun") and lines[1].endswith("my") and lines[2].endswith("sun")
    assert "<svg" in (place / "page.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("file", "target", "message"),
    [
        ("none.wav", None, "no such file"),
        ("empty.wav", None, "the file is empty"),
        ("pdf.wav", None, "a PDF"),
        ("0.wav", "MY SUN!", "characters that the recognizer never writes"),
        ("0.wav", "my sun " * 50, "too few for a text"),
        ("0.wav", " ", "the target is empty"),
        ("long.npy", None, "too long for a page"),
    ],
)
def test_what_cannot_be_aligned_is_one_line(
    run: Run, place: Path, file: str, target: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "empty.wav").write_bytes(b"")
    (place / "pdf.wav").write_bytes(b"%PDF-1.4 not sound")
    np.save(place / "long.npy", np.zeros((13_000, 24), np.float32))
    more = [] if target is None else ["--target", target]
    with pytest.raises(SystemExit) as end:
        main(["inspect", "sound", str(run.folder), str(place / file), *more, "-q"])
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and message in shown.err
    with pytest.raises((DataError, UserError), match=re.escape(message)):
        seqloom.inspect.sound(run, place / file, target)


def test_a_recording_and_a_target_that_are_none_are_said(run: Run, place: Path) -> None:
    for wrong in (3, None, ["0.wav"]):
        with pytest.raises(DataError, match=r"the recording is .*; give the name of its file"):
            seqloom.inspect.sound(run, wrong)
    with pytest.raises(DataError, match="the target is an int; give one text"):
        seqloom.inspect.sound(run, place / "0.wav", 3)


def test_a_decoder_without_ctc_has_no_times(place: Path) -> None:
    with pytest.raises(RunError, match="gives no times; use: seqloom inspect attention"):
        seqloom.inspect.sound(trained(place, "las"), place / "0.wav")


@pytest.fixture(scope="module")
def joint(place: Path) -> Run:
    return trained(place, "recognizer-transformer")


def test_a_recognizer_with_a_decoder_aligns_by_its_ctc(joint: Run, place: Path) -> None:
    found = seqloom.inspect.sound(joint, place / "2.wav", "a moth")
    assert [word.text for word in found.words] == ["a", "moth"]
    starts = [token.start for token in found.tokens]
    assert starts == sorted(starts)


def test_the_search_of_a_decoder_has_the_probabilities_of_its_model(joint: Run, place: Path) -> None:
    file = str(place / "2.wav")
    found = seqloom.inspect.beam(joint, file, beam=3, max_tokens=8)
    assert found.beam == 3 and 1 <= len(found.steps) <= 8
    letters = [branch for branch in found.steps[0] if branch.token.isalpha()]
    assert letters
    for branch in letters:
        score = seqloom.inspect.read(joint, file, branch.token).scores(1)[0, 0]
        assert branch.logprob == pytest.approx(float(score.detach()), abs=1e-4)
    with pytest.raises(RunError, match="only the search of a model that reads text"):
        seqloom.inspect.beam(joint, file, "a moth")


@pytest.mark.parametrize(
    "verb",
    ["attention FILE --edges 5 --max-tokens 6", "beam FILE --max-tokens 5", "trace FILE", "activations FILE"],
)
def test_verbs_of_texts_read_a_sound_file(
    joint: Run, place: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *rest = verb.replace("FILE", str(place / "1.wav")).split()
    main(["inspect", name, str(joint.folder), *rest, "--json", "-q"])
    shown = capsys.readouterr()
    assert json.loads(shown.out) and not shown.err


def test_a_file_of_names_and_texts_is_read_for_heads(joint: Run, place: Path) -> None:
    lines = [f"{place / '0.wav'}\tmy sun", f"{place / '1.wav'}\tno man"]
    found = seqloom.inspect.heads(joint, lines)
    assert len(found.heads) > 0


def test_activations_without_a_file_say_what_to_give(joint: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["inspect", "activations", str(joint.folder), "-q"])
    assert end.value.code == 2 and "reads no text; give a file" in capsys.readouterr().err
