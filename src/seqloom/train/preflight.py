"""Checks a config before training: builds everything, reads a little data, computes one step."""

from __future__ import annotations

from typing import Any

from seqloom.run import Config
from seqloom.text import tokenizer
from seqloom.train import budget
from seqloom.train.fit import build_trainer, prepare


def check_recipe(recipe: Config) -> dict[str, Any]:
    """Sizes and costs of a config. Without data the model is built without memory, for a vocabulary of 1000."""
    build_trainer(recipe)
    if not recipe.files.train:
        return {**parameter_counts(budget.parameters(recipe.meta_model())), "data": "none given"}
    prepared = prepare(recipe)
    model = prepared.model
    batch, _ = next(recipe.data(prepared.train).batches())
    loss, _, _ = recipe.objective(model, batch, None)
    flops = budget.flops(lambda: recipe.objective(model, batch, None)[0].backward())
    return {
        **parameter_counts(budget.parameters(model)),
        "vocabulary": prepared.tokenizer.get_vocab_size(),
        "tokenizer": tokenizer.signature(prepared.tokenizer),
        "training tokens": len(prepared.train.fields[-1].tokens),
        "held-out tokens": len(prepared.valid.fields[-1].tokens),
        "first batch": " × ".join(map(str, batch.ids.shape)),
        "first loss": round(float(loss.detach()) / max(batch.num_targets, 1), 4),
        "MFLOP a token": round(flops / batch.num_targets / 1e6, 2),
    }


def parameter_counts(counts: dict[str, int]) -> dict[str, int]:
    """The total, then each part indented."""
    return {"parameters": sum(counts.values()), **{f"  {name}": count for name, count in counts.items()}}
