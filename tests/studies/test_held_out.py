"""What a comparison holds out: the same parts each time, and never those of other data."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqloom.errors import UserError
from seqloom.run_config import Config
from seqloom.studies import compare, held_out


def reviews(path: Path, amount: int) -> Path:
    lines = (
        f"a {('fine', 'poor')[n % 2]} film of {n} scenes\t{('good', 'bad')[n % 2]}\n" for n in range(amount)
    )
    path.write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_study_whose_data_file_has_changed_is_refused_and_keeps_its_parts(tmp_path: Path) -> None:
    data = str(reviews(tmp_path / "reviews.tsv", 200))
    folder = tmp_path / "study"
    first = compare("naive-bayes", data=data, out=folder, threads=1, progress=False)
    parts = contents(folder / "data")
    again = compare("naive-bayes", data=data, out=folder, threads=1, progress=False)
    assert [row.metrics for row in again.rows] == [row.metrics for row in first.rows]
    reviews(tmp_path / "reviews.tsv", 240)
    with pytest.raises(UserError, match=r"study: its runs have other training data; .*--out .*study-2"):
        compare("naive-bayes", data=data, out=folder, threads=1, progress=False)
    assert contents(folder / "data") == parts


def test_parts_of_a_study_that_was_never_begun_are_replaced(tmp_path: Path) -> None:
    data = str(reviews(tmp_path / "reviews.tsv", 200))
    (tmp_path / "study" / "data").mkdir(parents=True)
    (tmp_path / "study" / "data" / "train.jsonl").write_text("half a fi", encoding="utf-8")
    compare("naive-bayes", data=data, out=tmp_path / "study", threads=1, progress=False)
    parts = contents(tmp_path / "study" / "data")
    assert sum(part.count(b"\n") for part in parts.values()) == 200
    assert set(parts) == {"train.jsonl", "test.jsonl"}


def test_a_folder_of_something_else_gets_no_data(tmp_path: Path) -> None:
    data = str(reviews(tmp_path / "reviews.tsv", 40))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine\n", encoding="utf-8")
    with pytest.raises(UserError, match="not the folder of a study"):
        compare("naive-bayes", data=data, out=tmp_path / "mine", threads=1, progress=False)
    assert contents(tmp_path / "mine") == {"notes.txt": b"mine\n"}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_running_text_is_cut_at_the_last_line_end_before_its_share(
    tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one cut of the whole text, whatever the blocks that it is read in."""
    text = "".join(f"line {number} äöü\n" * (1 + number % 3) for number in range(200))
    (tmp_path / "input.txt").write_text(text, encoding="utf-8")
    monkeypatch.setattr(
        held_out, "blocks", lambda path: (text[at : at + 37] for at in range(0, len(text), 37))
    )
    config = Config.preset("gpt").with_data(str(tmp_path / "input.txt"))
    parts = held_out.divide(config, share, tmp_path / "data")
    encoded = text.encode()
    cut = encoded.rfind(b"\n", 0, round(len(encoded) * (1 - share))) + 1
    assert Path(parts.train[0]).read_bytes() == encoded[:cut]
    assert Path(parts.test[0]).read_bytes() == encoded[cut:]
