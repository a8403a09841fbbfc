"""The beam search of one text as a tree: every step's best continuations, kept and pruned, and where a given target fell off   [N8]"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from seqloom.batches.sources import stack_sources
from seqloom.decoding import Decoding
from seqloom.decoding.beam import Hypothesis, beam_search
from seqloom.decoding.options import DecodingPlan
from seqloom.decoding.search_report import SearchTree
from seqloom.errors import RunError
from seqloom.inference.completion import banned_ids, prepare_prompt
from seqloom.inference.search_report import explain_translation
from seqloom.inference.sources import source_of
from seqloom.inspect.given_texts import check_target, check_text
from seqloom.inspect.refusals import refusal
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run


@dataclass(frozen=True)
class SearchBranch(Result):
    """One continuation: its last token, its text so far, ln P, its rank among all continuations of its step, and what became of it."""

    token: str
    text: str
    logprob: float
    rank: int
    status: str  # lives, outcome: it ended here, or pruned
    parent: int | None  # which branch of the step before it continues; None in the first step
    asked: bool  # whether the target begins with it


@dataclass(frozen=True)
class Beam(Result):
    """A beam search: its result, its steps, and why the target was not chosen, if one was given."""

    text: str
    beam: int
    length_penalty: float
    answer: str
    score: float
    logprob: float
    steps: tuple[tuple[SearchBranch, ...], ...] = field(repr=False)
    why: dict[str, object] | None = None
    why_lines: tuple[str, ...] = field(default=(), repr=False, metadata={"json": False})


def beam(
    run: RunLike,
    text: str,
    why: str | None = None,
    *,
    beam: int | None = None,
    length_penalty: float | None = None,
    max_tokens: int | None = None,
    branches: int = 10,
) -> Beam:
    """The search for the translation, or the continuation, of a text, or for the text of a picture or sound file; `branches`
    continuations of each step are kept, and with
    `why`, a text that the search did not choose, where it was dropped.

    >>> seqloom.inspect.beam(translator, "the cat sees a king", beam=3).beam
    3
    """
    run = as_run(run)
    if not run.model.generates:
        kind = type(run.model).__name__
        raise refusal(
            run, "beam", f"shows a search, and a {kind} does not generate text, so there is no search"
        )
    check_text(text)
    check_target(why, "`why`")
    if why is not None and run.model.reads != "text":
        raise RunError(
            f"{run.folder}: only the search of a model that reads text is explained; leave `why` out"
        )
    plan, best, tree = search(run, text, beam, length_penalty, max_tokens, branches)
    asked = (
        [] if why is None else [*run.tokenizer.encode(why, add_special_tokens=False).ids, run.specials.eos]
    )
    report, lines = (
        (None, []) if why is None else explain_translation(run, text, why, plan.beam, plan.length_penalty)
    )
    return Beam(
        text,
        plan.beam,
        plan.length_penalty,
        run.decode(best.ids),
        best.score,
        best.log_probability,
        tree_steps(run, tree, asked),
        report,
        tuple(lines),
    )


def search(
    run: Run,
    text: str,
    beam: int | None,
    length_penalty: float | None,
    max_tokens: int | None,
    branches: int,
) -> tuple[DecodingPlan, Hypothesis, SearchTree]:
    """The settings of the search, its result, and its tree."""
    settings = Decoding(beam=beam or (None if not run.model.continues else 5), length_penalty=length_penalty)
    plan = settings.plan(run.decoding)
    mask: Tensor | None
    if run.model.reads == "text":
        ids, mask = run.encode([text], as_prompt=run.model.continues)
    else:
        ids, mask = stack_sources([source_of(run, text, text).array()])
    prompt, state, prompt_mask = prepare_prompt(run, ids, mask)
    tree = SearchTree(branches)
    [[best]] = beam_search(
        run.model,
        prompt,
        state,
        prompt_mask,
        width=plan.beam,
        max_tokens=max_tokens or (40 if run.model.continues else plan.max_tokens),
        stop_ids=run.specials.stop_ids,
        banned=banned_ids(run),
        length_penalty=plan.length_penalty,
        on_step=tree.on_step,
    )
    return plan, best, tree


def tree_steps(run: Run, tree: SearchTree, asked: list[int]) -> tuple[tuple[SearchBranch, ...], ...]:
    """The branches of each step with the numbers of their parents."""
    steps = []
    numbers: dict[tuple[int, ...], int] = {}
    for step in tree.steps:
        rows = []
        for branch in step:
            ids = branch.ids
            rows.append(
                SearchBranch(
                    run.decode([ids[-1]]).strip("\n") or str(run.tokenizer.id_to_token(ids[-1])),
                    run.decode(ids),
                    branch.log_probability,
                    branch.rank,
                    branch.status,
                    numbers.get(tuple(ids[:-1])),
                    bool(asked) and ids == asked[: len(ids)],
                )
            )
        numbers = {tuple(branch.ids): index for index, branch in enumerate(step)}
        steps.append(tuple(rows))
    return tuple(steps)
