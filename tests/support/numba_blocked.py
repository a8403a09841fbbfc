"""Uses every part of seqloom that has a compiled form, and prints the results as JSON: test_without_numba.py runs it in a
process in which numba cannot be imported.

The expected results of the golden runs come from processes with numba, so equal results mean that the plain forms agree
with the compiled ones.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
import observe

import seqloom
from seqloom import nn
from seqloom.testing import check_part

PARTS = (nn.LSTM, nn.GRU, nn.ALiBi, nn.Rotary, partial(nn.SelfAttention, heads=2))
RUNS = ("gpt", "lstm-words", "transformer", "rnnsearch", "tagger-transformer")  # the last one has a CRF
RESUMED = ("killed-lstm", "stopped-tagger")
VECTORS = ("skip-gram", "cbow", "glove", "ppmi-svd")


def broken_promises() -> list[str]:
    """The promises that parts break."""
    return [f"{part}: {result}" for part in PARTS for result in check_part(part) if result.passed is False]


def golden_differences(folder: Path, names: tuple[str, ...]) -> list[str]:
    """The finished golden runs whose results differ from the recorded ones."""
    found = []
    for name in names:
        golden = observe.ROOT / "v1" / name
        expected = json.loads((golden / "expected.json").read_text("utf-8"))
        places = {"RUN": observe.copy(golden, folder / name, observe.ROOT), "GOLDEN": observe.ROOT}
        actual = {
            "outputs": observe.outputs(seqloom.load(places["RUN"])),
            "commands": [
                {"arguments": one["arguments"], "output": observe.command(one["arguments"], places)}
                for one in expected["commands"]
            ],
        }
        recorded = {
            "outputs": expected["outputs"],
            "commands": [
                {**one, "output": observe.present_output(one["arguments"], one["output"])}
                for one in expected["commands"]
            ],
        }
        found += observe.differences(recorded, actual, 1e-4, 1e-5, name)
    return found


def training_differences(folder: Path) -> list[str]:
    """The interrupted golden runs whose losses, when training is finished, differ from the recorded ones."""
    found = []
    for name in RESUMED:
        golden = observe.ROOT / "v1" / name
        expected = json.loads((golden / "expected.json").read_text("utf-8"))["resume"]
        run = observe.copy(golden, folder / name, observe.ROOT)
        observe.command(expected["arguments"], {"RUN": run, "GOLDEN": observe.ROOT})
        found += observe.differences(expected["metrics"], observe.metrics(run), 1e-4, 1e-5, name)
    return found


def quantized_difference(folder: Path) -> float:
    """By how much int8 weights change the loss of a golden run, in nats per token."""
    run = observe.copy(observe.ROOT / "v1" / "gpt", folder / "int8", observe.ROOT)
    text = str(observe.ROOT / "data" / "text.test.txt")
    report = observe.command(["evaluate", str(run), text, "--quantize", "int8", "--json"], {})[0]
    return abs(report["int8"][0]["value"] - report["numbers"][0]["value"])


def train_vectors(folder: Path) -> dict[str, Any]:
    """Vectors of each method for a small corpus, as JSON lists, and the neighbours' accuracy on an analogy file."""
    corpus = folder / "corpus.txt"
    sentences = [f"the {c} king rules {c} land and the {c} queen rules {c} sea" for c in "abcdefgh"]
    corpus.write_text("\n".join(sentences * 2), "utf-8")
    questions = folder / "questions.txt"
    questions.write_text(": all\nking land queen sea\nking queen land sea\na b c d\n", "utf-8")
    results = {}
    for kind in VECTORS:
        out = folder / f"vectors-{kind}"
        options = ["--dim", "8", "--epochs", "2", "--min-count", "1", "--threads", "1", "--method", kind]
        observe.command(["vectors", "train", str(corpus), "--out", str(out), *options], {})
        scores = observe.command(["vectors", "evaluate", str(out), str(questions), "--json"], {})
        text = folder / f"{kind}.txt"
        observe.command(["vectors", "convert", str(out), "--out", str(text), "--format", "glove"], {})
        lines = [line.split() for line in text.read_text("utf-8").splitlines()]
        near = observe.command(["vectors", "nearest", str(text), "king", "--top", "3", "--json"], {})
        results[kind] = {
            "vectors": {word: [float(number) for number in numbers] for word, *numbers in lines},
            "analogies": [score["n"] for score in scores[0]["numbers"]],
            "nearest": near,
        }
    return results


def everything(folder: Path) -> dict[str, Any]:
    """All results, by name."""
    return {
        "promises": broken_promises(),
        "golden": golden_differences(folder, RUNS),
        "training": training_differences(folder),
        "int8": quantized_difference(folder),
        "vectors": train_vectors(folder),
    }


def a_few(folder: Path) -> dict[str, Any]:
    """A recurrent language model and word vectors."""
    return {"golden": golden_differences(folder, ("lstm",)), "vectors": train_vectors(folder)}


if __name__ == "__main__":
    print(json.dumps({"everything": everything, "a few": a_few}[sys.argv[1]](Path(sys.argv[2]))))
