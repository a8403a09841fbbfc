"""A recognizer from sound files to text: training, times, search, live text, evaluation, files that are wrong."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import seqloom
from seqloom.cli import main
from seqloom.errors import DataError, RunError, UserError
from seqloom.inference.live_transcription import LiveTranscriber
from seqloom.inference.subtitles import format_transcript
from seqloom.inference.transcription import SpokenText, SpokenWord, Transcript, cut_points
from seqloom.media.sounds import load_sound
from seqloom.run import Run
from seqloom.world import speak

SENTENCES = ("a man is on my sun", "no sun is on me", "my sun", "a moth is on a man")
SMALL = ("corpus.rate=8000", "corpus.bins=24", "model.encoder.stack.layers=1", "model.dropout=0")
PLAIN = ("batches.time_masks=0", "batches.bin_masks=0", "batches.stretch=0", "train.optimizer.lr=1e-2")


def status(arguments: list[str]) -> int:
    """The exit code of a command."""
    try:
        main(arguments)
    except SystemExit as error:
        return int(error.code or 0)
    return 0


def write_sounds(folder: Path) -> Path:
    """A table of sentences of one voice."""
    rows = []
    for index, text in enumerate(SENTENCES):
        (folder / f"{index}.wav").write_bytes(speak(text).wav())
        rows.append(f"{index}.wav\t{text}")
    (folder / "train.tsv").write_text("\n".join(rows) + "\n")
    return folder / "train.tsv"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sounds(tmp_path_factory.mktemp("sounds"))


@pytest.fixture(scope="module")
def run(table: Path) -> Run:
    """A recognizer that knows its four sentences by heart; it reads left to right."""
    changes = (
        *SMALL,
        *PLAIN,
        "model.encoder.stack.dim=48",
        "model.encoder.stack.dropout=0",
        "train.schedule.warmup=10",
    )
    changes += ("corpus.normalize=false", "train.average_checkpoints=1", "train.eval_every=200")
    out = table.parent / "run"
    return seqloom.fit(
        "ctc-lstm",
        *changes,
        data=str(table),
        valid=str(table),
        out=str(out),
        steps=200,
        threads=1,
        progress=False,
    )


def paths(table: Path) -> list[str]:
    return [str(table.parent / f"{index}.wav") for index in range(len(SENTENCES))]


def test_what_was_learnt_is_heard(run: Run, table: Path) -> None:
    found = seqloom.transcribe(run, paths(table))
    assert [transcript.text for transcript in found] == list(SENTENCES)
    assert seqloom.transcribe(run, paths(table)[0]) == found[0]
    assert list(seqloom.transcribe(run, iter(paths(table)))) == found
    searched = seqloom.transcribe(run, paths(table)[1], beam=8, n=3)
    assert searched.text == SENTENCES[1]
    assert [output.score for output in searched.outputs] == sorted(
        (o.score for o in searched.outputs), reverse=True
    )
    assert len(searched.outputs) == 3


def test_words_have_the_times_of_the_world(run: Run, table: Path) -> None:
    for index, text in enumerate(SENTENCES):
        truth = speak(text).words
        found = seqloom.transcribe(run, paths(table)[index]).words
        assert [word.text for word in found] == [word.text for word in truth]
        for word, right in zip(found, truth, strict=True):
            assert word.start is not None and word.end is not None
            overlap = min(word.end, right.end + 0.3) - max(word.start, right.start - 0.05)
            assert overlap > 0  # a recognizer that reads left to right writes a letter when it has heard it
        starts = [word.start for word in found]
        assert starts == sorted(starts)


def test_live_text_is_that_of_the_whole(run: Run, table: Path) -> None:
    samples = load_sound(paths(table)[0], 8_000)
    for size in (57, 333, 4000):
        live = LiveTranscriber(run)
        texts = [live.push(samples[start : start + size]).text for start in range(0, len(samples), size)]
        final = live.finish()
        assert final.text == SENTENCES[0]
        assert final.seconds == pytest.approx(len(samples) / 8_000, abs=1e-3)
        assert live.latency == pytest.approx(128 / 8_000 + 0.02)
        assert len(set(texts)) > 3 or size == 4000


def test_evaluate_counts_errors(run: Run, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = seqloom.evaluate(run, str(table))
    assert found["wer"].value == found["cer"].value == 0
    wrong = [(path, "a dog") for path in paths(table)]
    (table.parent / "wrong.tsv").write_text("\n".join("\t".join(row) for row in wrong))
    assert seqloom.evaluate(run, str(table.parent / "wrong.tsv"), beam=4)["wer"].value > 100
    assert status(["evaluate", str(run.folder), str(table), "--json", "-q"]) == 0
    names = [number["name"] for number in json.loads(capsys.readouterr().out)["numbers"]]
    assert {"wer", "cer", "ser", "bits_per_byte"} <= set(names)


def test_a_language_model_counts(run: Run, table: Path, tmp_path: Path) -> None:
    (tmp_path / "lm.txt").write_text("\n".join(SENTENCES * 30) + "\n")
    changes = (
        "model.dim=16",
        "model.stack.dim=16",
        "batches.width=16",
        "batches.batch=4",
        "train.eval_every=20",
    )
    for tokenizer in ("Characters", "Words"):
        lm = seqloom.fit(
            *("lstm-lm", *changes, f"tokenizer={tokenizer}"),
            data=str(tmp_path / "lm.txt"),
            out=str(tmp_path / tokenizer),
            steps=20,
            threads=1,
            progress=False,
        )
        found = seqloom.transcribe(run, paths(table)[0], lm=lm, lm_weight=0.3, beam=4)
        assert found.text == SENTENCES[0]
        lm_logprob = found.outputs[0].lm_logprob
        assert lm_logprob is not None
        assert lm_logprob == pytest.approx(text_log_prob(lm, SENTENCES[0]), abs=1e-3)
    with pytest.raises(RunError, match="give a language model"):
        seqloom.transcribe(run, paths(table)[0], lm=run)


def text_log_prob(lm: Run, text: str) -> float:
    """ln P of a line and its end, by one pass over its tokens."""
    start, _ = lm.encode([""], as_prompt=True)
    end = lm.tokenizer.encode("\n").ids or [lm.specials.eos]
    ids = torch.tensor([[*start[0].tolist(), *lm.tokenizer.encode(text).ids, *end]])
    with torch.inference_mode():
        logits = lm.model.output(lm.model.features(ids[:, :-1])[0])[:, start.shape[1] - 1 :].log_softmax(-1)
    return float(logits[0].gather(-1, ids[0, start.shape[1] :, None]).sum())


def test_the_command(run: Run, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = paths(table)[0]
    assert status(["transcribe", str(run.folder), first, "-q"]) == 0
    assert capsys.readouterr().out == SENTENCES[0] + "\n"
    assert status(["transcribe", str(run.folder), first, "--format", "srt", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1" and " --> " in lines[1] and lines[2] == SENTENCES[0]
    assert status(["transcribe", str(run.folder), first, "--timestamps", "word", "-q"]) == 0
    assert [line.split("\t")[2] for line in capsys.readouterr().out.splitlines()] == SENTENCES[0].split()
    assert status(["transcribe", str(run.folder), first, "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outputs"][0]["text"] == SENTENCES[0]
    assert len(found["words"]) == 6
    assert status(["transcribe", str(run.folder), first, "--live", "-q"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(SENTENCES[0])


def test_wrong_files_end_with_2_and_one_line(
    run: Run, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "pdf.wav").write_bytes(b"%PDF-1.4 not sound")
    np.save(tmp_path / "nan.npy", np.full((5, 24), np.nan, np.float32))
    for name, message in {
        "empty.wav": "the file is empty",
        "pdf.wav": "a PDF",
        "none.wav": "no such file",
        "nan.npy": "has NaN",
    }.items():
        assert status(["transcribe", str(run.folder), str(tmp_path / name), "-q"]) == 2
        error = capsys.readouterr().err.strip()
        assert message in error and len(error.splitlines()) == 1
    (tmp_path / "t.tsv").write_text(f"{paths(table)[0]}\tmy sun\nnone.wav\tmy sun\n")
    assert (
        status(
            [
                "train",
                "ctc-lstm",
                "--data",
                str(tmp_path / "t.tsv"),
                "--steps",
                "1",
                "--out",
                str(tmp_path / "r"),
                "-q",
            ]
        )
        == 2
    )
    assert "t.tsv:2: " in capsys.readouterr().err
    assert not (tmp_path / "r" / "config.yaml").exists()


def test_verbs_that_do_not_fit_are_answered(run: Run, table: Path) -> None:
    with pytest.raises(RunError, match="transcribes recordings; use: seqloom transcribe"):
        seqloom.generate(run, "a")
    with pytest.raises(RunError, match="seqloom transcribe"):
        seqloom.predict(run, "a")
    with pytest.raises(UserError, match="a beam of at least as many"):
        seqloom.transcribe(run, paths(table)[0], n=3)


def test_a_stopped_training_goes_on_exactly(table: Path, tmp_path: Path) -> None:
    changes = (
        *SMALL,
        "model.encoder.stack.dim=8",
        "train.save_every=2",
        "train.eval_every=2",
        "train.schedule.warmup=2",
    )
    options = {"data": str(table), "valid": str(table), "threads": 1, "progress": False}
    whole = seqloom.fit("ctc-blstm", *changes, out=str(tmp_path / "a"), steps=6, **options)
    from seqloom.errors import Stopped
    from seqloom.train import loop

    original = loop.TrainLoop.save_checkpoint

    def stop_after(self: loop.TrainLoop) -> None:
        original(self)
        if self.step == 4:
            raise Stopped(15, self.step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.TrainLoop, "save_checkpoint", stop_after)
        with pytest.raises(Stopped):
            seqloom.fit("ctc-blstm", *changes, out=str(tmp_path / "b"), steps=6, **options)
    resumed = seqloom.fit(str(tmp_path / "b"), threads=1, progress=False)
    assert resumed.results.weights_sha256 == whole.results.weights_sha256


@pytest.mark.parametrize("preset", ["las", "recognizer-transformer"])
def test_decoders_write_texts(preset: str, table: Path, tmp_path: Path) -> None:
    trained = seqloom.fit(
        *(preset, *SMALL[:2], "train.eval_every=2", "train.schedule.warmup=2", "train.average_checkpoints=1"),
        data=str(table),
        valid=str(table),
        out=str(tmp_path / preset),
        steps=2,
        threads=1,
        progress=False,
    )
    found = seqloom.transcribe(trained, paths(table), beam=2)
    assert len(found) == len(SENTENCES)
    assert {"wer", "perplexity"} <= {number.name for number in seqloom.evaluate(trained, str(table), beam=1)}


def test_labels_of_recordings(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{path}\t{'long' if index % 2 == 0 else 'short'}" for index, path in enumerate(paths(table) * 3)]
    (tmp_path / "labels.tsv").write_text("file\tlabel\n" + "\n".join(rows) + "\n")
    trained = seqloom.fit(
        *("sound-classifier", "train.eval_every=5", "train.schedule.warmup=2"),
        data=str(tmp_path / "labels.tsv"),
        valid=str(tmp_path / "labels.tsv"),
        out=str(tmp_path / "run"),
        steps=5,
        threads=1,
        progress=False,
    )
    assert seqloom.predict(trained, paths(table)[0]).label in ("long", "short")
    assert seqloom.evaluate(trained, str(tmp_path / "labels.tsv"))["accuracy"].n == 12
    capsys.readouterr()
    assert status(["predict", str(trained.folder), *paths(table)[:2], "--json", "-q"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["file"] for row in found] == paths(table)[:2]
    assert {row["label"] for row in found} <= {"long", "short"}
    with pytest.raises(DataError, match="no such file"):
        seqloom.predict(trained, "none.wav")


@pytest.mark.parametrize(
    "preset", ["ctc-blstm", "ctc-lstm", "las", "recognizer-transformer", "sound-classifier"]
)
def test_every_preset_is_explained(preset: str) -> None:
    explained = seqloom.explain(preset)
    assert explained.parameters == sum(
        p.numel() for p in seqloom.Config.preset(preset).meta_model().parameters()
    )
    assert explained.flops > 0
    assert "SoundEncoder" in {part.name for part in explained.parts}


def test_long_recordings_are_cut_where_it_is_quiet() -> None:
    frames = np.ones((1000, 4), np.float32)
    frames[270:290] = -5
    frames[500:510] = -5
    spans = list(cut_points(frames, 300, True))
    assert spans[0][0] == 0 and spans[-1][1] == 1000
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
    assert all(end - start <= 300 for start, end in spans)
    assert 270 <= spans[0][1] < 290 and 500 <= spans[1][1] < 510
    assert list(cut_points(frames[:10], 300, True)) == [(0, 10)]


def test_subtitles() -> None:
    words = tuple(SpokenWord(f"w{i}", float(i) / 2, float(i) / 2 + 0.4) for i in range(30))
    transcript = Transcript(
        "a.wav", 15.0, (SpokenText(" ".join(word.text for word in words), -1, -1),), words
    )
    srt = format_transcript(transcript, "srt")
    blocks = [block.splitlines() for block in srt.strip().split("\n\n")]
    assert [block[0] for block in blocks] == [str(i + 1) for i in range(len(blocks))]
    assert " ".join(block[2] for block in blocks) == transcript.text
    assert blocks[0][1].startswith("00:00:00,000 --> 00:00:0")
    assert format_transcript(transcript, "vtt").startswith("WEBVTT\n\n00:00:00.000 --> ")
    assert format_transcript(transcript, "txt", True).splitlines()[1] == "00:00:00.500\t00:00:00.900\tw1"
    nothing = Transcript("a.wav", 1.0, (SpokenText("x", -1, -1),), (SpokenWord("x", None, None),))
    with pytest.raises(UserError, match="gives words no times"):
        format_transcript(nothing, "srt")
