"""Models of pictures and sounds that write no text word by word: every verb shows them, or says in one line what does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import seqloom
from seqloom.cli import main
from seqloom.errors import DataError, RunError
from seqloom.fused.dispatch import plain
from seqloom.inspect import activations, attention, gates, gradients, heads, read, tokens, trace
from seqloom.nn.capture import capture
from seqloom.run import Run
from seqloom.world import speak
from support.quick_training import at_once

COLOURS = {"red": (200, 30, 30), "blue": (40, 60, 200)}
SAID = ("my sun", "no man", "a moth", "on me")
TRAIN = ("train.eval_every=2", "train.schedule.warmup=2")
HEARD = ("corpus.rate=8000", "corpus.bins=24", *TRAIN)
VIT = (
    "corpus.size=24",
    "model.encoder.stem.patch=8",
    "model.encoder.stem.dim=16",
    "model.encoder.stack.layers=2",
    "model.encoder.stack.heads=2",
    "batches.batch=4",
    *TRAIN,
)
TRANSFORMER = "model.encoder.stack={type: Transformer, layers: 1, heads: 2, causal: false}"
CHANGES = {
    "vit": VIT,
    "sound-classifier": (*HEARD, "model.encoder.stack.dim=8", "model.encoder.front.dim=12"),
    "ctc-lstm": (*HEARD, "model.encoder.stack.dim=8", "model.encoder.stack.layers=2"),
}
# models of other kinds, for the table of which verb shows which: the preset, its table, and its changes
OTHERS = {
    "captioner": (
        "show-attend-tell",
        "captions",
        ("corpus.size=16", "model.dim=16", "model.encoder.stem.dims=[4, 8]", "model.decoder.dim=12", *TRAIN),
    ),
    "las": (
        "las",
        "ctc-lstm",
        (
            *HEARD,
            "model.dim=8",
            "model.encoder.front.dim=4",
            "model.encoder.stack.dim=4",
            "model.decoder.dim=8",
        ),
    ),
    "attending classifier": (
        "sound-classifier",
        "sound-classifier",
        (*HEARD, "model.encoder.front.dim=12", TRANSFORMER),
    ),
    "attending recognizer": (
        "ctc-lstm",
        "ctc-lstm",
        (*HEARD, "model.encoder.front={type: ConvolutionFront, dim: 12, channels: 4}", TRANSFORMER),
    ),
}
FILES = {"vit": "1.png", "captioner": "1.png"}  # the others hear 1.wav


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    tables = {"vit": "file\tlabel\n", "sound-classifier": "file\tlabel\n", "ctc-lstm": "", "captions": ""}
    for number in range(8):
        colour = list(COLOURS)[number % 2]
        pixels = np.full((24, 24, 3), 230, np.uint8)
        pixels[number : number + 8, 4:12] = COLOURS[colour]
        Image.fromarray(pixels).save(folder / f"{number}.png")
        tables["vit"] += f"{number}.png\t{colour}\n"
        tables["captions"] += f"{number}.png\ta {colour} square\n"
    for number, text in enumerate(SAID):
        (folder / f"{number}.wav").write_bytes(speak(text).wav())
        tables["sound-classifier"] += f"{number}.wav\t{'short' if len(text) < 6 else 'long'}\n"
        tables["ctc-lstm"] += f"{number}.wav\t{text}\n"
    for preset, table in tables.items():
        (folder / f"{preset}.tsv").write_text(table, "utf-8")
    return folder


@pytest.fixture(scope="module")
def trained(place: Path) -> dict[str, Run]:
    kinds = {name: (name, name, changes) for name, changes in CHANGES.items()} | OTHERS
    runs = {}
    with at_once():
        for name, (preset, data, changes) in kinds.items():
            table = str(place / f"{data}.tsv")
            out = place / "runs" / name.replace(" ", "-")
            runs[name] = seqloom.fit(
                preset, *changes, data=table, valid=table, out=out, steps=2, threads=1, progress=False
            )
    return runs


@pytest.mark.parametrize("name", CHANGES)
def test_every_file_is_read_and_its_values_are_named(trained, place: Path, name: str):
    run, file = trained[name], str(place / FILES.get(name, "1.wav"))
    reading = read(run, file)
    with torch.no_grad():
        scores = reading.scores(2)
        with capture(run.model) as captured:
            exact = reading.scores(2)
    assert scores.shape == (2, len(reading.targets)) and torch.allclose(scores, exact, rtol=1e-4, atol=1e-5)
    assert reading.source == () and (scores <= 0).all()
    found = activations(run, file)
    assert [value.name for value in found.values] == list(captured) and found.tokens == reading.tokens
    assert read(run, place / FILES.get(name, "1.wav")).tokens == reading.tokens  # a path is a file too
    shown = trace(run, file)
    assert not shown.wrong and shown.checked > 10


@pytest.mark.parametrize("name", ["vit", "sound-classifier"])
def test_a_label_is_scored_as_predict_does(trained, place: Path, name: str):
    run, file = trained[name], str(place / FILES.get(name, "1.wav"))
    best = seqloom.predict(run, file)
    for target in (None, *run.labels):
        reading = read(run, file, target)
        label = target or best.label
        with torch.no_grad():
            prob = float(reading.scores(1).exp())
        assert reading.targets == (label,) and prob == pytest.approx(best.probabilities[label], abs=1e-5)
    with pytest.raises(DataError, match="'green' is no label of this run; its labels are"):
        read(run, file, "green")


def test_a_recognizer_without_a_decoder_is_asked_for_the_token_of_each_frame(trained, place: Path):
    run, file = trained["ctc-lstm"], str(place / "1.wav")
    own, given = read(run, file), read(run, file, "no man")
    assert len(own.tokens) == len(own.targets) == len(given.targets)
    assert own.tokens[0] == "0.00 s" and own.tokens[1] == "0.03 s"  # three frames of 10 ms
    letters = [one for one in given.targets if one != "blank"]
    merged = [one for index, one in enumerate(given.targets) if index == 0 or one != given.targets[index - 1]]
    assert "".join(one for one in merged if one != "blank") == "no man" and len(letters) >= 6
    with torch.no_grad():
        total = float(given.scores(1).double().sum())
    assert total == pytest.approx(seqloom.inspect.sound(run, file, "no man").logprob, abs=1e-3)
    with pytest.raises(DataError, match="the target"):
        read(run, file, "no man " * 100)


def test_attention_over_patches_names_them_by_row_and_column(trained, place: Path):
    """The effect of an edge is that of hiding it in a model run by itself."""
    run, file = trained["vit"], str(place / "1.png")
    found = attention(run, file, edges=20)
    assert found.tokens == tuple(f"{row},{column}" for row in (1, 2, 3) for column in (1, 2, 3))
    assert len(found.maps) == 4 and found.maps[0].weights.shape == (9, 9) and found.unit == "regions"
    assert all(np.allclose(one.weights.sum(1), 1, atol=1e-5) for one in found.maps)
    reading, parts = read(run, file), dict(run.model.named_modules())
    with torch.no_grad(), plain():
        before = reading.scores(1).double()
        for edge in found.edges[::5]:
            score = parts[f"{edge.layer}.score"]
            forward = score.forward

            def hide(q, k, forward=forward, edge=edge):
                scores = forward(q, k)
                scores[0, edge.head, edge.query, edge.key] = float("-inf")
                return scores

            score.forward = hide
            try:
                effect = float((reading.scores(1).double() - before).sum())
            finally:
                del score.forward
            assert edge.effect == pytest.approx(effect, abs=2e-5)
    measured = heads(run, [file, f"{place / '0.png'}\tred"])
    assert len(measured.heads) == 4 and measured.targets == 2
    assert gradients(run, [f"{file}\tred"]).layers


@pytest.mark.parametrize("name", ["sound-classifier", "ctc-lstm"])
def test_gates_over_the_frames_of_a_sound(trained, place: Path, name: str):
    run, file = trained[name], str(place / "1.wav")
    found = gates(run, file)
    assert found.unit == "frames" and found.cells
    for cell in found.cells:
        assert all(len(one.values) == len(found.tokens) for one in cell.gates) and cell.carry is not None
    first, second = (gates(run, file, max_tokens=4, window=number) for number in (1, 2))
    assert first.tokens + second.tokens == found.tokens[:8] and "frames 5 to 8 of" in second.window
    if name == "ctc-lstm":  # which reads left to right
        assert np.allclose(first.cells[0].gates[0].values, found.cells[0].gates[0].values[:4], atol=1e-5)
    assert gradients(run, [file]).curves


WORKS = {
    "vit": ("attention", "activations", "trace", "gradients", "heads"),
    "sound-classifier": ("gates", "activations", "trace", "gradients"),
    "ctc-lstm": ("gates", "activations", "trace", "gradients", "sound"),
    "captioner": ("attention", "activations", "trace", "gradients", "heads", "gates", "beam"),
    "las": ("attention", "activations", "trace", "gradients", "heads", "gates", "beam"),
    "attending classifier": ("attention", "activations", "trace", "gradients", "heads"),
    "attending recognizer": ("attention", "activations", "trace", "gradients", "heads", "sound"),
}
VERBS = {
    **dict.fromkeys(
        ("attention", "gates", "activations", "trace", "gradients", "heads", "tokens", "beam", "sound"),
        "RUN FILE",
    ),
    "geometry": "RUN --file FILE",
    "similarity": "RUN RUN --file FILE",
    "contexts": "RUN cat --file FILE",
    "coreference": "RUN",
    "alignment": "RUN FILE FILE",
    "patch": "RUN FILE FILE",
}


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_shows_a_file_or_names_itself_and_what_works(
    trained, place: Path, name: str, verb: str, capsys
):
    meaning = {"RUN": str(trained[name].folder), "FILE": str(place / FILES.get(name, "1.wav"))}
    words = ["inspect", verb, *(meaning.get(word, word) for word in VERBS[verb].split()), "-q"]
    if verb in WORKS[name]:
        main([*words, "--json"])
        shown = capsys.readouterr()
        assert json.loads(shown.out) and not shown.err
        main(words)
        page = capsys.readouterr().out.splitlines()[-1].removeprefix("page: ")
        assert verb == "activations" or Path(page).stat().st_size < 2_000_000
        return
    with pytest.raises(SystemExit) as end:
        main(words)
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.count("\n") == 1
    assert f"inspect {verb}" in error and ("use: seqloom " in error or "seqloom inspect trace" in error)


@pytest.mark.parametrize("name", CHANGES)
def test_a_files_name_is_no_text(trained, place: Path, name: str):
    with pytest.raises(
        RunError, match=r"inspect tokens shows .* this run reads (pictures|recordings), not text"
    ):
        tokens(trained[name], str(place / FILES.get(name, "1.wav")))


def test_the_page_speaks_of_regions(trained, place: Path, capsys, tmp_path: Path):
    page = tmp_path / "page.html"
    words = ["inspect", "attention", str(trained["vit"].folder), str(place / "1.png"), "-q"]
    main([*words, "--out", str(page)])
    assert "9 regions" in capsys.readouterr().out
    text = page.read_text("utf-8")
    assert "Lines between regions" in text and "A row is a region that reads" in text


def test_a_picture_has_no_windows_and_a_missing_file_is_said(trained):
    with pytest.raises(DataError, match="no such file"):
        attention(trained["vit"], "nothing.png")
    with pytest.raises(DataError, match="give a file"):
        activations(trained["vit"])
