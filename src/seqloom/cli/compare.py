"""The verb compare: systems of one task on the same data, under one budget, in one table."""

from __future__ import annotations

import sys

from seqloom.cli.app import COMPARE, app, print_result
from seqloom.cli.options import (
    Amount,
    BigCount,
    Common,
    CommonOptions,
    Count,
    Files,
    Machine,
    MachineOptions,
    Minutes,
    OutPath,
)


@app.command(group=COMPARE)
def compare(
    *systems: str,
    data: Files = None,
    valid: Files = None,
    test: Files = None,
    minutes: Minutes | None = None,
    steps: Count | None = None,
    epochs: Amount | None = None,
    tokens: Amount | None = None,
    flops: Amount | None = None,
    parameters: BigCount | None = None,
    seeds: Count | None = None,
    quick: bool = False,
    ensembles: bool = False,
    out: OutPath = None,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Compare systems of one task on the same data.

    Systems are trained under one budget; finished runs are only measured. A change such as model.dim=64 belongs to the system before it, or to
    all if it comes first. The same command goes on where it stopped, and adding a system trains only that one.

    Examples:
      seqloom compare gpt lstm-lm --data input.txt --minutes 2
      seqloom compare classical --data train.tsv --test test.tsv
      seqloom compare runs/a runs/b --test test.tsv

    Parameters
    ----------
    systems
        Presets, YAML files, finished runs, the studies table2 and classical; and changes.
    data
        Files to train on; default: the built-in world.
    valid
        Files to choose by, or the share of the data that is held out for it.
    test
        Files to measure on, or the share of the data that is held out for it; default: 0.1.
    minutes
        Minutes of training of each run, or a time with its unit: 90s, 2h; default: 10.
    steps
        Training steps of each run.
    epochs
        Passes over the data of each run.
    tokens
        Tokens that each run learns from: 800k, 2M.
    flops
        Training FLOPs of each run, counted: 1e15.
    parameters
        Scale the widths of every system until it has about this many parameters: 800k.
    seeds
        Runs of each system; default: 3.
    quick
        One seed and a tenth of the budget.
    ensembles
        Also ensembles that average probabilities: of the seeds of each system, and of all systems.
    out
        The folder of the study; default: runs/compare-SYSTEMS-DATA.
    """
    from seqloom.studies import compare as compare_systems

    comparison = compare_systems(
        *systems,
        data=data,
        valid=valid or 0.1,
        test=test or 0.1,
        seeds=seeds,
        parameters=parameters,
        out=out,
        quick=quick,
        ensembles=ensembles,
        threads=machine.threads,
        progress=common.progress,
        minutes=minutes,
        steps=steps,
        epochs=epochs,
        tokens=tokens,
        flops=flops,
    )
    print_result(comparison.to_dict(), comparison.lines(), common.json)
    if comparison.failed:
        sys.exit(1)
