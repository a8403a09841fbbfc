"""Arrays of pictures and sounds as tensors: pictures of one size are stacked, sounds are padded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def stack_sources(arrays: Sequence[np.ndarray]) -> tuple[Tensor, Tensor | None]:
    """Pixels (H, W, 3) → (B, H, W, 3) and None; frames (T, F) of different lengths → (B, T, F), 0 at padding, and their mask."""
    if arrays[0].ndim == 3:
        return torch.from_numpy(np.stack(arrays)), None
    lengths = np.array([len(array) for array in arrays])
    mask = np.arange(lengths.max(initial=1)) < lengths[:, None]
    frames = np.zeros((*mask.shape, arrays[0].shape[1]), np.float32)
    frames[mask] = np.concatenate(arrays)
    return torch.from_numpy(frames), torch.from_numpy(mask)
