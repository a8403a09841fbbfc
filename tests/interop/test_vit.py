"""ViT in the folders of `transformers`: read, written, and refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

import seqloom
from seqloom.cli import main
from seqloom.errors import DataError
from seqloom.interop import export_checkpoint, import_checkpoint
from seqloom.run import load, load_weights, named_weights
from support.quick_training import at_once

OPTIONS = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "image_size": 8,
    "patch_size": 4,
}
LIKE_THEIRS = [
    "model.encoder.class_token=true",
    "model.encoder.position=TableGrid",
    "model.pool=FirstPool",
]
SMALL = [
    "corpus.size=[8,12]",
    "model.encoder.stem.patch=4",
    "model.encoder.stem.dim=16",
    "model.encoder.stack.layers=2",
    "model.encoder.stack.heads=2",
    "train.schedule.warmup=1",
]
NAMES = ["lamp", "crane", "crane"]


def make(folder: Path, **options: object) -> torch.nn.Module:
    """Writes a ViT of random weights, large enough for every term to matter, and returns it."""
    torch.manual_seed(0)
    labels = dict(enumerate(NAMES))
    config = transformers.ViTConfig(**{**OPTIONS, "id2label": labels, **options})
    model = transformers.ViTForImageClassification(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.2)
    model.save_pretrained(folder)
    return model


def pixels(height: int = 8, width: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (5, height, width, 3), dtype=torch.uint8, generator=generator)


@torch.no_grad()
def their_logits(model: torch.nn.Module, pictures: Tensor) -> Tensor:
    """Of pixels that their processor of the folder would make: (x / 255 - 0.5) / 0.5."""
    return model.eval()(pixel_values=(pictures.permute(0, 3, 1, 2) / 255 - 0.5) / 0.5).logits


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"image_size": [8, 12], "hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
        {"patch_size": [2, 2], "hidden_act": "relu", "num_attention_heads": 4},
    ],
    ids=["square", "wide", "small patches"],
)
@torch.no_grad()
def test_logits_equal_those_of_transformers_in_both_directions(options: dict, tmp_path: Path):
    theirs = make(tmp_path / "theirs", **options)
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    pictures = pixels(*run.model.source_shape[:2])
    wanted = their_logits(theirs, pictures)
    torch.testing.assert_close(run.model(pictures), wanted, rtol=1e-4, atol=1e-4)
    assert wanted.std() > 0.1  # the weights matter
    export_checkpoint(run, tmp_path / "out")
    for folder in (tmp_path / "out", run.folder):
        again, info = transformers.AutoModelForImageClassification.from_pretrained(
            folder, output_loading_info=True
        )
        assert not any(info.values()), info
        torch.testing.assert_close(their_logits(again, pictures), wanted, rtol=1e-5, atol=1e-5)
    back = import_checkpoint(tmp_path / "out", tmp_path / "back")
    for name, weight in run.model.named_parameters():
        assert torch.equal(dict(back.model.named_parameters())[name], weight), name


def test_an_imported_run_predicts_their_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Labels with one name get their numbers, so that each is a label of its own."""
    theirs = make(tmp_path / "theirs")
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    assert run.labels == ["lamp", "crane (1)", "crane (2)"] and load(run.folder).labels == run.labels
    picture = pixels()[0].numpy()
    Image.fromarray(picture).save(tmp_path / "a.png")
    best = int(their_logits(theirs, pixels()[:1]).argmax())
    assert seqloom.predict(run, str(tmp_path / "a.png")).label == run.labels[best]
    capsys.readouterr()
    main(["explain", str(run.folder)])
    assert "TableGrid" in capsys.readouterr().out
    main(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "again")])
    assert "parameters, 3 labels\n" in capsys.readouterr().out
    with pytest.raises(DataError, match="leave --tokenizer words out"):
        import_checkpoint(tmp_path / "theirs", tmp_path / "other", "words")


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    (folder / "images").mkdir()
    rows = []
    for number in range(12):
        name = ("red", "blue")[number % 2]
        colour = {"red": (200, 30, 30), "blue": (40, 60, 200)}[name]
        Image.fromarray(np.full((20, 20, 3), colour, np.uint8)).save(folder / "images" / f"{number}.png")
        rows.append(f"{number}.png\t{name}\n")
    (folder / "labels.tsv").write_text("".join(rows), "utf-8")
    return folder / "labels.tsv"


@torch.no_grad()
def test_a_finished_run_loads_in_transformers(labels: Path, tmp_path: Path):
    """So do its labels and the pixels of a picture; the run stays a run, and --from takes its weights."""
    changes = [*SMALL, *LIKE_THEIRS, "corpus.fit=stretch"]
    with at_once(), torch.enable_grad():
        run = seqloom.fit("vit", *changes, data=[str(labels)], out=tmp_path / "run", steps=3, seed=0)
    again = load(run.folder)
    assert (run.folder / "config.json").exists() and again.labels == run.labels
    for name, weight in load_weights(run.folder).items():
        assert torch.equal(weight, named_weights(run.model)[name]), name
    main(["export", str(run.folder), "--out", str(tmp_path / "out"), "-q"])
    picture = np.asarray(pixels(33, 20)[0])
    Image.fromarray(picture).save(tmp_path / "a.png")
    ours = again.config.reader_class.load_source(tmp_path / "a.png", again.config.parts["corpus"].keywords)
    for folder in (run.folder, tmp_path / "out"):
        theirs = transformers.ViTForImageClassification.from_pretrained(folder)
        assert theirs.config.id2label == dict(enumerate(run.labels))
        wanted = run.model(pixels(8, 12))
        torch.testing.assert_close(their_logits(theirs, pixels(8, 12)), wanted, rtol=1e-4, atol=1e-4)
        processor = transformers.AutoImageProcessor.from_pretrained(folder)
        values = processor(Image.open(tmp_path / "a.png"), return_tensors="pt").pixel_values
        expected = torch.tensor(ours).permute(2, 0, 1)[None] / 127.5 - 1
        torch.testing.assert_close(values, expected, rtol=0, atol=1e-5)
    with at_once(), torch.enable_grad():
        more = seqloom.fit(
            "vit",
            "corpus.size=[8,12]",
            data=[str(labels)],
            out=tmp_path / "more",
            steps=1,
            base=run.folder,
            progress=False,
        )
    assert more.results.base["new"] == [] and more.results.base["unused"] == []


