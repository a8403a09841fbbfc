"""Where a training begins: from the weights of another run, of which some stay as they are, some learn slowly, some get adapters  [T17].

    from: {run: FOLDER, sha256: …}    weights whose names and shapes fit are taken, the rest is new; the tokenizer is that run's
    freeze: [embedding, …]            patterns of dotted names that do not learn
    lr_factors: {stack: 0.1}          factors on the rate, by pattern; the last that fits counts
    layer_decay: 0.8                  each layer's rate is this times that of the layer above it; the embedding stands below the first
    lora: {rank: 8, alpha: 16, names: […]}    low-rank adapters beside the matrices that were taken, which stay; merged at the end

A pattern names a weight or all that stands under a name; `*` stands for anything. What was done stands in begin.json, so that a run which has
a checkpoint needs its source no more.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import nn

from seqloom import compat, config, files
from seqloom.nn import lora
from seqloom.run import Config, config_of, is_run, load_weights
from seqloom.text import tokenizer_file

SECTIONS = ("from", "freeze", "lr_factors", "layer_decay", "lora")
HEAD_OPTIONS = ("type", "dropout", "output", "tied", "pooler")  # what another task has of its own
INPUT_OPTIONS = ("chars",)  # what a stack that was taken over has never read


class InitReport(NamedTuple):
    """What became of each weight, by name."""

    run: str | None
    sha256: str | None
    taken: list[str]
    new: list[str]
    left: list[str]  # in the source, and not here
    frozen: list[str]
    adapted: list[str]  # layers

    def lines(self, model: nn.Module) -> Iterator[str]:
        """One line for each kind."""
        sizes = {name.replace(".base.", "."): p.numel() for name, p in model.named_parameters()}
        if self.run:
            yield f"taken from {self.run}: {summarize(self.taken, sizes)}"
            yield f"new: {summarize(self.new, sizes)}" + (
                f"; left there: {', '.join(top_level_names(self.left))}" if self.left else ""
            )
        if self.frozen:
            yield f"frozen: {summarize(self.frozen, sizes)}"
        if self.adapted:
            learns = sum(
                p.numel()
                for part in model.modules()
                if isinstance(part, lora.LoRA)
                for p in (part.lora_a, part.lora_b)
            )
            yield f"adapted: {len(self.adapted)} layers, {learns:,} parameters beside them"


def summarize(names: Sequence[str], sizes: Mapping[str, int]) -> str:
    count = sum(sizes.get(name, 0) for name in names)
    return (
        f"{len(names)} weights, {count:,} parameters ({', '.join(top_level_names(names))})"
        if names
        else "nothing"
    )


def top_level_names(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


class LoraOptions:
    """Options of `lora`; without names, every matrix that was taken."""

    def __init__(self, rank: int = 8, alpha: float = 16.0, names: list[str] | None = None):
        self.rank, self.alpha, self.names = rank, alpha, names


class SourceRun:
    """Options of `from`."""

    def __init__(self, run: str, sha256: str | None = None):
        self.run, self.sha256 = run, sha256


class FinetuneOptions:
    """The sections of a config that say how training begins."""

    def __init__(self, recipe: Config):
        tree, lines = recipe.tree, recipe.lines
        said = tree.get("from")
        said = {"run": said} if isinstance(said, str) else said
        self.source = None if said is None else config.options(SourceRun, said, {}, "from", lines)()
        self.freeze = config.convert(tree.get("freeze", []), list[str], {}, "freeze", lines)
        factors = config.convert(tree.get("lr_factors", {}), dict, {}, "lr_factors", lines)
        self.lr_factors = {
            str(name): config.convert(factor, float, {}, f"lr_factors.{name}", lines)
            for name, factor in factors.items()
        }
        self.decay = config.convert(tree.get("layer_decay", 1.0), float, {}, "layer_decay", lines)
        self.lora = (
            config.options(LoraOptions, tree["lora"], {}, "lora", lines)() if tree.get("lora") else None
        )
        if self.lora and not self.source:
            raise ValueError(
                f"{lines.at('lora')}: adapters stand beside weights that were learnt before; say which with --from RUN"
            )
        if any(factor < 0 for factor in self.lr_factors.values()) or self.decay <= 0:
            raise ValueError(
                f"{lines.at('lr_factors')}: factors on the rate are 0 or more, and layer_decay is above 0; to keep weights, freeze them"
            )


def from_run(
    recipe: Config, base: str | Path, overrides: Sequence[str] = (), parts: Sequence[type[nn.Module]] = ()
) -> Config:
    """The recipe begun from a run: the body of its model (sizes, embedding, stack) and its tokenizer replace the recipe's own, but for
    what an override says; the head stays the recipe's."""
    old = source_config(base)
    tree, theirs = config.deep_copy(recipe.tree), config.override(old, [])["model"]
    known, same = (
        inspect.signature(recipe.parts["model"].func).parameters,
        theirs["type"] == tree["model"]["type"],
    )
    kept = HEAD_OPTIONS[:2] if same else HEAD_OPTIONS
    body = {name: value for name, value in theirs.items() if name in known and name not in kept}
    if isinstance(body.get("embedding"), dict):
        body["embedding"] = {
            name: value for name, value in body["embedding"].items() if name not in ("vectors", "frozen")
        }
    tree["model"] = {name: value for name, value in tree["model"].items() if name not in INPUT_OPTIONS} | body
    tree["from"] = {"run": str(Path(base).resolve())}
    tree = config.override(tree, [change for change in overrides if change.startswith("model.")])
    return pin_source(Config(tree, recipe.lines, parts))


