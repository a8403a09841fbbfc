"""Checkpoints: one folder per step, whole or not there, every byte vouched for by a manifest.

    folder/step-00000200/{model,optim,rng,…}.safetensors  state.json  manifest.json

A save fills `.tmp-<step>-<uuid>/`, flushes it and renames it, so a kill at any instant leaves a whole old checkpoint or a whole
new one. safetensors loads a file with a flipped bit without a word, hence the manifest: name, size and SHA-256 of every file, and a
digest of itself. Tensors are safetensors and facts are JSON: loading runs no code. Left out: gathering the state of other
ranks (the caller does, and only rank 0 saves), when to save, and what the facts mean (`loop.py`).
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from seqloom.files import (
    NoRoom,
    disk_error,
    free_bytes,
    fsync_file,
    fsync_folder,
    is_locked,
    lock_folder,
    sha256,
    write_new,
)

__all__ = [
    "Checkpoint",
    "NoRoom",
    "average",
    "estimated_bytes",
    "latest",
    "load",
    "rotate",
    "save",
    "space_warning",
    "verify",
]

_MANIFEST, _FACTS = "manifest.json", "state.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_STEP = re.compile(r"step-([0-9]{8,})")
_HEADER = 4096  # bytes a safetensors header or a JSON file takes, about; only to say how much room is needed


class Checkpoint(NamedTuple):
    """A verified checkpoint: where it is, the step it was taken after, and the facts saved with it."""

    path: Path
    step: int
    facts: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors saved under `name`, on the CPU."""
        file = self.path / f"{name}.safetensors"
        if not file.is_file():
            there = ", ".join(sorted(f.stem for f in self.path.glob("*.safetensors"))) or "none"
            raise ValueError(f"{file}: there is no such file in this checkpoint; it holds: {there}.")
        try:
            return load_file(file)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file}: cannot be read ({error}); use another checkpoint.") from error


def estimated_bytes(files: Mapping[str, Mapping[str, Tensor]]) -> int:
    """Bytes a save of these tensors takes on the disk, about."""
    return 2 * _HEADER + sum(
        _HEADER + sum(t.numel() * t.element_size() for t in tensors.values()) for tensors in files.values()
    )


def space_warning(folder: Path, bytes_needed: int) -> str | None:
    """None if the disk has room for 1.1 × `bytes_needed` (the size of the last save), else the sentence to print."""
    needed, free = (11 * bytes_needed + 9) // 10, free_bytes(folder)
    if free >= needed:
        return None
    return (
        f"{folder}: the next checkpoint needs {needed:,} bytes and {free:,} are free; "
        "training goes on and tries again at the next interval: free some space."
    )


