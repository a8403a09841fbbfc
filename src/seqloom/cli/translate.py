"""Verbs: translate texts, lines, PO and TMX files; split a pronouncing dictionary."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from seqloom.cli.app import USE, app, json_text, print_result
from seqloom.cli.decoding_options import Translating, TranslatingOptions
from seqloom.cli.inputs import check_texts, input_files, iterate_files, open_run
from seqloom.cli.options import (
    Common,
    CommonOptions,
    Count,
    Files,
    Kind,
    Machine,
    MachineOptions,
    OutPath,
    Overwrite,
    RunPath,
)
from seqloom.cli.outputs import check_output, write_pieces
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.decoding import DecodingPlan
    from seqloom.inference.translation import Translation
    from seqloom.run import Run

EXAMPLE = 'seqloom translate RUN "A man sleeps."'
Runs = Annotated[list[Path] | None, Parameter(consume_multiple=False, metavar="RUN")]
logger = logging.getLogger("seqloom.cli")


@app.command(group=USE)
def translate(
    run: RunPath,
    /,
    *texts: str,
    file: Files = None,
    decoding: TranslatingOptions = Translating(),
    ensemble: Runs = None,
    align: bool = False,
    replace_unknowns: bool = False,
    lexicon: Path | None = None,
    why: Annotated[str | None, Parameter(show=False)] = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    out: OutPath = None,
    overwrite: Overwrite = False,
    quantize: Kind | None = None,
    workers: Count = 1,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Translate texts, lines, PO catalogues or TMX memories.

    Tags and placeholders are kept. Each line is printed as soon as it is translated; a file is written when all of it is translated.

    Examples:
      seqloom translate runs/transformer "A man sleeps."
      seqloom translate runs/transformer --file text.en --out text.de
      seqloom translate runs/transformer "A man sleeps." --n 3 --align

    Parameters
    ----------
    run
        The run folder.
    texts
        Texts to translate.
    file
        Files of lines, or one .po or .tmx file; - or nothing is stdin.
    ensemble
        Another run with the same tokenizer, whose probabilities are averaged with the first; may be repeated.
    align
        Add which source word each word comes from, as in ||| 0-0 1-2, read from attention.
    replace_unknowns
        Unknown words are generated, and replaced by the source word that they attend to.
    lexicon
        A file with a word, a tab and its translation on each line: unknown words are replaced by way of it.
    source_lang
        Source language of a TMX file (its header's by default).
    target_lang
        Target language of a TMX file.
    out
        The file to write; stdout by default.
    overwrite
        Replace the file that is already there.
    quantize
        int8: one byte per weight, faster to read.
    workers
        How many workers share the lines, one thread each: faster than more threads if there are many lines.
    """
    from seqloom.decoding import Decoding
    from seqloom.inference.completion import Execution
    from seqloom.inference.derived_runs import ensemble as join_runs
    from seqloom.inference.lexicon import read_lexicon
    from seqloom.inference.one_or_many import in_blocks
    from seqloom.inference.translation import (
        TranslationJob,
        check_job,
        check_translates,
        checked_translation,
        translate_texts,
    )
    from seqloom.inference.unknown_text import UnknownText

    check_output(out, overwrite)
    files = input_files(texts, file, EXAMPLE)
    words = read_lexicon(lexicon) if lexicon else {} if replace_unknowns else None
    loaded = join_runs(*(open_run(folder, machine.threads, quantize) for folder in (run, *(ensemble or []))))
    check_translates(loaded)
    settings = Decoding().with_options(decoding.options(machine.seed))
    plan = settings.plan(loaded.decoding, allow_unk=words is not None)
    lines = iterate_files(files) if files else iter(texts)
    if why is not None:
        explain_search(loaded, " ".join(lines).strip(), why, plan, common.json)
        return
    job = TranslationJob(plan, align, words, Execution(workers=workers))
    check_job(loaded, job)

    unknown = UnknownText(loaded)

    def best_of(sources: list[str]) -> list[str]:
        single = job._replace(align=False)
        unknown.add_all(sources)
        return [translation.text for translation in translate_texts(loaded, single, sources)]

    structured = [name for name in files if Path(name).suffix.lower() in (".po", ".tmx")]
    if structured:
        if len(files) > 1:
            raise UserError(f"{structured[0]}: a .po or .tmx file is translated by itself; give one --file")
        pieces = iter([fill_catalogue(Path(structured[0]), best_of, source_lang, target_lang)])
    else:
        translations = in_blocks(lines, checked_translation(loaded, job, unknown))
        pieces = (format_translation(translation, common.json) + "\n" for translation in translations)
    write_pieces(pieces, out, "translating", common.progress)
    unknown.warn()


def fill_catalogue(
    file: Path, translate: Callable[[list[str]], list[str]], source_lang: str | None, target_lang: str | None
) -> str:
    """A PO catalogue or a TMX memory with what was missing in it."""
    from seqloom.inference import po_tmx

    if file.suffix.lower() == ".po":
        return po_tmx.po(file, translate)
    if not target_lang:
        raise UserError(f"{file}: no language to add: pass it as in --target-lang de")
    return po_tmx.tmx(file, translate, source_lang, target_lang)


def format_translation(translation: Translation, json: bool) -> str:
    """A translation as JSON, or the texts of its outputs between tabs, each with its alignment if it has one."""
    from seqloom.inference.alignment import format_pairs

    if json:
        return json_text(translation.to_dict())
    cells = [output.text for output in translation.outputs]
    if translation.alignments:
        aligned = zip(cells, translation.alignments, strict=True)
        cells = [f"{cell} ||| {format_pairs(alignment.words())}" for cell, alignment in aligned]
    return "\t".join(cells)


def explain_search(run: Run, text: str, target: str, plan: DecodingPlan, json: bool) -> None:
    """Prints why the search did not choose a translation."""
    from seqloom.inference.search_report import explain_translation

    if plan.coverage_penalty or plan.allow_unk:
        raise UserError("--why supports neither --coverage-penalty nor unknown words: drop the options")
    logger.warning("translate --why is now: seqloom inspect beam RUN TEXT --why TARGET")
    check_texts([target], "--why")
    report, lines = explain_translation(run, text, target, plan.beam, plan.length_penalty)
    print_result(report, lines, json)
