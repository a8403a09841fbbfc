"""The verb prefer: choose between two answers of a run, prompt by prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from seqloom.cli.app import TRAIN, app, print_result
from seqloom.cli.inputs import open_run
from seqloom.cli.options import (
    DECODING,
    OUTPUT,
    Common,
    CommonOptions,
    Count,
    Files,
    Machine,
    MachineOptions,
    RunPath,
)
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.inference.preferring import AnswerPair, PreferenceFile

HELP = "1 or 2: the better answer · 0: a tie · u: undo · q: stop"


@app.command(group=TRAIN)
def prefer(
    run: RunPath,
    /,
    *,
    file: Files = None,
    out: Annotated[Path, Parameter(group=OUTPUT)] = Path("preferences.jsonl"),
    page: Annotated[bool, Parameter(group=OUTPUT)] = False,
    train: bool = False,
    limit: Count | None = None,
    max_tokens: Annotated[Count, Parameter(group=DECODING)] = 100,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Choose between two answers, for a reward model or DPO.

    Shows two answers to each prompt; type 1 or 2 for the better one, 0 for a tie, u to undo, q to stop. The same command goes on.

    Examples:
      seqloom prefer runs/sft --file prompts.jsonl
      seqloom prefer runs/sft --file prompts.txt --out mine.jsonl --limit 50
      seqloom prefer runs/sft --file prompts.txt --train

    Parameters
    ----------
    run
        The run that answers.
    file
        Files of prompts: one on each line, or chats as JSON Lines.
    out
        The preferences, as JSON Lines; ties go to NAME.ties.jsonl.
    page
        Write an offline page to choose on, instead of asking here.
    train
        Then train a reward model on the preferences, RUN-reward, and a policy with PPO on the prompts, RUN-ppo.
    limit
        At most so many prompts.
    max_tokens
        Tokens of an answer.
    """
    from itertools import islice

    from seqloom.inference.preferring import PreferenceFile, answer_pairs

    if not file:
        raise UserError("no prompts: seqloom prefer RUN --file PROMPTS")
    loaded = open_run(run, machine.threads)
    kept = PreferenceFile(out)
    pairs = islice(
        answer_pairs(loaded, file, done=kept.done(), max_tokens=max_tokens, seed=machine.seed), limit
    )
    if page:
        path = write_page(list(pairs), out, str(run))
        print_result({"page": str(path)}, [f"page: {path}"], common.json)
        return
    ask(pairs, kept)
    counts = kept.counts()
    if train:
        if not counts.preferences:
            raise UserError(f"{out}: no preferences to train on; choose between some answers first")
        from seqloom.studies.from_preferences import train_from_preferences

        trained = train_from_preferences(
            run, out, file, max_tokens=max_tokens, threads=machine.threads, progress=common.progress
        )
        folders = {"reward": str(trained.reward.folder), "policy": str(trained.policy.folder)}
        ends = [f"reward: {folders['reward']}", f"policy: {folders['policy']}"]
        print_result({**counts.to_dict(), **folders}, ends, common.json)
        return
    lines = [
        f"{counts.preferences} preferences, {counts.ties} ties",
        f"preferences: {counts.file}",
        f"next: seqloom train reward --from {run} --data {counts.file} · seqloom train dpo --from {run} --data {counts.file}",
    ]
    print_result(counts.to_dict(), lines, common.json)


def ask(pairs: Iterator[AnswerPair], kept: PreferenceFile) -> None:
    """Asks about each pair on stderr and writes the choices as they come."""
    print(HELP, file=sys.stderr)
    waiting: list[AnswerPair] = []  # pairs whose choice was undone, the next one last
    judged: list[AnswerPair] = []
    while True:
        pair = waiting.pop() if waiting else next(pairs, None)
        if pair is None:
            return
        print(
            f"\n{pair.number}. {pair.text}\n\n  1  {pair.answers[0]}\n  2  {pair.answers[1]}\n",
            file=sys.stderr,
        )
        choice = read_choice()
        if choice == "q":
            return
        if choice == "u":
            waiting.append(pair)
            if judged:
                kept.undo()
                waiting.append(judged.pop())
            continue
        kept.add(pair, choice)  # type: ignore[arg-type]  # one of 1, 2, 0
        judged.append(pair)


def read_choice() -> str:
    """A choice that is typed; the end of the input is q."""
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        choice = line.strip().lower()
        if not line:
            return "q"
        if choice in ("1", "2", "0", "u", "q"):
            return choice
        print(HELP, file=sys.stderr)


def write_page(pairs: list[AnswerPair], out: Path, name: str) -> Path:
    """Writes the page beside the file that it will save."""
    import hashlib

    from seqloom import files
    from seqloom.report.preference_page import preference_page

    if not pairs:
        raise UserError(f"{out}: every prompt is judged already; give other prompts, or another --out")
    records = [
        {
            "number": pair.number,
            "text": pair.text,
            "prompt": pair.record("0")["prompt"],
            "answers": pair.answers,
        }
        for pair in pairs
    ]
    key = hashlib.sha256(repr(records).encode()).hexdigest()[:16]
    path = out.with_suffix(".html")
    files.write_atomic(path, preference_page(records, f"Two answers of {name}", out.name, key))
    return path
