"""The verb presets: the named configs, by task and size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.cli.app import START, app, json_text, print_result
from seqloom.cli.options import Common, CommonOptions, OutPath, Overwrite
from seqloom.cli.outputs import check_output
from seqloom.cli.tables import short_bytes, short_number, table
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.preset_list import Preset


@app.command(group=START)
def presets(
    name: str | None = None,
    /,
    *,
    task: str | None = None,
    out: OutPath = None,
    overwrite: Overwrite = False,
    common: CommonOptions = Common(),
) -> None:
    """List the presets by task and size, or print one as YAML.

    Examples:
      seqloom presets --task translation
      seqloom presets gpt
      seqloom presets gpt --out mine.yaml

    Parameters
    ----------
    name
        A preset to print as YAML.
    task
        List the presets of this task only, such as tagging.
    out
        Write the preset to this YAML file, to change it by hand.
    overwrite
        Replace the file if it exists.
    """
    from seqloom.config_source import preset_file
    from seqloom.files import write_atomic
    from seqloom.preset_list import list_presets, read_preset

    if name is None:
        if out is not None:
            raise UserError("--out writes one preset: name it, as in: seqloom presets gpt --out mine.yaml")
        found = list_presets(task)
        lines = [json_text(preset.to_dict()) for preset in found] if common.json else preset_lines(found)
        print("\n".join(lines))
        return
    text = preset_file(name).read_text("utf-8")
    if out is None:
        print_result(read_preset(name).to_dict(), [text.rstrip()], common.json)
        return
    check_output(out, overwrite)
    write_atomic(out, text)
    print_result({"preset": name, "out": str(out)}, [f"preset: {out}"], common.json)


def preset_lines(presets: list[Preset]) -> list[str]:
    """One table for all tasks; a star marks what this machine's memory cannot train."""
    from seqloom.train.process import machine_memory

    memory = machine_memory()
    sizes = [(preset, size) for preset in presets for size in preset.sizes]
    rows = [
        (
            f"  {preset.name}" if size.name is None else f"  {preset.name} size={size.name}",
            short_number(size.parameters),
            short_bytes(size.memory) + ("*" if memory and size.memory > memory else " "),
        )
        for preset, size in sizes
    ]
    header, *aligned = table(("preset", "parameters", "memory "), rows)
    lines, task = [header], ""
    for (preset, size), row in zip(sizes, aligned, strict=True):
        if preset.task != task:
            task = preset.task
            lines.append(task)
        first = size == preset.sizes[0]
        lines.append(f"{row:{len(header)}}  {preset.summary}".rstrip() if first else row)
    lines += [
        "",
        "parameters: for 1,000 tokens where the data decides their number",
        "memory: weights, gradients and optimizer; with a step's activations: seqloom check NAME --data FILE",
    ]
    if any(row[2].endswith("*") for row in rows):
        lines.append(f"*: more than this machine's {short_bytes(memory)}")
    return lines
