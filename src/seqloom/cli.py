"""The command line: verbs to functions. torch is imported only inside them, so that --help answers at once.

Results go to stdout, progress to stderr. A user's mistake is one line and exit code 2; a run that went wrong is 1.
"""

from __future__ import annotations

import json as jsons
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter

app = App(
    name="seqloom",
    help="Train, compare, generate with and explain every sequence model, on your own text.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)
Files = Annotated[list[str] | None, Parameter(consume_multiple=True)]
OVERRIDE = re.compile(r"[a-z_]+(\.[a-z_]+)*=.*")


def recipe(what: str, overrides: Sequence[str], data: list[str] | None, valid: list[str] | None, seed: int | None) -> Any:
    """The checked config that the command line means; in `--data a b model.dim=64` what reads as an override is one."""
    from seqloom.run import Recipe

    changes = [item for item in [*(data or []), *(valid or [])] if OVERRIDE.fullmatch(item) and not Path(item).exists()]
    sides = [None if side is None else [item for item in side if item not in changes] for side in (data, valid)]
    return Recipe.of(what, [*overrides, *changes], *sides, seed)


def show(result: dict[str, Any], lines: Sequence[str], json: bool) -> None:
    print(jsons.dumps(result, ensure_ascii=False) if json else "\n".join(lines), flush=True)


@app.command
def train(
    what: str,
    /,
    *overrides: str,
    data: Files = None,
    valid: Files = None,
    out: Path | None = None,
    seed: int | None = None,
    threads: int | None = None,
    json: bool = False,
) -> None:
    """Train a preset, a config file or an unfinished run; on an existing run folder, go on where it stopped.

    Parameters
    ----------
    what
        A preset (gpt, lstm-lm, rnnsearch, transformer, world), a YAML file, or a run folder to go on with.
    overrides
        Changes to the config, such as model.stack.layers=4.
    data
        The text to train on: one file, or two parallel files for a translator; .gz is read too, - is stdin.
    valid
        Held-out text in the same form; without it the last tenth of the data is held out.
    out
        The run folder; runs/NAME where not said.
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

    asked = recipe(what, overrides, data, valid, seed)
    folder = out or (Path(what) if is_run(what) else Path("runs") / Path(what).stem)
    finished = start(asked, folder, threads)
    if int(os.environ.get("RANK", 0)):
        return
    results = finished.results()
    held = {number["name"]: number["value"] for number in results["held out"]}
    lines = [f"held out: {held['nats per token']:.4f} nats per token, perplexity {held['perplexity']:.2f}"]
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
def evaluate(run: Path, /, *data: str, beam: int = 1, penalty: float = 0.6, threads: int | None = None, json: bool = False) -> None:
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
    threads
        CPU threads.
    json
        Print numbers and signatures as JSON.
    """
    from seqloom.evaluate import evaluate as measure

    loaded = opened(run, threads)
    if not data:
        raise ValueError("no data: say which text to measure on, as in: seqloom evaluate RUN FILE")
    numbers = measure(loaded, list(data), beam, penalty)
    lines = [f"{number.name:16}{number.value:10.4f}   {number.signature}" for number in numbers]
    show({"run": str(run), "numbers": [number.json() for number in numbers]}, lines, json)


@app.command
def generate(
    run: Path,
    /,
    *prompts: str,
    length: int = 200,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    greedy: bool = False,
    beam: int = 1,
    penalty: float = 0.6,
    nbest: int = 1,
    samples: int = 1,
    seed: int = 0,
    threads: int | None = None,
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
    threads
        CPU threads.
    json
        Print one JSON object for each prompt.
    """
    from seqloom.evaluate import answer
    from seqloom.generate import Greedy, Sample

    loaded = opened(run, threads)
    texts = asked_prompts(prompts, loaded.model.continues)
    if nbest > beam:
        raise ValueError(f"--nbest {nbest} needs a beam at least as wide: say --beam {nbest}")
    chance = not greedy and (loaded.model.continues or temperature != 1.0 or top_k is not None or top_p is not None or samples > 1)
    pick = Sample(temperature, top_k, top_p) if chance else Greedy()
    if len(texts) == 1 and samples == 1 and beam == 1 and loaded.model.continues and not json:
        from seqloom.evaluate import stream

        print(texts[0], end="", flush=True)
        for piece in stream(loaded, texts[0], pick, length, seed):
            print(piece, end="", flush=True)
        print()
        return
    found = answer(loaded, [text for text in texts for _ in range(samples)], pick, beam, penalty, length, nbest, seed)
    for number, text in enumerate(texts):
        written = [one for group in found[number * samples : (number + 1) * samples] for one in group]
        if json:
            print(jsons.dumps({"prompt": text, "texts": written}, ensure_ascii=False))
        else:
            print("\n".join(text + one if loaded.model.continues else one for one in written))


@app.command
def check(what: str, /, *overrides: str, data: Files = None, valid: Files = None, seed: int | None = None, json: bool = False) -> None:
    """Build everything a config describes, read a little data, and report sizes without training.

    Parameters
    ----------
    what
        A preset (gpt, lstm-lm, rnnsearch, transformer, world), a YAML file or a run folder.
    overrides
        Changes to the config, such as model.stack.layers=4.
    data
        The text to train on.
    valid
        Held-out text.
    seed
        Seed of the weights.
    json
        Print the report as JSON.
    """
    from seqloom.check import check as look

    report = look(recipe(what, overrides, data, valid, seed))
    show(report, [f"{name:24}{value:,}" if isinstance(value, int) else f"{name:24}{value}" for name, value in report.items()], json)


@app.command
def explain(what: str, /, *overrides: str, vocabulary: int = 1000, json: bool = False) -> None:
    """Print the equations of a run's or a preset's model, with sizes and parameter counts.

    Parameters
    ----------
    what
        A run folder, a preset or a YAML file.
    overrides
        Changes to the config.
    vocabulary
        Vocabulary size for a config that has no tokenizer yet.
    json
        Print as JSON.
    """
    from seqloom.explain import explain as parts

    found = parts(what, overrides, vocabulary)
    lines = []
    for part in found:
        lines += [f"{part['place']}: {part['name']}, {part['parameters']:,} parameters", *(f"    {line}" for line in part["equation"]), ""]
    show({"parts": found}, lines[:-1], json)


@app.command
def data(
    *files: str, form: Literal["Text", "Lines", "Parallel", "Table", "JSONLines"] = "Lines", show_first: int = 3, json: bool = False
) -> None:
    """Read text files as training would, and say what is in them: records, characters, words, and the first few.

    Parameters
    ----------
    files
        One or more files; .gz is read too, - is stdin.
    form
        How the files are read.
    show_first
        How many records to show.
    json
        Print as JSON.
    """
    from seqloom.text import corpus

    if not files:
        raise ValueError("no files: say which to read, as in: seqloom data FILE")
    records, characters, words, first = 0, 0, 0, []
    for record in getattr(corpus, form)(list(files)):
        records += 1
        characters += sum(map(len, record))
        words += sum(len(text.split()) for text in record)
        if len(first) < show_first:
            first.append(list(record))
    report = {"records": records, "characters": characters, "words": words, "first": first}
    lines = [f"{records:,} records, {characters:,} characters, {words:,} words", *(" | ".join(record).rstrip("\n") for record in first)]
    show(report, lines, json)


@app.command
def world(
    out: Path | None = None, *, train: int = 20000, valid: int = 500, test: int = 1000, show_first: int = 5, seed: int = 0, json: bool = False
) -> None:
    """The built-in world: show some scenes with their exact probabilities, or write a corpus of it to a folder.

    Parameters
    ----------
    out
        The folder to write train, valid and test files to; without it scenes are shown.
    train
        Training sentences to write.
    valid
        Validation sentences to write.
    test
        Test sentences to write.
    show_first
        How many scenes to show.
    seed
        Another seed is another sample of the same world.
    json
        Print as JSON.
    """
    from seqloom import world as little

    if out is not None:
        little.write(out, train, valid, test, seed)
        show({"folder": str(out)}, [f"written to {out}: train, valid and test, each .en and .fr"], json)
        return
    for scene in little.scenes(show_first, seed):
        lines = [scene.english, scene.french, f"  log p(english) {scene.english_logp:.2f}, log p(french | english) {scene.french_logp:.2f} nats", ""]
        show(scene._asdict(), lines, json)


@app.command
def demo(out: Path = Path("runs/demo"), *, threads: int | None = None, json: bool = False) -> None:
    """Train a translator on the built-in world in a few minutes, measure it and show what it can do.

    Parameters
    ----------
    out
        The folder for the world's text and the run.
    threads
        CPU threads.
    json
        Print the results as JSON.
    """
    from seqloom.demo import demo as run_demo

    report, lines = run_demo(out, threads)
    show(report, lines, json)


def opened(run: Path, threads: int | None) -> Any:
    """A finished run, ready to use."""
    import torch

    from seqloom.run import load

    if threads:
        torch.set_num_threads(threads)
    return load(run)


def asked_prompts(prompts: Sequence[str], continues: bool) -> list[str]:
    """The prompts given, or the lines of stdin; a language model with none at all begins from nothing."""
    if prompts and list(prompts) != ["-"]:
        return list(prompts)
    if not prompts and sys.stdin.isatty():
        if continues:
            return [""]
        raise ValueError("nothing to translate: give a sentence, or pipe lines into stdin")
    try:
        lines = [line.rstrip("\r\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise ValueError(f"stdin: byte {error.start} is not UTF-8; convert the text to UTF-8") from None
    return lines or ([""] if continues else [])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; end with 0, or 2 for the user's mistakes, 1 for a run gone wrong, 128 + n for signal n."""
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        fail(" ".join(str(error).split()), 2)
    except ValueError as error:
        fail(" ".join(str(error).split()), 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except RuntimeError as error:
        if type(error).__module__.startswith("seqloom"):
            fail(" ".join(str(error).split()), getattr(error, "code", 1))
        raise


def fail(sentence: str, code: int) -> None:
    print(f"seqloom: {sentence}", file=sys.stderr)
    sys.exit(code)
