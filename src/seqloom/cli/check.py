"""The verb check: sizes and costs of a training before it begins."""

from __future__ import annotations

from seqloom.cli.app import TRAIN, app, print_result
from seqloom.cli.inputs import load_code, set_threads
from seqloom.cli.options import Bytes, CodeFiles, Common, CommonOptions, Files, Threads, What


@app.command(group=TRAIN)
def check(
    what: What,
    /,
    *changes: str,
    data: Files = None,
    valid: Files = None,
    memory: Bytes | None = None,
    code: CodeFiles = (),
    threads: Threads = None,
    common: CommonOptions = Common(),
) -> None:
    """Check a config and its data; estimate the cost.

    Examples:
      seqloom check gpt --data input.txt
      seqloom check transformer --data train.en train.de --memory 24GB
      seqloom check gpt2 size=355M

    Parameters
    ----------
    what
        A preset, a YAML file or a run folder.
    changes
        Changes to the config, such as model.stack.layers=4.
    data
        The text to train on.
    valid
        Held-out text.
    memory
        Memory that may be filled, such as 24GB; default: nine tenths of this machine's.
    code
        Python file whose part classes the config may name.
    threads
        CPU threads; default: all cores, or SEQLOOM_THREADS.
    """
    from seqloom.run_config import Config
    from seqloom.train.preflight import check_config

    set_threads(threads)
    config = Config.load(what, changes, data, valid, parts=load_code(code))
    found = check_config(config, memory)
    rows = found.rows()
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:{width}} {value}" for name, value in rows]
    if found.train_tokens is None:
        lines.append("tokens, time and the largest batch: give --data")
    print_result(found.to_dict(), lines, common.json)
