"""Fine-tuning: training starts from the weights of another run  [T17]. The sections of a config that say how:

    from: {run: FOLDER, sha256: …}    copies the weights whose names and shapes match, and uses that run's tokenizer
    freeze: [embedding, …]            patterns of weight names that are not trained
    lr_factors: {stack: 0.1}          factors on the learning rate, by pattern; the last pattern that matches counts
    layer_decay: 0.8                  a layer's learning rate is this times that of the layer above it; the embedding
                                      counts as the layer below the first
    lora: {rank: 8, alpha: 16, names: […]}    low-rank adapters on the loaded matrices, which are frozen; the adapters
                                              are merged into the matrices at the end

A pattern matches a weight of that name and all weights below that name; `*` matches anything. begin.json records what
was done, so a run that has a checkpoint does not need its source run any more.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from os.path import realpath
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import nn

from seqloom import compat, config_source, config_tree, files
from seqloom.config_source import config_of, is_run
from seqloom.errors import ConfigError, RunError
from seqloom.nn import lora
from seqloom.run import load_weights
from seqloom.run_config import Config
from seqloom.run_files import read_results
from seqloom.text import tokenizer_file
from seqloom.text.chat_template import read_template

HEAD_OPTIONS = ("type", "dropout", "output", "tied", "pooler")  # model options that belong to the task
INPUT_OPTIONS = ("chars",)  # model options that add inputs which the stack of the source run has never read
REPORT_FILE = "begin.json"


class InitReport(NamedTuple):
    """Which weights were loaded, initialised, unused, frozen or given adapters. Stored as begin.json."""

    run: str | None
    sha256: str | None
    loaded: list[str]
    new: list[str]
    unused: list[str]  # of the source run
    frozen: list[str]
    adapted: list[str]  # layers with adapters

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> InitReport:
        """The report in a begin.json of this or an older version."""
        present = compat.upgrade_json(REPORT_FILE, record)
        return cls(*(present[name] for name in cls._fields))

    def lines(self, model: nn.Module) -> Iterator[str]:
        """The report as lines of the log."""
        sizes = {name.replace(".base.", "."): p.numel() for name, p in model.named_parameters()}
        if self.run:
            yield f"loaded from {self.run}: {summarize(self.loaded, sizes)}"
            unused = f"; not used: {', '.join(top_level_names(self.unused))}" if self.unused else ""
            yield f"new: {summarize(self.new, sizes)}{unused}"
        if self.frozen:
            yield f"frozen: {summarize(self.frozen, sizes)}"
        if self.adapted:
            count = sum(
                p.numel()
                for part in model.modules()
                if isinstance(part, lora.LoRA)
                for p in (part.lora_a, part.lora_b)
            )
            yield f"adapters: {len(self.adapted)} layers, {count:,} additional parameters"


def summarize(names: Sequence[str], sizes: Mapping[str, int]) -> str:
    """The number of weights, of their parameters, and the parts that they belong to."""
    if not names:
        return "nothing"
    count = sum(sizes.get(name, 0) for name in names)
    return f"{len(names)} weights, {count:,} parameters ({', '.join(top_level_names(names))})"


def top_level_names(names: Iterable[str]) -> list[str]:
    """The first components of dotted names, each once."""
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


class LoraOptions:
    """Options of the `lora` section; without `names`, every loaded matrix gets an adapter."""

    def __init__(self, rank: int = 8, alpha: float = 16.0, names: list[str] | None = None):
        self.rank = rank
        self.alpha = alpha
        self.names = names


class SourceRun:
    """Options of the `from` section."""

    def __init__(self, run: str, sha256: str | None = None):
        self.run = run
        self.sha256 = sha256


class FinetuneOptions:
    """The sections of a config that are about fine-tuning."""

    def __init__(self, config: Config):
        tree, lines = config.tree, config.lines
        source = tree.get("from")
        if isinstance(source, str):
            source = {"run": source}
        self.source: SourceRun | None = None
        if source is not None:
            self.source = config_tree.options(SourceRun, source, {}, "from", lines)()
        self.freeze: list[str] = config_tree.convert(tree.get("freeze", []), list[str], {}, "freeze", lines)
        factors = config_tree.convert(tree.get("lr_factors", {}), dict, {}, "lr_factors", lines)
        self.lr_factors: dict[str, float] = {
            str(name): config_tree.convert(factor, float, {}, f"lr_factors.{name}", lines)
            for name, factor in factors.items()
        }
        self.layer_decay: float = config_tree.convert(
            tree.get("layer_decay", 1.0), float, {}, "layer_decay", lines
        )
        self.lora: LoraOptions | None = None
        if tree.get("lora"):
            self.lora = config_tree.options(LoraOptions, tree["lora"], {}, "lora", lines)()
        if self.lora and not self.source:
            raise ConfigError(f"{lines.locate('lora')}: LoRA needs pretrained weights: pass --from RUN")
        if any(factor < 0 for factor in self.lr_factors.values()) or self.layer_decay <= 0:
            raise ConfigError(
                f"{lines.locate('lr_factors')}: factors must be at least 0 and layer_decay above 0; "
                "to keep weights unchanged, freeze them"
            )


def from_run(
    config: Config,
    base: str | Path,
    overrides: Sequence[config_source.Change] = (),
    parts: Sequence[type[nn.Module]] = (),
) -> Config:
    """The config for fine-tuning the run `base`.

    The body of that run's model (sizes, embedding, stack) and its tokenizer replace those of the config; the head
    stays the config's. Overrides win over both.
    """
    source_model = config_source.override(source_config(base), [])["model"]
    tree = config_source.deep_copy(config.tree)
    parameters = inspect.signature(config.parts["model"].func).parameters
    same_type = source_model["type"] == tree["model"]["type"]
    excluded = HEAD_OPTIONS[:2] if same_type else HEAD_OPTIONS
    body = {
        name: value for name, value in source_model.items() if name in parameters and name not in excluded
    }
    if isinstance(body.get("embedding"), dict):
        embedding = body["embedding"]
        body["embedding"] = {
            name: value for name, value in embedding.items() if name not in ("vectors", "frozen")
        }
    head = {name: value for name, value in tree["model"].items() if name not in INPUT_OPTIONS}
    tree["model"] = head | body
    tree["corpus"] = with_source_template(tree["corpus"], Path(base))
    tree["from"] = {"run": realpath(base)}
    model_changes = [
        change for change in config_source.parse_changes(overrides) if change.path.startswith("model.")
    ]
    tree = config_source.apply_changes(tree, model_changes)
    return pin_source(Config(tree, config.lines, parts or config.own_parts))


def with_source_template(corpus: Any, base: Path) -> Any:
    """The section `corpus`; chats get the template of the source run, unless the section names another."""
    section = {"type": corpus} if isinstance(corpus, str) else corpus
    if section.get("type") not in ("Chats", "Preferences", "Judged", "Prompts") or "template" in section:
        return corpus
    template = read_template(base)
    return corpus if template is None else {**section, "template": template}


def pin_source(config: Config) -> Config:
    """Adds the digest of the source run's weights to the `from` section and takes over its tokenizer section."""
    source = FinetuneOptions(config).source
    if source is not None and source.sha256 is None:
        source_tree = source_config(source.run)
        config.tree["from"] = {"run": realpath(source.run), "sha256": digest(Path(source.run))}
        config.tree["tokenizer"] = source_tree["tokenizer"]
    return config


