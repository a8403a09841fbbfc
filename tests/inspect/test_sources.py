"""Models that read pictures: their readings, attention over regions, and every value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from seqloom.cli import main
from seqloom.errors import UserError
from seqloom.inference.caption_attention import caption_attention
from seqloom.inference.captioning import caption, score_captions
from seqloom.inspect import activations, attention, gates, read
from seqloom.nn.source import SourceEncoder
from seqloom.run import Run
from seqloom.train.fit import fit
from support.quick_training import at_once

SMALL = [
    "corpus.size=16",
    "model.dim=16",
    "model.encoder.stem.dims=[4, 8]",
    "model.decoder.dim=12",
    "model.decoder.attention.dim=8",
    "batches.batch=4",
]
COLOURS = {"red": (200, 30, 30), "blue": (40, 60, 200)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures")
    (path / "images").mkdir()
    rows = []
    for number in range(12):
        name = list(COLOURS)[number % 2]
        pixels = np.full((16, 16, 3), 230, np.uint8)
        pixels[number : number + 4, 4:12] = COLOURS[name]
        Image.fromarray(pixels).save(path / "images" / f"{number}.png")
        rows.append(f"{number}.png\ta {name} square\n")
    (path / "captions.tsv").write_text("".join(rows), "utf-8")
    return path


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run") / "captioner"
    with at_once():
        return fit("show-attend-tell", *SMALL, data=[str(folder / "captions.tsv")], out=out, steps=3, seed=0)


def test_a_picture_is_read_with_its_caption(run: Run, folder: Path):
    file = str(folder / "images" / "0.png")
    reading = read(run, file, "a red square")
    assert [token.strip() for token in reading.targets] == ["a", "red", "square", "<eos>"]
    assert [token.strip() for token in reading.tokens[1:]] == ["a", "red", "square"]
    rows, columns = run.model.encoder.stem.grid
    assert len(reading.source) == rows * columns and reading.source[0] == "1,1"
    assert reading.source[columns] == "2,1" and reading.source[-1] == f"{rows},{columns}"
    with torch.no_grad():
        scores = reading.scores(2)
    [expected] = score_captions(run, [file], ["a red square"])
    assert torch.allclose(scores, torch.tensor(expected).expand(2, -1), atol=1e-5)
    own = read(run, file, max_tokens=4)
    best = caption(run, file, max_tokens=3).outputs[0]
    assert len(own.targets) == min(3, len(best.ids)) + 1


def test_attention_over_regions_has_maps_and_effects(run: Run, folder: Path, capsys):
    file = str(folder / "images" / "1.png")
    found = attention(run, file, "a blue square", edges=8)
    [one] = found.maps
    assert one.reads == "cross" and one.weights.shape == (4, len(found.source))
    assert np.allclose(one.weights.sum(1), 1, atol=1e-5) and len(found.edges) > 8
    assert gates(run, file, "a blue square").cells and activations(run, file, "a blue square").source
    main(["inspect", "attention", str(run.folder), file, "--target", "a blue square", "--edges", "5", "-q"])
    assert "page: " in capsys.readouterr().out
    main(["inspect", "trace", str(run.folder), file, "--target", "a blue square", "-q"])
    assert "agree" in capsys.readouterr().out


def test_a_class_token_is_a_position_of_its_own_and_no_region(folder: Path, tmp_path: Path, capsys):
    """Maps of attention name it; the page of the picture shows the regions after it."""
    stack = "{type: Transformer, layers: 1, heads: 2, causal: false}"
    token = [f"model.encoder.stack={stack}", "model.encoder.class_token=true"]
    with at_once():
        run = fit(
            "show-attend-tell",
            *SMALL,
            *token,
            data=[str(folder / "captions.tsv")],
            out=tmp_path / "token",
            steps=3,
            seed=0,
        )
    file = str(folder / "images" / "1.png")
    rows, columns = run.model.grid
    [cross] = [one for one in attention(run, file, "a blue square", edges=4).maps if one.reads == "cross"]
    source = read(run, file, "a blue square").source
    assert source[:2] == ("class", "1,1") and len(source) == 1 + rows * columns
    looks = caption_attention(run, file, "a blue square")
    assert looks.weights.shape == (3, rows, columns) and cross.weights.shape[1] == len(source)
    shares = looks.weights.sum((1, 2)) + cross.weights[:3, 0]
    assert np.allclose(shares, 1, atol=1e-4)
    assert np.allclose(looks.weights.reshape(3, -1), cross.weights[:3, 1:], atol=1e-4)
    main(["inspect", "trace", str(run.folder), file, "--target", "a blue square", "-q"])
    assert "agree" in capsys.readouterr().out


def test_a_file_that_is_not_there_is_one_line(run: Run):
    with pytest.raises(UserError, match="no such file"):
        read(run, "nothing.png")


def test_positions_have_their_numbers_if_an_encoder_names_none():
    assert SourceEncoder().position_names(3) == ["1", "2", "3"]
