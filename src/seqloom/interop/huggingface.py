"""Folders of the Hugging Face layout, in and out: GPT-2, Llama, BERT, DistilBERT, Marian."""

from __future__ import annotations

from pathlib import Path

from seqloom import files
from seqloom.interop import tokenizer as tokens
from seqloom.interop.import_run import ForeignCheckpoint, with_vocab_size
from seqloom.layouts import FAMILIES, export_files, import_weights, names_without_prefix
from seqloom.layouts.hf_folder import HFConfig, read_json, tensors
from seqloom.run import Run, named_weights
from seqloom.text.special_tokens import special_tokens

LEAST = 9  # tensors of a layer


def read(folder: Path, tokenizer: Path | None = None) -> ForeignCheckpoint:
    """The checkpoint of a folder."""
    said = HFConfig(read_json(folder / "config.json"), str(folder / "config.json"))
    kind = said.values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(
            f"{said.source}: models of type {str(kind)[:40]!r} cannot be read; only {', '.join(sorted(FAMILIES))}"
        )
    family, found = FAMILIES[kind], tensors(folder)
    said = said.called(family.aliases)
    named = names_without_prefix(found, family)
    learnt = tokens.read(tokenizer or folder / "tokenizer.json", said, family.roles, family.frame)
    tree = family.tree(said, set(named))
    for place in (tree.get("stack"), tree.get("encoder"), tree.get("decoder")):
        if place and place["layers"] > 1 + len(named) // LEAST:
            raise ValueError(
                f"{said.source}: {place['layers']} layers are more than {len(named)} tensors make; the two do not belong together"
            )
    if tree.get("embedding", {}).get("type") == "SegmentEmbedding":
        tree["embedding"]["separator"] = special_tokens(learnt).eos
    rows = said.count("vocab_size", 1)
    tree = with_vocab_size(tree, rows, learnt.get_vocab_size(), Path(said.source))

    return ForeignCheckpoint(
        kind, tree, learnt, lambda model: import_weights(family, model, found, str(folder))
    )


def write(run: Run, folder: Path) -> str:
    """Write a run as a folder that `transformers` loads; says which kind it is."""
    kept = export_files(run.model, named_weights(run.model), run.tokenizer)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: exists and is not empty; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{folder}: cannot make the folder ({(error.strerror or str(error)).lower()}); choose another"
        ) from None
    files.write_atomic(folder / "model.safetensors", kept.weights)
    for name, text in kept.texts.items():
        files.write_atomic(folder / name, text)
    return kept.kind
