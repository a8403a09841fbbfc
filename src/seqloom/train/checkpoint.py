"""Checkpoints: one folder per step, complete or absent, with a manifest that covers every byte.

    folder/step-00000200/{model,optim,rng,…}.safetensors  state.json  manifest.json

A save fills `.tmp-<step>-<uuid>/`, flushes it and renames it, so a kill at any instant leaves the old checkpoint or the
new one intact. safetensors loads a file with a flipped bit without an error, hence the manifest: name, size and SHA-256
of every file, and a digest of itself. Tensors are safetensors and metadata is JSON: loading runs no code. Left out:
gathering the state of other ranks (the caller does it, and only rank 0 saves), when to save, and what the metadata
means (`loop.py`).
"""

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

from seqloom.errors import RunError
from seqloom.files import (
    NoRoom,
    check_digest,
    disk_error,
    free_bytes,
    fsync_file,
    fsync_folder,
    is_locked,
    lock_folder,
    sha256,
    with_digest,
    write_new,
)

__all__ = [
    "Checkpoint",
    "NoRoom",
    "NotFinite",
    "average",
    "estimated_bytes",
    "folder_name",
    "latest",
    "load",
    "rotate",
    "save",
    "space_warning",
    "step_folders",
    "verify",
]

_MANIFEST = "manifest.json"
_METADATA = "state.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_STEP = re.compile(r"step-([0-9]{8,})")
_HEADER = 4096  # approximate bytes of a safetensors header or a JSON file, for estimates of disk space


class NotFinite(RunError):
    """Weights that hold NaN or infinity are not saved."""


