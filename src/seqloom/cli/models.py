"""Train, evaluate, generate."""

from __future__ import annotations

import json as jsons
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from seqloom.cli.app import Count, Files, Kind, Threads, app, need_text, opened, recipe, show, typed


@app.command
def train(
    what: str,
    /,
    *overrides: str,
    data: Files = None,
    valid: Files = None,
    out: Path | None = None,
    base: Annotated[Path | None, Parameter(name="--from")] = None,
    seed: int | None = None,
    threads: Threads = None,
    json: bool = False,
) -> None:
    """Train a preset, a config file or an unfinished run; on an existing run folder, go on where it stopped.

    Parameters
    ----------
    what
        A preset (language models: gpt, lstm-lm, gpt2, gpt3, llama, gpt-moe, elmo; by words: lstm-words, transformer-words; masked:
        bert, bert-small; with labels: tagger, tagger-transformer, classifier, nli, similarity, qa; translators: seq2seq, encdec,
        rnnsearch, bytenet, deep-att, gnmt, convs2s, moe, transformer, world, gnmt-rl; those at the sizes of their papers:
        seq2seq-paper, rnnsearch-paper, deep-att-paper, gnmt-paper, bytenet-paper, convs2s-paper, moe-paper, transformer-base,
        transformer-big; pronunciation: g2p), a YAML file, or a run folder to go on with.
    overrides
        Changes to the config, such as model.stack.layers=4.
    data
        The text to train on: one file, or two parallel files for a translator; .gz is read too, - is stdin.
    valid
        Held-out text in the same form; without it the last tenth of the data is held out.
    out
        The run folder; runs/NAME where not said.
    base
        A run to begin from: its tokenizer, embedding and stack are taken over, what it lacks is new.
    seed
        Seed of weights, order and dropout.
    threads
        CPU threads; all cores where not said.
    json
        Print the results as JSON.
    """
    from seqloom.run import is_run
    from seqloom.train import budget
    from seqloom.train.start import train as start

    asked = recipe(what, overrides, data, valid, seed, base)
    folder = out or (Path(what) if is_run(what) else Path("runs") / Path(what).stem)
    finished = start(asked, folder, threads)
    if int(os.environ.get("RANK", 0)):
        return
    results = finished.results()
    held = {number["name"]: number["value"] for number in results["held out"]}
    lines = [
        f"held out: {held['nats per token']:.4f} nats per token, perplexity {held['perplexity']:.2f}"
        if "perplexity" in held
        else "held out: " + ", ".join(f"{name} {value:.2f}" for name, value in held.items())
    ]
    if "bits per byte" in held:
        lines[0] += f", {held['bits per byte']:.4f} bits per byte"
    if results["promised"]:
        took, memory = results["actual"]["seconds"], results["actual"]["memory"]
        lines.append(
            f"promised {budget.duration(results['promised']['seconds'])} and {results['promised']['memory'] / 2**20:,.0f} MiB, "
            f"took {budget.duration(took)} and {memory / 2**20:,.0f} MiB"
        )
    lines.append(f"run: {folder}")
    show({"run": str(folder), **results}, lines, json)


