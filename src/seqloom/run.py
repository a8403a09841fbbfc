"""The run folder, and which names each section of a config may use.

A run is complete: config.yaml, tokenizer.json, labels.json where there are labels, model.safetensors, checkpoints/, metrics.jsonl,
results.json. `load(folder)` needs nothing else. Where the model has a shape that `transformers` knows, config.json and tokenizer_config.json
stand beside them, and the folder is one that it loads.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from tokenizers import Tokenizer
from torch import Tensor, nn

from seqloom import batches, compat, config, files, layouts, models, objectives
from seqloom import nn as equations
from seqloom.layouts.hf_folder import SafetensorsFiles
from seqloom.text import annotated, corpus, dictionary, fields, labels, store, tokenizer, tokenizer_file
from seqloom.text.special_tokens import SpecialTokens, special_tokens
from seqloom.text.tokenizer import Pattern

SECTIONS: dict[str, config.Names] = {
    "corpus": {
        part.__name__: part
        for part in (
            *(
                corpus.Text,
                corpus.Lines,
                corpus.Parallel,
                corpus.Table,
                corpus.JSONLines,
                dictionary.Dictionary,
            ),
            *(annotated.CoNLLU, annotated.Columns, annotated.SQuAD),
        )
    },
    "tokenizer": {
        part.__name__: part
        for part in (
            tokenizer.Characters,
            tokenizer.Words,
            tokenizer.BPE,
            tokenizer.WordPiece,
            tokenizer.Unigram,
            tokenizer.File,
            Pattern,
        )
    },
    "data": {
        part.__name__: part
        for part in (
            batches.Windows,
            batches.Blocks,
            batches.Pairs,
            batches.Masked,
            batches.Tagged,
            batches.Labelled,
            batches.Questions,
        )
    },
    "model": {
        name: part
        for room in (models, equations)
        for name, part in vars(room).items()
        if name in room.__all__ and inspect.isclass(part)
    },
    "objective": {name: getattr(objectives, name) for name in objectives.__all__},
}
MODELS = [
    part
    for name, part in SECTIONS["model"].items()
    if issubclass(part, models.Model) and part is not models.Model
]  # parts that a whole model can be
PRESETS = Path(__file__).parent / "presets"


def presets() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def find_config(name: str) -> tuple[config.Tree, config.Locations]:
    """The config of a preset's name, a YAML file, or a run folder."""
    if name in presets():
        return read_config(PRESETS / f"{name}.yaml")
    path = Path(name)
    if is_run(path):
        return config_of(path)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return read_config(path)
    raise ValueError(f"{name}: no preset and no file of that name; {config.suggest(name, presets())}")


def read_config(path: Path) -> tuple[config.Tree, config.Locations]:
    """A YAML file, with present names in place of those of older versions."""
    tree, lines = config.read(path)
    return compat.upgrade_config(tree), lines


def config_of(folder: str | Path) -> tuple[config.Tree, config.Locations]:
    """The config of a run folder, whatever its name."""
    return read_config(Path(folder) / "config.yaml")


def user_parts(parts: Sequence[type[nn.Module]]) -> config.Names:
    """The user's own parts by name, to stand beside the built-in ones. Only Python code can hand them over, never a config."""
    named: dict[str, type[nn.Module]] = {}
    for part in parts:
        if not (inspect.isclass(part) and issubclass(part, nn.Module)):
            raise ValueError(
                f"parts: {part!r} is no class of a part; hand over classes such as a Cell, a Score, a Position or a Layer"
            )
        if part.__name__ in SECTIONS["model"] or named.get(part.__name__, part) is not part:
            taken = "a built-in part" if part.__name__ in SECTIONS["model"] else "another of your parts"
            raise ValueError(f"parts: {part.__name__} is the name of {taken}; give your class another name")
        named[part.__name__] = part
    return named


