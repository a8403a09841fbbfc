"""manifest.json of a run folder: which config, tokenizer, labels and data belong together.

    {"format": 1, "run": …, "config": …, "data": {…}, "files": {"config.yaml": …, "tokenizer.json": …}, "sha256": …}

`files` has the SHA-256 of each file, `data` the digests of the data, `config` that of the config without its budget, intervals and
file names, `run` a random name; the last entry is the digest of all others. Each checkpoint carries the `identity`: the hash of all that stays
as it is when the run is lengthened. Folders of older versions have data.json instead, and nothing of them is checked here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from seqloom import files
from seqloom.errors import RunError

MANIFEST_FILE = "manifest.json"
CONFIG_FILE = "config.yaml"
OLD_DATA_FILE = "data.json"
# The files that a training reads and does not change. One that the manifest does not list belongs to another run.
FIXED_FILES = (
    *(CONFIG_FILE, "tokenizer.json", "labels.json", "profile.json", "begin.json"),
    "chat_template.jinja",
)
REMEDY = "put back the file that the run was trained with, or train again with --overwrite"


class Manifest(NamedTuple):
    """The content of manifest.json."""

    run: str
    config: str
    data: Mapping[str, str]
    files: Mapping[str, str]
    replaced: str | None = None  # the SHA-256 of the config.yaml that a lengthening is about to replace

    @property
    def identity(self) -> str:
        """What every checkpoint of the run carries; it stays when the run is lengthened."""
        fixed = {name: digest for name, digest in self.files.items() if name != CONFIG_FILE}
        text = json.dumps([self.run, self.config, dict(self.data), fixed], sort_keys=True)
        return files.digest(text.encode())


def make(folder: Path, config_text: str, config_digest: str, data: Mapping[str, str]) -> Manifest:
    """The manifest of a new run, whose other files are in the folder already."""
    digests = {name: files.sha256(folder / name) for name in FIXED_FILES[1:] if (folder / name).exists()}
    return Manifest(
        uuid4().hex, config_digest, data, {CONFIG_FILE: files.digest(config_text.encode()), **digests}
    )


def write(folder: Path, manifest: Manifest) -> None:
    """Writes manifest.json."""
    body = {name: value for name, value in manifest._asdict().items() if value is not None}
    files.write_atomic(folder / MANIFEST_FILE, files.with_digest({"format": 1, **body}))


def write_with_config(folder: Path, config_text: str) -> None:
    """Writes another config.yaml and the manifest that lists it. Between the two writes, the manifest lists both configs."""
    manifest = read(folder)
    if manifest is None:
        files.write_atomic(folder / CONFIG_FILE, config_text)
        return
    lasting = manifest._replace(
        files={**manifest.files, CONFIG_FILE: files.digest(config_text.encode())}, replaced=None
    )
    write(folder, lasting._replace(replaced=files.sha256(folder / CONFIG_FILE)))
    files.write_atomic(folder / CONFIG_FILE, config_text)
    write(folder, lasting)


def read(folder: Path) -> Manifest | None:
    """The manifest of a run; None if an older version wrote the folder."""
    path = folder / MANIFEST_FILE
    try:
        body = files.check_digest(files.read_limited(path, 1 << 24)) or {}
        if body.pop("format") != 1:
            raise RunError(f"{path}: a newer seqloom wrote it; upgrade seqloom")
        return Manifest(**body)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}); {REMEDY}") from None
    except (KeyError, TypeError):
        raise RunError(f"{path}: damaged, a byte of it has changed; {REMEDY}") from None


def is_listed(folder: Path) -> bool:
    """Whether the folder has an intact manifest, so that it was a run even if its config is gone."""
    try:
        return read(folder) is not None
    except RunError:
        return False


def check(folder: Path) -> Manifest | None:
    """The manifest of a run after a check of every file that it lists; raises an error that names all that do not belong to it."""
    manifest = read(folder)
    if manifest is None:
        return None
    faults = [fault for name in FIXED_FILES if (fault := find_fault(folder, manifest, name))]
    if faults:
        raise RunError(f"{'; '.join(faults)}; {REMEDY}")
    return manifest


def check_lost_config(folder: Path) -> None:
    """Raises if a folder that is no run has an intact manifest: it was a run, and its config is missing or damaged."""
    if is_listed(folder):
        check_config(folder)


def check_config(folder: Path) -> None:
    """Raises if the config of a run is not the one that its manifest lists."""
    manifest = read(folder)
    if manifest and (fault := find_fault(folder, manifest, CONFIG_FILE)):
        raise RunError(f"{fault}; {REMEDY}")


def find_fault(folder: Path, manifest: Manifest, name: str) -> str | None:
    """What is wrong with a file that the manifest lists, or should list; None if nothing is."""
    path = folder / name
    expected = {manifest.files.get(name), *([manifest.replaced] if name == CONFIG_FILE else [])}
    try:
        actual = files.sha256(path)
    except FileNotFoundError:
        return f"{path}: missing" if manifest.files.get(name) else None
    except OSError as error:
        return f"{path}: cannot be read ({(error.strerror or str(error)).lower()})"
    if actual in expected:
        return None
    if manifest.files.get(name):
        return f"{path}: not the file that {MANIFEST_FILE} lists, its SHA-256 differs"
    return f"{path}: not of this run, {MANIFEST_FILE} does not list it"


def data_digests(folder: Path) -> Mapping[str, str] | None:
    """The digests of the data of a run, by what it is; None if the folder has none."""
    manifest = read(folder)
    if manifest is not None:
        return manifest.data
    try:
        digests = json.loads((folder / OLD_DATA_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return digests if isinstance(digests, dict) else None
