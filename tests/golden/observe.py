"""Golden runs, and what is compared of them: weights, outputs of the model, and the output of commands.

A golden run is a folder `GENERATION/NAME` written once by an older version and never changed, with an
`expected.json` beside its own files. Its files name others by the placeholder GOLDEN in place of this folder,
so that they work wherever they are copied. Everything here uses the command line and public Python only.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import shutil
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import seqloom
from seqloom import compat
from seqloom.cli import main
from seqloom.decoding import Greedy, RandomSampler
from seqloom.run_files import read_metrics

ROOT = Path(__file__).resolve().parent
PLACEHOLDER = "GOLDEN"
PROBE = "the old cat sees a river"
SAMPLE = 16  # outputs of a model that are recorded
PATHS = ("run", "folder", "vectors", "target")  # keys of results whose values are places on a disk
FILE_VERBS = ("predict", "translate", "embed")  # verbs whose files were arguments
ALIGNMENT_KEYS = {"source tokens": "source_tokens", "target tokens": "target_tokens"}
OUTPUT_KEYS = {  # verb: {older key of its JSON: present key}
    "predict": {"number": "value"},
    "translate": {
        "translations": "outputs",
        "log_probability": "logprob",
        "finished": "finish_reason",
        **ALIGNMENT_KEYS,
    },
    "align": ALIGNMENT_KEYS,
}
FINISH_REASONS = {True: "stop", False: "length"}  # of a text that ended by itself, or not
NEW_KEYS = {
    "leaks",  # which older versions did not write
    *("low", "high", "n", "data_sha256", "weights_sha256"),
    *("ids", "token_logprobs", "stop_reason", "alignments"),
    *("source", "text", "target"),  # of fill-mask and score
}
VERSION = re.compile(r"\|?version:[^|]*")  # of a library that measures; no part of what was measured


def folders() -> list[Path]:
    """The golden runs of all generations."""
    return sorted(path.parent for path in ROOT.glob("*/*/expected.json"))


def copy(folder: Path, target: Path, root: Path) -> Path:
    """Copies a golden folder; its files then name others below `root`."""
    shutil.copytree(folder, target)
    replace_in_files(target, f"{PLACEHOLDER}/", f"{root}/")
    return target


def replace_in_files(folder: Path, old: str, new: str) -> None:
    """Replaces text in the YAML and JSON files of a folder, those of its checkpoints excepted, which hold no
    path and are vouched for by digests."""
    for path in [*folder.glob("*.yaml"), *folder.glob("*.json")]:
        text = path.read_text("utf-8")
        if old in text:
            path.write_text(text.replace(old, new), "utf-8")


def command(arguments: Sequence[str], places: dict[str, Path]) -> list[Any]:
    """The lines that a command prints, parsed where they are JSON. `places` are those of RUN, OUT, GOLDEN."""
    if arguments[0] == "generate" and is_translator(places["RUN"]):
        return answer(arguments, places["RUN"])
    words = [expand(word, places) for word in present_command(arguments)]
    output, log = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(log):
            main(words)
    except SystemExit as error:
        raise AssertionError(f"seqloom {' '.join(words)} ends with {error.code}: {log.getvalue()}") from None
    return [
        comparable(plain(json.loads(line))) if line.startswith("{") else line
        for line in output.getvalue().splitlines()
    ]


def is_translator(run: Path) -> bool:
    """Whether a run translates: older versions of `generate` did so too."""
    return "type: Seq2Seq" in (run / "config.yaml").read_text("utf-8")


def answer(arguments: Sequence[str], run: Path) -> list[Any]:
    """What `generate` printed for a translator, by the older Python function that still does it."""
    _, _, *words, _ = arguments
    first = next(index for index, word in enumerate(words) if word.startswith("--"))
    options = dict(zip(words[first::2], map(int, words[first + 1 :: 2]), strict=True))
    sampler = RandomSampler() if "--samples" in options else Greedy()
    found = seqloom.answer(
        seqloom.load(run),
        words[:first],
        sampler,
        samples=options.get("--samples", 1),
        width=options.get("--beam", 1),
        length=options.get("--length", 200),
        seed=options.get("--seed", 0),
    )
    return [
        {
            "prompt": text,
            "texts": [one.text for one in texts],
            "ended": [one.finish_reason for one in texts],
            "log probabilities": [one.log_probability for one in texts],
        }
        for text, texts in zip(words[:first], found, strict=True)
    ]


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a result: of generated texts, what every version reports."""
    if result.keys() != {"prompt", "outputs"}:
        return result
    outputs = result["outputs"]
    return {
        "prompt": result["prompt"],
        "texts": [output["text"] for output in outputs],
        "ended": [how_it_ended(**output) for output in outputs],
        "log probabilities": [output["logprob"] for output in outputs],
    }


def how_it_ended(finish_reason: str, stop_reason: str | None, **_: Any) -> str:
    """The older word for what ended a text."""
    if finish_reason == "length":
        return stop_reason or "length"
    return "end" if stop_reason is None else "stop"


def present_command(arguments: Sequence[str]) -> list[str]:
    """An older command in its present spelling: files are named by an option."""
    words = list(arguments)
    data = [word for word in words if word.startswith(f"{PLACEHOLDER}/")]
    if words[0] == "evaluate" and (len(data) == 2 or any(name.endswith(".dict") for name in data)):
        words += ["--beam", "1"]  # which was the default for translators
    if words[0] in FILE_VERBS and len(words) > 2 and words[2].startswith(f"{PLACEHOLDER}/"):
        words.insert(2, "--file")
    return words


