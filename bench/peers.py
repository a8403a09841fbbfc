"""Our models as `transformers` and CTranslate2 hold them, with the same weights: shared by the benchmarks of generation."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np
from torch import nn

from seqloom.layouts import family as mapping
from seqloom.layouts import family_of, missing_shapes
from seqloom.run import named_weights


def transformers(model: nn.Module, **said: object) -> nn.Module:
    """The same model of the transformers library; `said` are settings that ours does not know."""
    import transformers as library

    library.logging.set_verbosity_error()
    family, settings = family_of(model)
    own, entries = named_weights(model), family.mappings(model, family.prefix)
    kind = getattr(library, settings["architectures"][0])
    peer = kind(kind.config_class(**{**settings, **said}))
    _, unexpected = peer.load_state_dict(
        mapping.write(entries, own, missing_shapes(model, entries, own)), strict=False
    )
    if unexpected:
        raise ValueError(f"transformers has no place for {unexpected[0]}")
    peer.tie_weights()
    return peer.eval()


def ctranslate2(peer: nn.Module, folder: Path, vocabulary: int, special: dict[str, str]) -> None:
    """The same model in CTranslate2's form; token number n is called "n". `special` names tokens of its configuration."""
    from ctranslate2.converters import transformers as converters

    loader = converters._MODEL_LOADERS[type(peer.config).__name__]
    spec = loader.get_model_spec(peer)
    words = [str(number) for number in range(vocabulary)]
    if hasattr(spec, "register_source_vocabulary"):
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
    else:
        spec.register_vocabulary(words)
    for name, word in special.items():
        setattr(spec.config, name, word)
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def words(rows: list[list[int]]) -> list[list[str]]:
    return [[str(number) for number in row] for row in rows]


def error(ours: np.ndarray, exact: np.ndarray) -> str:
    """How far logits are off, as a share of their spread."""
    return f"{np.sqrt(((ours - exact) ** 2).mean()) / exact.std():.4f}"
