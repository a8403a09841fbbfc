"""The verbs of data: show, split and compare files, train a tokenizer, the cache, the built-in world."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from seqloom.cli.app import DATA, add_group, print_result
from seqloom.cli.options import Common, CommonOptions, Count, Seconds
from seqloom.errors import UserError

data_app = add_group("data", "Show, split and compare data files; tokenizers, cache.", DATA)


def require_files(files: tuple[str, ...], verb: str) -> list[str]:
    """The files of the command line; raises if there are none."""
    if not files:
        raise UserError(f"no files: give one or more, as in: seqloom data {verb} FILE")
    return list(files)


@data_app.command
def show(
    *files: str,
    format: str = "auto",
    columns: str | None = None,
    limit: int = 3,
    common: CommonOptions = Common(),
) -> None:
    """Show what files hold: form, fields, labels, duplicates.

    The files are read as training reads them.

    Examples:
      seqloom data show reviews.tsv
      seqloom data show train.en train.fr
      seqloom data show reviews.csv --columns review,stars --json

    Parameters
    ----------
    files
        One or more files; two parallel files are pairs; - is stdin, world the built-in world.
    format
        text, lines, pairs, table, jsonl, conllu, conll, squad, dictionary, chats, preferences or judged; auto looks at the files.
    columns
        Columns of a table, or fields of JSON Lines, by name or number: review,label.
    limit
        How many records to show.
    """
    from seqloom.data import show as show_data

    summary = show_data(
        require_files(files, "show"), format=format, columns=columns, limit=limit, progress=common.progress
    )
    records = [" | ".join(map(show_value, record)) for record in summary.first]
    lines = [*summary.lines(), *(f"warning: {warning}" for warning in summary.warnings), *records]
    print_result(summary.to_dict(), lines, common.json)


def show_value(value: object) -> str:
    """A field of a record on one line."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = [f"{message.get('role')}: {message.get('content')}" for message in value]
    text = (
        value
        if isinstance(value, str)
        else " ".join(map(str, value))
        if isinstance(value, list)
        else str(value)
    )
    return " ".join(text.split()) if len(text) <= 200 else " ".join(text[:199].split()) + "…"


@data_app.command
def split(
    *files: str,
    out: Path,
    valid: float = 0.05,
    test: float = 0.05,
    by: Literal["record", "word", "near"] = "record",
    format: str = "auto",
    columns: str | None = None,
    common: CommonOptions = Common(),
) -> None:
    """Split a file into train, valid and test by content.

    Equal records are in one part, each label gives its share, and the parts have the form of the file, with its header. Running text is
    cut in its order.

    Examples:
      seqloom data split reviews.tsv --out parts
      seqloom data split cmudict.gz --out data/g2p --by word
      seqloom data split preferences.jsonl --out parts --by near

    Parameters
    ----------
    files
        The file; two parallel files are split alike.
    out
        A new folder for the parts.
    valid
        The share of valid; 0 for none.
    test
        The share of test; 0 for none.
    by
        record: equal inputs are in one part; word: all records with the same first field; near: inputs that differ in a fifth of their words too.
    format
        The form of the file, as in data show.
    columns
        Columns of a table, by name or number: review,label.
    """
    from seqloom.data import split as split_data

    result = split_data(
        require_files(files, "split"), out, valid=valid, test=test, by=by, format=format, columns=columns
    )
    print_result(result.to_dict(), result.lines(), common.json)


@data_app.command
def augment(
    file: str,
    /,
    *,
    out: Path,
    copies: Count = 10,
    column: str | None = None,
    seed: int = 0,
    common: CommonOptions = Common(),
) -> None:
    """Add random SMILES of each molecule; needs rdkit.

    Each row is followed by copies whose molecule is written in another order of its atoms. Augment the training file only.

    Examples:
      seqloom data augment solubility.tsv --out more.tsv
      seqloom data augment solubility.tsv --out more.tsv --copies 20
      seqloom data augment solubility.csv --column smiles --out more.csv

    Parameters
    ----------
    file
        A table of molecules and their values: TSV or CSV.
    out
        The file to write.
    copies
        How many other SMILES of each molecule; small molecules have fewer.
    column
        The column of the SMILES, by name or number; default: the one called smiles, or the first.
    seed
        The same seed gives the same file.
    """
    from seqloom.data import augment as augment_table

    number = int(column) if column is not None and column.isdigit() else column
    result = augment_table(file, out, copies=copies, column=number, seed=seed)
    print_result(result.to_dict(), result.lines(), common.json)


