"""Compiled CPU code and nothing else: numba loops over arrays and addresses. Imports no other package.

Importing this package does not load numba; importing its modules does (`word2vec_args` excepted). `fused/`
calls them for tensors, `vectors/` calls those of word vectors. `host.py` holds what depends on the internals
of numba or libtorch.

Callers that also have a plain form use `load`, which returns None if numba is missing or broken.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType

_lock = Lock()
_warned = False


@cache
def load(name: str) -> ModuleType | None:
    """The module `name` of this package, or None if it cannot be imported because numba is missing or broken.

    The first failure prints one warning; later failures are silent.
    """
    global _warned
    try:
        return import_module(f"seqloom.kernels.{name}")
    except Exception as error:  # an unsuitable numba can fail in many ways during its import
        with _lock:
            if not _warned:
                _warned = True
                logging.getLogger("seqloom").warning(
                    "numba cannot be used (%s): compiled kernels are off, everything runs in its plain, slower form",
                    " ".join(str(error).split()) or type(error).__name__,
                )
        return None
