"""The config of a run: the names that each section may use, presets, and the factories that a checked config holds."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer
from torch.nn import Module

from seqloom import __version__, batches, config_tree, files, models, nn, objectives
from seqloom.batches.batch import Batches
from seqloom.config_source import (
    FORMAT,
    PRESETS,
    Assignment,
    Change,
    apply_changes,
    callables_in,
    config_of,
    find_config,
    is_run,
    parse_changes,
    present_path,
    preset_file,
    with_present_names,
)
from seqloom.data import options as data_options
from seqloom.data.options import Data, Files
from seqloom.errors import ConfigError
from seqloom.models.base import Model
from seqloom.text import records, store, tokenizer_file
from seqloom.text.corpus import Reader

FINETUNE_SECTIONS = ("from", "freeze", "lr_factors", "layer_decay", "lora")
OTHER_SECTIONS = ("train", "files", "seed", "rollouts", *FINETUNE_SECTIONS)


def text_names(modules: dict[str, str]) -> dict[str, str]:
    """Names with their places, by the module of `seqloom.text` that defines them."""
    return {
        name: f"seqloom.text.{module}:{name}" for module, names in modules.items() for name in names.split()
    }


CACHED_TOKENIZERS = ("Pattern", "Words", "BPE")
BATCHES = (
    "Windows Blocks Pairs Masked Tagged Labelled Questions Turns Comparisons Judgements PromptGroups "
    "Captions LabelledPictures Augment Summaries Recordings"
)
# What `type` may be in each section. A part is imported when a config names it.
SECTIONS: dict[str, dict[str, str]] = {
    "corpus": text_names(
        {
            "corpus": "Text Lines Parallel Table JSONLines",
            "dictionary": "Dictionary",
            "annotated": "CoNLLU Columns SQuAD",
            "speech": "Speech",
            "chats": "Chats Preferences Judged Prompts",
            "vocab_files": "Binarized",
            "pictures": "Pictures",
        }
    ),
    "tokenizer": text_names(
        {
            "tokenizer": "Characters Words BPE WordPiece Unigram Pattern",
            "tokenizer_file": "File",
            "smiles": "SMILES",
            "vocab_files": "VocabFile",
        }
    ),
    "batches": {name: batches.NAMES[name] for name in BATCHES.split()},
    "model": models.NAMES | nn.PARTS,
    "objective": objectives.NAMES,
}


class Config:
    """A checked config: the factory of each section, before any data is read. It may name the user's own classes in `parts`.

    >>> config = Config.preset("gpt").change({"model.dim": 96}, "train.steps=10")
    >>> config.tree["model"]["dim"]
    96
    """

    def __init__(
        self,
        tree: config_tree.Tree,
        lines: config_tree.Locations | None = None,
        parts: Sequence[type[Module]] = (),
    ):
        tree = with_present_names(tree)
        lines = lines or config_tree.Locations()
        sections = [*SECTIONS, *OTHER_SECTIONS]
        for section in tree:
            if section not in sections:
                suggestion = config_tree.suggest(str(section), sections)
                raise ConfigError(
                    f"{lines.locate(str(section))}: there is no section {section!r}; {suggestion}"
                )
        for section in SECTIONS:
            if section not in tree:
                raise ConfigError(
                    f"{lines.source}: the section {section!r} is missing; see a preset for an example"
                )
        self.tree = tree
        self.lines = lines
        self.sizes: config_tree.Tree = {}
        self.own_parts = tuple(parts)
        self.own_functions = [part for part in parts if inspect.isfunction(part)]
        self.parts = self.build_parts()
        made = self.parts["model"].func
        if not (inspect.isclass(made) and issubclass(made, Model)):
            choices = [
                name
                for name in models.NAMES
                if issubclass(config_tree.find(models.NAMES, name), Model) and name != "Model"
            ]
            raise ConfigError(
                f"{lines.locate('model.type')}: {made.__name__} is not a model; choose one of {', '.join(choices)}"
            )
        self.seed = config_tree.convert(tree.get("seed", 0), int, {}, "seed", lines)
        self.files = config_tree.options(Files, tree.get("files", {}), {}, "files", lines)()
        self.objective = partial(self.parts["objective"].func, **self.parts["objective"].keywords)

    def build_parts(self) -> dict[str, config_tree.PartFactory]:
        """The factory of each section. A part that is not known is looked for in the installed packages."""
        own: dict[str, type[Module]] = {}
        if self.own_parts:
            from seqloom.own_parts import parts_by_name

            own = parts_by_name(self.own_parts, SECTIONS["model"])
        while True:
            names: dict[str, config_tree.Names] = {**SECTIONS, "model": {**SECTIONS["model"], **own}}
            try:
                return {
                    section: config_tree.build(self.tree[section], names[section], section, self.lines)
                    for section in SECTIONS
                }
            except config_tree.UnknownType as error:
                from seqloom.own_parts import installed_part

                part = installed_part(error.name)
                if part is None:
                    message = f"{error}; a part of your own: --code FILE.py, or parts=[…] in Python"
                    raise config_tree.UnknownType(message, error.name) from None
                own[error.name] = part

    @classmethod
    def load(
        cls,
        source: str,
        changes: Sequence[Change] = (),
        data: Data | None = None,
        valid: Data | float | None = None,
        seed: int | None = None,
        parts: Sequence[type[Module]] = (),
    ) -> Config:
        """A preset, a YAML file or a run folder with changes, and with the given data (see `with_data`)."""
        tree, lines = find_config(source)
        sizes = tree.get("sizes", {})
        tree, lines, own = changed(tree, lines, changes)
        if seed is not None:
            tree["seed"] = seed
        config = cls(tree, lines, unique([*parts, *own]))
        config.sizes = sizes
        return config.with_data(data, valid)

    def with_data(self, data: Data | None = None, valid: Data | float | None = None) -> Config:
        """The config with the given data, and with the share of it to hold out if `valid` is a number.

        A new config also gets the options that depend on the files: their form, header and columns, and how records are held out.
        The config of a run has them, or keeps the behaviour of the version that wrote it.
        """
        tree = dict(self.tree)
        data_options.set_files(tree, data, valid)
        paths = (tree.get("files") or {}).get("train") or []
        is_there = data is not None or all(path == "-" or Path(path).exists() for path in paths)
        source = Path(self.lines.source)
        if is_there and not (source.name == "config.yaml" and is_run(source.parent)):
            from_preset = source.parent == PRESETS
            tree = data_options.complete(
                tree, data_options.fixed_options(tree, self.lines.changes, from_preset)
            )
        if tree == self.tree:
            return self
        config = Config(tree, self.lines, self.own_parts)
        config.sizes = self.sizes
        return config

    def continuing(self, folder: str | Path) -> Config:
        """The config as it continues the run in the folder: options that the run's version did not know are left out."""
        tree = data_options.without_new_options(self.tree, config_of(folder)[0])
        config = Config(tree, self.lines, self.own_parts)
        config.sizes = self.sizes
        return config

    @classmethod
    def preset(cls, name: str) -> Config:
        """A preset by its name; `list_presets` lists them."""
        preset_file(name)
        return cls.load(name)

    def change(self, *changes: Change) -> Config:
        """A new config with changes: texts such as "model.dim=64", or dicts from dotted paths to Python values."""
        tree = {**self.tree, "sizes": self.sizes} if self.sizes else self.tree
        tree, lines, own = changed(tree, self.lines, changes)
        config = Config(tree, lines, unique([*self.own_parts, *own]))
        config.sizes = self.sizes
        return config

    def to_yaml(self) -> str:
        """The config as a YAML file, with the version of the format and the preset that it began as."""
        header = {"seqloom": FORMAT, **({"preset": self.lines.preset} if self.lines.preset else {})}
        return config_tree.write({**header, **self.tree})

    def save(self, path: str | Path) -> None:
        """Writes the config as a YAML file, which every verb takes in place of a preset's name."""
        files.write_atomic(Path(path), self.to_yaml())

    @property
    def uses_feedback(self) -> bool:
        """Whether training learns from preferences or rewards, by `train/feedback.py`."""
        return self.objective.func.__name__ in ("bradley_terry", "judged", "dpo", "clipped_policy")

    @property
    def finetunes(self) -> bool:
        """Whether the config has a section of `train/finetune.py`."""
        return any(section in self.tree for section in FINETUNE_SECTIONS)

    def reader(self, paths: list[str]) -> Reader:
        return self.parts["corpus"](paths)

    def tokenizer(self) -> Tokenizer:
        """A tokenizer trained on the training files. One whose training is a pure function of the files is kept in the cache: the runs of a
        study share it."""
        reader = self.reader(self.files.require("train"))
        section = self.tree["tokenizer"]
        section = {"type": section} if isinstance(section, str) else section
        if section.get("type") not in CACHED_TOKENIZERS or section.get("extra_words") or self.own_parts:
            return self.parts["tokenizer"](records.iter_texts(reader))
        key = json.dumps([section, reader.kinds, reader.digest(), __version__], sort_keys=True)
        path = files.cache_folder() / f"tokenizer-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
        if not path.exists():
            trained = self.parts["tokenizer"](records.iter_texts(reader))
            files.write_atomic(path, trained.to_str(pretty=True), 0o600)
        return tokenizer_file.load(path)

    def kinds(self) -> tuple[str, ...]:
        """The kinds of the fields of a record."""
        return tuple(self.parts["corpus"].keywords.get("kinds") or self.reader_class.kinds)

    @property
    def reader_class(self) -> type[Reader]:
        return cast(type[Reader], self.parts["corpus"].func)

    @property
    def template(self) -> str | None:
        """The chat template of the corpus; None if its records are no chats."""
        return self.parts["corpus"].keywords.get("template", self.reader_class.template)

    def labels(self) -> list[str]:
        """The labels in the training files; empty if records have no labels."""
        if not records.has_labels(self.kinds()):
            return []
        return records.collect_labels(self.reader(self.files.require("train")))

    def stores(
        self, tokenizer: Tokenizer, progress: Callable[[int], None] | None = None, labels: Sequence[str] = ()
    ) -> tuple[store.Store, store.Store]:
        """The training data and the validation data, whose labels are among `labels`. `progress` is called with the number of bytes since
        its last call."""
        train = store.build(
            self.reader(self.files.require("train")), tokenizer, progress=progress, labels=labels
        )
        if self.files.valid:
            reader = self.reader(self.files.valid)
            return train, store.build(reader, tokenizer, progress=progress, labels=labels)
        if self.files.split == "end":
            return train.split(self.files.valid_fraction)
        if len(train.fields) == 1:
            raise ConfigError(
                "files.split=content: running text has no records to choose from; set files.split=end"
            )
        from seqloom.text.split import record_keys

        keys = record_keys(self.reader(self.files.train), files.cache_folder())
        return train.split_by_content(keys, self.files.valid_fraction)

    def data(self, of: store.Store) -> Batches:
        return self.parts["batches"](of, seed=self.seed)

    def meta_model(self, vocabulary: int = 1000) -> Model:
        """The model without its weights, for some vocabulary: sizes that do not fit are found before the data is read."""
        with torch.device("meta"):
            return self.model(min(vocabulary, self.parts["model"].keywords.get("vocabulary", vocabulary)))

    def model(self, vocabulary: int, labels: Sequence[str] = ("", "")) -> Model:
        """The model with its initial weights, a function of the seed alone. `labels` are the names of its labels, if it has any."""
        torch.manual_seed(self.seed)
        factory = self.parts["model"]
        parameters, options = config_tree.parameters_of(factory.func), factory.keywords
        rows = options.get("vocabulary", vocabulary)
        if rows < vocabulary:
            location = self.lines.locate("model.vocabulary")
            raise ConfigError(f"{location}: {rows} rows are fewer than the {vocabulary} tokens; remove it")
        names = {"vocabulary", "source_vocabulary"} & set(parameters) - set(options)
        sizes: dict[str, Any] = dict.fromkeys(names, rows)
        if "source_shape" in parameters:
            sizes["source_shape"] = self.reader_class.source_shape(self.parts["corpus"].keywords)
        if "labels" not in parameters:
            return factory(**sizes)
        model: Model = factory(**sizes, labels=len(labels))
        model.set_labels(labels)
        return model