class Config:
    """A checked config: what each section makes, before any data is read. `parts` are classes of the user's own that it may name."""

    def __init__(
        self, tree: config.Tree, lines: config.Locations | None = None, parts: Sequence[type[nn.Module]] = ()
    ):
        tree, lines = compat.upgrade_config(tree), lines or config.Locations()
        known = [*SECTIONS, "train", "files", "seed", "from", "freeze", "lr_factors", "layer_decay", "lora"]
        for section in tree:
            if section not in known:
                raise ValueError(
                    f"{lines.at(str(section))}: no section is called {section!r}; {config.suggest(str(section), known)}"
                )
        for section in SECTIONS:
            if section not in tree:
                raise ValueError(
                    f"{lines.source}: the section {section!r} is missing; see a preset for an example"
                )
        self.tree, self.lines = tree, lines
        sections = {**SECTIONS, "model": {**SECTIONS["model"], **user_parts(parts)}}
        try:
            self.parts = {
                section: config.build(tree[section], names, section, lines)
                for section, names in sections.items()
            }
        except config.UnknownType as error:
            if Path(lines.source).name != "config.yaml":
                raise
            raise config.UnknownType(
                f"{error}; a part of your own is handed over from Python: load(folder, parts=[…])"
            ) from None
        if (made := self.parts["model"].func) not in MODELS:
            raise ValueError(
                f"{lines.at('model.type')}: {made.__name__} is no model; choose from {', '.join(one.__name__ for one in MODELS)}"
            )
        self.seed = config.convert(tree.get("seed", 0), int, {}, "seed", lines)
        self.files = config.options(Files, tree.get("files", {}), {}, "files", lines)()
        self.objective = self.parts["objective"]

    @classmethod
    def of(
        cls,
        what: str,
        overrides: Sequence[str] = (),
        data: Sequence[str] | None = None,
        valid: Sequence[str] | None = None,
        seed: int | None = None,
        parts: Sequence[type[nn.Module]] = (),
    ) -> Config:
        """A preset, a YAML file or a run folder, changed by dotted overrides, on the given files."""
        tree, lines = find_config(what)
        tree = compat.upgrade_config(config.override(tree, overrides))
        lines = config.Locations(lines.source, lines.lines, overrides)
        for side, paths in (("train", data), ("valid", valid)):
            if paths is not None:
                tree.setdefault("files", {})[side] = [
                    path if path == "-" else str(Path(path).resolve()) for path in paths
                ]
        if seed is not None:
            tree["seed"] = seed
        return cls(tree, lines, parts)

    def reader(self, paths: list[str]) -> corpus.Reader:
        return self.parts["corpus"](paths)

    def tokenizer(self) -> Tokenizer:
        """A tokenizer learnt from the training files."""
        reader = self.reader(self.files.need("train"))
        return self.parts["tokenizer"](fields.iter_texts(reader))

    def kinds(self) -> tuple[str, ...]:
        """What the fields of a record are."""
        made = self.parts["corpus"]
        return tuple(made.keywords.get("kinds") or made.func.kinds)

    def labels(self) -> list[str]:
        """The labels that the training files name; none where records have no labels."""
        return (
            fields.collect_labels(self.reader(self.files.need("train")))
            if fields.has_labels(self.kinds())
            else []
        )

    def stores(
        self, learnt: Tokenizer, progress: Callable[[int], None] | None = None, known: Sequence[str] = ()
    ) -> tuple[store.Store, store.Store]:
        """The training data and the data held out to validate on, whose labels are among the `known` ones; `progress` is told the bytes done
        since it was last told."""
        whole = store.build(self.reader(self.files.need("train")), learnt, progress=progress, labels=known)
        if self.files.valid:
            return whole, store.build(self.reader(self.files.valid), learnt, progress=progress, labels=known)
        return whole.split(self.files.valid_fraction)

    def data(self, of: store.Store) -> batches.Batches:
        return self.parts["data"](of, seed=self.seed)

    def sketch(self) -> models.Model:
        """The model without its numbers, for some vocabulary: sizes that do not fit are found before the data is read."""
        with torch.device("meta"):
            return self.model(min(1000, self.parts["model"].keywords.get("vocabulary", 1000)))

    def model(self, vocabulary: int, labels: Sequence[str] = ("", "")) -> models.Model:
        """The model with its first weights, a function of the seed alone. `labels` are the names of those that it gives, if any."""
        torch.manual_seed(self.seed)
        wanted, said = inspect.signature(self.parts["model"].func).parameters, self.parts["model"].keywords
        if said.get("vocabulary", vocabulary) < vocabulary:
            raise ValueError(
                f"{self.lines.at('model.vocabulary')}: {said['vocabulary']} rows are fewer than the {vocabulary} tokens; leave it out"
            )
        names = [name for name in ("vocabulary", "source_vocabulary") if name in wanted and name not in said]
        sizes = {name: said.get("vocabulary", vocabulary) for name in names}
        model = self.parts["model"](**sizes, **({"labels": len(labels)} if "labels" in wanted else {}))
        model.set_labels(labels)
        return model


class Files:
    """Where the texts are; `valid_fraction` is the fraction of `train` set aside where no `valid` is given."""

    def __init__(
        self, train: list[str] | None = None, valid: list[str] | None = None, valid_fraction: float = 0.1
    ):
        self.train = train or []
        self.valid = valid or []
        self.valid_fraction = valid_fraction

    def need(self, name: str) -> list[str]:
        if not getattr(self, name):
            raise ValueError(
                "no data: say --data FILE (two files for a translator), or files.train in the config"
            )
        return getattr(self, name)