def save(
    folder: Path, step: int, files: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]
) -> Path:
    """Save `files` (name → tensors) and `facts` (JSON values: a tuple comes back as a list) as the checkpoint of `step`.

    Weights (`files["model"]`) that are not finite are refused. A disk that refuses raises `NoRoom`, with nothing half-done left and
    every older checkpoint as it was. A step that is already saved whole is kept; a damaged one is replaced.
    """
    folder, step = Path(folder), index(step)
    final = folder / f"step-{step:08d}"
    text = _validate(final, step, files, facts)
    needed = estimated_bytes(files) + len(text)
    temporary = folder / f".tmp-{step}-{uuid4().hex}"
    try:
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            fsync_folder(folder.parent)
        _remove_stale(folder)
        if final.exists() and not verify(final):
            return final
        os.mkdir(temporary)
        with lock_folder(temporary):
            for name, tensors in files.items():
                _write_tensors(temporary / f"{name}.safetensors", tensors)
            write_new(temporary / _FACTS, text)
            write_new(temporary / _MANIFEST, _manifest(temporary, step))
            fsync_folder(temporary)
            if final.exists() or final.is_symlink():
                _discard(final)
            os.rename(temporary, final)
            fsync_folder(folder)
        return final
    except OSError as error:
        raise disk_error(error, final, "the checkpoint", needed) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _validate(
    final: Path, step: int, files: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]
) -> bytes:
    """The facts as JSON, once everything that could be refused for its content has been looked at."""
    if step < 0:
        raise ValueError(f"{final}: a step is 0 or more, not {step}.")
    for name in files:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{final}: {name!r} is no name for a file; use up to 64 letters, digits, '.', '_' and '-'."
            )
        for key, tensor in files[name].items():
            if tensor.layout is not torch.strided or tensor.is_meta:
                kind = "meta" if tensor.is_meta else tensor.layout
                raise ValueError(
                    f"{final}: {name} tensor {key!r} has no plain values ({kind}); make it dense first."
                )
    for name, tensor in files.get("model", {}).items():
        if tensor.is_floating_point() or tensor.is_complex():
            wide = (
                tensor.detach().float() if tensor.element_size() == 1 else tensor.detach()
            )  # 8-bit floats have no isfinite
            if not torch.isfinite(wide).all():
                bad = int((~torch.isfinite(wide)).sum())
                raise ValueError(
                    f"{final}: not saved: model tensor {name!r} holds {bad} NaN or infinite values of {tensor.numel()}; "
                    "resume from the last checkpoint with a lower learning rate or tighter gradient clipping."
                )
    try:
        return (json.dumps(dict(facts), indent=1) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{final}: the facts of a checkpoint must be JSON values: {error}.") from error


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    plain: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        # safetensors reads raw memory: strides, lazy conjugation and shared storage must be resolved before.
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        storage = dense.untyped_storage().data_ptr()
        plain[name] = dense.clone() if storage in seen else dense
        seen.add(storage)
    try:
        save_file(plain, path, metadata={"format": "pt"})
    except (SafetensorError, KeyError) as error:  # KeyError: a type the format does not know
        if number := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        raise ValueError(
            f"{path.name}: these tensors cannot be saved: {error}; convert them to a type safetensors knows."
        ) from error
    os.chmod(
        path, os.stat(path.parent).st_mode & 0o666
    )  # safetensors makes it private, unlike its neighbours
    fsync_file(path)


def _manifest(path: Path, step: int) -> bytes:
    entries = {f.name: {"sha256": sha256(f), "size": f.stat().st_size} for f in path.iterdir()}
    return _with_digest({"files": entries, "format": 1, "step": step})


def _with_digest(body: Mapping[str, Any]) -> bytes:
    """The only spelling of a manifest: any other byte in the file is damage, be it in a digest or in a space."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, "sha256": digest}, indent=1, sort_keys=True) + "\n").encode()


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / _MANIFEST
    again = "use another checkpoint"
    if file.is_symlink() or not file.is_file():
        raise ValueError(f"{file}: is missing or not a regular file; {again}.")
    try:
        content = file.read_bytes()
        body = json.loads(content)
        body.pop("sha256")
        entries, step = body["files"], body["step"]
        sound = (
            content == _with_digest(body) and body["format"] == 1 and type(step) is int and _FACTS in entries
        )
        sound = sound and all(type(e["size"]) is int and type(e["sha256"]) is str for e in entries.values())
    except OSError as error:
        raise ValueError(f"{file}: cannot be read ({error.strerror}); {again}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise ValueError(
            f"{file}: is damaged (not a manifest, or not the one its own digest vouches for); {again}."
        )
    return body


def verify(path: Path) -> list[str]:
    """Every fault of the checkpoint at `path`, each naming its file; an empty list means that every byte is as it was saved."""
    path = Path(path)
    try:
        with os.scandir(path) as entries:
            regular = {e.name: e.is_file(follow_symlinks=False) for e in entries}
        body = _read_manifest(path)
    except OSError as error:
        return [f"{path}: cannot be read ({error.strerror})."]
    except ValueError as error:
        return [str(error)]
    if (named := _STEP.fullmatch(path.name)) and int(named[1]) != body[
        "step"
    ]:  # so its list says nothing of these files
        return [f"{path / _MANIFEST}: belongs to step {body['step']}, not to this folder."]
    listed = body["files"]
    extra = regular.keys() - listed - {_MANIFEST}
    faults = [f"{path / name}: is missing." for name in sorted(listed.keys() - regular)]
    faults += [
        f"{path / name}: does not belong here (the manifest does not list it)." for name in sorted(extra)
    ]
    for name in sorted(listed.keys() & regular):
        if fault := _fault(path / name, listed) if regular[name] else "is not a regular file":
            faults.append(f"{path / name}: {fault}.")
    return faults


def _fault(file: Path, listed: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What is wrong with one file that the manifest lists, if anything."""
    due = listed[file.name]
    try:
        length, digest = file.stat().st_size, sha256(file)
        if digest == due["sha256"] and length == due["size"]:
            if file.name == _FACTS and not isinstance(json.loads(file.read_bytes()), dict):
                return "is not a JSON object"
            return None
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return "is not a JSON object"
    for other, entry in listed.items():
        if other != file.name and entry["sha256"] == digest:
            return f"holds the content of {other}"
    if length != due["size"]:
        return f"has {length:,} bytes instead of {due['size']:,}"
    return f"has other content than was saved (SHA-256 {digest[:12]}… instead of {due['sha256'][:12]}…)"


def load(path: Path) -> Checkpoint:
    """The checkpoint at `path` after every byte of it was verified."""
    path = Path(path)
    if faults := verify(path):
        raise ValueError("damaged checkpoint: " + " ".join(faults))
    return Checkpoint(path, _read_manifest(path)["step"], json.loads((path / _FACTS).read_bytes()))


def latest(folder: Path, warn: Callable[[str], None], strict: bool = False) -> Checkpoint | None:
    """The newest whole checkpoint in `folder`, or None if there is none.

    A damaged one is named to `warn` and the one before it is tried; `strict` raises instead.
    """
    steps = _steps(Path(folder))
    for _, path in steps:
        try:
            return load(path)
        except ValueError as error:
            if strict:
                raise
            warn(f"{error} Falling back to the checkpoint before it.")
    if steps:
        warn(f"{folder}: none of its {len(steps)} checkpoints is whole; there is nothing to resume from.")
    return None


def rotate(folder: Path, keep: int = 2, protect: Collection[int] = ()) -> None:
    """Delete all checkpoints but the newest `keep` whole ones and those of the steps in `protect`.

    Damaged ones do not count, so a failing disk cannot rotate the last good checkpoint away. Also clears what dead writers left.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: rotation keeps at least 1 checkpoint.")
    folder = Path(folder)
    _remove_stale(folder)
    steps, whole = _steps(folder), 0
    if len(steps) <= keep:
        return
    for step, path in steps:
        if whole < keep:
            whole += not verify(path)
        elif step not in protect:
            try:
                _discard(path)
            except OSError as error:
                raise disk_error(error, path, "the removal of this old checkpoint") from error


def _steps(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of everything named as a checkpoint, newest first."""
    try:
        named = [(int(m[1]), folder / m[0]) for name in os.listdir(folder) if (m := _STEP.fullmatch(name))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ValueError(
            f"{folder}: cannot be read ({error.strerror}); check the path and its permissions."
        ) from error
    return sorted(((step, path) for step, path in named if path.name == f"step-{step:08d}"), reverse=True)


def _discard(path: Path) -> None:
    """Delete a checkpoint under another name, so that a half-deleted one is never taken for a whole one."""
    old = path.parent / f".old-{path.name}-{uuid4().hex}"
    os.rename(path, old)
    fsync_folder(path.parent)
    _remove(old)


def _remove_stale(folder: Path) -> None:
    """Remove what dead writers left; a save that is still being written by someone alive is let alone."""
    for entry in folder.glob(".old-*"):
        _remove(entry)
    for entry in folder.glob(".tmp-*"):
        if not is_locked(entry):
            _remove(entry)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def average(checkpoints: Sequence[Checkpoint], name: str = "model") -> dict[str, Tensor]:
    """The mean w̄ = (1/n) Σᵢ wᵢ of the tensors `name` of n checkpoints, summed in double precision and given back in their own type.

    Tensors of whole numbers (counters, tables) have no mean: they come from the last checkpoint given.
    """
    if not checkpoints:
        raise ValueError("averaging needs at least one checkpoint.")
    first = checkpoints[0].tensors(name)
    form = {key: (t.shape, t.dtype) for key, t in first.items()}
    wide = {key: torch.float64 for key, t in first.items() if t.is_floating_point()}
    wide |= {key: torch.complex128 for key, t in first.items() if t.is_complex()}
    total, last = {key: first[key].to(dtype, copy=True) for key, dtype in wide.items()}, first
    for checkpoint in checkpoints[1:]:
        last = checkpoint.tensors(name)
        other = {key: (t.shape, t.dtype) for key, t in last.items()}
        if wrong := sorted(key for key in form.keys() | other.keys() if form.get(key) != other.get(key)):
            raise ValueError(
                f"{checkpoint.path}: tensor {wrong[0]!r} is not as in {checkpoints[0].path} ({other.get(wrong[0])} and "
                f"{form.get(wrong[0])}); average checkpoints of one run."
            )
        for key, dtype in wide.items():
            total[key] += last[key].to(dtype)
    return {
        key: (total[key] / len(checkpoints)).to(t.dtype) if key in wide else t.clone()
        for key, t in last.items()
    }