@app.command
def evaluate(
    run: Path,
    /,
    *data: str,
    beam: Count = 1,
    penalty: float = 0.6,
    window: Count | None = None,
    stride: Count | None = None,
    pseudo: bool = False,
    confusion: bool = False,
    quantize: Kind | None = None,
    threads: Threads = None,
    json: bool = False,
) -> None:
    """Measure a run on text: likelihood for every model, BLEU and chrF for translators.

    Parameters
    ----------
    run
        The run folder.
    data
        The text to measure on, in the form the run was trained on.
    beam
        Width of the beam search for translations; 1 is greedy.
    penalty
        Length penalty of the beam.
    window
        Tokens that a language model reads at once; as in training where not said.
    stride
        Tokens from one window to the next; below the window, each token has at least window - stride tokens before it. Each counts once.
    pseudo
        Also the pseudo-perplexity of a masked model: every token of every line hidden alone, one pass for each.
    confusion
        Also how often each label was taken for which, where a run gives labels.
    quantize
        int8: also with the weights in one byte each, beside the numbers of single precision.
    threads
        CPU threads.
    json
        Print numbers and signatures as JSON.
    """
    from seqloom.evaluate import evaluate as measure

    loaded = opened(run, threads)
    if not data:
        raise ValueError("no data: say which text to measure on, as in: seqloom evaluate RUN FILE")
    numbers = measure(loaded, list(data), beam, penalty, window=window, stride=stride)
    if pseudo:
        from seqloom.gaps import pseudo_perplexity

        numbers.append(pseudo_perplexity(loaded, list(data)))
    lines = [f"{number.name:17} {number.value:10.4f}   {number.signature}" for number in numbers]
    report = {"run": str(run), "numbers": [number.json() for number in numbers]}
    if quantize:
        from seqloom.evaluate import quantize as put

        stays = put(loaded, quantize)
        again = measure(loaded, list(data), beam, penalty, window=window, stride=stride)
        report |= {quantize: [number.json() for number in again], "not quantised": stays}
        lines += [
            "",
            *(beside(number, other, quantize) for number, other in zip(numbers, again, strict=False)),
        ]
        lines += [f"in single precision still: {', '.join(stays)}"] if stays else []
    if confusion:
        from seqloom.evaluate import confused

        found = confused(loaded, list(data))
        lines, report["confusion"] = [*lines, "", *found.lines()], found.json()
    show(report, lines, json)


def beside(number: Any, other: Any, kind: str) -> str:
    """A number in single precision, and what it is with quantised weights."""
    change = f" ({100 * (other.value / number.value - 1):+.2f} %)" if number.value else ""
    return f"{number.name:17} {number.value:10.4f} fp32, {other.value:.4f} {kind}{change}"


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
    from seqloom.evaluate import answer
    from seqloom.generate import Greedy, Sample

    stops, chosen = stop or [], temperature != 1.0 or top_k is not None or top_p is not None or samples > 1
    if temperature == 0:
        raise ValueError("--temperature 0 would be the most probable token at every step: say --greedy")
    drawn = Sample(temperature, top_k, top_p)
    if chosen and (greedy or beam > 1):
        raise ValueError(
            f"{'--greedy' if greedy else f'--beam {beam}'} draws nothing: leave --temperature, --top-k, --top-p and --samples out"
        )
    if nbest > beam:
        raise ValueError(f"--nbest {nbest} needs a beam at least as wide: say --beam {nbest}")
    if logprobs and beam > 1:
        raise ValueError("--logprobs needs --beam 1: a beam scores whole texts")
    need_text(stops, "--stop")
    loaded = opened(run, threads, quantize)
    if loaded.model.continues is None:
        raise ValueError(
            f"{run}: a {type(loaded.model).__name__} writes no text; let it answer: seqloom predict {run} FILE"
        )
    texts = asked_prompts(prompts, loaded.model.continues)
    pick = drawn if not greedy and (loaded.model.continues or chosen) else Greedy()
    if (
        len(texts) == 1
        and samples == 1
        and beam == 1
        and loaded.model.continues
        and not json
        and not logprobs
    ):
        from seqloom.evaluate import stream

        pieces = stream(loaded, texts[0], pick, length, seed, repetition, stops)
        print(texts[0], end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
        return
    found = answer(
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
                    [{"token": token, "log probability": value} for token, value in each(loaded, one)]
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
                        for token, value in each(loaded, one)
                    ),
                    end="",
                )


def each(run: Any, one: Any) -> list[tuple[str, float]]:
    """The tokens of a text with their ln p; the end is the empty string."""
    tokens = [run.decode([token]) for token in one.ids]
    return list(zip([*tokens, ""], one.log_probabilities, strict=False))


def asked_prompts(
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
    return list(typed()) or ([""] if continues else [])
