"""generation_config.json: the decoding defaults of a run, under the names that `transformers` uses.

    {"do_sample": false, "max_new_tokens": 200, "num_beams": 5, "length_penalty": 1.0, …,
     "seqloom": {"length_penalty": 0.6, "coverage_penalty": 0.0}}

Our length penalty is GNMT's, ((5 + |Y|) / 6)^α, theirs is |Y|^α: a value of one means nothing to the other. Ours is therefore below
"seqloom", and `length_penalty` keeps the default of `transformers`. A file of another program is read as far as it says something of
the search; what it leaves out is the default of the task.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from seqloom import files
from seqloom.decoding.options import LANGUAGE_MODEL, TRANSLATOR, Decoding
from seqloom.errors import RunError, UserError

FILE = "generation_config.json"
THEIR_LENGTH_PENALTY = 1.0  # the default of transformers
# Our option: theirs.
NAMES = {
    "max_tokens": "max_new_tokens",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "beam": "num_beams",
    "repetition_penalty": "repetition_penalty",
}
OURS = ("length_penalty", "coverage_penalty")
OFF = {"top_k": 0, "top_p": 1.0}  # written for None, because transformers has other defaults
# What `transformers` takes from config.json if there is no generation_config.json.
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id")


def default_decoding(translates: bool) -> Decoding:
    """The defaults of a task: translators search with a beam of 5, language models sample."""
    return TRANSLATOR if translates else LANGUAGE_MODEL


def write_generation_config(folder: Path, decoding: Decoding) -> None:
    """Writes the decoding defaults of a run into its folder, with the special tokens that its config.json names."""
    samples = bool(decoding.temperature)
    content: dict[str, Any] = {"do_sample": samples}
    for name, theirs in NAMES.items():
        value = getattr(decoding, name)
        value = OFF.get(name) if value is None else value
        if value is not None and (samples or name not in ("temperature", "top_k", "top_p", "min_p")):
            content[theirs] = value
    content["length_penalty"] = THEIR_LENGTH_PENALTY
    config = folder / "config.json"
    if config.exists():
        tokens = json.loads(config.read_text("utf-8"))
        content |= {name: tokens[name] for name in TOKENS if tokens.get(name) is not None}
    content["seqloom"] = {name: getattr(decoding, name) for name in OURS}
    files.write_atomic(folder / FILE, json.dumps(content, indent=1))


def read_generation_config(folder: Path, translates: bool) -> Decoding:
    """The decoding defaults of a run folder: those of its file, else those of its task."""
    defaults = default_decoding(translates)
    path = folder / FILE
    if not path.exists():
        return defaults
    try:
        content = json.loads(path.read_text("utf-8"))
        values = {name: content.get(theirs) for name, theirs in NAMES.items()}
        values = {name: value for name, value in values.items() if value not in (None, OFF.get(name))}
        values |= {name: content["seqloom"][name] for name in OURS if name in content.get("seqloom", {})}
        if content.get("do_sample"):
            values |= {"temperature": values.get("temperature", 1.0), "beam": 1}
        elif content.get("do_sample") is False:
            values["temperature"] = 0.0
        decoding = dataclasses.replace(defaults, **values)
        if decoding.searches:
            decoding = dataclasses.replace(decoding, temperature=0.0, top_k=None, top_p=None, min_p=None)
        numbers = [getattr(decoding, name) for name in (*NAMES, *OURS)]
        if not all(value is None or type(value) in (int, float) for value in numbers):
            raise UserError("a decoding option is not a number")
        Decoding().plan(decoding)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = "not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
        raise RunError(f"{path}: {reason}; mend the file, or delete it to use the defaults") from None
    return decoding


def keep_generation_config(source: Path, folder: Path, translates: bool) -> None:
    """Copies the file of `source` into another folder, or writes the defaults of the task if it has none. A file that is in its
    place already stays, because a user may have changed it."""
    if not (source / FILE).exists():
        write_generation_config(folder, default_decoding(translates))
        return
    read_generation_config(source, translates)  # raises for a file that is damaged
    if source != folder:
        files.write_atomic(folder / FILE, (source / FILE).read_bytes())
