"""The run folder.

A run is complete: config.yaml, tokenizer.json, labels.json if there are labels, model.safetensors, generation_config.json if it
generates, chat_template.jinja if it
chats, checkpoints/, metrics.jsonl and results.json. `load(folder)` needs nothing else. If `transformers` knows a model of the same
shape, the folder also has config.json and tokenizer_config.json, and `transformers` can load it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import Module

from seqloom import compat, files, layouts, run_files
from seqloom.batches.buckets import pad
from seqloom.config_source import PRESETS, config_of, is_run
from seqloom.decoding.generation_config import read_generation_config
from seqloom.decoding.options import Decoding
from seqloom.errors import ConfigError, RunError
from seqloom.layouts.hf_folder import SafetensorsFiles
from seqloom.models.base import Model
from seqloom.run_config import Config
from seqloom.run_files import METRICS_FILE, RESULTS_FILE, Results, read_metrics, read_results
from seqloom.text import labels, records, tokenizer, tokenizer_file
from seqloom.text.tokenizer import SpecialTokens, special_tokens
from seqloom.text.unknown_words import word_ids

DEFAULT_CONTEXT = 2048  # tokens that a model without a limit reads at once


class Run:
    """A trained model with all that is needed to use it: `folder, task, config, tokenizer, model, labels, results, metrics()`.

    >>> run.task
    'language modelling'
    >>> run.decode(run.tokenizer.encode("the").ids)
    'the'
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        tokenizer: Tokenizer,
        model: Model,
        labels: Sequence[str] = (),
        checkpoint_sha256: str | None = None,
    ):
        self.folder = folder
        self.checkpoint_sha256 = checkpoint_sha256  # of the weights, if they are those of a checkpoint
        self.config = config
        self.tokenizer = tokenizer
        self.model = model
        self.labels = list(labels)
        self.task = model.task
        self.adds_eos: bool = config.reader_class.adds_eos
        self.specials = special_tokens(tokenizer)

    def __repr__(self) -> str:
        size = ""
        if (self.folder / RESULTS_FILE).exists() and isinstance(self.model, Module):  # an ensemble is none
            size = f", parameters={self.results.parameters.total:,}"
        return f"Run({str(self.folder)!r}, task={self.task!r}{size})"

    @cached_property
    def decoding(self) -> Decoding:
        """How the run generates where the caller does not say."""
        return read_generation_config(self.folder, self.model.generates and not self.model.continues)

    def encode(self, texts: list[str], as_prompt: bool = False) -> tuple[Tensor, Tensor]:
        """Texts as the model's input: ids (B, T) and their mask. A prompt gets no closing tokens."""
        rows: list[Any] = []
        if self.model.copies:
            encodings = self.tokenizer.encode_batch(texts, add_special_tokens=False)
            rows = [
                word_ids(self.tokenizer, encoding, text)
                for encoding, text in zip(encodings, texts, strict=True)
            ]
        else:
            encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            rows = [encoding.ids for encoding in encodings]
        if as_prompt:
            before = self.specials.before or ((self.specials.eos,) if self.adds_eos else ())
            newline = self.tokenizer.encode("\n", add_special_tokens=False).ids
            empty = newline if self.specials == SpecialTokens() and newline else [self.specials.first_id]
            rows = [[*before, *row] or empty for row in rows]
        else:
            before, after = self.specials.frame(self.adds_eos)
            rows = [[*before, *row, *after] for row in rows]
        return pad([np.array(row, dtype=np.int64) for row in rows])

    @cached_property
    def starts_bare(self) -> bool:
        """Whether nothing precedes a text: an imported model whose source adds no token to the beginning.

        Texts of our own tokenizers begin with <eos>; a tokenizer without an end token has one that texts begin with."""
        has_start = self.specials.before or not self.specials.stop_ids or self.adds_eos
        if has_start or self.specials == SpecialTokens() or not (self.folder / RESULTS_FILE).exists():
            return False
        return "format" in (self.results.base or {})

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """The ids that generated text never contains: special tokens, and rows of the embedding without a token."""
        rows = self.config.parts["model"].keywords.get("vocabulary", 0)
        return *self.specials.banned, *range(self.tokenizer.get_vocab_size(), rows)

    def decode(self, ids: list[int]) -> str:
        return tokenizer.decode(self.tokenizer, ids)

    @property
    def results(self) -> Results:
        """The scores and costs of the training, as results.json has them."""
        return read_results(self.folder)

    @property
    def weights_sha256(self) -> str:
        """The digest of the weights that were opened: of the finished run, or of a checkpoint."""
        return self.checkpoint_sha256 or self.results.weights_sha256

    @property
    def chat_template(self) -> str | None:
        """The text of the folder's chat_template.jinja, with which chats become text; None if it has none."""
        from seqloom.text.chat_template import read_template

        return read_template(self.folder)

    @property
    def context(self) -> int:
        """The most tokens to read at once: the limit of the model, or that for which an imported one was made."""
        base = self.results.base if (self.folder / RESULTS_FILE).exists() else None
        return self.model.context or (base or {}).get("context") or DEFAULT_CONTEXT

    def metrics(self) -> list[dict[str, Any]]:
        """The measurements during training, as metrics.jsonl has them."""
        return read_metrics(self.folder)

    def _repr_html_(self) -> str:
        """A card for notebooks: the task, the scores, and the held-out loss over the steps."""
        from seqloom import report

        facts = [("task", self.task), ("preset", self.config.lines.preset or "–")]
        curves = ""
        if (self.folder / RESULTS_FILE).exists():
            results = self.results
            facts += [("parameters", f"{results.parameters.total:,}"), ("steps", f"{results.steps:,}")]
            facts += [(number.name.replace("_", " "), f"{number.value:.4f}") for number in results.valid]
        if (self.folder / METRICS_FILE).exists():
            rows = self.metrics()
            points = [(row["step"], row["valid_loss"]) for row in rows if row.get("valid_loss") is not None]
            curves = report.curve(points, "held-out loss over steps")
        lines = "".join(
            f"<tr><td>{report.escape(name)}</td><td>{report.escape(value)}</td></tr>" for name, value in facts
        )
        return f"<div><b>{report.escape(self.folder)}</b><table>{lines}</table>{curves}</div>"


