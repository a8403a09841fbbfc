"""Fill gaps in text."""

from __future__ import annotations

import json as jsons
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqloom.cli.app import (
    Count,
    Files,
    Kind,
    Threads,
    app,
    need_text,
    open_run,
    print_result,
    stdin_lines,
)


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
        How many tokens to show for each gap.
    threads
        CPU threads.
    json
        Print one JSON object for each text.
    """
    from seqloom.inference.mask_filling import fill_mask as guess

    loaded = open_run(run, threads)
    asked = read_prompts(
        texts, False, "nothing to fill: give a text with [MASK] in it, or pipe lines into stdin"
    )
    for text, filled in zip(asked, guess(loaded, asked, top), strict=True):
        gaps = [[one._asdict() for one in gap] for gap in filled.gaps]
        lines = [
            filled.text,
            *("  " + ", ".join(f"{one.token} {one.probability:.3f}" for one in gap) for gap in filled.gaps),
        ]
        print_result({"text": text, "filled": filled.text, "gaps": gaps}, lines, json)


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
    """Write: a language model continues each prompt, a translator translates it. Without prompts, lines are read from stdin.

    Parameters
    ----------
    run
        The run folder.
    prompts
        Texts to continue or translate; - reads lines from stdin.
    length
        Most new tokens.
    temperature
        Below 1 sharpens the choice, above 1 flattens it.
    top_k
        Choose among the k most probable tokens only.
    top_p
        Choose among the most probable tokens that together reach p (nucleus).
    greedy
        Always the most probable token; translators do so unless asked otherwise.
    beam
        Width of a beam search; above 1 nothing is left to chance.
    penalty
        Length penalty of the beam.
    nbest
        How many of the beam's texts to show.
    samples
        How many texts to draw for each prompt.
    seed
        The same seed gives the same text.
    repetition
        Above 1, tokens of the prompt and the text so far are less likely to come again; 1.2 is usual.
    stop
        Strings before which a text ends.
    logprobs
        Also ln p of every token, one on each line, or in the JSON.
    quantize
        int8: weights in one byte each, quicker to read.
    workers
        How many share the prompts, one thread each: quicker than more threads where there are many prompts.
    threads
        CPU threads.
    json
        Print one JSON object for each prompt: its texts, what ended each (stop, end, length or context), and ln P of each.
    """
    from seqloom.decoding import Greedy, RandomSampler
    from seqloom.inference.generation import generate as generate_texts

    stops, chosen = stop or [], temperature != 1.0 or top_k is not None or top_p is not None or samples > 1
    if temperature == 0:
        raise ValueError("--temperature 0 would be the most probable token at every step: say --greedy")
    drawn = RandomSampler(temperature, top_k, top_p)
    if chosen and (greedy or beam > 1):
        raise ValueError(
            f"{'--greedy' if greedy else f'--beam {beam}'} draws nothing: leave --temperature, --top-k, --top-p and --samples out"
        )
    if nbest > beam:
        raise ValueError(f"--nbest {nbest} needs a beam at least as wide: say --beam {nbest}")
    if logprobs and beam > 1:
        raise ValueError("--logprobs needs --beam 1: a beam scores whole texts")
    need_text(stops, "--stop")
    loaded = open_run(run, threads, quantize)
    if not loaded.model.generates:
        raise ValueError(
            f"{run}: a {type(loaded.model).__name__} writes no text; let it answer: seqloom predict {run} FILE"
        )
    texts = read_prompts(prompts, loaded.model.continues)
    pick = drawn if not greedy and (loaded.model.continues or chosen) else Greedy()
    if (
        len(texts) == 1
        and samples == 1
        and beam == 1
        and loaded.model.continues
        and not json
        and not logprobs
    ):
        from seqloom.inference.generation import stream

        pieces = stream(loaded, texts[0], pick, length, seed, repetition, stops)
        print(texts[0], end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
        return
    found = generate_texts(
        loaded,
        texts,
        pick,
        beam,
        penalty,
        length,
        nbest,
        seed,
        repetition=repetition,
        stop=stops,
        workers=workers,
        samples=samples,
    )
    if full := sum(one.ended == "context" for written in found for one in written):
        print(
            f"{full:,} of the texts end where the model's context of {loaded.model.context:,} tokens is full",
            file=sys.stderr,
        )
    for text, written in zip(texts, found, strict=True):
        if json:
            report = {
                "prompt": text,
                "texts": [one.text for one in written],
                "ended": [one.ended for one in written],
            }
            report["log probabilities"] = [one.log_probability for one in written]
            if logprobs:
                report["tokens"] = [
                    [
                        {"token": token, "log probability": value}
                        for token, value in token_log_probs(loaded, one)
                    ]
                    for one in written
                ]
            print(jsons.dumps(report, ensure_ascii=False))
            continue
        for one in written:
            print(text + one.text if loaded.model.continues else one.text)
            if logprobs:
                print(
                    "".join(
                        f"{value:10.4f}  {jsons.dumps(token, ensure_ascii=False)}\n"
                        for token, value in token_log_probs(loaded, one)
                    ),
                    end="",
                )


def token_log_probs(run: Any, one: Any) -> list[tuple[str, float]]:
    """The tokens of a text with their ln p; the end is the empty string."""
    tokens = [run.decode([token]) for token in one.ids]
    return list(zip([*tokens, ""], one.log_probabilities, strict=False))


def read_prompts(
    prompts: Sequence[str],
    continues: bool,
    none: str = "nothing to translate: give a sentence, or pipe lines into stdin",
) -> list[str]:
    """The prompts given, or the lines of stdin; a language model with none at all begins from nothing."""
    if prompts and list(prompts) != ["-"]:
        need_text(prompts, "text")
        return list(prompts)
    if not prompts and (sys.stdin is None or sys.stdin.isatty()):
        if continues:
            return [""]
        raise ValueError(none)
    return list(stdin_lines()) or ([""] if continues else [])
