"""seqloom.files: a file is whole or not there; and nothing in the package can run code that a file brings along."""

import ast
import errno
import hashlib
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seqloom.files as files
from seqloom.errors import DataError
from seqloom.files import (
    NoRoom,
    cache_folder,
    draft_folder,
    free_bytes,
    fsync_folder,
    is_locked,
    lock_folder,
    open_atomic,
    sha256,
    sweep_drafts,
    write_atomic,
    write_new,
)

SOURCE = Path(files.__file__).parent


@pytest.mark.parametrize("data", [b"", b"\0\xff" * 3000, "", "déjà vu ☃\r\n"])
def test_write_whole_puts_exactly_the_bytes(tmp_path, data):
    path = tmp_path / "a.txt"
    for _ in range(2):  # new, then over an existing one
        write_atomic(path, data)
        assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert os.listdir(tmp_path) == ["a.txt"]


def test_write_whole_obeys_the_umask_and_keeps_links(tmp_path):
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    link.symlink_to(real)
    before = os.umask(0o027)
    try:
        write_atomic(link, "new")
    finally:
        os.umask(before)
    assert link.is_symlink() and real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_write_whole_survives_short_writes(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data)[:7]))
    write_atomic(tmp_path / "a", bytes(range(100)))
    assert (tmp_path / "a").read_bytes() == bytes(range(100))


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
def test_a_refusing_disk_leaves_the_old_file_and_says_why(tmp_path, monkeypatch, call, number):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse(number))
        with pytest.raises(NoRoom) as caught:
            write_atomic(path, "x" * 1234)
    message = str(caught.value)
    assert str(path) in message and "1,234 bytes" in message and "are free" in message and "\n" not in message
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_that_is_missing_has_nothing_to_do_with_space(tmp_path):
    with pytest.raises(DataError, match="the folder does not exist; create it first") as caught:
        write_atomic(tmp_path / "none" / "a.txt", "x")
    assert "bytes" not in str(caught.value)


def refuse(number):
    def refused(*args, **rest):
        raise OSError(number, os.strerror(number))

    return refused


def test_an_interrupt_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def interrupted(handle):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_places_that_are_no_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match="not a regular file"):
            write_atomic(place, "x")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(ValueError, match="does not exist; create it first"):
        write_atomic(tmp_path / "nowhere" / "a", "x")


def test_write_new_never_overwrites(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_text() == "old"


@given(st.binary(max_size=5000))
def test_sha256_equals_that_of_the_bytes(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "digest"
    path.write_bytes(data)
    assert sha256(path) == hashlib.sha256(data).hexdigest()


def test_sha256_of_a_long_file_equals_coreutils(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(256)) * 20_000)
    try:
        known = subprocess.run(
            ["sha256sum", tmp_path / "a"], capture_output=True, text=True, check=True
        ).stdout.split()[0]
    except FileNotFoundError:
        pytest.skip("no sha256sum here")
    assert sha256(tmp_path / "a") == known


def test_fsync_folder_passes_what_has_no_such_flush_and_raises_the_rest(tmp_path, monkeypatch):
    fsync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    fsync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        fsync_folder(tmp_path)


def test_free_bytes_of_a_folder_to_come(tmp_path):
    room = os.statvfs(tmp_path)
    assert abs(free_bytes(tmp_path / "a" / "b") - room.f_bavail * room.f_frsize) < 1 << 30


def test_a_claim_ends_with_the_block_and_with_the_process(tmp_path):
    assert not is_locked(tmp_path) and not is_locked(tmp_path / "gone")
    with lock_folder(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    child = os.fork()
    if child == 0:
        lock_folder(tmp_path).__enter__()
        os._exit(0)
    os.waitpid(child, 0)
    assert not is_locked(tmp_path)


def test_without_locks_a_claim_lasts_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    with lock_folder(tmp_path):
        assert is_locked(tmp_path)
    os.utime(tmp_path, (0, 0))
    assert not is_locked(tmp_path)


# No file can bring code along ------------------------------------------------------------------------------------------------

PICKLERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def code_runners(source: str, name: str = "source") -> list[str]:
    """Every import or call in `source` through which data could turn into code."""
    found = []
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in PICKLERS]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = {a.name for a in node.names}
            found += [node.module] if node.module.split(".")[0] in PICKLERS or "pickle" in names else []
            if node.module in ("torch", "torch.serialization"):
                found += [f"torch.{name}" for name in sorted(names & {"load", "save"})]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in (
            "torch.load", "torch.save", "torch.serialization.load", "torch.serialization.save", "builtins.eval", "builtins.exec",
        ):  # fmt: skip
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Name) and node.id in ("eval", "exec"):
            found.append(node.id)
        elif (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and ast.unparse(node.value) != "False"
        ):
            found.append("allow_pickle")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "import pickle as p", "from pickle import loads", "def f():\n  import dill", "import torch\ntorch.load(x)",
        "torch.save(a, b)", "from torch import load", "torch.serialization.load(x)", "eval('1')", "run = exec",
        "np.load(f, allow_pickle=True)", "import joblib.numpy_pickle", "from numpy.compat import pickle",
    ],
)  # fmt: skip
def test_the_scan_finds_what_it_looks_for(source):
    assert code_runners(source)


