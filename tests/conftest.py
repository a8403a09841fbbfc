"""What tests share: small texts, a cache of their own, and the place of real data."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.words import WORDS


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Token stores of tests stay out of the user's cache; one thread keeps small models quick and bits alike."""
    import torch

    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    torch.set_num_threads(1)
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A test that changes torch's thread count does not slow down those after it, which share the cores with other processes."""
    import torch

    yield
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def sentences(count: int, seed: int = 0) -> list[str]:
    """Sentences of a few words, a function of the seed."""
    import random

    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(3, 9))) for _ in range(count)]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A small file of plain text."""
    path = tmp_path / "text.txt"
    path.write_text("\n".join(sentences(400)) + "\n", "utf-8")
    return path


@pytest.fixture
def parallel(tmp_path: Path) -> list[Path]:
    """Two small parallel files; the target is the source backwards, in capitals."""
    lines = sentences(300)
    paths = [tmp_path / "text.en", tmp_path / "text.xx"]
    paths[0].write_text("\n".join(lines) + "\n", "utf-8")
    paths[1].write_text("\n".join(" ".join(reversed(line.split())).upper() for line in lines) + "\n", "utf-8")
    return paths


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Where the real data is; tests that need it skip without it."""
    place = os.environ.get("SEQLOOM_DATA")
    if not place or not Path(place).is_dir():
        pytest.skip("needs real data: set SEQLOOM_DATA to its folder")
    return Path(place)
