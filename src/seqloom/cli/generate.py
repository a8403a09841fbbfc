"""Verbs: generate text, fill in masked tokens."""

from __future__ import annotations

import json as jsons
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from seqloom.cli.app import USE, app, print_result
from seqloom.cli.decoding_options import Sampling, SamplingOptions
from seqloom.cli.inputs import open_run, read_texts
from seqloom.cli.options import (
    DECODING,
    Common,
    CommonOptions,
    Count,
    Files,
    Kind,
    Machine,
    MachineOptions,
    RunPath,
)
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.inference.completion import Completion
    from seqloom.inference.generation import Generation
    from seqloom.run import Run

logger = logging.getLogger("seqloom.cli")
Flag = Annotated[bool, Parameter(group=DECODING)]


@app.command(group=USE)
def generate(
    run: RunPath,
    /,
    *prompts: str,
    file: Files = None,
    decoding: SamplingOptions = Sampling(),
    logprobs: Flag = False,
    top_logprobs: Annotated[Count | None, Parameter(group=DECODING)] = None,
    quantize: Kind | None = None,
    workers: Count = 1,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    r"""Continue texts with a language model.

    Prints each prompt with its continuation; a single one is printed while it is generated.

    Examples:
      seqloom generate runs/gpt "To be"
      seqloom generate runs/gpt "To be" --n 3 --top-p 0.9 --stop "\n\n"
      seqloom generate runs/gpt --file prompts.txt --max-tokens 50 --json

    Parameters
    ----------
    run
        The run folder.
    prompts
        Texts to continue; "" is the empty one.
    file
        Files with a prompt on each line; - or nothing is stdin.
    logprobs
        Also ln p of every token, one on each line, or in the JSON.
    top_logprobs
        Also ln p of the K most probable tokens in the place of each token.
    quantize
        int8: one byte for each weight, faster to read.
    workers
        How many workers share the prompts, one thread each: faster than more threads if there are many prompts.
    """
    from seqloom.decoding import Decoding
    from seqloom.inference.completion import Execution
    from seqloom.inference.generation import check_continues, generations
    from seqloom.inference.one_or_many import in_blocks
    from seqloom.inference.streaming import stream_plan
    from seqloom.inference.unknown_text import UnknownText

    texts = read_texts(prompts, file, 'seqloom generate RUN "To be"')
    loaded = open_run(run, machine.threads, quantize)
    check_continues(loaded)
    unknown = UnknownText(loaded)
    texts = unknown.counted(texts)
    plan = Decoding().with_options(decoding.options(machine.seed)).plan(loaded.decoding)
    logprobs = logprobs or top_logprobs is not None
    if logprobs and plan.searches:
        raise UserError("--logprobs: beam search has no probabilities of single tokens; use --beam 1")
    one_text = len(prompts) == 1 and prompts != ("-",) and plan.n == 1
    if one_text and not (plan.searches or common.json or logprobs):
        tokens = stream_plan(loaded, prompts[0], plan)
        print(prompts[0], end="", flush=True)
        for token in tokens:
            print(token.text, end="", flush=True)
        print()
        unknown.add(prompts[0])
        unknown.warn()
        return
    execution = Execution(workers=workers)
    occurrences = Counter[int]()

    def work(block: list[str]) -> list[Generation]:
        return generations(loaded, plan, execution, occurrences, block)

    full = 0
    for found in work(list(texts)) if prompts and prompts != ("-",) else in_blocks(texts, work):
        full += sum(completion.stop_reason == "context" for completion in found.outputs)
        details = [
            token_details(loaded, found.prompt, completion, top_logprobs or 0) if logprobs else {}
            for completion in found.outputs
        ]
        report = found.to_dict()
        for output, detail in zip(report["outputs"], details, strict=True):
            output.update(detail)
        lines = []
        for completion, detail in zip(found.outputs, details, strict=True):
            lines.append(found.prompt + completion.text)
            lines += token_lines(completion.token_logprobs, **detail) if detail else []
        print_result(report, lines, common.json)
    unknown.warn()
    if full:
        context = loaded.model.context
        logger.warning("%s of the texts end where the model's context of %s tokens is full", full, context)


def token_details(run: Run, prompt: str, completion: Completion, top: int) -> dict[str, Any]:
    """The tokens of a text as strings, its end included, and the most probable ones in the place of each."""
    from seqloom.inference.scoring import token_string, top_alternatives

    ids = list(completion.ids)
    if len(completion.token_logprobs) > len(ids):
        ids.append(run.specials.eos)
    details: dict[str, Any] = {"tokens": [token_string(run, token) for token in ids]}
    if top:
        details["top_logprobs"] = [
            [{"token": token, "logprob": log_p} for token, log_p in place]
            for place in top_alternatives(run, prompt, ids, top)
        ]
    return details


def token_lines(
    log_probs: Sequence[float],
    tokens: Sequence[str],
    top_logprobs: Sequence[Sequence[dict[str, Any]]] = (),
) -> Iterator[str]:
    """A line for each token: ln p, the token, and the most probable ones in its place."""
    for index, (log_p, token) in enumerate(zip(log_probs, tokens, strict=True)):
        line = f"{log_p:10.4f}  {jsons.dumps(token, ensure_ascii=False)}"
        if top_logprobs:
            others = (
                f"{jsons.dumps(other['token'], ensure_ascii=False)} {other['logprob']:.4f}"
                for other in top_logprobs[index]
            )
            line += "  of " + ", ".join(others)
        yield line


@app.command(group=USE)
def fill_mask(
    run: RunPath,
    /,
    *texts: str,
    file: Files = None,
    top: Count = 5,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Fill in each [MASK] of a text.

    Prints the text with the most probable tokens, and below it the tokens for each mask with their probabilities.

    Examples:
      seqloom fill-mask runs/bert "the cat [MASK] on the mat"
      seqloom fill-mask runs/bert "the [MASK] sat on the [MASK]" --top 3 --json
      seqloom fill-mask runs/bert --file gaps.txt

    Parameters
    ----------
    run
        The run folder of a masked language model.
    texts
        Texts with [MASK] where a token is missing.
    file
        Files with a text on each line; - or nothing is stdin.
    top
        How many tokens to print for each mask.
    """
    from seqloom.inference.mask_filling import fill_texts, masked_model, without_masks
    from seqloom.inference.one_or_many import in_blocks
    from seqloom.inference.unknown_text import UnknownText

    given = read_texts(texts, file, 'seqloom fill-mask RUN "the [MASK] sat"')
    loaded = open_run(run, machine.threads)
    masked_model(loaded)
    unknown = UnknownText(loaded)
    # Lines of a file may have no mask, as blank ones do: they keep their place.
    work = unknown.watch(partial(fill_texts, loaded, top, needs_masks=bool(texts)), without_masks)
    whole = 0
    for filled in in_blocks(given, work, unknown.warn):
        whole += not filled.gaps
        gaps = [
            "  " + ", ".join(f"{guess.token} {guess.probability:.3f}" for guess in gap) for gap in filled.gaps
        ]
        print_result(filled.to_dict(), [filled.text, *gaps], common.json)
    if whole:
        lines = "1 line has" if whole == 1 else f"{whole:,} lines have"
        logger.warning("%s no [MASK] and nothing to fill in; printed as read", lines)
