"""The files that a corpus of pictures or sounds names: in a folder, or in a zip, from which nothing is extracted."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Protocol

from seqloom.errors import DataError

MAX_FILE = 256 << 20  # bytes of one file


class MediaFiles(Protocol):
    """Where the files of a corpus are."""

    name: str

    def has(self, name: str) -> bool: ...

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def digest(self, names: Iterable[str]) -> str:
        """Returns the SHA-256 of the content of the files with these names."""
        ...


def open_media(path: Path) -> MediaFiles:
    """Returns the files of a folder or of a zip."""
    if path.is_dir():
        return FolderFiles(path)
    if path.is_file():
        return ZipFiles(path)
    raise DataError(
        f"{path}: there is no such folder or zip; give corpus.files the folder or the zip of the files"
    )


def leaves_folder(name: str) -> bool:
    """Returns whether a name in a list or in a zip leads out of the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    return ".." in path.parts or path.is_absolute() or ":" in path.parts[0] if path.parts else True


class FolderFiles:
    """The files of a folder. A name is relative to it, or an absolute path."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.name = str(folder)

    def path(self, name: str) -> Path:
        if not Path(name).is_absolute() and leaves_folder(name):
            raise DataError(f"{name!r} leads out of {self.folder}; name a file inside it")
        return self.folder / name

    def has(self, name: str) -> bool:
        return self.path(name).is_file()

    def names(self) -> list[str]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in files)

    def read(self, name: str) -> bytes:
        path = self.path(name)
        try:
            if path.stat().st_size > MAX_FILE:
                raise DataError(f"{path}: larger than {MAX_FILE >> 20} MB; make it smaller")
            return path.read_bytes()
        except OSError as error:
            raise DataError(
                f"{path}: {(error.strerror or str(error)).lower()}; give a file that can be read"
            ) from error

    def digest(self, names: Iterable[str]) -> str:
        total = hashlib.sha256()
        for name in names:
            total.update(hashlib.sha256(self.read(name)).digest())
        return total.hexdigest()


class ZipFiles:
    """The files of a zip, read one by one."""

    def __init__(self, path: Path):
        self.path = path
        self.name = str(path)
        try:
            self.zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise DataError(f"{path}: not a zip, or damaged ({error}); make it again") from error
        self.members = {info.filename: info for info in self.zip.infolist() if not info.is_dir()}
        if not self.members:
            raise DataError(f"{path}: the zip holds no files; give one with files in it")
        for name in self.members:
            if leaves_folder(name):
                raise DataError(f"{path}: its file {name!r} leads out of the zip; make the zip again")

    def has(self, name: str) -> bool:
        return name in self.members

    def names(self) -> list[str]:
        return sorted(self.members)

    def read(self, name: str) -> bytes:
        info = self.members[name]
        if info.file_size > MAX_FILE:
            raise DataError(f"{self.path}: {name} is larger than {MAX_FILE >> 20} MB; make it smaller")
        try:
            with self.zip.open(info) as file:
                return file.read(MAX_FILE)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            RuntimeError,
            NotImplementedError,
        ) as error:
            raise DataError(f"{self.path}: {name} cannot be read ({error}); make the zip again") from error

    def digest(self, names: Iterable[str]) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def reader_of(files: MediaFiles, name: str) -> partial[bytes]:
    """Returns the function that reads one file."""
    return partial(files.read, name)