def pin_source(recipe: Config) -> Config:
    """The recipe, whose `from` names the weights by content, and whose tokenizer is that of the run it begins from."""
    source = FinetuneOptions(recipe).source
    if source is not None and source.sha256 is None:
        old = source_config(source.run)
        recipe.tree["from"] = {"run": str(Path(source.run).resolve()), "sha256": digest(Path(source.run))}
        recipe.tree["tokenizer"] = old["tokenizer"]
    return recipe


def source_config(folder: str | Path) -> config.Tree:
    if not is_run(folder):
        raise ValueError(
            f"{folder}: not a run folder, so there is nothing to begin from; train or import one first"
        )
    return config_of(folder)[0]


def digest(folder: Path) -> str:
    """The SHA-256 of a run's final weights, which must be those that its results.json names."""
    path = folder / "model.safetensors"
    if not path.exists():
        raise ValueError(
            f"{folder}: has no finished weights to begin from; finish it with: seqloom train {folder}"
        )
    found = files.sha256(path)
    try:
        said = json.loads((folder / "results.json").read_text("utf-8"))["weights"]["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        said = None
    if found != said:
        raise ValueError(
            f"{path}: damaged, its SHA-256 is not the one in results.json; write it again with: seqloom train {folder}"
        )
    return found


def source_tokenizer(recipe: Config) -> Tokenizer | None:
    """The tokenizer of the run that this one begins from, if it begins from one."""
    source = FinetuneOptions(recipe).source
    return tokenizer_file.load(Path(source.run) / "tokenizer.json") if source else None


def initialize(model: nn.Module, recipe: Config, folder: Path | None) -> InitReport | None:
    """Put the source's weights into the model, or read in begin.json what was put there; then freeze and adapt. None where no section says so."""
    if not any(section in recipe.tree for section in SECTIONS):
        return None
    options = FinetuneOptions(recipe)
    if folder is not None and any((folder / "checkpoints").glob("step-*")):
        begun = read_report(folder, model)
    else:
        begun = load_matching(model, options.source)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad} | set(
        matching_weights(model, options.freeze, "freeze")
    )
    if options.lora:
        frozen |= set(begun.taken)
        layers = [name for name, _, _ in lora.iter_linears(model, nn.Linear)]
        wanted = options.lora.names and upgrade_patterns(options.lora.names, layers)
        chosen = [
            name
            for name in layers
            if f"{name}.weight" in begun.taken
            and (wanted is None or any(matches(name, one) for one in wanted))
        ]
        if not chosen:
            some = ", ".join(layers[:6]) + (", …" if len(layers) > 6 else "")
            raise ValueError(f"lora.names: no matrix that was taken is called so; there are {some}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    begun = begun._replace(frozen=sorted(frozen))
    if options.lora:
        begun = begun._replace(adapted=lora.add_lora(model, options.lora.rank, options.lora.alpha, chosen))
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("freeze: nothing is left to learn; freeze less")
    return begun


def read_report(folder: Path, model: nn.Module) -> InitReport:
    """The report in begin.json, with the names that the model gives to its weights."""
    try:
        report = InitReport(**json.loads((folder / "begin.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        raise ValueError(f"{folder / 'begin.json'}: missing or damaged; choose another --out") from None
    names = {name for name, _ in model.named_parameters()}
    return report._replace(
        taken=[compat.upgrade_weight(name, names) for name in report.taken],
        new=[compat.upgrade_weight(name, names) for name in report.new],
    )


def load_matching(model: nn.Module, source: SourceRun | None) -> InitReport:
    """Copy the weights whose names and shapes fit."""
    own = dict(model.named_parameters())
    if source is None:
        return InitReport(None, None, [], list(own), [], [], [])
    folder = Path(source.run)
    source_config(folder)
    if digest(folder) != source.sha256:
        raise ValueError(
            f"{folder}: its weights are no longer those that the run began with (SHA-256 {source.sha256[:12]}…); choose another --out"
        )
    theirs = compat.upgrade_weights(load_weights(folder), own)
    taken = [name for name in own if name in theirs and theirs[name].shape == own[name].shape]
    if not taken:
        unlike = [
            f"{name} is {tuple(theirs[name].shape)} there and {tuple(own[name].shape)} here"
            for name in own
            if name in theirs
        ]
        reason = (
            unlike[0]
            if unlike
            else f"it has {', '.join(top_level_names(theirs))}, and the model {', '.join(top_level_names(own))}"
        )
        raise ValueError(
            f"{folder}: no weight fits the model ({reason}); use --from, which takes over the sizes, or give the model the same ones"
        )
    with torch.no_grad():
        for name in taken:
            own[name].copy_(theirs[name])
    new, left = ([name for name in names if name not in set(taken)] for names in (own, theirs))
    return InitReport(str(folder), source.sha256, taken, new, left, [], [])


def matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def upgrade_patterns(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Patterns with the present words in place of old ones, where a pattern matches none of the names."""
    return [
        compat.upgrade_name(pattern, lambda renamed: any(matches(name, renamed) for name in names))
        for pattern in patterns
    ]


def matching_weights(model: nn.Module, patterns: Iterable[str], place: str) -> list[str]:
    """The weights that the patterns name; a pattern that names none is an error."""
    names = [name for name, _ in model.named_parameters()]
    patterns = upgrade_patterns(patterns, names)
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            raise ValueError(
                f"{place}: no weight is called {pattern!r}; {config.suggest(pattern, top_level_names(names))}"
            )
    return [name for name in names if any(matches(name, pattern) for pattern in patterns)]


def lr_factors(model: nn.Module, recipe: Config) -> dict[str, float]:
    """The factor on the rate of each weight that has one: layer_decay^(layers above it) · the last of `lr_factors` that fits."""
    options = FinetuneOptions(recipe)
    matching_weights(model, options.lr_factors, "lr_factors")
    names = [name for name, _ in model.named_parameters()]
    patterns = upgrade_patterns(options.lr_factors, names)
    factors = dict(zip(patterns, options.lr_factors.values(), strict=True))
    depth = {name: int(found[1]) for name in names if (found := re.search(r"\.(\d+)\.", name))}
    layers = max(depth.values(), default=-1) + 1
    result = {}
    for name in names:
        above = layers if name.startswith("embedding") else layers - 1 - depth.get(name, layers - 1)
        factor = [1.0, *(value for pattern, value in factors.items() if matches(name, pattern))][-1]
        result[name] = options.decay**above * factor
    return {name: factor for name, factor in result.items() if factor != 1}