@data_app.command
def leaks(
    train: str,
    test: str,
    /,
    *,
    format: str = "auto",
    columns: str | None = None,
    common: CommonOptions = Common(),
) -> None:
    """Count the test records that are in the training data.

    Exactly, or equal but for case and punctuation, or near: with at most a fifth of the words changed.

    Examples:
      seqloom data leaks train.tsv test.tsv
      seqloom data leaks train.en test.en --format lines
      seqloom data leaks train.jsonl test.jsonl --columns text,label --json

    Parameters
    ----------
    train
        The training file.
    test
        The file to measure on.
    format
        The form of both files, as in data show.
    columns
        Columns of tables, by name or number: review,label.
    """
    from seqloom.data import leaks as find_leaks

    report = find_leaks(train, test, format=format, columns=columns, progress=common.progress)
    print_result(report.to_dict(), report.lines(), common.json)


@data_app.command
def tokenizer(
    *files: str,
    type: Literal["BPE", "Unigram", "WordPiece", "Words", "Characters"] = "BPE",
    size: Count = 8000,
    out: Path = Path("tokenizer.json"),
    format: str = "auto",
    common: CommonOptions = Common(),
) -> None:
    """Train a tokenizer on text.

    A config uses it with tokenizer={type: File, path: tokenizer.json}.

    Examples:
      seqloom data tokenizer input.txt
      seqloom data tokenizer train.en train.fr --size 16k --out both.json
      seqloom data tokenizer input.txt --type Characters --json

    Parameters
    ----------
    files
        Text to learn from.
    type
        The kind of tokenizer.
    size
        The most tokens.
    out
        The file to write.
    format
        The form of the files, as in data show.
    """
    from seqloom.data import train_tokenizer

    trained = train_tokenizer(require_files(files, "tokenizer"), out, type=type, size=size, format=format)
    lines = [
        f"{trained.type}: {trained.size:,} tokens, {trained.characters_per_token:.2f} characters each on the text",
        f"tokenizer: {trained.path}",
    ]
    print_result(trained.to_dict(), lines, common.json)


@data_app.command
def cache(*, prune: Seconds | None = None, common: CommonOptions = Common()) -> None:
    """Show where the cache is and how large, or prune it.

    Examples:
      seqloom data cache
      seqloom data cache --prune 30d
      SEQLOOM_CACHE=/big/disk seqloom data cache --json

    Parameters
    ----------
    prune
        Remove what was not used for this long, such as 30d; 0s removes everything.
    """
    from seqloom import data as functions

    report = functions.cache() if prune is None else functions.prune(prune / 86_400)
    lines = [f"{report.folder}: {report.entries:,} entries, {report.bytes / 1e6:,.1f} MB"]
    if prune is not None:
        lines.append(f"removed {report.removed:,} entries, {report.freed / 1e6:,.1f} MB")
    print_result(report.to_dict(), lines, common.json)


@data_app.command
def world(
    *,
    out: Path | None = None,
    train: Count = 20_000,
    valid: Count = 500,
    test: Count = 1_000,
    limit: Count = 5,
    seed: int = 0,
    common: CommonOptions = Common(),
) -> None:
    """Show scenes of the built-in world, or write its text.

    Examples:
      seqloom data world --limit 2
      seqloom data world --out world
      seqloom data world --out world --train 100k --seed 1

    Parameters
    ----------
    out
        A new folder for train, valid and test files; without it scenes are shown with their exact probabilities.
    train
        Training sentences to write.
    valid
        Validation sentences to write.
    test
        Test sentences to write.
    limit
        How many scenes to show.
    seed
        Another seed is another sample of the same world.
    """
    if out is not None:
        from seqloom.data import write_world

        written = write_world(out, train, valid, test, seed)
        print_result(written.to_dict(), [f"{written.folder}: {' '.join(written.files)}"], common.json)
        return
    from seqloom import world as built_in_world

    for scene in built_in_world.scenes(limit, seed):
        lines = [
            scene.english,
            scene.french,
            f"  log p(english) {scene.english_logp:.2f}, log p(french | english) {scene.french_logp:.2f} nats",
            "",
        ]
        print_result(scene._asdict(), lines, common.json)
