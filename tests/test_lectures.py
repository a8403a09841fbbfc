"""docs/lectures.md tells the truth: every number is there once, and every place it names exists.

What a cited place *does* is the business of that place's own tests; here only its existence is checked.
"""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "lectures.md"
COUNTS = {
    **{"A": 16, "B": 4, "C": 5, "D": 19, "E": 6, "F": 15, "G": 8, "H": 9, "I": 10, "J": 7, "K": 8, "L": 12},
    **{"T": 17, "Q": 22, "X": 29, "D-": 31, "W": 20, "N": 15},
}
NUMBERS = [f"{letter}{i}" for letter, count in COUNTS.items() for i in range(1, count + 1)]


def rows(page: str) -> list[tuple[str, list[str]]]:
    """(number, cells after it) of each table row that starts with a number. An escaped pipe is part of its cell."""
    found = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and re.fullmatch(r"[A-Z]-?\d+", cells[0]) and cells[0] not in {"S0", "S1", "S2", "S3", "S4"}:
            found.append((cells[0], cells[1:]))
    return found


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def verbs(cli: Path) -> set[str]:
    """What may follow `seqloom`: the public functions of the command line, and names given to them explicitly."""
    found = set()
    for path in cli.glob("*.py"):
        found |= {name.replace("_", "-") for name in functions(path) if not name.startswith("_")}
        source = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"""(?:name\s*=|add_group\()\s*["']([a-z][a-z-]*)["']""", source))
    return found


def fault(place: str, root: Path) -> str | None:
    """What is wrong with one backticked place, or None."""
    if place.startswith("seqloom "):
        cli, (verb, *rest) = root / "src/seqloom/cli", place.split()[1:]
        if cli.exists() and verb not in verbs(cli):
            return f"`{place}`: the command line has no verb {verb}"
        if verb == "train" and rest and not (root / f"src/seqloom/presets/{rest[0]}.yaml").is_file():
            return f"`{place}`: there is no preset {rest[0]}"
        return None
    path, _, name = place.partition("::")
    exists = (root / path).is_dir() if path.endswith("/") else (root / path).is_file()
    if not exists:
        return f"`{path}` does not exist"
    if name and name not in functions(root / path):
        return f"`{path}` has no {name}"
    return None


def faults(page: str, root: Path) -> list[str]:
    """Every sentence the page gets wrong about its own numbers and places."""
    table = rows(page)
    seen = Counter(number for number, _ in table)
    wrong = [f"{number} stands {seen[number]} times" for number in NUMBERS if seen[number] != 1]
    wrong += [f"{number} is no number of the lectures" for number in seen if number not in NUMBERS]
    for number, cells in table:
        wanted = 2 if number[0] in "WN" else 3
        if len(cells) != wanted or not all(cells):
            wrong.append(
                f"{number} has {len(cells)} cells after its number, some perhaps empty, instead of {wanted} full ones"
            )
            continue
        if wanted == 3 and not re.fullmatch(r"S[0-4]( S[0-4])*", cells[1]):
            wrong.append(f"{number} names no decks: {cells[1]}")
        places = re.findall(r"`([^`]+)`", cells[-1])
        if not places and not re.search(r"\bplanned\b", cells[-1]):
            wrong.append(f"{number} has no place and is not planned")
        wrong += [f"{number}: {what}" for what in (fault(place, root) for place in places) if what]
    return wrong


def test_every_number_once_and_every_place_exists() -> None:
    wrong = faults(PAGE.read_text(encoding="utf-8"), ROOT)
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A tiny repository that the doctored pages below speak of."""
    for path, text in {
        "src/seqloom/cli/train.py": "@app.command\ndef train(): ...\n@app.command(name='why-not')\ndef _why(): ...\ndef _hidden(): ...\n",
        "src/seqloom/presets/gpt.yaml": "model: {}\n",
        "tests/test_here.py": "class TestIt:\n    def test_x9(self): ...\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


def page(**places: str) -> str:
    """A page with all numbers, planned except where given."""
    cells = {number: places.get(number, "planned") for number in NUMBERS}
    return "\n".join(
        f"| {n} | what \\| ever | {'' if n[0] in 'WN' else 'S1 S2 | '}{place} |" for n, place in cells.items()
    )


@pytest.mark.parametrize(
    "place",
    [
        *["planned", "`tests/test_here.py`", "`tests/test_here.py::test_x9`, rest planned", "`tests/`"],
        *["`seqloom train gpt`", "`seqloom why-not`"],
    ],
)
def test_a_true_place_passes(house: Path, place: str) -> None:
    assert faults(page(X9=place), house) == []


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("soon", "X9 has no place and is not planned"),
        ("unplanned", "X9 has no place and is not planned"),
        ("`src/gone.py`, test planned", "X9: `src/gone.py` does not exist"),
        ("`tests/test_here.py/`", "X9: `tests/test_here.py/` does not exist"),
        ("`tests`", "X9: `tests` does not exist"),
        ("`tests/test_here.py::test_x8`", "X9: `tests/test_here.py` has no test_x8"),
        ("`seqloom hidden`", "X9: `seqloom hidden`: the command line has no verb hidden"),
        ("`seqloom train bert`", "X9: `seqloom train bert`: there is no preset bert"),
    ],
)
def test_a_false_place_is_found(house: Path, place: str, complaint: str) -> None:
    assert faults(page(X9=place), house) == [complaint]


def test_missing_doubled_and_foreign_numbers_are_found(house: Path) -> None:
    whole = page()
    assert faults(whole.replace("| D-7 |", "| D7 |"), house) == ["D7 stands 2 times", "D-7 stands 0 times"]
    assert faults(whole + "\n| Z1 | what | S1 | planned |", house) == ["Z1 is no number of the lectures"]
    assert faults(whole.replace("| A1 | what \\| ever | S1 S2 |", "| A1 | what | S7 |"), house) == [
        "A1 names no decks: S7"
    ]
