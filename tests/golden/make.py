"""Makes a generation of golden runs with the version of seqloom that is installed.

    OMP_NUM_THREADS=1 python tests/golden/make.py GENERATION [NAME …]

A generation is made once, with the version that users have, and never changes from then on. A later version
that writes its runs differently adds a generation of its own. Runs that exist are not made again.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import seqloom

sys.path.insert(0, str(Path(__file__).resolve().parent))
import observe
import texts
from cases import CASES, CLASSIFIERS, NEAREST, TEST, TEXT, VECTORS, WRITE, Case, Command

CONTINUE = ["train", "RUN", "--from", "RUN", "--out", "OUT", "--threads", "1", "train.steps=2"]
RESUME = ["train", "RUN", "--threads", "1"]


class Maker:
    """Makes runs in a temporary folder and copies them here, with placeholders for paths."""

    def __init__(self, generation: str, work: Path):
        self.generation, self.root = generation, work / "golden"
        self.runs = self.root / generation
        texts.write(observe.ROOT / "data")
        shutil.copytree(observe.ROOT / "data", self.root / "data")
        for folder in observe.folders():
            if folder.parent.name == generation:
                observe.copy(folder, self.runs / folder.name, self.root)

    def places(self, folder: Path) -> dict[str, Path]:
        """The values of the placeholders of a command."""
        return {observe.PLACEHOLDER: self.root, "RUN": folder, "OUT": self.scratch()}

    def scratch(self) -> Path:
        """A new place for a folder that is thrown away."""
        return Path(tempfile.mkdtemp(dir=self.root.parent)) / "run"

    def missing(self, name: str) -> bool:
        """Whether a run is yet to be made."""
        return not (observe.ROOT / self.generation / name).exists()

    def case(self, name: str, case: Case) -> None:
        """Trains a run, or a part of it, and records what it does."""
        folder = self.runs / name
        if case.stop is None:
            self.train(case, folder)
            if not case.checkpoints:
                shutil.rmtree(folder / "checkpoints")
            expected = self.finished(folder, case.commands)
            if case.checkpoints:
                expected["resume"] = self.resumed(folder, [])
            expected["continue"] = self.continued(folder)
        else:
            self.interrupt(case, folder)
            uninterrupted = self.scratch()
            self.train(case, uninterrupted)
            expected = {"resume": self.resumed(folder, case.commands)}
            if expected["resume"]["weights"] != observe.weights(seqloom.load(uninterrupted)):
                raise RuntimeError(
                    f"{name}: the run that was interrupted ends with other weights than one that was not"
                )
        self.keep(folder, expected)

    def arguments(self, case: Case, folder: Path) -> list[str]:
        """The command line that trains a case."""
        config = case.config
        if not isinstance(config, str):
            path = self.scratch().with_name("config.yaml")
            path.write_text(json.dumps(config), "utf-8")
            config = str(path)
        words = ["train", config, *case.options, "--out", str(folder), "--threads", "1", "--data", *case.data]
        words += ["--valid", *case.valid] if case.valid else []
        words += ["--from", f"GOLDEN/GENERATION/{case.base}"] if case.base else []
        return [
            word.replace("GENERATION", self.generation).replace("GOLDEN", str(self.root)) for word in words
        ]

    def train(self, case: Case, folder: Path) -> None:
        """Trains a run to its end."""
        observe.command(self.arguments(case, folder), {})

    def interrupt(self, case: Case, folder: Path) -> None:
        """Trains in a process of its own and interrupts it, when it has a checkpoint or two, or none yet."""
        words = self.arguments(case, folder)
        for _ in range(10):
            shutil.rmtree(folder, ignore_errors=True)
            process = subprocess.Popen([sys.executable, "-m", "seqloom", *words], stderr=subprocess.DEVNULL)
            while process.poll() is None and not ripe(folder, case.stop):
                time.sleep(0.0005)
            process.send_signal(signal.SIGTERM if case.stop == "SIGTERM" else signal.SIGKILL)
            process.wait()
            checkpoints = len(list((folder / "checkpoints").glob("step-*")))
            wanted = (0,) if case.stop == "start" else (1, 2)
            if not (folder / "model.safetensors").exists() and checkpoints in wanted:
                for left in folder.glob("checkpoints/.tmp-*"):
                    shutil.rmtree(left)
                return
        raise RuntimeError(f"{folder.name}: training ends before it can be interrupted; give it more steps")

    def finished(self, folder: Path, commands: list[Command]) -> dict[str, Any]:
        """What a finished run holds and does."""
        run = seqloom.load(folder)
        return {
            "weights": observe.weights(run),
            "outputs": observe.outputs(run),
            "tokens": observe.tokens(run),
            "commands": self.results(folder, commands),
        }

    def results(self, folder: Path, commands: list[Command]) -> list[dict[str, Any]]:
        """Commands with their output."""
        places = self.places(folder)
        return [{"arguments": words, "output": short(observe.command(words, places))} for words in commands]

    def resumed(self, folder: Path, commands: list[Command]) -> dict[str, Any]:
        """How a copy of a run ends when it is trained to its end."""
        copy = self.scratch()
        shutil.copytree(folder, copy)
        observe.command(RESUME, self.places(copy))
        numbers = observe.held_out(seqloom.load(copy))
        expected = {"arguments": RESUME, "metrics": observe.metrics(copy), "numbers": numbers}
        return {**expected, "files": observe.file_digests(copy), **self.finished(copy, commands)}

    def continued(self, folder: Path) -> dict[str, Any]:
        """The metrics of a short training that begins from a run."""
        places = self.places(folder)
        observe.command(CONTINUE, places)
        return {"arguments": CONTINUE, "metrics": observe.metrics(places["OUT"])}

    def encoder(self, name: str) -> None:
        """An encoder without a head, imported from the folder that a masked model exports."""
        source, folder = self.scratch(), self.runs / name
        observe.command(["export", str(self.runs / "bert"), "--out", str(source)], {})
        settings = json.loads((source / "config.json").read_text("utf-8"))
        (source / "config.json").write_text(json.dumps({**settings, "architectures": ["BertModel"]}), "utf-8")
        tensors = load_file(source / "model.safetensors")
        body = {key.removeprefix("bert."): value for key, value in tensors.items() if key.startswith("bert.")}
        save_file(body, source / "model.safetensors", {"format": "pt"})
        observe.command(["import", str(source), "--out", str(folder)], {})
        self.keep(folder, self.finished(folder, [["embed", "RUN", TEST, "--json"]]))

    def imported(self, name: str) -> None:
        """A language model that is exported and imported again."""
        source, folder = self.scratch(), self.runs / name
        observe.command(["export", str(self.runs / "gpt"), "--out", str(source)], {})
        observe.command(["import", str(source), "--out", str(folder)], {})
        self.keep(folder, self.finished(folder, WRITE))

    def vectors(self, name: str, options: Command) -> None:
        """Word vectors."""
        folder = self.runs / name
        observe.command(["vectors", "train", TEXT, *options, "--out", str(folder)], self.places(folder))
        convert = ["vectors", "convert", "RUN", "OUT", "--form", "word2vec"]
        places = self.places(folder)
        observe.command(convert, places)
        written = places["OUT"].read_text("utf-8").splitlines()
        expected = {
            "commands": self.results(folder, NEAREST),
            "convert": {"arguments": convert, "lines": written},
        }
        self.keep(folder, expected)

    def classifier(self, name: str, options: Command) -> None:
        """The best classical classifier of some texts."""
        folder = self.runs / name
        observe.command(["classify", *options, "--out", str(folder)], self.places(folder))
        words = [
            "classify",
            "predict",
            "RUN",
            "the queen sees a dog",
            "old old red cat",
            "cat cat dog",
            "--json",
        ]
        self.keep(folder, {"commands": self.results(folder, [words])})

    def keep(self, folder: Path, expected: dict[str, Any]) -> None:
        """Copies a run here, with placeholders for paths, and what is expected of it."""
        target = observe.ROOT / self.generation / folder.name
        shutil.copytree(folder, target)
        observe.replace_in_files(target, f"{self.root}/", f"{observe.PLACEHOLDER}/")
        for path in target.rglob("*"):
            if path.is_file() and str(self.root.parent).encode() in path.read_bytes():
                raise RuntimeError(f"{path}: names the folder it was made in")
        text = json.dumps({"version": seqloom.__version__, **expected}, ensure_ascii=False)
        (target / "expected.json").write_text(text.replace('{"arguments"', '\n{"arguments"') + "\n", "utf-8")
        size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        print(f"{folder.name}: {size:,} bytes", flush=True)


def short(value: Any) -> Any:
    """A result whose numbers have eight digits."""
    if isinstance(value, dict):
        return {key: short(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [short(inner) for inner in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def ripe(folder: Path, stop: str | None) -> bool:
    """Whether it is time to interrupt a run: when it has just begun, in its first steps, or some steps after
    its first checkpoint, which a run that is killed loses."""
    if stop == "start":
        return (folder / "config.yaml").exists()
    path = folder / "metrics.jsonl"
    steps = path.read_text("utf-8") if path.exists() else ""
    return '"step": 30' in steps if stop == "SIGKILL" else '"step"' in steps


def make(generation: str, names: list[str]) -> None:
    """Makes the runs of a generation that are not there yet, or those named of them."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="golden-") as work:
        maker = Maker(generation, Path(work).resolve())
        steps = [(name, maker.vectors, options) for name, options in VECTORS.items()]
        steps += [(name, maker.classifier, options) for name, options in CLASSIFIERS.items()]
        steps += [(name, maker.case, case) for name, case in CASES.items()]
        for name, step, options in steps:
            if maker.missing(name) and (not names or name in names):
                step(name, options)
        for name, step in (("encoder", maker.encoder), ("imported", maker.imported)):
            if maker.missing(name) and (not names or name in names):
                step(name)


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2:])
