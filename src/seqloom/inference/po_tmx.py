"""Fills in translation files: PO catalogues and TMX memories. `translate` maps a list of texts to their translations;
everything else in the file stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqloom.errors import UserError

Translate = Callable[[list[str]], list[str]]


def missing_package(name: str) -> UserError:
    return UserError(f"reading this file format needs {name}: install it with pip install 'seqloom[data]'")


def po(path: Path, translate: Translate) -> str:
    """The catalogue in which every entry without a translation, or with a fuzzy one, is filled in and marked fuzzy, since a
    machine wrote it."""
    try:
        import polib
    except ImportError:
        raise missing_package("polib") from None
    try:
        catalogue = polib.pofile(str(path), check_for_duplicates=False)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UserError(
            f"{path}: not a PO file ({' '.join(str(error).split())}); give one that msgfmt accepts"
        ) from None
    untranslated = [
        entry
        for entry in catalogue
        if not entry.obsolete and entry.msgid and (entry.fuzzy or not entry.translated())
    ]
    texts = []
    for entry in untranslated:
        texts += [entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid]
    translations = iter(translate(texts))
    for entry in untranslated:
        if entry.msgid_plural:
            singular = next(translations)
            plural = next(translations)
            forms = entry.msgstr_plural or {0: "", 1: ""}
            entry.msgstr_plural = {form: plural if form else singular for form in forms}
        else:
            entry.msgstr = next(translations)
        if "fuzzy" not in entry.flags:
            entry.flags.append("fuzzy")
    return str(catalogue)


def tmx(path: Path, translate: Translate, source: str | None, target: str) -> str:
    """The memory with a segment in the language `target` for every unit that has one in `source`, which is the language of
    the file's header if it is None."""
    try:
        from defusedxml import DefusedXmlException, ElementTree
    except ImportError:
        raise missing_package("defusedxml") from None
    from xml.etree.ElementTree import Element, SubElement, tostring

    lang = "{http://www.w3.org/XML/1998/namespace}lang"
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, DefusedXmlException, OSError, ValueError) as error:
        raise UserError(
            f"{path}: not a TMX file ({' '.join(str(error).split())}); give well-formed XML without entity definitions"
        ) from None
    header = root.find("header")
    if root.tag != "tmx" or header is None:
        raise UserError(
            f"{path}: not a TMX file (its root is <{root.tag}>); give a file with <tmx> and <header>"
        )
    source = (source or header.get("srclang") or "").lower()

    def language(variant: Element) -> str:
        return (variant.get(lang) or variant.get("lang") or "").lower()

    untranslated = []
    for unit in root.iter("tu"):
        variants = {language(variant): variant for variant in unit.findall("tuv")}
        matching = [variant for name, variant in variants.items() if source in (name, name.split("-")[0])]
        if not matching or target.lower() in variants:
            continue
        segment = matching[0].find("seg")
        if segment is not None:
            untranslated.append((unit, "".join(segment.itertext())))
    translations = translate([text for _, text in untranslated])
    for (unit, _), text in zip(untranslated, translations, strict=True):
        SubElement(SubElement(unit, "tuv", {lang: target}), "seg").text = text
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"
