"""The verb env: what seqloom runs on."""

from __future__ import annotations

from seqloom.cli.app import START, app, print_result
from seqloom.cli.options import Common, CommonOptions
from seqloom.cli.tables import short_bytes


@app.command(group=START)
def env(*, common: CommonOptions = Common()) -> None:
    """Show versions, machine, extras, folders and cache.

    Examples:
      seqloom env
      seqloom env --json
      seqloom env -q
    """
    from seqloom.cli.inputs import set_threads
    from seqloom.environment import env as environment

    set_threads(None)
    found = environment()
    extras = ", ".join(f"{name} {'yes' if there else 'no'}" for name, there in found.extras.items())
    lines = [
        *(f"{name:13} {number or 'not installed'}" for name, number in found.versions.items()),
        f"{'system':13} {found.system}",
        f"{'processor':13} {found.processor}, {found.cores} cores, {short_bytes(found.memory)} memory",
        f"{'devices':13} {', '.join(found.devices)}, {found.threads} thread{'' if found.threads == 1 else 's'}",
        f"{'extras':13} {extras or 'unknown: seqloom is not installed as a package'}",
        *(f"{name:13} {folder}" for name, folder in found.folders.items()),
        f"{'cache size':13} {short_bytes(found.cache_size)}",
        *(f"{name}={value}" for name, value in found.variables.items()),
    ]
    print_result(found.to_dict(), lines, common.json)