def named_weights(model: Module) -> dict[str, Tensor]:
    """Every parameter by name; a shared parameter appears once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def set_weights(model: Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Copy tensors into the model. A tensor that is missing, superfluous or of another shape is an error that names it."""
    parameters = dict(model.named_parameters())
    tensors = compat.upgrade_weights(tensors, parameters)
    for name in [*parameters, *tensors]:
        if name not in tensors or name not in parameters:
            problem = "missing" if name in parameters else "not in the model"
            raise ConfigError(f"{source}: {name} is {problem}; the config and the weights differ")
        if parameters[name].shape != tensors[name].shape:
            stored, expected = tuple(tensors[name].shape), tuple(parameters[name].shape)
            raise ConfigError(
                f"{source}: {name} has shape {stored} but the config gives {expected}; the config and the weights differ"
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def save_weights(folder: Path, model: Model, weights: Mapping[str, Tensor], tokenizer: Tokenizer) -> None:
    """Write the final weights of a run: in the layout of its Hugging Face family if there is one, else under our own names."""
    try:
        exported = layouts.export_files(model, weights, tokenizer)
    except layouts.Unsupported:
        contiguous = {name: tensor.contiguous() for name, tensor in weights.items()}
        files.write_atomic(folder / "model.safetensors", save(contiguous))
        return
    for name in sorted(exported.texts.keys() - {"tokenizer.json"}):  # the run already has its tokenizer
        files.write_atomic(folder / name, exported.texts[name])
    files.write_atomic(folder / "model.safetensors", exported.weights)


def load_weights(folder: Path, model: Model | None = None) -> dict[str, Tensor]:
    """The final weights of a run under our names. `model` is the run's, if it is already built."""
    path = folder / "model.safetensors"
    if not layouts.has_family_names(path):
        return load_file(path)
    if model is None:
        vocabulary = tokenizer_file.load(folder / "tokenizer.json").get_vocab_size()
        with torch.device("meta"):
            model = Config(*config_of(folder)).model(vocabulary)
    return layouts.import_weights(layouts.family_of(model)[0], model, SafetensorsFiles([path]), str(path))


def has_no_labels(folder: Path) -> bool:
    """Whether a run has no labels.json because its data has no labels, such as questions that all have answers."""
    data = run_files.data_digests(folder)
    return data is not None and not (folder / "labels.json").exists() and "labels" not in data


def load(
    run: str | os.PathLike[str], *, quantize: str | None = None, parts: Sequence[type[Module]] = ()
) -> Run:
    """The trained model of a run folder, ready to use.

    `RUN@2000` and `RUN@best` are its checkpoints. `quantize="int8"` gives it one byte per weight; `parts` are the user's own classes
    that its config names.

    >>> seqloom.load(run.folder).task
    'language modelling'
    """
    folder, checkpoint = split_checkpoint(run)
    require_run(folder)
    run_files.check_manifest(folder)
    config = Config(*config_of(folder), parts)
    if checkpoint is not None and "lora" in config.tree:
        raise RunError(
            f"{run}: a checkpoint of a LoRA run holds its matrices apart; use the finished run: {folder}"
        )
    run_tokenizer = tokenizer_file.load(folder / "tokenizer.json")
    weights_file = find_weights(folder, checkpoint)
    labelled = records.has_labels(config.kinds()) and not has_no_labels(folder)
    names = labels.load(folder / "labels.json") if labelled else []
    model = config.model(run_tokenizer.get_vocab_size(), names)
    weights = load_weights(folder, model) if checkpoint is None else load_file(weights_file)
    set_weights(model, weights, weights_file)
    if quantize:
        from seqloom.nn import quantize as quantize_model

        quantize_model(model, quantize)
    digest = None if checkpoint is None else files.sha256(weights_file)
    return Run(folder, config, run_tokenizer, model.eval(), names, digest)


def require_run(folder: Path) -> None:
    """Raises if a folder is not a run."""
    if is_run(folder):
        return
    run_files.check_lost_config(folder)
    if (folder / "vectors.npy").is_file():
        raise RunError(
            f"{folder}: these are word vectors, not a run; use: seqloom vectors nearest {folder} WORD"
        )
    found = "there is no such folder"
    if not folder.exists() and (near := nearest_run(folder)):
        raise RunError(f"{folder}: there is no such run; did you mean {near}?")
    if not folder.exists() and (PRESETS / f"{folder}.yaml").exists():
        raise RunError(f"{folder}: a preset, not a run; train it first: seqloom train {folder} --data FILE")
    if not folder.exists() and any(letter.isspace() for letter in str(folder)):
        raise RunError(f"{str(folder)!r}: there is no such run; the run comes first, then the text")
    if folder.is_file():
        raise RunError(
            f"{folder}: a file, not the folder of a run; the run comes first, then the texts or the files"
        )
    if folder.is_dir():
        there = (folder / "config.yaml").exists()
        found = "its config.yaml is not one of seqloom" if there else "it has no config.yaml"
    raise RunError(
        f"{folder}: not a run folder ({found}); train one with: seqloom train PRESET --data FILE --out {folder}"
    )


def nearest_run(folder: Path) -> Path | None:
    """The run beside a folder, or in the folder of runs, whose name is most like it."""
    for place in dict.fromkeys((folder.parent, default_folder())):
        names = [path.name for path in place.iterdir() if is_run(path)] if place.is_dir() else []
        if close := get_close_matches(folder.name, names, 1, 0.6):
            return place / close[0]
    return None


def split_checkpoint(run: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The folder of `RUN@2000` or `RUN@best`, and which checkpoint it names; None for the final weights."""
    path = Path(run)
    folder, at, checkpoint = path.name.rpartition("@")
    if not at or not folder or path.exists():
        return path, None
    if checkpoint != "best" and not checkpoint.isdecimal():
        raise RunError(f"{run}: {checkpoint!r} is not a checkpoint; write RUN@best, or a step as in RUN@2000")
    return path.with_name(folder), checkpoint


def find_weights(folder: Path, checkpoint: str | None) -> Path:
    """The file of a run's final weights, or of a checkpoint; raises if it is missing or damaged."""
    if checkpoint is not None:
        return find_checkpoint(folder, checkpoint)
    path = folder / "model.safetensors"
    if not path.exists():
        remedy = f"finish it with: seqloom train {folder}"
        if steps := checkpoint_steps(folder):
            remedy += f", or open its newest checkpoint: {folder}@{steps[-1]}"
        raise RunError(f"{folder}: the run has no final weights yet; {remedy}")
    if files.sha256(path) != read_results(folder).weights_sha256:
        raise RunError(
            f"{path}: damaged, its SHA-256 is not the one in results.json; write it again with: seqloom train {folder}"
        )
    return path


def find_checkpoint(folder: Path, checkpoint: str) -> Path:
    """The weights of a checkpoint; `best` is the one with the lowest held-out loss."""
    steps = checkpoint_steps(folder)
    step = best_step(folder, steps) if checkpoint == "best" else int(checkpoint)
    if step not in steps:
        there = f"choose one of {', '.join(map(str, steps))}" if steps else "it has none"
        raise RunError(f"{folder}@{checkpoint}: the run has no checkpoint of step {step}; {there}")
    path = checkpoint_folder(folder, step) / "model.safetensors"
    try:
        body = files.check_digest(path.with_name("manifest.json").read_bytes()) or {}
        intact = body["step"] == step and all(
            files.sha256(path.with_name(name)) == body["files"][name]["sha256"]
            for name in (path.name, "state.json")
        )
    except (OSError, KeyError, TypeError):
        intact = False
    if not intact:
        raise RunError(
            f"{path}: damaged, its SHA-256 or step is not the one in manifest.json; use another checkpoint"
        )
    manifest = run_files.read_manifest(folder)
    if manifest and json.loads(path.with_name("state.json").read_bytes()).get("run") != manifest.identity:
        raise RunError(f"{path.parent}: a checkpoint of another run; use another checkpoint")
    return path


def checkpoint_folder(folder: Path, step: int) -> Path:
    return folder / "checkpoints" / f"step-{step:08d}"


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps of a run's checkpoints, the newest last."""
    return sorted(
        int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*") if path.name[5:].isdecimal()
    )


def best_step(folder: Path, steps: Sequence[int]) -> int:
    """The step with the lowest held-out loss, as the newest checkpoint has it."""
    for step in reversed(steps):
        try:
            state = json.loads((checkpoint_folder(folder, step) / "state.json").read_text("utf-8"))
            return int(state["best_step"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    raise RunError(f"{folder}@best: the run has no readable checkpoint; use its final weights: {folder}")


RunLike = Run | str | os.PathLike[str]  # a run, or the folder of one


def as_run(run: RunLike) -> Run:
    """The run itself, or the run of a folder, which is opened for this call; open it once for many calls."""
    return run if isinstance(run, Run) else load(os.fspath(run))


def as_folder(run: RunLike) -> Path:
    """The folder of a run, which need not be finished."""
    if isinstance(run, Run):
        return run.folder
    folder, _ = split_checkpoint(run)
    require_run(folder)
    return folder


def default_folder() -> Path:
    """Where runs are kept: SEQLOOM_RUNS, else `runs`."""
    return Path(os.environ.get("SEQLOOM_RUNS") or "runs")
