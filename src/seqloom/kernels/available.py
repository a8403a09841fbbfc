"""Whether the compiled kernels can be used. Importing this module imports numba, which takes half a second, and warns if that fails."""

from __future__ import annotations

import logging

try:
    from seqloom.kernels import host  # noqa: F401  # checks numba, llvmlite and libtorch

    AVAILABLE = True
except Exception as error:  # an unsuitable numba can fail in many ways during its import
    AVAILABLE = False
    logging.getLogger("seqloom").warning(
        "numba cannot be used (%s): compiled kernels are off, everything runs in its plain, slower form",
        " ".join(str(error).split()) or type(error).__name__,
    )