def present_output(arguments: Sequence[str], output: Any) -> Any:
    """What an older version printed, under the present names of its keys."""
    keys = OUTPUT_KEYS.get(arguments[0], {})
    if arguments[0] == "fill" and isinstance(output, dict) and "filled" in output:
        return {"text": output["filled"], "gaps": output["gaps"]}
    if isinstance(output, list):
        return [present_output(arguments, item) for item in output]
    if arguments[:2] == ["vectors", "nearest"] and isinstance(output, dict):
        ((word, found),) = output.items()
        nearest = [{"word": near["word"], "score": near["cosine"]} for near in found]
        return {"word": word, "by": "cosine", "nearest": nearest}
    if arguments[:2] == ["vectors", "analogy"] and isinstance(output, dict) and "question" in output:
        return {"method": "add", **output}
    if isinstance(output, dict):
        return {
            keys.get(key, key): FINISH_REASONS[value]
            if key == "finished"
            else present_output(arguments, value)
            for key, value in output.items()
        }
    return output


def expand(word: str, places: dict[str, Path]) -> str:
    """An argument whose first part, up to a slash, may be one of the places."""
    first, slash, rest = word.partition("/")
    return f"{places[first]}{slash}{rest}" if first in places else word


def plain(value: Any) -> Any:
    """A result without what differs from one computer to the next."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in PATHS}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return VERSION.sub("", value) if isinstance(value, str) else value


def differences(expected: Any, actual: Any, relative: float, absolute: float, place: str = "") -> list[str]:
    """Where two results differ; numbers may by a little."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if expected.keys() >= {"name", "value", "signature"}:  # a metric
            expected = {**expected, "name": compat.METRIC_NAMES.get(expected["name"], expected["name"])}
        actual = {key: value for key, value in actual.items() if key not in NEW_KEYS - expected.keys()}
        if expected.keys() != actual.keys():
            return [f"{place}: keys {sorted(expected)}, now {sorted(actual)}"]
        return [
            line
            for key, value in expected.items()
            for line in differences(value, actual[key], relative, absolute, f"{place}.{key}")
        ]
    if isinstance(expected, list) and isinstance(actual, list):
        if expected and all(
            isinstance(one, dict) and "signature" in one for one in expected
        ):  # more may be measured now
            names = {compat.METRIC_NAMES.get(one["name"], one["name"]) for one in expected}
            actual = [one for one in actual if one["name"] in names]
        if len(expected) != len(actual):
            return [f"{place}: {len(expected)} items, now {len(actual)}"]
        return [
            line
            for index, (value, now) in enumerate(zip(expected, actual, strict=True))
            for line in differences(value, now, relative, absolute, f"{place}[{index}]")
        ]
    if isinstance(expected, float) and isinstance(actual, float | int):
        close = math.isclose(expected, actual, rel_tol=relative, abs_tol=absolute)
    else:
        close = expected == actual
    return [] if close else [f"{place}: {expected!r}, now {actual!r}"]


def weights(run: seqloom.Run) -> dict[str, Any]:
    """The weights by value, in the order of the model's parameters, whatever their names: one digest of all,
    and the shape and digest of each."""
    total, tensors = hashlib.sha256(), []
    for parameter in run.model.parameters():
        data = parameter.detach().float().contiguous().numpy().tobytes()
        total.update(data)
        shape = "x".join(map(str, parameter.shape)) or "1"
        tensors.append(f"{shape}:{hashlib.sha256(data).hexdigest()[:8]}")
    return {"sha256": total.hexdigest(), "tensors": tensors}


def outputs(run: seqloom.Run) -> dict[str, Any]:
    """What the model gives for fixed ids: the shape, mean and deviation, and some of the numbers."""
    vocabulary = run.tokenizer.get_vocab_size()
    ids = 5 + (7 * torch.arange(16)) % (vocabulary - 5)
    ids = ids.view(2, 8)
    with torch.inference_mode():
        if isinstance(run.model, seqloom.Seq2Seq):
            result = run.model(ids.flip(1), run.model.start(ids))
        else:
            result = run.model(ids)
    values: Tensor = result[0] if isinstance(result, tuple) else result
    flat = values.double().flatten()
    flat = flat[flat.isfinite()]
    chosen = torch.linspace(0, len(flat) - 1, min(SAMPLE, len(flat))).long()
    numbers = [flat.mean(), flat.std(), *flat[chosen]]
    return {"shape": list(values.shape), "numbers": [float(f"{float(number):.7g}") for number in numbers]}


def tokens(run: seqloom.Run) -> list[int]:
    """The ids of a fixed text."""
    return run.tokenizer.encode(PROBE, add_special_tokens=False).ids


def metrics(folder: Path) -> list[list[Any]]:
    """The step, the loss, the learning rate and the norm of the gradient, or the held-out loss, of each line of metrics.jsonl."""
    names = ("step", "loss", "lr", "grad_norm", "valid_loss")
    return [[line[name] for name in names if name in line] for line in read_metrics(folder)]


def held_out(run: seqloom.Run) -> list[dict[str, Any]]:
    """The held-out scores."""
    return plain([number.to_dict() for number in run.results.valid])


def file_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of the files that training writes, names of weights and metrics included."""
    names = ("model.safetensors", "metrics.jsonl")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
