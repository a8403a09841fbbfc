"""A small captioner from its files to captions: Python and the command line agree, search and scores agree, runs resume."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import seqloom
from seqloom.batches.sources import stack_sources
from seqloom.cli import main
from seqloom.errors import DataError, RunError, UserError
from seqloom.evaluation import evaluate
from seqloom.inference.caption_attention import WordRegions, attention_hits, caption_attention, touches
from seqloom.inference.captioning import caption, caption_log_probs, rank_captions
from seqloom.run import Run, load, named_weights
from seqloom.train.fit import fit
from support.quick_training import at_once

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 60), "blue": (40, 60, 200)}
PLACES = {"left": slice(0, 8), "right": slice(8, 16)}
SMALL = [
    "corpus.size=16",
    "model.dim=16",
    "model.encoder.stem.dims=[8, 16]",
    "model.decoder.dim=24",
    "model.decoder.attention.dim=12",
    "model.dropout=0",
    "model.decoder.dropout=0",
    "objective.smoothing=0",
    "train.schedule.warmup=10",
    "train.eval_every=60",
    "train.optimizer.lr=6e-3",
    "batches.batch=12",
    "tokenizer.size=400",
]


def scene(colour: str, place: str, shift: int = 0) -> bytes:
    pixels = np.full((16, 16, 3), 230, np.uint8)
    pixels[4 + shift : 12 + shift, PLACES[place]] = COLOURS[colour]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Squares of three colours in two places, each with two captions."""
    path = tmp_path_factory.mktemp("pictures")
    (path / "images").mkdir()
    rows = []
    for number in range(36):
        colour = list(COLOURS)[number % 3]
        place = list(PLACES)[number // 3 % 2]
        (path / "images" / f"{number}.png").write_bytes(scene(colour, place, number // 6 - 3))
        rows += [f"{number}.png\ta {colour} square on the {place}\n"]
    (path / "captions.tsv").write_text("".join(rows), "utf-8")
    return path


def command(words: list[str]) -> int:
    """The exit code of a command."""
    try:
        main(words)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def train(folder: Path, out: Path, *changes: str, **options: object) -> Run:
    with at_once():
        return fit(
            "show-attend-tell", *SMALL, *changes, data=[str(folder / "captions.tsv")], out=out, **options
        )


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(folder, tmp_path_factory.mktemp("run") / "run", steps=120, seed=0)


def test_it_learns_colours_and_places(run: Run, folder: Path):
    found = caption(run, [folder / "images" / f"{number}.png" for number in range(6)])
    expected = [f"a {colour} square on the {place}" for place in PLACES for colour in COLOURS]
    assert [one.text for one in found] == expected
    assert found[0].file.endswith("0.png")


def test_one_gives_one_a_list_a_list_and_an_iterator_an_iterator(run: Run, folder: Path):
    path = folder / "images" / "0.png"
    one = caption(run, str(path))
    assert caption(run, path).text == one.text == caption(run, [str(path)])[0].text
    assert next(caption(run, iter([str(path)]))).text == one.text
    pixels = np.asarray(Image.open(path))
    assert caption(run, pixels).outputs[0].ids == one.outputs[0].ids


def test_beams_are_sorted_and_samples_follow_the_seed(run: Run, folder: Path):
    path = str(folder / "images" / "1.png")
    outputs = caption(run, path, beam=3, n=3).outputs
    assert [one.score for one in outputs] == sorted((one.score for one in outputs), reverse=True)
    one, other = (caption(run, path, beam=1, n=4, temperature=1.5, seed=3).outputs for _ in range(2))
    assert one == other and len(one) == 4
    assert caption(run, path, beam=1, n=4, temperature=1.5, seed=4).outputs != one


def test_ln_p_of_a_caption_is_the_searchs(run: Run, folder: Path):
    path = str(folder / "images" / "2.png")
    best = caption(run, path).outputs[0]
    assert seqloom.score(run, path, best.text).logprob == pytest.approx(best.logprob, abs=1e-4)
    ranked = rank_captions(run, path, ["a red square on the left", best.text, "a green square on the right"])
    assert ranked[0].text == best.text and ranked[0].logprob == pytest.approx(best.logprob, abs=1e-4)


def test_ranking_is_the_loss_of_each_caption(run: Run, folder: Path):
    """ln P of each caption by one forward pass each, from the logits."""
    pixels = np.asarray(Image.open(folder / "images" / "3.png"))
    captions = ["a red square on the left", "a blue square"]
    [found] = caption_log_probs(run, [pixels], captions)
    for text, values in zip(captions, found, strict=True):
        ids = [*run.tokenizer.encode(text).ids, run.specials.eos]
        with torch.no_grad():
            state = run.model.start(stack_sources([pixels])[0])
            logits, _ = run.model(torch.tensor([[run.specials.bos, *ids[:-1]]]), state)
        expected = logits.log_softmax(-1)[0, torch.arange(len(ids)), ids]
        np.testing.assert_allclose(values, expected.numpy(), atol=1e-4)


def test_evaluate_has_every_score(run: Run, folder: Path):
    found = evaluate(run, str(folder / "captions.tsv"))
    assert found["exact_match"].value == 100 and found["bleu_4"].value == pytest.approx(100)
    assert found["cider"].value == pytest.approx(10) and found["retrieval_recall_1"].value > 15
    assert "search:beam5-0.6" in found["bleu_1"].signature and found["bits_per_byte"].value < 0.2
    records = [(str(folder / "images" / "0.png"), ["a red square on the left", "something red"])]
    assert evaluate(run, records)["exact_match"].value == 100


def test_attention_sums_to_one_and_has_the_words_of_the_caption(run: Run, folder: Path):
    found = caption_attention(run, str(folder / "images" / "0.png"))
    assert found.words == ("a", "red", "square", "on", "the", "left")
    assert found.weights.shape == (6, 4, 4)
    np.testing.assert_allclose(found.weights.sum((1, 2)), 1, atol=1e-5)
    given = caption_attention(run, str(folder / "images" / "0.png"), "a red square on the left")
    np.testing.assert_allclose(given.weights, found.weights, atol=1e-6)


def test_hits_count_the_largest_region(run: Run, folder: Path):
    reader = run.config.reader([str(folder / "captions.tsv")])
    everywhere = {
        picture.name: WordRegions(texts[0].split(), [None, (0, 0, 16, 16), None, None, None, None])
        for picture, texts in reader
    }
    hits, chance = attention_hits(run, reader, everywhere, {})
    assert hits.value == chance.value == 100 and hits.n == 36
    nowhere = {
        name: row._replace(boxes=[None, (20, 20, 30, 30)] + [None] * 4) for name, row in everywhere.items()
    }
    assert [number.value for number in attention_hits(run, reader, nowhere, {})] == [0, 0]


def test_a_region_touches_a_box_that_shares_a_pixel():
    grid, shape = (4, 4), (16, 16, 3)  # regions of 4 × 4 pixels
    inside = [
        (row, column)
        for row in range(4)
        for column in range(4)
        if touches((3, 4, 9, 8), row, column, grid, shape)
    ]
    assert inside == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("weights", ["Softmax", "Hard"])
def test_a_resumed_run_has_the_same_bits(folder: Path, tmp_path: Path, weights: str):
    """The second half of a run whose first checkpoint is its newest; hard attention draws the same regions again."""
    changes = ["batches.augment={type: Augment, shift: 2, light: 0.1}", "train.eval_every=10"]
    changes.append(f"model.decoder.attention.weights={weights}")
    whole = train(folder, tmp_path / "run", *changes, steps=20, seed=1)
    expected = {name: weight.clone() for name, weight in named_weights(whole.model).items()}
    for name in ("model.safetensors", "results.json", "checkpoints/step-00000020"):
        path = tmp_path / "run" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with at_once():
        resumed = fit(str(tmp_path / "run"))
    for name, weight in named_weights(resumed.model).items():
        assert torch.equal(weight, expected[name]), name


def test_int8_and_an_ensemble_describe_too(run: Run, folder: Path):
    path = str(folder / "images" / "4.png")
    expected = caption(run, path).text
    assert caption(seqloom.quantize(run), path).text == expected
    both = seqloom.ensemble(run, run)
    assert caption(both, path).text == expected
    assert caption(run, path, coverage_penalty=0.1).text == expected


# The command line


def test_the_verb_prints_files_and_captions(run: Run, folder: Path, capsys: pytest.CaptureFixture[str]):
    paths = [str(folder / "images" / f"{number}.png") for number in (0, 1)]
    assert command(["caption", str(run.folder), *paths, "--n", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[:2] for line in lines] == [
        [paths[0], "a red square on the left"],
        [paths[1], "a green square on the left"],
    ]
    assert all(len(line.split("\t")) == 3 for line in lines)
    assert command(["caption", str(run.folder), paths[0], "--json", "--beam", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outputs"][0]["text"] == "a red square on the left"


def test_ranking_on_the_command_line(
    run: Run, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "captions.txt").write_text("a blue square on the left\na red square on the left\n", "utf-8")
    path = str(folder / "images" / "0.png")
    assert command(["caption", str(run.folder), path, "--rank", str(tmp_path / "captions.txt")]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("\ta red square on the left")


def test_the_page_has_the_picture_once_for_each_word(
    run: Run, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = str(folder / "images" / "0.png")
    assert command(["inspect", "attention", str(run.folder), path, "--out", str(tmp_path / "a.html")]) == 0
    page = (tmp_path / "a.html").read_text("utf-8")
    assert page.count("<image ") == 7 and page.count("<rect ") == 6 * 16 and "data:image/png" in page
    assert "a red square on the left" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("text.jpg", b"%PDF-1.7 ", "text.jpg: not a picture, but a PDF"),
        ("cut.png", scene("red", "left")[:60], "cut.png: the picture is damaged"),
        ("none.png", None, "none.png: there is no such file"),
    ],
)
def test_a_wrong_file_is_one_line_and_exit_2(
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes | None,
    message: str,
):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert command(["caption", str(run.folder), str(tmp_path / name)]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and message in errors[0]


def test_wrong_verbs_name_the_right_one(run: Run, capsys: pytest.CaptureFixture[str]):
    for verb in ("translate", "generate"):
        assert command([verb, str(run.folder), "a text"]) == 2
        assert f"seqloom caption {run.folder}" in capsys.readouterr().err
    with pytest.raises(UserError, match="no captions to rank"):
        rank_captions(run, "a.png", [])
    with pytest.raises(DataError, match="instead of a file"):
        caption(run, [3])


def test_a_missing_picture_stops_before_anything_is_written(folder: Path, tmp_path: Path):
    (folder / "wrong.tsv").write_text("0.png\tfine\n99.png\ta cat\n", "utf-8")
    with pytest.raises(DataError, match=r"wrong\.tsv:2: there is no picture 99\.png"), at_once():
        fit("show-attend-tell", *SMALL, data=[str(folder / "wrong.tsv")], out=tmp_path / "run", steps=2)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_a_translator_is_refused(tmp_path: Path):
    with at_once():
        translator = fit(
            "rnnsearch", "model.dim=8", "model.decoder.dim=8", "tokenizer.size=300",
            data=[("the cat", "le chat"), ("a dog", "un chien")] * 20, out=tmp_path / "t", steps=2,
        )  # fmt: skip
    with pytest.raises(RunError, match="translate"):
        caption(translator, "a.png")
    assert load(tmp_path / "t").model.reads == "text"


# Labels, and the Transformer


def test_vit_labels_pictures(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [f"{number}.png\t{list(COLOURS)[number % 3]}\n" for number in range(36)]
    (folder / "labels.tsv").write_text("".join(rows), "utf-8")
    changes = [
        "corpus.size=16",
        "model.encoder.stem.dim=16",
        "model.encoder.stack.layers=1",
        "model.encoder.stack.heads=2",
        "train.optimizer.lr=5e-3",
        "train.schedule.warmup=10",
        "batches.augment.shift=1",
    ]
    with at_once():
        run = fit("vit", *changes, data=[str(folder / "labels.tsv")], out=tmp_path / "vit", steps=60, seed=0)
    paths = [str(folder / "images" / f"{number}.png") for number in range(3)]
    assert [found.label for found in seqloom.predict(run, paths)] == list(COLOURS)
    assert evaluate(run, str(folder / "labels.tsv"))["accuracy"].value > 95
    assert command(["predict", str(run.folder), paths[0]]) == 0
    assert capsys.readouterr().out.startswith(f"{paths[0]}\tred\t")


def test_the_transformer_describes_and_attends(folder: Path, tmp_path: Path):
    changes = [
        "corpus.size=16",
        "tokenizer.size=400",
        "model.dim=16",
        "model.encoder.stem.dims=[8, 16]",
        "model.encoder.stack.heads=2",
        "model.decoder.layers=1",
        "model.decoder.heads=2",
    ]
    with at_once():
        run = fit(
            "captioner-transformer",
            *changes,
            data=[str(folder / "captions.tsv")],
            out=tmp_path / "t",
            steps=3,
        )
    path = str(folder / "images" / "0.png")
    best = caption(run, path, max_tokens=5).outputs[0]
    assert len(best.ids) <= 5
    found = caption_attention(run, path, "a red square on the left")
    np.testing.assert_allclose(found.weights.sum((1, 2)), 1, atol=1e-5)
