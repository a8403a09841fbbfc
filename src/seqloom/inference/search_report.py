"""Why is this not the translation? The report of the search  [N8]."""

from __future__ import annotations

from typing import Any

from seqloom.decoding import explain_search
from seqloom.inference.completion import banned_ids, prepare_prompt
from seqloom.run import Run

MIN_LENGTH_LIMIT = 200  # tokens of a translation


def explain_translation(
    run: Run, text: str, target: str, beam: int = 5, length_penalty: float = 0.6
) -> tuple[dict[str, Any], list[str]]:
    """Where the beam search for the translation of `text` dropped `target`, and whether the search or the model is the cause:
    a report and its lines."""
    ids, mask = run.encode([text], as_prompt=run.model.continues)
    target_ids = run.tokenizer.encode(target, add_special_tokens=False).ids
    prompt, state, prompt_mask = prepare_prompt(run, ids, mask)
    eos = run.specials.eos
    result = explain_search(
        run.model,
        prompt,
        target_ids,
        state,
        prompt_mask,
        width=beam,
        max_tokens=max(MIN_LENGTH_LIMIT, len(target_ids) + 1),
        eos_id=eos,
        banned=banned_ids(run),
        length_penalty=length_penalty,
    )
    answer = run.decode(result.answer.ids)
    tokens = zip([*target_ids, eos], result.tokens, strict=True)
    report = {
        "verdict": result.verdict,
        "answer": answer,
        "answer_score": result.answer.score,
        "asked": target,
        "asked_score": result.score,
        "asked_logprob": result.log_probability,
        "fell_at": result.pruned_at,
        "rank": result.rank,
        "gap": result.gap,
        "tokens": [{"token": run.decode([token]), "logprob": log_p} for token, log_p in tokens],
    }
    lines = [
        f"answer  {result.answer.score:9.4f}  {answer}",
        f"asked   {result.score:9.4f}  {target}",
    ]
    if result.pruned_at is not None:
        prefix = run.decode(target_ids[: result.pruned_at - 1])
        token = run.decode([[*target_ids, eos][result.pruned_at - 1]]) or "the end"
        gap = "it could no longer win"
        if result.gap is not None:
            gap = f"{result.gap:.4f} nats below the last one kept"
        lines.append(
            f'dropped at step {result.pruned_at}: after "{prefix}", "{token}" had rank {result.rank} of all '
            f"continuations, {gap}"
        )
    conclusion = {
        "found": "it is the answer",
        "search error": f"search error: the model scores it higher; a beam wider than {beam} may find it",
        "model error": "model error: the model scores its answer higher",
    }
    return report, [*lines, conclusion[result.verdict]]