def source_config(folder: str | Path) -> config_tree.Tree:
    """The config of the source run."""
    if not is_run(folder):
        raise ConfigError(
            f"{folder}: not a run folder, so training cannot start from it; train or import a run first"
        )
    return config_of(folder)[0]


def digest(folder: Path) -> str:
    """The SHA-256 of a run's final weights; raises if it is not the one in results.json."""
    path = folder / "model.safetensors"
    if not path.exists():
        raise ConfigError(
            f"{folder}: has no finished weights to start from; finish the run with: seqloom train {folder}"
        )
    actual = files.sha256(path)
    try:
        expected = read_results(folder).weights_sha256
    except RunError:
        expected = None
    if actual != expected:
        raise ConfigError(
            f"{path}: damaged, its SHA-256 is not the one in results.json; "
            f"write it again with: seqloom train {folder}"
        )
    return actual


def source_tokenizer(config: Config) -> Tokenizer | None:
    """The tokenizer of the source run; None if the config has none."""
    source = FinetuneOptions(config).source
    return tokenizer_file.load(Path(source.run) / "tokenizer.json") if source else None


def initialize(model: nn.Module, config: Config, folder: Path | None) -> InitReport | None:
    """Loads the weights of the source run, then freezes weights and adds adapters.

    `folder` is that of a run that goes on from a checkpoint: its begin.json is read instead of the source run. Returns None if the config
    has none of the fine-tuning sections.
    """
    if not config.finetunes:
        return None
    options = FinetuneOptions(config)
    if folder is not None:
        report = read_report(folder, model)
    else:
        report = load_matching(model, options.source)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    frozen |= set(matching_weights(model, options.freeze, "freeze"))
    layers: list[str] = []
    if options.lora:
        frozen |= set(report.loaded)
        layers = layers_to_adapt(model, report.loaded, options.lora)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    report = report._replace(frozen=sorted(frozen))
    if options.lora:
        adapted = lora.add_lora(model, options.lora.rank, options.lora.alpha, layers)
        report = report._replace(adapted=adapted)
    if not any(p.requires_grad for p in model.parameters()):
        raise ConfigError("freeze: no weight is left to train; freeze fewer")
    return report


