"""The run folder, and the names that each section of a config may use.

A run is complete: config.yaml, tokenizer.json, labels.json if there are labels, model.safetensors, checkpoints/, metrics.jsonl and
results.json. `load(folder)` needs nothing else. If `transformers` knows a model of the same shape, the folder also has config.json and
tokenizer_config.json, and `transformers` can load it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file, save
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import Module

from seqloom import batches, compat, config, files, layouts, models, nn, objectives
from seqloom.batches.batch import Batches
from seqloom.batches.buckets import pad
from seqloom.layouts.hf_folder import SafetensorsFiles
from seqloom.lazy import LazyNames
from seqloom.models.base import Model
from seqloom.text import fields, labels, store, tokenizer, tokenizer_file
from seqloom.text.corpus import Reader
from seqloom.text.special_tokens import SpecialTokens, special_tokens

PRESETS = Path(__file__).parent / "presets"
FINETUNE_SECTIONS = ("from", "freeze", "lr_factors", "layer_decay", "lora")
OTHER_SECTIONS = ("train", "files", "seed", *FINETUNE_SECTIONS)


def text_names(modules: dict[str, str]) -> LazyNames:
    """Names by the module of `seqloom.text` that defines them."""
    return LazyNames(
        {
            name: (f"seqloom.text.{module}", name)
            for module, names in modules.items()
            for name in names.split()
        }
    )


# What `type` may be in each section. A part is imported when a config names it.
SECTIONS: dict[str, LazyNames] = {
    "corpus": text_names(
        {
            "corpus": "Text Lines Parallel Table JSONLines",
            "dictionary": "Dictionary",
            "annotated": "CoNLLU Columns SQuAD",
        }
    ),
    "tokenizer": text_names({"tokenizer": "Characters Words BPE WordPiece Unigram File Pattern"}),
    "data": batches.NAMES.only({"Windows", "Blocks", "Pairs", "Masked", "Tagged", "Labelled", "Questions"}),
    "model": models.NAMES | nn.PARTS,
    "objective": objectives.NAMES,
}


def presets() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def find_config(name: str) -> tuple[config.Tree, config.Locations]:
    """The config of a preset, a YAML file or a run folder."""
    if name in presets():
        return read_config(PRESETS / f"{name}.yaml")
    path = Path(name)
    if is_run(path):
        return config_of(path)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return read_config(path)
    raise ValueError(f"{name}: no preset and no file has this name; {config.suggest(name, presets())}")


def read_config(path: Path) -> tuple[config.Tree, config.Locations]:
    """A YAML file, with present names in place of those of older versions."""
    tree, locations = config.read(path)
    return compat.upgrade_config(tree), locations


def config_of(folder: str | Path) -> tuple[config.Tree, config.Locations]:
    """The config of a run folder, even if the folder has the name of a preset."""
    return read_config(Path(folder) / "config.yaml")


def user_parts(parts: Sequence[type[Module]]) -> config.Names:
    """The user's own parts by name, to be used beside the built-in ones. Only Python code can pass them, never a config."""
    named: dict[str, type[Module]] = {}
    for part in parts:
        if not (inspect.isclass(part) and issubclass(part, Module)):
            raise ValueError(
                f"parts: {part!r} is not a part class; pass classes such as a Cell, a Score, a Position or a Layer"
            )
        name = part.__name__
        if name in SECTIONS["model"] or named.get(name, part) is not part:
            owner = "a built-in part" if name in SECTIONS["model"] else "another of your parts"
            raise ValueError(f"parts: {name} is the name of {owner}; rename your class")
        named[name] = part
    return named


