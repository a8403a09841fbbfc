"""Translation files in and out: PO catalogues and TMX memories. `work` translates a list of texts; everything else in the file stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Work = Callable[[list[str]], list[str]]


def missing_package(name: str) -> ValueError:
    return ValueError(f"reading this kind of file needs {name}: install it with pip install 'seqloom[data]'")


def po(path: Path, work: Work) -> str:
    """The catalogue with every entry that has no translation yet, or a fuzzy one, filled in and marked fuzzy: a machine wrote it."""
    try:
        import polib
    except ImportError:
        raise missing_package("polib") from None
    try:
        catalogue = polib.pofile(str(path), check_for_duplicates=False)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(
            f"{path}: not a PO file ({' '.join(str(error).split())}); give one that msgfmt accepts"
        ) from None
    todo = [
        entry
        for entry in catalogue
        if not entry.obsolete and entry.msgid and (entry.fuzzy or not entry.translated())
    ]
    texts = [
        text
        for entry in todo
        for text in ([entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid])
    ]
    done = iter(work(texts))
    for entry in todo:
        if entry.msgid_plural:
            one, many = next(done), next(done)
            entry.msgstr_plural = {
                number: many if number else one for number in entry.msgstr_plural or {0: "", 1: ""}
            }
        else:
            entry.msgstr = next(done)
        if "fuzzy" not in entry.flags:
            entry.flags.append("fuzzy")
    return str(catalogue)


def tmx(path: Path, work: Work, source: str | None, target: str) -> str:
    """The memory with a segment in the language `target` for every unit that has one in `source` (the file's own by default)."""
    try:
        from defusedxml import DefusedXmlException
        from defusedxml import ElementTree as Tree
    except ImportError:
        raise missing_package("defusedxml") from None
    from xml.etree import ElementTree as Writer

    lang = "{http://www.w3.org/XML/1998/namespace}lang"
    try:
        root = Tree.parse(path).getroot()
    except (Tree.ParseError, DefusedXmlException, OSError, ValueError) as error:
        raise ValueError(
            f"{path}: not a TMX file ({' '.join(str(error).split())}); give well-formed XML without entities of its own"
        ) from None
    header = root.find("header")
    if root.tag != "tmx" or header is None:
        raise ValueError(
            f"{path}: not a TMX file (its root is <{root.tag}>); give a file with <tmx> and <header>"
        )
    source = (source or header.get("srclang") or "").lower()

    def tongue(unit: Writer.Element) -> str:
        return (unit.get(lang) or unit.get("lang") or "").lower()

    todo = []
    for unit in root.iter("tu"):
        have = {tongue(one): one for one in unit.findall("tuv")}
        first = next(
            (one for name, one in have.items() if name == source or name.split("-")[0] == source), None
        )
        if first is not None and target.lower() not in have and (segment := first.find("seg")) is not None:
            todo.append((unit, "".join(segment.itertext())))
    for (unit, _), text in zip(todo, work([text for _, text in todo]), strict=True):
        Writer.SubElement(Writer.SubElement(unit, "tuv", {lang: target}), "seg").text = text
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Writer.tostring(root, encoding="unicode") + "\n"
