"""Why not this translation? The search's own account of it  [N8]."""

from __future__ import annotations

from typing import Any

import torch

from seqloom.decoding import explain_search
from seqloom.run import Run


def explain_translation(
    run: Run, text: str, wanted: str, width: int = 5, penalty: float = 0.6
) -> tuple[dict[str, Any], list[str]]:
    """Where `wanted` fell off the beam that translates `text`, and whether the search or the model is to blame: a report and its lines."""
    ids, mask = run.encode([text], as_prompt=run.model.continues)
    asked = run.tokenizer.encode(wanted, add_special_tokens=False).ids
    with torch.inference_mode():
        prompt, state, real = run.model.prepare_prompt(ids, mask, run.specials.bos)
    end, length = run.specials.eos, max(200, len(asked) + 1)
    found = explain_search(
        run.model,
        prompt,
        asked,
        state,
        real,
        width=width,
        max_tokens=length,
        eos_id=end,
        banned=run.banned_ids,
        length_penalty=penalty,
    )
    answer = run.decode(found.answer.ids)
    report = {
        "verdict": found.verdict, "answer": answer, "answer score": found.answer.score, "asked": wanted, "asked score": found.score,
        "asked log probability": found.log_probability, "fell at": found.pruned_at, "rank": found.rank, "gap": found.gap,
        "tokens": [{"token": run.decode([token]), "log probability": value} for token, value in zip([*asked, end], found.tokens, strict=True)],
    }  # fmt: skip
    lines = [f"answer  {found.answer.score:9.4f}  {answer}", f"asked   {found.score:9.4f}  {wanted}"]
    if found.pruned_at is not None:
        before, token = (
            run.decode(asked[: found.pruned_at - 1]),
            run.decode([[*asked, end][found.pruned_at - 1]]) or "the end",
        )
        gap = (
            "it could no longer win" if found.gap is None else f"{found.gap:.4f} nats below the last one kept"
        )
        lines.append(
            f'it fell at step {found.pruned_at}: after "{before}", "{token}" was number {found.rank} of all continuations, {gap}'
        )
    blame = {
        "found": "it is the answer",
        "search error": f"the search is to blame: the model scores it higher; a beam wider than {width} may find it",
        "model error": "the model is to blame: it scores its answer higher",
    }
    return report, [*lines, blame[found.verdict]]
