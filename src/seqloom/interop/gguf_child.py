"""A child process that dequantises the tensors of a GGUF file with the package `gguf`, within limits on memory and time, and writes
them as float32 to a safetensors file. Reads its job as JSON from stdin. Imports nothing of seqloom.

A job is {"source", "target", "memory", "seconds", "tensors": [[name, type, shape, offset, size, change, heads], …]}. A change is
"same", "transposed", or "paired": the rows of rotary pairs side by side become halves, as `transformers` has them.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def limit(memory: int, seconds: int) -> None:
    """Sets the limits of this process, where the system has them."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass


def main() -> None:
    job: dict[str, Any] = json.load(sys.stdin)
    import numpy as np
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize
    from safetensors.numpy import save_file

    limit(job["memory"], job["seconds"])
    tensors = {}
    with open(job["source"], "rb") as file:
        for name, kind, shape, offset, size, change, heads in job["tensors"]:
            file.seek(offset)
            data = np.frombuffer(file.read(size), np.uint8)
            rows = data.reshape(*shape[:-1], -1)
            if kind == "BF16":
                values = (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
            elif kind in ("F32", "F16"):
                values = rows.view(np.float32 if kind == "F32" else np.float16).astype(np.float32)
            else:
                values = dequantize(rows, GGMLQuantizationType[kind])
            values = values.reshape(shape)
            if change == "transposed":
                values = values.T
            elif change == "paired":
                pairs = values.reshape(heads, shape[0] // heads // 2, 2, *shape[1:])
                values = pairs.swapaxes(1, 2).reshape(shape)
            tensors[name] = np.ascontiguousarray(values, np.float32)
    save_file(tensors, job["target"])


if __name__ == "__main__":
    main()
