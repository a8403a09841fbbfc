"""Verbs: generate text, fill in masked tokens."""

from __future__ import annotations

import json as jsons
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.cli.app import Count, Files, Kind, Threads, app, need_text, open_run, print_result, stdin_lines

if TYPE_CHECKING:
    from seqloom.inference.generation import Completion
    from seqloom.run import Run


@app.command
def fill(run: Path, /, *texts: str, top: Count = 5, threads: Threads = None, json: bool = False) -> None:
    """Fill in each [MASK] of a text with a masked language model. Without texts, lines are read from stdin.

    Parameters
    ----------
    run
        The run folder.
    texts
        Texts with [MASK] where a token is missing; - reads lines from stdin.
    top
        How many tokens to print for each mask.
    threads
        CPU threads.
    json
        Print one JSON object for each text.
    """
    from seqloom.inference.mask_filling import fill_mask

    loaded = open_run(run, threads)
    prompts = read_prompts(
        texts, False, "nothing to fill: give a text with [MASK] in it, or pipe lines into stdin"
    )
    for text, filled in zip(prompts, fill_mask(loaded, prompts, top), strict=True):
        report = {
            "text": text,
            "filled": filled.text,
            "gaps": [[guess._asdict() for guess in gap] for gap in filled.gaps],
        }
        gap_lines = [
            "  " + ", ".join(f"{guess.token} {guess.probability:.3f}" for guess in gap) for gap in filled.gaps
        ]
        print_result(report, [filled.text, *gap_lines], json)


@app.command
def generate(
    run: Path,
    /,
    *prompts: str,
    length: Count = 200,
    temperature: float = 1.0,
    top_k: Count | None = None,
    top_p: float | None = None,
    greedy: bool = False,
    beam: Count = 1,
    penalty: float = 0.6,
    nbest: Count = 1,
    samples: Count = 1,
    seed: int = 0,
    repetition: float = 1.0,
    stop: Files = None,
    logprobs: bool = False,
    quantize: Kind | None = None,
    workers: Count = 1,
    threads: Threads = None,
    json: bool = False,
) -> None:
    """Generate text: a language model continues each prompt, a translator translates it. Without prompts, lines are read from stdin.

    Parameters
    ----------
    run
        The run folder.
    prompts
        Texts to continue or translate; - reads lines from stdin.
    length
        Maximum number of new tokens.
    temperature
        Below 1 sharpens the choice, above 1 flattens it.
    top_k
        Choose among the k most probable tokens only.
    top_p
        Choose among the most probable tokens that together reach p (nucleus).
    greedy
        Always take the most probable token; the default for translators.
    beam
        Width of the beam search; above 1 there is no sampling.
    penalty
        Length penalty of the beam.
    nbest
        How many texts of the beam to print.
    samples
        How many texts to sample for each prompt.
    seed
        The same seed gives the same text.
    repetition
        Above 1, tokens of the prompt and the text so far are less likely to be repeated; 1.2 is usual.
    stop
        Strings before which a text ends.
    logprobs
        Also ln p of every token, one on each line, or in the JSON.
    quantize
        int8: one byte per weight, faster to read.
    workers
        How many workers share the prompts, one thread each: faster than more threads if there are many prompts.
    threads
        CPU threads.
    json
        Print one JSON object for each prompt: its texts, what ended each (stop, end, length or context), and ln P of each.
    """
    from seqloom.decoding import Decoding, Greedy, RandomSampler
    from seqloom.inference.generation import Execution
    from seqloom.inference.generation import generate as generate_texts

    if temperature == 0:
        raise ValueError("--temperature 0 always takes the most probable token: use --greedy")
    random = RandomSampler(temperature, top_k, top_p)
    samples_randomly = temperature != 1.0 or top_k is not None or top_p is not None or samples > 1
    if samples_randomly and (greedy or beam > 1):
        flag = "--greedy" if greedy else f"--beam {beam}"
        raise ValueError(f"{flag} does not sample: drop --temperature, --top-k, --top-p and --samples")
    if nbest > beam:
        raise ValueError(f"--nbest {nbest} needs a beam at least as wide: use --beam {nbest}")
    if logprobs and beam > 1:
        raise ValueError("--logprobs needs --beam 1: beam search has no probabilities of single tokens")
    stops = tuple(stop or ())
    need_text(stops, "--stop")
    loaded = open_run(run, threads, quantize)
    model = loaded.model
    if not model.generates:
        raise ValueError(
            f"{run}: a {type(model).__name__} cannot generate text; use: seqloom predict {run} FILE"
        )
    texts = read_prompts(prompts, model.continues)
    decoding = Decoding(
        max_tokens=length,
        sampler=random if not greedy and (model.continues or samples_randomly) else Greedy(),
        beam=beam,
        length_penalty=penalty,
        repetition_penalty=repetition,
        n=nbest if beam > 1 else samples,
        stop=stops,
        seed=seed,
    )
    if len(texts) == 1 and decoding.n == 1 and beam == 1 and model.continues and not json and not logprobs:
        from seqloom.inference.generation import stream

        parts = stream(loaded, texts[0], decoding)
        print(texts[0], end="", flush=True)
        for part in parts:
            print(part, end="", flush=True)
        print()
        return
    results = generate_texts(loaded, texts, decoding, Execution(workers=workers))
    full = sum(completion.finish_reason == "context" for completions in results for completion in completions)
    if full:
        print(
            f"{full:,} of the texts end where the model's context of {model.context:,} tokens is full",
            file=sys.stderr,
        )
    for text, completions in zip(texts, results, strict=True):
        if json:
            report: dict[str, Any] = {
                "prompt": text,
                "texts": [completion.text for completion in completions],
                "ended": [completion.finish_reason for completion in completions],
                "log probabilities": [completion.log_probability for completion in completions],
            }
            if logprobs:
                report["tokens"] = [
                    [
                        {"token": token, "log probability": log_p}
                        for token, log_p in token_log_probs(loaded, completion)
                    ]
                    for completion in completions
                ]
            print(jsons.dumps(report, ensure_ascii=False))
            continue
        for completion in completions:
            print(text + completion.text if model.continues else completion.text)
            if logprobs:
                for token, log_p in token_log_probs(loaded, completion):
                    print(f"{log_p:10.4f}  {jsons.dumps(token, ensure_ascii=False)}")


def token_log_probs(run: Run, completion: Completion) -> list[tuple[str, float]]:
    """The tokens of a text with their ln p; the end is the empty string."""
    tokens = [run.decode([token]) for token in completion.ids]
    return list(zip([*tokens, ""], completion.log_probabilities, strict=False))


def read_prompts(
    prompts: Sequence[str],
    continues: bool,
    message: str = "nothing to translate: give a sentence, or pipe lines into stdin",
) -> list[str]:
    """The prompts of the command line, or the lines of stdin; a language model without any starts from the empty text."""
    if prompts and list(prompts) != ["-"]:
        need_text(prompts, "text")
        return list(prompts)
    if not prompts and (sys.stdin is None or sys.stdin.isatty()):
        if continues:
            return [""]
        raise ValueError(message)
    return list(stdin_lines()) or ([""] if continues else [])