class Run:
    """A trained model with all that is needed to use it."""

    def __init__(
        self, folder: Path, recipe: Config, learnt: Tokenizer, model: models.Model, known: Sequence[str] = ()
    ):
        self.folder, self.recipe, self.tokenizer, self.model, self.labels = (
            folder,
            recipe,
            learnt,
            model,
            list(known),
        )
        self.ends = recipe.parts["corpus"].func.adds_eos
        self.specials = special_tokens(learnt)

    def encode(self, texts: list[str], begin: bool = False) -> tuple[Tensor, Tensor]:
        """Texts as the model's input: ids (B, T) and their mask. `begin` is for prompts, which have no end yet."""
        rows = [
            encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ]
        if begin:
            before = self.specials.before or ((self.specials.eos,) if self.ends else ())
            newline = self.tokenizer.encode("\n", add_special_tokens=False).ids
            nothing = newline if self.specials == SpecialTokens() and newline else [self.specials.first_id]
            rows = [[*before, *row] or nothing for row in rows]
        else:
            before, after = self.specials.frame(self.ends)
            rows = [[*before, *row, *after] for row in rows]
        return batches.pad([np.array(row, dtype=np.int64) for row in rows])

    @property
    def banned(self) -> tuple[int, ...]:
        """The ids that no text should hold: special tokens, and rows of the table that no token has."""
        rows = self.recipe.parts["model"].keywords.get("vocabulary", 0)
        return *self.specials.banned, *range(self.tokenizer.get_vocab_size(), rows)

    def decode(self, ids: list[int]) -> str:
        return tokenizer.decode(self.tokenizer, ids)

    def results(self) -> dict[str, Any]:
        path = self.folder / "results.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else {}


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter by name, one that is shared once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def set_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Put tensors into the model; anything missing, extra or of another shape is an error that names it."""
    own = dict(model.named_parameters())
    tensors = compat.upgrade_weights(tensors, own)
    for name in [*own, *tensors]:
        if name not in tensors or name not in own:
            raise ValueError(
                f"{source}: {name} is {'missing' if name in own else 'not in the model'}; the config and the weights differ"
            )
        if own[name].shape != tensors[name].shape:
            have, want = tuple(tensors[name].shape), tuple(own[name].shape)
            raise ValueError(
                f"{source}: {name} has shape {have} and the config says {want}; the config and the weights differ"
            )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])


def save_weights(folder: Path, model: nn.Module, own: Mapping[str, Tensor], learnt: Tokenizer) -> None:
    """Write the final weights of a run: as others lay them out where they know such a model, else under our own names."""
    try:
        made = layouts.export_files(model, own, learnt)
    except layouts.Unsupported:
        files.write_atomic(
            folder / "model.safetensors", save({name: tensor.contiguous() for name, tensor in own.items()})
        )
        return
    for name in sorted(made.texts.keys() - {"tokenizer.json"}):  # which the run has
        files.write_atomic(folder / name, made.texts[name])
    files.write_atomic(folder / "model.safetensors", made.weights)


def load_weights(folder: Path, model: nn.Module | None = None) -> dict[str, Tensor]:
    """The final weights of a run by our names; `model` is the run's, where it is at hand."""
    path = folder / "model.safetensors"
    if not layouts.has_family_names(path):
        return load_file(path)
    if model is None:
        with torch.device("meta"):
            model = Config(*config_of(folder)).model(
                tokenizer_file.load(folder / "tokenizer.json").get_vocab_size()
            )
    return layouts.import_weights(layouts.family_of(model)[0], model, SafetensorsFiles([path]), str(path))


def is_run(folder: str | Path) -> bool:
    return (Path(folder) / "config.yaml").exists()


def has_no_labels(folder: Path) -> bool:
    """Whether a run has no file of labels because its data named none, as questions that all have answers."""
    try:
        return not (folder / "labels.json").exists() and "labels" not in json.loads(
            (folder / "data.json").read_text("utf-8")
        )
    except (OSError, ValueError):
        return False


def load(folder: str | Path, parts: Sequence[type[nn.Module]] = ()) -> Run:
    """The trained model of a run folder, ready to use; `parts` are the classes of the user's own that its config names."""
    folder = Path(folder)
    if not is_run(folder):
        raise ValueError(
            f"{folder}: not a run folder (it has no config.yaml); train one with: seqloom train PRESET --data FILE --out {folder}"
        )
    weights_file = folder / "model.safetensors"
    if not weights_file.exists():
        raise ValueError(
            f"{folder}: the run has no finished weights yet; finish it with: seqloom train {folder}"
        )
    recipe = Config(*config_of(folder), parts)
    learnt = tokenizer_file.load(folder / "tokenizer.json")
    try:
        said = json.loads((folder / "results.json").read_text("utf-8"))["weights"]["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"{folder / 'results.json'}: missing or damaged; write it again with: seqloom train {folder}"
        ) from None
    if files.sha256(weights_file) != said:
        raise ValueError(
            f"{weights_file}: damaged, its SHA-256 is not the one in results.json; write it again with: seqloom train {folder}"
        )
    known = (
        labels.load(folder / "labels.json")
        if fields.has_labels(recipe.kinds()) and not has_no_labels(folder)
        else []
    )
    model = recipe.model(learnt.get_vocab_size(), known)
    set_weights(model, load_weights(folder, model), weights_file)
    return Run(folder, recipe, learnt, model.eval(), known)
