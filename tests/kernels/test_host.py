"""Compiled code is cached under a digest of its sources."""

from __future__ import annotations

from pathlib import Path

from seqloom.kernels import host

KERNELS = Path(host.__file__).parent


def test_every_change_of_a_kernel_changes_the_cache_folder(tmp_path, monkeypatch):
    now = Path(host.cache_dir()).name
    for path in KERNELS.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(host, "__file__", str(tmp_path / "host.py"))
    assert Path(host.cache_dir.__wrapped__()).name == now
    for path in sorted(tmp_path.glob("*.py")):
        before = path.read_bytes()
        path.write_bytes(before + b"# changed")
        assert Path(host.cache_dir.__wrapped__()).name != now, path.name
        path.write_bytes(before)
