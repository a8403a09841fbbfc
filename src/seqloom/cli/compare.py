"""Compare systems under one budget."""

from __future__ import annotations

import sys
from pathlib import Path

from seqloom.cli.app import Count, Files, Threads, app, print_result


@app.command
def compare(
    *systems: str,
    data: Files = None,
    valid: Files = None,
    test: Files = None,
    minutes: float | None = None,
    tokens: float | None = None,
    flops: float | None = None,
    steps: Count | None = None,
    parameters: float | None = None,
    seeds: Count = 1,
    ensembles: bool = False,
    beam: Count = 5,
    penalty: float = 0.6,
    out: Path = Path("runs/compare"),
    threads: Threads = None,
    json: bool = False,
) -> None:
    """Train translators under one budget and set score and cost side by side, with a page; `table2` means every system of that table.

    Runs that are there are not trained again, and one that was cut goes on: adding a system trains only that one.

    Parameters
    ----------
    systems
        Presets or YAML files, or table2.
    data
        Source and target file to train on; without it the built-in world is written and used.
    valid
        Source and target file held out.
    test
        Source and target file to score on.
    minutes
        Budget: minutes of training each (10 where no budget is given).
    tokens
        Budget: target tokens to learn from.
    flops
        Budget: training FLOPs, counted.
    steps
        Budget: training steps.
    parameters
        Widen or narrow every system until it has about so many.
    seeds
        Runs of each system.
    ensembles
        Also rows for the seeds of each system joined, and for all systems together, by the average of their probabilities.
    beam
        Width of the beam search.
    penalty
        Length penalty of the beam.
    out
        The folder for runs, table and page.
    threads
        CPU threads.
    json
        Print the table as JSON.
    """
    from seqloom import files
    from seqloom.studies import Study, prepare, rows, run_all
    from seqloom.studies.published import TABLE2
    from seqloom.studies.report import lines, render, report

    chosen = [
        one for system in systems or ("table2",) for one in (TABLE2 if system == "table2" else [system])
    ]
    budgets = {"minutes": minutes, "tokens": tokens, "flops": flops, "steps": steps}
    given = [(kind, float(value)) for kind, value in budgets.items() if value is not None]
    if len(given) > 1:
        raise ValueError(
            f"several budgets ({', '.join(kind for kind, _ in given)}): a fair comparison has one"
        )
    sides = [data, valid, test]
    if any(sides) and not all(side and len(side) == 2 for side in sides):
        raise ValueError(
            "give --data, --valid and --test each a source and a target file, or none of them for the built-in world"
        )
    if not any(sides):
        sides = write_world(out)
    study = Study(out / "runs", tuple(chosen), *(tuple(str(Path(p).resolve()) for p in side) for side in sides), (given or [("minutes", 10.0)])[0],
                  seeds, beam, penalty, parameters, ensembles)  # fmt: skip
    prepare(study)
    failed = run_all(study, say, threads)
    found = rows(study, say)
    place = out / "compare.html"
    if found:
        files.write_atomic(place, render(study, found, failed))
    print_result(
        {**report(found), "failed": failed, "page": str(place)},
        [*lines(found), *failed, f"page: {place}"],
        json,
    )
    if failed:
        sys.exit(1)


def write_world(out: Path) -> list[list[str]]:
    from seqloom import world

    text = out / "world"
    if not text.exists():
        world.write(text, train=20_000, valid=500, test=500)
    return [
        [str(text / f"{side}.{tongue}") for tongue in ("en", "fr")] for side in ("train", "valid", "test")
    ]


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