@pytest.mark.parametrize(
    "left_out, message",
    [
        (0, r"its encoder has no class token \(class_token: true\)"),
        (1, "its positions are LearnedGrid, not TableGrid"),
        (2, "its pool is MeanPool, not FirstPool"),
    ],
)
def test_a_run_that_is_no_vit_of_theirs_says_why(labels: Path, tmp_path: Path, left_out: int, message: str):
    likes = [change for number, change in enumerate(LIKE_THEIRS) if number != left_out]
    start = ["model.encoder.position=LearnedGrid", "model.pool=MeanPool", "model.encoder.class_token=false"]
    changes = [*SMALL, *start, *likes]
    with at_once():
        run = seqloom.fit("vit", *changes, data=[str(labels)], out=tmp_path / "run", steps=1, seed=0)
    assert not (run.folder / "config.json").exists()
    with pytest.raises(DataError, match=message):
        export_checkpoint(run, tmp_path / "out")


@pytest.mark.parametrize(
    "file, values, message",
    [
        ("config.json", {"num_channels": 1}, "num_channels is 1; only 3 can be read"),
        ("config.json", {"qkv_bias": False}, "qkv_bias is False; only true can be read"),
        ("config.json", {"hidden_act": "selu"}, "hidden_act is selu"),
        ("config.json", {"head_dim": 4}, "head_dim is 4; only 8 can be read"),
        ("config.json", {"patch_size": [4, 2]}, "where one number, for square patches, is expected"),
        ("config.json", {"patch_size": 3}, "cannot be divided into patches of 3"),
        ("config.json", {"image_size": 12}, "position_embeddings has shape (1, 5, 16)"),
        ("config.json", {"image_size": 2**30}, "up to 1024"),
        ("config.json", {"image_size": [8, "8"]}, "image_size is 8"),
        ("config.json", {"num_hidden_layers": 10**6}, "tensors are too few for 1000000 layers"),
        ("config.json", {"num_hidden_layers": 1}, "has no place in this kind of model"),
        ("config.json", {"id2label": {"0": "a"}}, "classifier.weight has shape (3, 16)"),
        ("config.json", {"id2label": {"0": "a", "2": "b"}}, "a name on one line for each label"),
        ("config.json", {"id2label": {"0": "a", "1": "b\n", "2": "c"}}, "a name on one line for each label"),
        ("config.json", {"problem_type": "regression"}, "problem_type is regression"),
        ("preprocessor_config.json", {"image_mean": [0.485, 0.456, 0.406]}, "image_mean is [0.485"),
        ("preprocessor_config.json", {"rescale_factor": 1.0}, "where 1/255 is expected"),
        ("preprocessor_config.json", {"do_normalize": False}, "do_normalize is False"),
    ],
)
def test_what_differs_is_refused_in_one_line(tmp_path: Path, capfd, file: str, values: dict, message: str):
    make(tmp_path / "theirs")
    path = tmp_path / "theirs" / file
    said = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**said, **values}), "utf-8")
    assert message in refused(tmp_path, capfd)


@pytest.mark.parametrize(
    "name, shape, message",
    [
        ("vit.embeddings.cls_token", None, "the tensor embeddings.cls_token is missing"),
        ("vit.embeddings.position_embeddings", (1, 4, 16), "but config.json means (1, 5, 16)"),
        (
            "vit.embeddings.patch_embeddings.projection.weight",
            (16, 48),
            "but config.json means (16, 3, 4, 4)",
        ),
        ("vit.encoder.layer.1.output.dense.weight", None, "layer.1.output.dense.weight is missing"),
        ("vit.encoder.layer.2.output.dense.weight", (16, 20), "has no place in this kind of model"),
        ("classifier.weight", None, "it gives no labels; only ViTForImageClassification can be read"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_in_one_line(tmp_path: Path, capfd, name, shape, message):
    make(tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    tensors = load_file(path)
    tensors.pop(name, None)
    if shape is not None:
        tensors[name] = torch.zeros(shape)
    save_file(tensors, path, {"format": "pt"})
    assert message in refused(tmp_path, capfd)


def refused(tmp_path: Path, capfd: pytest.CaptureFixture) -> str:
    """The one line that the command prints."""
    with pytest.raises(SystemExit) as left:
        main(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "run")])
    said = capfd.readouterr()
    error = [line for line in said.err.splitlines() if line.startswith("seqloom")]
    assert left.value.code == 2 and said.out == "" and len(error) == 1 and "Traceback" not in said.err
    assert not (tmp_path / "run").exists()
    return error[0]
