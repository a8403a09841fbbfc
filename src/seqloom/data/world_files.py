"""The built-in world as data files: what `--data world` stands for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.errors import DataError
from seqloom.files import cache_folder, write_atomic
from seqloom.results import Result

SOLUBLE = -2.0  # the property above which a molecule is soluble
SIZES = {"train": 20_000, "valid": 500, "test": 1_000}
SPEECH = ("recordings.tsv",)
FILES: dict[tuple[str, ...], tuple[str, ...]] = {  # by the kinds of the fields: the suffixes of the files
    ("text",): (".en",),
    ("text", "text"): (".en", ".fr"),
    ("words", "tags"): (".tags",),
    ("text", "label"): (".banks.tsv",),
    ("chat",): (".chats.jsonl",),
    ("answer", "answer"): (".preferences.jsonl",),
    ("smiles", "number"): (".molecules.tsv",),
    ("smiles", "label"): (".solubility.tsv",),
    ("document", "summary"): (".summaries.tsv",),
    ("audio", "text"): SPEECH,
}


@dataclass(frozen=True)
class WorldFiles(Result):
    """The folder of the world's text, and its files."""

    folder: Path
    files: list[str]


def write_world(
    out: str | Path,
    train: int = SIZES["train"],
    valid: int = SIZES["valid"],
    test: int = SIZES["test"],
    seed: int = 0,
) -> WorldFiles:
    """Writes text, tags, scenes, chats, preferences, molecules and summaries of the built-in world into a new folder, and the sense of
    each sentence with "bank".

    >>> seqloom.data.write_world("world", train=100, valid=10, test=10).files[:3]
    ['scenes.jsonl', 'test.banks.tsv', 'test.chats.jsonl']
    """
    from seqloom import world

    folder = Path(out)
    world.write(folder, train, valid, test, seed)
    write_senses(folder)
    write_chats(folder, {"train": train, "valid": valid, "test": test}, seed)
    write_tables(folder, {"train": train, "valid": valid, "test": test}, seed)
    return WorldFiles(folder, sorted(path.name for path in folder.iterdir()))


def write_senses(folder: Path) -> None:
    """Writes the sentences with "bank" and its sense, river or money, as tables."""
    rows: dict[str, list[str]] = {name: [] for name in SIZES}
    with open(folder / "scenes.jsonl", encoding="utf-8") as scenes:
        for line in scenes:
            scene = json.loads(line)
            if scene["bank"]:
                rows[scene["split"]].append(f"{scene['english']}\t{scene['bank']}\n")
    for name, lines in rows.items():
        write_atomic(folder / f"{name}.banks.tsv", "sentence\tlabel\n" + "".join(lines))


def write_chats(folder: Path, sizes: dict[str, int], seed: int = 0) -> None:
    """Writes chats about scenes of the world, and preferences between a right and a wrong answer."""
    from seqloom import world

    start = 0
    for name, count in sizes.items():
        indices = range(start, start + count)
        start += count
        chats = [{"messages": world.chat(seed, index)} for index in indices]
        preferences = [world.preference(seed, index) for index in indices]
        for suffix, records in (("chats", chats), ("preferences", preferences)):
            lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            write_atomic(folder / f"{name}.{suffix}.jsonl", lines)


def write_tables(folder: Path, sizes: dict[str, int], seed: int = 0) -> None:
    """Writes molecules with their property, molecules that are soluble or not, and documents with summaries. Held-out records are new."""
    from seqloom import world

    used: set[str] = set()
    first_molecule = first_report = 0
    for name, count in sizes.items():
        molecules: list[world.Molecule] = []
        while len(molecules) < count:
            molecule = world.molecule(seed, first_molecule)
            first_molecule += 1
            if name == "train" or molecule.smiles not in used:
                molecules.append(molecule)
                used.add(molecule.smiles)
        reports = [world.report(seed, first_report + index) for index in range(count)]
        first_report += count
        tables = {
            "molecules": ["smiles\tvalue", *(f"{smiles}\t{value}" for smiles, value in molecules)],
            "solubility": [
                "smiles\tlabel",
                *(f"{smiles}\t{'high' if value > SOLUBLE else 'low'}" for smiles, value in molecules),
            ],
            "summaries": [
                "document\tsummary",
                *(f"{report.document}\t{report.summary}" for report in reports),
            ],
        }
        for table, lines in tables.items():
            write_atomic(folder / f"{name}.{table}.tsv", "\n".join(lines) + "\n")


def speech_folder(world_folder: Path) -> Path:
    """The folder of the world's recordings, beside its text; they are made when they are first used."""
    from seqloom.world import recordings

    folder = world_folder.with_name(f"{world_folder.name}-speech")
    if not folder.exists():
        lines = {part: (world_folder / f"{part}.en").read_text("utf-8").splitlines() for part in SIZES}
        sizes = recordings.SIZES
        recordings.write_recordings(
            folder, {part: recordings.short_sentences(lines[part], sizes[part]) for part in sizes}
        )
    return folder


def world_paths(kinds: Sequence[str], split: str = "train", train: int | None = None) -> list[str]:
    """The files of the world that hold records of these kinds, in the cache; they are written when they are first used.

    `train` is the number of training sentences, 20,000 if it is None. Each number has held-out sentences of its own, which are not among them.
    """
    if kinds[0] == "image":
        from seqloom.data.world_pictures import world_pictures

        return world_pictures(tuple(kinds), split)
    suffixes = FILES.get(tuple(kinds))
    if suffixes is None:
        raise DataError(
            f"world: the built-in world has no records of {' and '.join(kinds)}; it has text, pairs, tags, chats, preferences, molecules, "
            'summaries, recordings, and the senses of "bank" as labels; give files'
        )
    train = train or SIZES["train"]
    folder = cache_folder() / ("world" if train == SIZES["train"] else f"world-{train}")
    if not (folder / "test.banks.tsv").exists():
        if folder.exists():  # left unfinished
            write_senses(folder)
        else:
            write_world(folder, **{**SIZES, "train": train})
    if suffixes == SPEECH:
        return [str(speech_folder(folder) / split / SPEECH[0])]
    if suffixes[0].endswith(".jsonl") and not (folder / "test.preferences.jsonl").exists():
        write_chats(folder, {**SIZES, "train": train})
    if not (folder / f"test{suffixes[0]}").exists():
        write_tables(folder, {**SIZES, "train": train})
    return [str(folder / f"{split}{suffix}") for suffix in suffixes]