def layers_to_adapt(model: nn.Module, loaded: Sequence[str], options: LoraOptions) -> list[str]:
    """The linear layers with loaded weights whose names match the patterns."""
    layers = [name for name, _, _ in lora.iter_linears(model, nn.Linear)]
    patterns = options.names and upgrade_patterns(options.names, layers)
    result = [
        name
        for name in layers
        if f"{name}.weight" in loaded
        and (patterns is None or any(matches(name, pattern) for pattern in patterns))
    ]
    if not result:
        examples = ", ".join(layers[:6]) + (", …" if len(layers) > 6 else "")
        raise ConfigError(
            f"lora.names: no matching matrix was loaded from the source run; the layers are {examples}"
        )
    return result


def read_report(folder: Path, model: nn.Module) -> InitReport:
    """The report in begin.json, with the names that the model gives to its weights."""
    path = folder / REPORT_FILE
    try:
        report = InitReport.from_json(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise ConfigError(f"{path}: missing or damaged; choose another --out") from None
    names = {name for name, _ in model.named_parameters()}
    return report._replace(
        loaded=[compat.upgrade_weight(name, names) for name in report.loaded],
        new=[compat.upgrade_weight(name, names) for name in report.new],
    )


def load_matching(model: nn.Module, source: SourceRun | None) -> InitReport:
    """Copies the weights of the source run whose names and shapes match those of the model."""
    weights = dict(model.named_parameters())
    if source is None:
        return InitReport(None, None, [], list(weights), [], [], [])
    folder = Path(source.run)
    source_config(folder)
    if digest(folder) != source.sha256:
        raise ConfigError(
            f"{folder}: its weights are no longer those that the run began with "
            f"(SHA-256 {str(source.sha256)[:12]}…); choose another --out"
        )
    source_weights = compat.upgrade_weights(load_weights(folder), weights)
    shared = [name for name in weights if name in source_weights]
    loaded = [name for name in shared if source_weights[name].shape == weights[name].shape]
    if not loaded:
        reason = (
            f"it has {', '.join(top_level_names(source_weights))}, "
            f"and the model {', '.join(top_level_names(weights))}"
        )
        if shared:
            there, here = (tuple(named[shared[0]].shape) for named in (source_weights, weights))
            reason = f"{shared[0]} is {there} there and {here} here"
        raise ConfigError(
            f"{folder}: no weight fits the model ({reason}); "
            "use --from, which takes over the sizes, or give the model the same ones"
        )
    with torch.no_grad():
        for name in loaded:
            weights[name].copy_(source_weights[name])
    new = [name for name in weights if name not in set(loaded)]
    unused = [name for name in source_weights if name not in set(loaded)]
    return InitReport(str(folder), source.sha256, loaded, new, unused, [], [])


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern matches the name or a name above it."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def upgrade_patterns(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Replaces old words by present ones in the patterns that match none of the names."""
    return [
        compat.upgrade_name(pattern, lambda renamed: any(matches(name, renamed) for name in names))
        for pattern in patterns
    ]


def matching_weights(model: nn.Module, patterns: Iterable[str], section: str) -> list[str]:
    """The weights that match the patterns; raises if a pattern of the section matches none."""
    names = [name for name, _ in model.named_parameters()]
    patterns = upgrade_patterns(patterns, names)
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            suggestion = config_tree.suggest(pattern, top_level_names(names))
            raise ConfigError(f"{section}: no weight is called {pattern!r}; {suggestion}")
    return [name for name in names if any(matches(name, pattern) for pattern in patterns)]


def lr_factors(model: nn.Module, config: Config) -> dict[str, float]:
    """The factors on the learning rate that are not 1, by weight name.

    factor = layer_decay^(number of layers above it) · the last of `lr_factors` that matches
    """
    options = FinetuneOptions(config)
    matching_weights(model, options.lr_factors, "lr_factors")
    names = [name for name, _ in model.named_parameters()]
    patterns = upgrade_patterns(options.lr_factors, names)
    factors = dict(zip(patterns, options.lr_factors.values(), strict=True))
    layer_of = {name: int(match[1]) for name in names if (match := re.search(r"\.(\d+)\.", name))}
    layers = max(layer_of.values(), default=-1) + 1
    result = {}
    for name in names:
        if name.startswith("embedding"):
            layers_above = layers
        else:
            layers_above = layers - 1 - layer_of.get(name, layers - 1)
        factor = [1.0, *(value for pattern, value in factors.items() if matches(name, pattern))][-1]
        result[name] = options.layer_decay**layers_above * factor
    return {name: factor for name, factor in result.items() if factor != 1}
