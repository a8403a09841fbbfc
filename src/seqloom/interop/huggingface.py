"""Folders of the Hugging Face layout, in and out: GPT-2, Llama, BERT, DistilBERT, Marian."""

from __future__ import annotations

from pathlib import Path

from seqloom import files
from seqloom.interop import tokens
from seqloom.interop.checkpoint import Checkpoint, sized
from seqloom.layouts import FAMILIES, keep, ours, renamed
from seqloom.layouts.folder import Settings, read_json, tensors
from seqloom.run import Run, weights
from seqloom.text.special import specials

LEAST = 9  # tensors of a layer


def read(folder: Path, tokenizer: Path | None = None) -> Checkpoint:
    """The checkpoint of a folder."""
    said = Settings(read_json(folder / "config.json"), str(folder / "config.json"))
    kind = said.values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(
            f"{said.source}: models of type {str(kind)[:40]!r} cannot be read; only {', '.join(sorted(FAMILIES))}"
        )
    family, found = FAMILIES[kind], tensors(folder)
    said = said.called(family.aliases)
    named = renamed(found, family)
    learnt = tokens.read(tokenizer or folder / "tokenizer.json", said, family.roles, family.frame)
    tree = family.tree(said, set(named))
    for place in (tree.get("stack"), tree.get("encoder"), tree.get("decoder")):
        if place and place["layers"] > 1 + len(named) // LEAST:
            raise ValueError(
                f"{said.source}: {place['layers']} layers are more than {len(named)} tensors make; the two do not belong together"
            )
    if tree.get("embedding", {}).get("type") == "Segmented":
        tree["embedding"]["separator"] = specials(learnt).eos
    rows = said.count("vocab_size", 1)
    tree = sized(tree, rows, learnt.get_vocab_size(), Path(said.source))

    return Checkpoint(kind, tree, learnt, lambda model: ours(family, model, found, str(folder)))


def write(run: Run, folder: Path) -> str:
    """Write a run as a folder that `transformers` loads; says which kind it is."""
    kept = keep(run.model, weights(run.model), run.tokenizer)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: exists and is not empty; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{folder}: cannot make the folder ({(error.strerror or str(error)).lower()}); choose another"
        ) from None
    files.write_whole(folder / "model.safetensors", kept.weights)
    for name, text in kept.texts.items():
        files.write_whole(folder / name, text)
    return kept.kind