class Config:
    """A checked config: the factory of each section, before any data is read. It may name the user's own classes in `parts`."""

    def __init__(
        self, tree: config.Tree, lines: config.Locations | None = None, parts: Sequence[type[Module]] = ()
    ):
        tree = compat.upgrade_config(tree)
        lines = lines or config.Locations()
        sections = [*SECTIONS, *OTHER_SECTIONS]
        for section in tree:
            if section not in sections:
                suggestion = config.suggest(str(section), sections)
                raise ValueError(
                    f"{lines.locate(str(section))}: there is no section {section!r}; {suggestion}"
                )
        for section in SECTIONS:
            if section not in tree:
                raise ValueError(
                    f"{lines.source}: the section {section!r} is missing; see a preset for an example"
                )
        self.tree = tree
        self.lines = lines
        names = {**SECTIONS, "model": SECTIONS["model"].plus(user_parts(parts))}
        try:
            self.parts = {
                section: config.build(tree[section], names[section], section, lines) for section in SECTIONS
            }
        except config.UnknownType as error:
            if Path(lines.source).name != "config.yaml":
                raise
            message = f"{error}; pass a part of your own from Python: load(folder, parts=[…])"
            raise config.UnknownType(message) from None
        made = self.parts["model"].func
        if not (inspect.isclass(made) and issubclass(made, Model)):
            choices = [
                name for name in models.NAMES if issubclass(models.NAMES[name], Model) and name != "Model"
            ]
            raise ValueError(
                f"{lines.locate('model.type')}: {made.__name__} is not a model; choose one of {', '.join(choices)}"
            )
        self.seed = config.convert(tree.get("seed", 0), int, {}, "seed", lines)
        self.files = config.options(Files, tree.get("files", {}), {}, "files", lines)()
        self.objective = partial(self.parts["objective"].func, **self.parts["objective"].keywords)

    @classmethod
    def load(
        cls,
        source: str,
        overrides: Sequence[str] = (),
        data: Sequence[str] | None = None,
        valid: Sequence[str] | None = None,
        seed: int | None = None,
        parts: Sequence[type[Module]] = (),
    ) -> Config:
        """A preset, a YAML file or a run folder, changed by dotted overrides, with the given data files."""
        tree, lines = find_config(source)
        tree = compat.upgrade_config(config.override(tree, overrides))
        lines = config.Locations(lines.source, lines.lines, overrides)
        for split, paths in (("train", data), ("valid", valid)):
            if paths is not None:
                resolved = [path if path == "-" else str(Path(path).resolve()) for path in paths]
                tree.setdefault("files", {})[split] = resolved
        if seed is not None:
            tree["seed"] = seed
        return cls(tree, lines, parts)

    @property
    def finetunes(self) -> bool:
        """Whether the config has a section of `train/finetune.py`."""
        return any(section in self.tree for section in FINETUNE_SECTIONS)

    def reader(self, paths: list[str]) -> Reader:
        return self.parts["corpus"](paths)

    def tokenizer(self) -> Tokenizer:
        """A tokenizer trained on the training files."""
        reader = self.reader(self.files.require("train"))
        return self.parts["tokenizer"](fields.iter_texts(reader))

    def kinds(self) -> tuple[str, ...]:
        """The kinds of the fields of a record."""
        return tuple(self.parts["corpus"].keywords.get("kinds") or self.reader_class.kinds)

    @property
    def reader_class(self) -> type[Reader]:
        return cast(type[Reader], self.parts["corpus"].func)

    def labels(self) -> list[str]:
        """The labels in the training files; empty if records have no labels."""
        if not fields.has_labels(self.kinds()):
            return []
        return fields.collect_labels(self.reader(self.files.require("train")))

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
        return train.split(self.files.valid_fraction)

    def data(self, of: store.Store) -> Batches:
        return self.parts["data"](of, seed=self.seed)

    def meta_model(self) -> Model:
        """The model without its weights, for some vocabulary: sizes that do not fit are found before the data is read."""
        with torch.device("meta"):
            return self.model(min(1000, self.parts["model"].keywords.get("vocabulary", 1000)))

    def model(self, vocabulary: int, labels: Sequence[str] = ("", "")) -> Model:
        """The model with its initial weights, a function of the seed alone. `labels` are the names of its labels, if it has any."""
        torch.manual_seed(self.seed)
        factory = self.parts["model"]
        parameters, options = config.parameters_of(factory.func), factory.keywords
        rows = options.get("vocabulary", vocabulary)
        if rows < vocabulary:
            location = self.lines.locate("model.vocabulary")
            raise ValueError(f"{location}: {rows} rows are fewer than the {vocabulary} tokens; remove it")
        names = [
            name for name in ("vocabulary", "source_vocabulary") if name in parameters and name not in options
        ]
        sizes = dict.fromkeys(names, rows)
        if "labels" not in parameters:
            return factory(**sizes)
        model: Model = factory(**sizes, labels=len(labels))
        model.set_labels(labels)
        return model


