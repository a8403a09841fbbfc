"""The verb compare: trains systems under one budget and compares their scores."""

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
    """Train translators under one budget and compare scores and costs, with a page; `table2` means every system of that table.

    Finished runs are reused and interrupted runs resume: adding a system trains only that one.

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
        Budget: minutes of training each (default: 10 minutes).
    tokens
        Budget: target tokens to learn from.
    flops
        Budget: training FLOPs, counted.
    steps
        Budget: training steps.
    parameters
        Resize every system to about this number of parameters.
    seeds
        Runs of each system.
    ensembles
        Also ensembles that average probabilities: of the seeds of each system, and of all systems.
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

    names = [
        name for system in systems or ("table2",) for name in (TABLE2 if system == "table2" else [system])
    ]
    options = {"minutes": minutes, "tokens": tokens, "flops": flops, "steps": steps}
    budgets = [(unit, float(value)) for unit, value in options.items() if value is not None]
    if len(budgets) > 1:
        units = ", ".join(unit for unit, _ in budgets)
        raise ValueError(f"several budgets ({units}): a fair comparison has one")
    splits = [split or [] for split in (data, valid, test)]
    if any(splits) and not all(len(split) == 2 for split in splits):
        raise ValueError(
            "give --data, --valid and --test each a source and a target file, or none of them for the built-in world"
        )
    if not any(splits):
        splits = write_world(out)
    train_paths, valid_paths, test_paths = (
        tuple(str(Path(path).resolve()) for path in split) for split in splits
    )
    study = Study(
        out / "runs",
        tuple(names),
        train_paths,
        valid_paths,
        test_paths,
        budgets[0] if budgets else ("minutes", 10.0),
        seeds,
        beam,
        penalty,
        parameters,
        ensembles,
    )
    prepare(study)
    failed = run_all(study, log, threads)
    results = rows(study, log)
    page = out / "compare.html"
    if results:
        files.write_atomic(page, render(study, results, failed))
    print_result(
        {**report(results), "failed": failed, "page": str(page)},
        [*lines(results), *failed, f"page: {page}"],
        json,
    )
    if failed:
        sys.exit(1)


def write_world(out: Path) -> list[list[str]]:
    """Writes the built-in world's text, unless it is there; the source and target file of train, valid and test."""
    from seqloom import world

    text = out / "world"
    if not text.exists():
        world.write(text, train=20_000, valid=500, test=500)
    return [
        [str(text / f"{split}.{language}") for language in ("en", "fr")]
        for split in ("train", "valid", "test")
    ]


def log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
