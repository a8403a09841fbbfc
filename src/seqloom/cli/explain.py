"""The verb explain: the equations of a model, or how two models differ."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from seqloom.cli.app import OVERRIDE, app


@app.command
def explain(
    what: str,
    /,
    *more: str,
    vocabulary: int = 1000,
    length: int | None = None,
    format: Literal["text", "markdown", "html"] = "text",
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Print the equations of a model with sizes, parameters and FLOPs for each part, or only what differs between two models.

    Parameters
    ----------
    what
        A run folder, a preset or a YAML file.
    more
        Changes to that config, such as model.stack.layers=4; then, to compare, another config and changes to it.
    vocabulary
        Vocabulary size for a config that has no tokenizer yet.
    length
        Tokens over which FLOPs are counted; default: the width of the training windows, or 32.
    format
        Output format; html is a page with the equations in MathML.
    out
        The file to write to instead of the terminal.
    json
        Print as JSON.
    """
    import json as jsons

    from seqloom.equations import diff, render
    from seqloom.equations import explain as explain_config
    from seqloom.files import write_atomic

    configs: list[tuple[str, list[str]]] = [(what, [])]
    for argument in more:
        if OVERRIDE.fullmatch(argument):
            configs[-1][1].append(argument)
        else:
            configs.append((argument, []))
    if len(configs) > 2:
        raise ValueError(f"{configs[2][0]}: explain takes one config, or two to compare: drop the others")
    explanations = [explain_config(name, changes, vocabulary, length) for name, changes in configs]
    result = diff(*explanations) if len(explanations) > 1 else explanations[0]
    written = jsons.dumps(result.json(), ensure_ascii=False) + "\n" if json else render(result, format)
    if out is not None:
        write_atomic(out, written)
        return
    print(written, end="", flush=True)