def test_the_scan_lets_pass_what_is_harmless():
    assert not code_runners(
        "model.eval()\nsafetensors.torch.load_file(x)\njson.load(f)\nnp.load(f, allow_pickle=False)\nself.save()"
    )


def test_no_module_can_run_code_from_a_file():
    modules = sorted(SOURCE.rglob("*.py"))
    assert SOURCE / "train" / "checkpoint.py" in modules
    assert not [
        f"{m.name}: {what}" for m in modules for what in code_runners(m.read_text(encoding="utf-8"), str(m))
    ]


# Drafts and the cache ----------------------------------------------------------------------------------------------------------


def test_drafts_of_killed_processes_are_swept_and_those_of_living_ones_stay(tmp_path):
    """A child dies inside `draft_folder`; another process waits inside one."""
    child = os.fork()
    if child == 0:
        with draft_folder(tmp_path) as draft:
            (draft / "half").write_text("x")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (left,) = tmp_path.iterdir()
    with draft_folder(tmp_path) as alive:
        assert not left.exists() and os.listdir(tmp_path) == [alive.name]
        write_atomic(tmp_path / "a.txt", "new")
        assert sorted(os.listdir(tmp_path)) == sorted([alive.name, "a.txt"])
    assert os.listdir(tmp_path) == ["a.txt"]
    foreign = tmp_path / ".notes.draft"
    foreign.mkdir()
    write_atomic(tmp_path / "a.txt", "newer")
    assert foreign.exists(), "only names that seqloom gives are swept"


def test_a_draft_that_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    swept = []

    def sweeping(folder):
        if not swept:
            swept.append(folder)
            sweep_drafts(tmp_path)
        return lock_folder(folder)

    monkeypatch.setattr(files, "lock_folder", sweeping)
    with draft_folder(tmp_path) as draft:
        assert draft.is_dir() and draft not in swept and len(swept) == 1
    assert os.listdir(tmp_path) == []


def test_the_cache_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "below" / "cache"))
    folder = cache_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with open_atomic(folder / "keys", 0o600) as file:
        file.write(b"x")
    write_atomic(folder / "records", "x", 0o600)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give files away")
def test_a_cache_of_another_user_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    folder = cache_folder()
    (folder / "entry").mkdir()
    os.chown(folder / "entry", 12345, 12345)
    assert cache_folder() == folder, "nobody else may write here, so root itself has given it away"
    folder.chmod(0o777)
    with pytest.raises(DataError, match=r"entry: another user owns it.*SEQLOOM_CACHE"):
        cache_folder()
    os.rmdir(folder / "entry")
    assert cache_folder() == folder
    os.chown(folder, 12345, 12345)
    with pytest.raises(DataError, match="cache: another user owns it"):
        cache_folder()
