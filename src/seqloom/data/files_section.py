"""The section `files` of a config: the data files, and what is held out."""

from __future__ import annotations

from typing import Literal

from seqloom.errors import ConfigError


class Files:
    """The data files. Without `valid`, the fraction `valid_fraction` of `train` is held out: by the `content` of its records, or
    its `end`."""

    def __init__(
        self,
        train: list[str] | None = None,
        valid: list[str] | None = None,
        valid_fraction: float = 0.1,
        split: Literal["content", "end"] = "end",
    ):
        self.train = train or []
        self.valid = valid or []
        self.valid_fraction = valid_fraction
        self.split = split

    def require(self, split: str) -> list[str]:
        paths = {"train": self.train, "valid": self.valid}[split]
        if not paths:
            raise ConfigError(
                "no data: pass --data FILE (two files for a translator), or set files.train in the config"
            )
        return paths
