"""Compiled code is cached under a digest of its sources."""

from __future__ import annotations

import re
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


def test_every_cached_kernel_is_in_the_folder_of_the_digest():
    """numba's default folder would keep code whose callees in other files have changed."""
    from seqloom.kernels import analogies, cooccurrence, crf, glove, parse_floats, recurrence, simd, word2vec

    folder = Path(host.cache_dir())
    for kernel in (
        analogies.update_best,
        cooccurrence.count_rows,
        crf.viterbi,
        glove.shuffle,
        parse_floats.read_numbers,
        recurrence.forward,
        simd.log_total,
        word2vec.train_sentences,
    ):
        assert folder in Path(kernel._cache.cache_path).parents


def test_blas_falls_back_to_scipy(monkeypatch):
    def missing(path):
        raise OSError(path)

    assert host.blas_address("sgemm_")
    monkeypatch.setattr(host.ctypes, "CDLL", missing)
    assert host.blas_address("sgemm_") and host.blas_address("dgemm_")


def test_llvmlite_is_used_in_three_modules_only():
    allowed = {"host.py", "simd.py", "gemm_tiles.py"}
    imports = re.compile(r"^\s*(import|from) llvmlite", re.MULTILINE)
    users = {path.name for path in KERNELS.glob("*.py") if imports.search(path.read_text())}
    assert users <= allowed
