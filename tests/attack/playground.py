"""A folder with small data files and runs of every family, and a command of every verb that succeeds there."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from cyclopts import App

from seqloom.cli import app

GOLDEN = Path(__file__).parents[1] / "golden"
RUNS = ("gpt", "lstm", "bert-small", "classifier", "tagger", "qa", "rnnsearch", "transformer", "elmo")
TINY = ["model.dim=8", "model.stack.layers=1", "model.stack.heads=2", "model.stack.position={type: Rotary}"]
QUICK = ["train.steps=2", "train.eval_every=2", "batches.width=8", "batches.batch=2"]
TEXT = "the old king sees a dog"

# The full name of each verb, and arguments with which it succeeds in the playground.
COMMANDS: dict[str, list[str]] = {
    "check": ["gpt", *TINY, "batches.width=8", "batches.batch=2", "--data", "text.txt"],
    "chat": ["lstm", "--once", TEXT, "--max-tokens", "4"],
    "classify": ["label.tsv", "label.test.tsv", "--quick"],
    "classify predict": ["classify-label", TEXT],
    "compare": ["naive-bayes", "logistic", "--data", "label.tsv", "--test", "label.test.tsv", "--out", "OUT"],
    "data show": ["label.tsv"],
    "data split": ["label.tsv", "--out", "OUT"],
    "data leaks": ["text.txt", "text.test.txt"],
    "data tokenizer": ["text.txt", "--type", "BPE", "--size", "300", "--out", "OUT"],
    "data cache": [],
    "data world": ["--limit", "2"],
    "demo": ["--minutes", "0.05", "--out", "OUT"],
    "generate": ["gpt", "the old", "--max-tokens", "4"],
    "fill-mask": ["bert-small", "the [MASK] sees a dog"],
    "embed": ["bert-small", TEXT, "--json"],
    "score": ["lstm", TEXT],
    "env": [],
    "evaluate": ["lstm", "text.test.txt", "--limit", "20"],
    "explain": ["gpt"],
    "inspect attention": ["transformer", TEXT, "--target", "DOG"],
    "inspect gates": ["lstm", TEXT],
    "inspect activations": ["lstm", TEXT],
    "inspect patch": ["gpt", "the cat", "the dog"],
    "inspect heads": ["gpt", TEXT],
    "inspect gradients": ["lstm", TEXT],
    "inspect coreference": ["out-demo", "--pairs", "1"],
    "inspect beam": ["rnnsearch", TEXT, "--beam", "2", "--max-tokens", "6"],
    "inspect alignment": ["rnnsearch", "text.test.txt", "translated.test.txt"],
    "inspect tokens": ["gpt", TEXT],
    "inspect geometry": ["gpt", "--file", "text.test.txt", "--max-texts", "9"],
    "inspect similarity": ["gpt", "lstm", "--file", "text.test.txt", "--max-texts", "9"],
    "inspect trace": ["gpt", TEXT],
    "inspect contexts": ["gpt", "the", "--file", "text.test.txt", "--limit", "5"],
    "import": ["bert", "--out", "OUT"],
    "export": ["gpt2", "--out", "OUT"],
    "predict": ["classifier", TEXT],
    "prefer": [
        *(
            "lstm",
            "--file",
            "text.test.txt",
            "--limit",
            "2",
            "--max-tokens",
            "4",
            "--page",
            "--out",
            "OUT.jsonl",
        ),
    ],
    "presets": [],
    "runs list": ["."],
    "runs show": ["gpt"],
    "runs clean": ["gpt", "--dry-run"],
    "train": ["gpt", *TINY, *QUICK, "--data", "text.txt", "--out", "OUT"],
    "translate": ["transformer", TEXT, "--max-tokens", "6"],
    "vectors train": ["text.txt", "--dim", "4", "--epochs", "1", "--min-count", "1", "--out", "OUT"],
    "vectors nearest": ["vectors-glove", "king", "--top", "2"],
    "vectors analogy": ["vectors-glove", "king", "queen", "dog"],
    "vectors evaluate": ["vectors-glove", "analogies.txt"],
    "vectors lexicon": ["vectors-glove", "vectors-glove", "--limit", "50"],
    "vectors map": ["vectors-glove", "--limit", "20", "--out", "OUT.html"],
    "vectors convert": ["vectors-glove", "--out", "OUT.txt"],
}


def verbs(parent: App = app, path: tuple[str, ...] = ()) -> dict[str, App]:
    """The verbs by their full names, such as `runs list`."""
    found: dict[str, App] = {}
    for name, command in parent.resolved_commands().items():
        if name.startswith("-"):
            continue
        if command.default_command is not None:
            found[" ".join((*path, name))] = command
        found |= verbs(command, (*path, name))
    return found


def build(folder: Path) -> None:
    """Fills a folder with the data files and the runs of the golden tests."""
    shutil.copytree(GOLDEN / "data", folder, dirs_exist_ok=True)
    for run in sorted((GOLDEN / "v1").iterdir()):
        if run.is_dir():
            shutil.copytree(run, folder / run.name)
    (folder / "analogies.txt").write_text(": family\nking queen dog cat\n", "utf-8")


class Playground:
    """A playground in `folder` that becomes as it was after each case: what a case overwrote, deleted or added does not change later ones, so
    a case that fails also fails alone."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.original = folder.with_name(f"{folder.name}-original")
        build(folder)
        shutil.copytree(folder, self.original, symlinks=True)
        self.states = self.present()
        self.num_restored = 0  # cases that had changed something of the original

    def present(self) -> dict[str, tuple[int, int, int]]:
        """Each file and folder: its type, and of a file the size and the time of its last change."""
        found = {}
        for root, folders, names in os.walk(self.folder):
            for name in (*folders, *names):
                path = os.path.join(root, name)
                status = os.lstat(path)
                is_file = stat.S_ISREG(status.st_mode)
                state = (status.st_mode, *((status.st_size, status.st_mtime_ns) if is_file else (0, 0)))
                found[os.path.relpath(path, self.folder)] = state
        return found

    def restore(self) -> None:
        """Removes what was added, and puts back what was changed."""
        now = self.present()
        for name in sorted(now.keys() - self.states.keys(), key=len):
            remove(self.folder / name)
        changed = sorted(
            (name for name, state in self.states.items() if now.get(name) != state),
            key=lambda name: name.count("/"),
        )
        for name in changed:
            original, path = self.original / name, self.folder / name
            if original.is_dir() and not original.is_symlink():
                if not path.is_dir() or path.is_symlink():
                    remove(path)
                    path.mkdir()
                path.chmod(original.stat().st_mode)
                continue
            remove(path)
            shutil.copy2(original, path, follow_symlinks=False)
        if changed:
            self.num_restored += 1
            self.states = self.present()


def remove(path: Path) -> None:
    """Removes a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def command_line(verb: str, out: str) -> list[str]:
    """The command of a verb that succeeds, with `out` as the place of what it writes."""
    return [*verb.split(), *(word.replace("OUT", out) for word in COMMANDS.get(verb, ["--help"]))]
