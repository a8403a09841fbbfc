"""Checking a config before training: everything is built, a little data is read, one step is computed."""

from __future__ import annotations

from typing import Any

from seqloom.run import Config
from seqloom.text import tokenizer
from seqloom.train import budget
from seqloom.train.fit import build_trainer, prepare


def check_recipe(recipe: Config) -> dict[str, Any]:
    """Sizes and costs of what a recipe describes. Without data the model is only sketched, with a vocabulary of 1000."""
    build_trainer(recipe)
    if not recipe.files.train:
        model = recipe.sketch()
        counts = budget.parameters(model)
        return {
            "parameters": sum(counts.values()),
            **{f"  {name}": count for name, count in counts.items()},
            "data": "none given",
        }
    ready = prepare(recipe)
    counts = budget.parameters(ready.model)
    batches = recipe.data(ready.train)
    batch, _ = next(batches.batches())
    loss, _, _ = recipe.objective(ready.model, batch, None)
    return {
        "parameters": sum(counts.values()),
        **{f"  {name}": count for name, count in counts.items()},
        "vocabulary": ready.tokenizer.get_vocab_size(),
        "tokenizer": tokenizer.signature(ready.tokenizer),
        "training tokens": len(ready.train.fields[-1].tokens),
        "held-out tokens": len(ready.valid.fields[-1].tokens),
        "first batch": " × ".join(map(str, batch.ids.shape)),
        "first loss": round(float(loss.detach()) / max(batch.num_targets, 1), 4),
        "MFLOP a token": round(
            budget.flops(lambda: recipe.objective(ready.model, batch, None)[0].backward())
            / batch.num_targets
            / 1e6,
            2,
        ),
    }