def changed(
    tree: config_tree.Tree, lines: config_tree.Locations, changes: Sequence[Change]
) -> tuple[config_tree.Tree, config_tree.Locations, list[type[Module]]]:
    """A tree with changes under present names, the locations with them, and the user's own parts that they name."""
    assignments = [
        Assignment(present_path(path), value, text) for path, value, text in parse_changes(changes)
    ]
    texts = {path: text for path, _, text in assignments}
    locations = config_tree.Locations(lines.source, lines.lines, {**lines.changes, **texts}, lines.preset)
    tree = data_options.with_columns(with_present_names(apply_changes(tree, assignments)))
    named = [part for change in changes if isinstance(change, Mapping) for part in callables_in(change)]
    return tree, locations, [cast(type[Module], part) for part in named if is_own(part)]


def is_own(part: Callable[..., Any]) -> bool:
    """Whether a class or function is not one of seqloom; only a part may be the user's own."""
    name = part.__name__
    if any(name in names and config_tree.find(names, name) is part for names in SECTIONS.values()):
        return False
    if inspect.isclass(part) and issubclass(part, Module):
        return True
    if part.__module__.startswith("seqloom."):
        return False
    raise ConfigError(
        f"{part.__name__}: a config can name your own parts, which are classes derived from torch.nn.Module, but no other code of yours"
    )


def unique(parts: Sequence[type[Module]]) -> list[type[Module]]:
    """Each class once, in order."""
    return list(dict.fromkeys(parts))
