"""Reads and writes folders of the Hugging Face layout: GPT-2, Llama, BERT, DistilBERT, Marian, ViT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqloom import files
from seqloom.decoding.generation_config import keep_generation_config
from seqloom.errors import DataError
from seqloom.interop import tokenizer as hf_tokenizer
from seqloom.interop.import_run import ForeignCheckpoint, with_vocab_size
from seqloom.layouts import (
    FAMILIES,
    Family,
    export_files,
    find_family,
    hf_folder,
    import_weights,
    names_without_prefix,
    vit,
)
from seqloom.layouts.hf_folder import HFConfig, SafetensorsFiles, read_json
from seqloom.run import Run, named_weights
from seqloom.text.chat_template import TEMPLATE_FILE, read_template, template_source
from seqloom.text.tokenizer import Characters, special_tokens

MIN_TENSORS_PER_LAYER = 9


def read(folder: Path, tokenizer: Path | None = None) -> ForeignCheckpoint:
    """Reads the checkpoint of a folder."""
    config_path = folder / "config.json"
    config = HFConfig(read_json(config_path), str(config_path))
    model_type = config.values.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise DataError(
            f"{config.source}: models of type {str(model_type)[:40]!r} cannot be read; "
            f"only {', '.join(sorted(FAMILIES))}"
        )
    family = find_family(model_type)
    tensors = hf_folder.tensors(folder)
    config = config.with_aliases(family.aliases)
    names = names_without_prefix(tensors, family)
    if model_type == "vit":
        if tokenizer is not None:
            raise DataError(f"{config.source}: a ViT reads pictures; leave --tokenizer {tokenizer} out")
        return read_picture_classifier(folder, config, family, tensors, names)
    tokenizer_path = tokenizer or folder / "tokenizer.json"
    loaded = hf_tokenizer.read(tokenizer_path, config, family.roles, family.special_frame)
    tree = family.model_tree(config, set(names))
    for stack in (tree.get("stack"), tree.get("encoder"), tree.get("decoder")):
        if stack:
            check_layers(stack["layers"], len(names), config.source)
    if tree.get("embedding", {}).get("type") == "SegmentEmbedding":
        tree["embedding"]["separator"] = special_tokens(loaded).eos
    rows = config.count("vocab_size", 1)
    tree = with_vocab_size(tree, rows, loaded.get_vocab_size(), config_path)
    return ForeignCheckpoint(
        model_type,
        tree,
        loaded,
        lambda model: import_weights(family, model, tensors, str(folder)),
        folder_template(folder),
    )


def check_layers(layers: int, tensors: int, source: str) -> None:
    """Rejects a number of layers for which the file has too few tensors, before any layer is made."""
    if layers > 1 + tensors // MIN_TENSORS_PER_LAYER:
        raise DataError(
            f"{source}: {tensors} tensors are too few for {layers} layers; the two do not belong together"
        )


def read_picture_classifier(
    folder: Path, config: HFConfig, family: Family, tensors: SafetensorsFiles, names: dict[str, str]
) -> ForeignCheckpoint:
    """Reads a ViT; the tokenizer of its run has the characters of the labels, as that of a run trained here."""
    vit.check_processor(folder)
    tree = family.model_tree(config, set(names))
    check_layers(tree["encoder"]["stack"]["layers"], len(names), config.source)
    labels = vit.label_names(config)
    return ForeignCheckpoint(
        family.model_type,
        tree,
        Characters(labels),
        lambda model: import_weights(family, model, tensors, str(folder)),
        size=vit.sides(config, "image_size", 224),
        labels=tuple(labels),
    )


def folder_template(folder: Path) -> str | None:
    """The chat template of a folder: chat_template.jinja, or `chat_template` of tokenizer_config.json, the default one of several."""
    template: Any = read_template(folder)
    path = folder / "tokenizer_config.json"
    if template is None and path.is_file():
        template = read_json(path).get("chat_template")
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise DataError(f"{path}: chat_template is a {type(template).__name__}, where a text is expected")
    return template_source(template) if template else None


def write(run: Run, folder: Path) -> str:
    """Writes a run as a folder that `transformers` loads; returns its model_type."""
    exported = export_files(run.model, named_weights(run.model), run.tokenizer)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder}: exists and is not empty; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"{folder}: cannot create the folder ({reason}); choose another") from None
    files.write_atomic(folder / "model.safetensors", exported.weights)
    for name, text in exported.texts.items():
        files.write_atomic(folder / name, text)
    if (template := run.chat_template) is not None:
        files.write_atomic(folder / TEMPLATE_FILE, template)
    if run.model.generates:
        keep_generation_config(run.folder, folder, not run.model.continues)
    return exported.model_type