class Files:
    """The data files. Without `valid`, the fraction `valid_fraction` of `train` is held out."""

    def __init__(
        self, train: list[str] | None = None, valid: list[str] | None = None, valid_fraction: float = 0.1
    ):
        self.train = train or []
        self.valid = valid or []
        self.valid_fraction = valid_fraction

    def require(self, split: str) -> list[str]:
        paths = {"train": self.train, "valid": self.valid}[split]
        if not paths:
            raise ValueError(
                "no data: pass --data FILE (two files for a translator), or set files.train in the config"
            )
        return paths


class Run:
    """A trained model with all that is needed to use it."""

    def __init__(
        self, folder: Path, recipe: Config, tokenizer: Tokenizer, model: Model, labels: Sequence[str] = ()
    ):
        self.folder = folder
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.model = model
        self.labels = list(labels)
        self.adds_eos: bool = recipe.reader_class.adds_eos
        self.specials = special_tokens(tokenizer)

    def encode(self, texts: list[str], as_prompt: bool = False) -> tuple[Tensor, Tensor]:
        """Texts as the model's input: ids (B, T) and their mask. A prompt gets no closing tokens."""
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

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """The ids that generated text never contains: special tokens, and rows of the embedding without a token."""
        rows = self.recipe.parts["model"].keywords.get("vocabulary", 0)
        return *self.specials.banned, *range(self.tokenizer.get_vocab_size(), rows)

    def decode(self, ids: list[int]) -> str:
        return tokenizer.decode(self.tokenizer, ids)

    def results(self) -> dict[str, Any]:
        path = self.folder / "results.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else {}


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
            raise ValueError(f"{source}: {name} is {problem}; the config and the weights differ")
        if parameters[name].shape != tensors[name].shape:
            stored, expected = tuple(tensors[name].shape), tuple(parameters[name].shape)
            raise ValueError(
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


def is_run(folder: str | Path) -> bool:
    return (Path(folder) / "config.yaml").exists()


def has_no_labels(folder: Path) -> bool:
    """Whether a run has no labels.json because its data has no labels, such as questions that all have answers."""
    try:
        data = json.loads((folder / "data.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return not (folder / "labels.json").exists() and "labels" not in data


def load(folder: str | Path, parts: Sequence[type[Module]] = ()) -> Run:
    """The trained model of a run folder, ready to use; `parts` are the user's own classes that its config names."""
    folder = Path(folder)
    if not is_run(folder):
        raise ValueError(
            f"{folder}: not a run folder (it has no config.yaml); train one with: seqloom train PRESET --data FILE --out {folder}"
        )
    weights_file = folder / "model.safetensors"
    if not weights_file.exists():
        raise ValueError(
            f"{folder}: the run has no final weights yet; finish it with: seqloom train {folder}"
        )
    recipe = Config(*config_of(folder), parts)
    run_tokenizer = tokenizer_file.load(folder / "tokenizer.json")
    try:
        digest = json.loads((folder / "results.json").read_text("utf-8"))["weights"]["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"{folder / 'results.json'}: missing or damaged; write it again with: seqloom train {folder}"
        ) from None
    if files.sha256(weights_file) != digest:
        raise ValueError(
            f"{weights_file}: damaged, its SHA-256 is not the one in results.json; write it again with: seqloom train {folder}"
        )
    labelled = fields.has_labels(recipe.kinds()) and not has_no_labels(folder)
    names = labels.load(folder / "labels.json") if labelled else []
    model = recipe.model(run_tokenizer.get_vocab_size(), names)
    set_weights(model, load_weights(folder, model), weights_file)
    return Run(folder, recipe, run_tokenizer, model.eval(), names)
