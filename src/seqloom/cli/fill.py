"""Fill gaps in text."""

from __future__ import annotations

from pathlib import Path

from seqloom.cli.app import Count, Threads, app, opened, show
from seqloom.cli.models import asked_prompts


@app.command
def fill(run: Path, /, *texts: str, top: Count = 5, threads: Threads = None, json: bool = False) -> None:
    """Fill in each [MASK] of a text with a masked language model. Without texts, lines are read from stdin.

    Parameters
    ----------
    run
        The run folder.
    texts
        Texts with [MASK] where a token is missing; - reads lines from stdin.
    top
        How many tokens to show for each gap.
    threads
        CPU threads.
    json
        Print one JSON object for each text.
    """
    from seqloom.gaps import fill as guess

    loaded = opened(run, threads)
    asked = asked_prompts(
        texts, False, "nothing to fill: give a text with [MASK] in it, or pipe lines into stdin"
    )
    for text, filled in zip(asked, guess(loaded, asked, top), strict=True):
        gaps = [[one._asdict() for one in gap] for gap in filled.gaps]
        lines = [
            filled.text,
            *("  " + ", ".join(f"{one.token} {one.probability:.3f}" for one in gap) for gap in filled.gaps),
        ]
        show({"text": text, "filled": filled.text, "gaps": gaps}, lines, json)