class Checkpoint(NamedTuple):
    """A verified checkpoint: its folder, the step after which it was saved, and its metadata."""

    path: Path
    step: int
    metadata: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors saved under `name`, on the CPU."""
        file = self.path / f"{name}.safetensors"
        if not file.is_file():
            names = ", ".join(sorted(f.stem for f in self.path.glob("*.safetensors"))) or "none"
            raise RunError(f"{file}: there is no such file in this checkpoint; it holds: {names}.")
        try:
            return load_file(file)
        except (SafetensorError, OSError) as error:
            raise RunError(f"{file}: cannot be read ({error}); use another checkpoint.") from error


def estimated_bytes(files: Mapping[str, Mapping[str, Tensor]]) -> int:
    """Approximate bytes on disk of a checkpoint with these tensors."""
    data = sum(t.numel() * t.element_size() for tensors in files.values() for t in tensors.values())
    return (2 + len(files)) * _HEADER + data


def space_warning(folder: Path, bytes_needed: int) -> str | None:
    """A message if the disk has less than 1.1 × `bytes_needed` free, else None."""
    needed = (11 * bytes_needed + 9) // 10
    free = free_bytes(folder)
    if free >= needed:
        return None
    return (
        f"{folder}: the next checkpoint needs {needed:,} bytes and {free:,} are free; "
        "training continues and tries again at the next interval: free some space."
    )


def save(
    folder: Path, step: int, files: Mapping[str, Mapping[str, Tensor]], metadata: Mapping[str, Any]
) -> Path:
    """Saves `files` (name → tensors) and `metadata` (JSON values; a tuple is read as a list) as the checkpoint of `step`.

    Raises ValueError if weights (`files["model"]`) are not finite, and `NoRoom` if the disk is full or refuses the
    write; then nothing incomplete remains and every older checkpoint is unchanged. If the step already has an intact
    checkpoint, it is kept; a damaged one is replaced.
    """
    folder = Path(folder)
    step = index(step)
    final = folder / folder_name(step)
    text = _validate(final, step, files, metadata)
    needed = estimated_bytes(files) + len(text)
    temporary = folder / f".tmp-{step}-{uuid4().hex}"
    try:
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            fsync_folder(folder.parent)
        remove_stale(folder)
        if final.exists() and not verify(final):
            return final
        os.mkdir(temporary)
        with lock_folder(temporary):
            for name, tensors in files.items():
                _write_tensors(temporary / f"{name}.safetensors", tensors)
            write_new(temporary / _METADATA, text)
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
    final: Path, step: int, files: Mapping[str, Mapping[str, Tensor]], metadata: Mapping[str, Any]
) -> bytes:
    """The metadata as JSON, after a check of everything whose content could be refused."""
    if step < 0:
        raise RunError(f"{final}: a step is 0 or more, not {step}.")
    for name in files:
        if not _NAME.fullmatch(name):
            raise RunError(
                f"{final}: {name!r} is not a valid file name; use up to 64 letters, digits, '.', '_' and '-'."
            )
        for key, tensor in files[name].items():
            if tensor.layout is not torch.strided or tensor.is_meta:
                layout = "meta" if tensor.is_meta else tensor.layout
                raise RunError(
                    f"{final}: {name} tensor {key!r} has no dense values ({layout}); make it dense first."
                )
    for name, tensor in files.get("model", {}).items():
        if tensor.is_floating_point() or tensor.is_complex():
            # torch has no isfinite for 8-bit floats.
            values = tensor.detach().float() if tensor.element_size() == 1 else tensor.detach()
            if not torch.isfinite(values).all():
                bad = int((~torch.isfinite(values)).sum())
                raise NotFinite(
                    f"{final}: not saved: model tensor {name!r} holds {bad} NaN or infinite values of "
                    f"{tensor.numel()}; "
                    "resume from the last checkpoint with a lower learning rate or tighter gradient clipping."
                )
    try:
        return (json.dumps(dict(metadata), indent=1) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RunError(f"{final}: the metadata of a checkpoint must be JSON values: {error}.") from error


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    dense_tensors: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        # safetensors reads raw memory: strides, lazy conjugation and shared storage must be resolved before.
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        storage = dense.untyped_storage().data_ptr()
        dense_tensors[name] = dense.clone() if storage in storages else dense
        storages.add(storage)
    try:
        save_file(dense_tensors, path, metadata={"format": "pt"})
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that the format does not support
        if match := re.search(r"os error (\d+)", str(error)):
            code = int(match[1])
            raise OSError(code, os.strerror(code), str(path)) from error
        raise RunError(
            f"{path.name}: these tensors cannot be saved: {error}; convert them to a dtype that safetensors supports."
        ) from error
    # safetensors creates the file with mode 600; give it the folder's permissions, as the other files have.
    os.chmod(path, os.stat(path.parent).st_mode & 0o666)
    fsync_file(path)


def _manifest(path: Path, step: int) -> bytes:
    entries = {f.name: {"sha256": sha256(f), "size": f.stat().st_size} for f in path.iterdir()}
    return with_digest({"files": entries, "format": 1, "step": step})


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / _MANIFEST
    remedy = "use another checkpoint"
    if file.is_symlink() or not file.is_file():
        raise RunError(f"{file}: is missing or not a regular file; {remedy}.")
    try:
        body = check_digest(file.read_bytes()) or {}
        entries = body["files"]
        intact = body["format"] == 1 and type(body["step"]) is int and _METADATA in entries
        intact = intact and all(type(e["size"]) is int and type(e["sha256"]) is str for e in entries.values())
    except OSError as error:
        raise RunError(f"{file}: cannot be read ({error.strerror}); {remedy}.") from error
    except (KeyError, TypeError, AttributeError):
        intact = False
    if not intact:
        raise RunError(f"{file}: is damaged (not a manifest, or its digest does not match); {remedy}.")
    return body


def verify(path: Path) -> list[str]:
    """Every fault of the checkpoint at `path`, each with its file; an empty list means that every byte is intact."""
    path = Path(path)
    try:
        with os.scandir(path) as entries:
            regular = {e.name: e.is_file(follow_symlinks=False) for e in entries}
        body = _read_manifest(path)
    except OSError as error:
        return [f"{path}: cannot be read ({error.strerror})."]
    except ValueError as error:
        return [str(error)]
    match = _STEP.fullmatch(path.name)
    if match and int(match[1]) != body["step"]:  # then the manifest's list does not describe these files
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
    """What is wrong with one file that the manifest lists; None if nothing is."""
    expected = listed[file.name]
    try:
        length = file.stat().st_size
        digest = sha256(file)
        if digest == expected["sha256"] and length == expected["size"]:
            if file.name == _METADATA and not isinstance(json.loads(file.read_bytes()), dict):
                return "is not a JSON object"
            return None
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return "is not a JSON object"
    for other, entry in listed.items():
        if other != file.name and entry["sha256"] == digest:
            return f"holds the content of {other}"
    if length != expected["size"]:
        return f"has {length:,} bytes instead of {expected['size']:,}"
    return f"has other content than was saved (SHA-256 {digest[:12]}… instead of {expected['sha256'][:12]}…)"


def load(path: Path) -> Checkpoint:
    """Verifies every byte of the checkpoint at `path` and opens it."""
    path = Path(path)
    if faults := verify(path):
        raise RunError("damaged checkpoint: " + " ".join(faults))
    return Checkpoint(path, _read_manifest(path)["step"], json.loads((path / _METADATA).read_bytes()))


def latest(folder: Path, warn: Callable[[str], None], strict: bool = False) -> Checkpoint | None:
    """The newest intact checkpoint in `folder`, or None if there is none.

    Reports a damaged one to `warn` and tries the one before it; with `strict` it raises instead.
    """
    steps = step_folders(Path(folder))
    for _, path in steps:
        try:
            return load(path)
        except ValueError as error:
            if strict:
                raise
            warn(f"{error} Falling back to the checkpoint before it.")
    if steps:
        warn(f"{folder}: none of its {len(steps)} checkpoints is intact; there is nothing to resume from.")
    return None


def rotate(folder: Path, keep: int = 2, protect: Collection[int] = ()) -> None:
    """Deletes all checkpoints but the newest `keep` intact ones and those of the steps in `protect`.

    Damaged ones do not count, so a failing disk cannot rotate the last good checkpoint away. Also deletes incomplete
    saves of processes that died.
    """
    if keep < 1:
        raise RunError(f"keep={keep}: rotation keeps at least 1 checkpoint.")
    folder = Path(folder)
    remove_stale(folder)
    steps = step_folders(folder)
    num_intact = 0
    if len(steps) <= keep:
        return
    for step, path in steps:
        if num_intact < keep:
            num_intact += not verify(path)
        elif step not in protect:
            try:
                _discard(path)
            except OSError as error:
                raise disk_error(error, path, "the removal of this old checkpoint") from error


def folder_name(step: int) -> str:
    """The name of the checkpoint of a step."""
    return f"step-{step:08d}"


def step_folders(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of everything with the name of a checkpoint, newest first."""
    try:
        named = [(int(m[1]), folder / m[0]) for name in os.listdir(folder) if (m := _STEP.fullmatch(name))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(
            f"{folder}: cannot be read ({error.strerror}); check the path and its permissions."
        ) from error
    return sorted(((step, path) for step, path in named if path.name == folder_name(step)), reverse=True)


def _discard(path: Path) -> None:
    """Renames a checkpoint before it is deleted, so that a partly deleted one never has a checkpoint's name."""
    old = path.parent / f".old-{path.name}-{uuid4().hex}"
    os.rename(path, old)
    fsync_folder(path.parent)
    _remove(old)


def remove_stale(folder: Path) -> None:
    """Deletes incomplete saves and deletions of processes that died; a save that is being written stays."""
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
    """The mean w̄ = (1/n) Σᵢ wᵢ of the tensors `name` of n checkpoints, summed in double precision, in their own dtype.

    Integer tensors (counters, tables) have no mean: they are those of the last checkpoint.
    """
    if not checkpoints:
        raise RunError("averaging needs at least one checkpoint.")
    first = checkpoints[0].tensors(name)
    expected = {key: (t.shape, t.dtype) for key, t in first.items()}
    sum_dtypes = {key: torch.float64 for key, t in first.items() if t.is_floating_point()}
    sum_dtypes |= {key: torch.complex128 for key, t in first.items() if t.is_complex()}
    sums = {key: first[key].to(dtype, copy=True) for key, dtype in sum_dtypes.items()}
    last = first
    for checkpoint in checkpoints[1:]:
        last = checkpoint.tensors(name)
        actual = {key: (t.shape, t.dtype) for key, t in last.items()}
        keys = expected.keys() | actual.keys()
        if wrong := sorted(key for key in keys if expected.get(key) != actual.get(key)):
            raise RunError(
                f"{checkpoint.path}: tensor {wrong[0]!r} is not as in {checkpoints[0].path} "
                f"({actual.get(wrong[0])} and {expected.get(wrong[0])}); average checkpoints of one run."
            )
        for key, dtype in sum_dtypes.items():
            sums[key] += last[key].to(dtype)
    return {
        key: (sums[key] / len(checkpoints)).to(t.dtype) if key in sums else t.clone()
        for key, t in last.items()
    }
