"""Verbs: vectors of texts, and how probable texts are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from seqloom.cli.app import USE, app, print_result
from seqloom.cli.generate import token_lines
from seqloom.cli.inputs import open_run, read_texts
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
from seqloom.cli.outputs import check_output
from seqloom.errors import DataError, UserError

if TYPE_CHECKING:
    from seqloom.inference.scoring import Pair
    from seqloom.run import Run

SAMPLE = 256  # texts that are also embedded in float32, to report the error of int8
logger = logging.getLogger("seqloom.cli")


@app.command(group=USE)
def embed(
    run: RunPath,
    /,
    *texts: str,
    file: Files = None,
    max_input_tokens: Count = 256,
    quantize: Kind | None = None,
    out: OutPath = None,
    overwrite: Overwrite = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Embed texts as vectors of length 1.

    A vector is the mean of a model's features over the tokens of a text. Without --out the vectors are printed, one on each line.

    Examples:
      seqloom embed runs/minilm "a cat sits on the mat"
      seqloom embed runs/minilm --file sentences.txt --out vectors.npy
      seqloom embed runs/minilm --file sentences.txt --max-input-tokens 128 --json

    Parameters
    ----------
    run
        The run folder, such as an imported MiniLM.
    texts
        Texts to embed.
    file
        Files with a text on each line; - or nothing is stdin.
    max_input_tokens
        A longer text is cut there.
    quantize
        int8: one byte for each weight. Logs how close the vectors are to full precision.
    out
        A .npy file to write the vectors to.
    overwrite
        Replace the file that is already there.
    """
    import numpy as np

    from seqloom.files import open_atomic
    from seqloom.inference.embeddings import Embedder
    from seqloom.inference.one_or_many import in_blocks
    from seqloom.inference.unknown_text import UnknownText

    check_output(out, overwrite)
    if out is not None and out.suffix != ".npy":
        raise UserError(f"{out}: vectors are written as .npy; choose a name with that ending")
    if any(not text.strip() for text in texts):
        raise UserError("an empty text has no vector; give a text with words in it")
    given = read_texts(texts, file, 'seqloom embed RUN "a cat sits on the mat"')
    blank = BlankLines()
    given = blank.counted(given)
    loaded = open_run(run, machine.threads)
    if quantize:
        sample = list(islice(given, SAMPLE))
        given = chain(sample, given)
        loaded = quantized(loaded, quantize, sample, max_input_tokens)
    embedder = Embedder(loaded, True, max_input_tokens)
    unknown = UnknownText(loaded)
    if out is not None:
        lines = list(given)
        vectors = embedder(lines)
        unknown.add_all(lines)
        with open_atomic(out) as target:
            np.save(target, vectors)
        blank.warn()
        unknown.warn()
        report = {"vectors": str(out), "count": len(vectors), "dim": vectors.shape[1]}
        logger.info("%s vectors of %d numbers", f"{len(vectors):,}", vectors.shape[1])
        print_result(report, [f"vectors: {out}"], common.json)
        return

    def embed_block(block: list[str]) -> list[tuple[str, np.ndarray]]:
        return list(zip(block, embedder(block), strict=True))

    for text, vector in in_blocks(given, unknown.watch(embed_block)):
        numbers = [round(float(value), 6) for value in vector]
        line = " ".join(f"{value:.6f}" for value in numbers)
        print_result({"text": text, "vector": numbers}, [line], common.json)
    blank.warn()
    unknown.warn()


class BlankLines:
    """Counts the texts without words among those that pass."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self, texts: Iterator[str]) -> Iterator[str]:
        for text in texts:
            self.count += not text.strip()
            yield text

    def warn(self) -> None:
        if self.count:
            logger.warning("blank lines: %d; each has the vector of an empty text", self.count)


def quantized(run: Run, kind: str, sample: list[str], max_input_tokens: int) -> Run:
    """The run with int8 weights; logs how close its vectors are to those in float32."""
    from seqloom.inference.derived_runs import quantize
    from seqloom.inference.embeddings import Embedder

    result = quantize(run, kind)
    if sample:
        exact, rounded = (Embedder(one, True, max_input_tokens)(sample) for one in (run, result))
        cosines = (exact * rounded).sum(1)
        logger.info(
            "%s: cosine to full precision %.5f, lowest %.5f, over %d texts",
            kind,
            cosines.mean(),
            cosines.min(),
            len(cosines),
        )
    return result


@app.command(group=USE)
def score(
    run: RunPath,
    /,
    *texts: str,
    file: Files = None,
    per_token: bool = False,
    quantize: Kind | None = None,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Print how probable a model finds texts.

    Prints ln P, the number of scored tokens, the perplexity (– without tokens) and the text, between tabs. A translator scores pairs:
    a text, a tab and its translation. Of a masked model it is the pseudo-log-likelihood.

    Examples:
      seqloom score runs/gpt "To be, or not to be" "To be or to be not"
      seqloom score runs/gpt "To be, or not to be" --per-token
      seqloom score runs/translator --file pairs.tsv --json

    Parameters
    ----------
    run
        The run folder.
    texts
        Texts to score.
    file
        Files with a text on each line; - or nothing is stdin.
    per_token
        Also ln p of each token, one on each line.
    quantize
        int8: one byte for each weight, faster to read.
    """
    from seqloom.inference.one_or_many import in_blocks
    from seqloom.inference.scoring import scorer, texts_read
    from seqloom.inference.unknown_text import UnknownText

    given = read_texts(texts, file, 'seqloom score RUN "To be"')
    loaded = open_run(run, machine.threads, quantize)
    unknown = UnknownText(loaded)
    work = unknown.watch(scorer(loaded), partial(texts_read, loaded))

    if loaded.model.task == "language modelling" and loaded.starts_bare:
        logger.info("nothing precedes a text of this model: the first token is context and is not scored")
    for found in in_blocks((scored_pair(loaded, line) for line in given), work, unknown.warn):
        perplexity = "–" if found.perplexity is None else f"{found.perplexity:.4f}"
        line = f"{found.logprob:.4f}\t{len(found.tokens)}\t{perplexity}\t{found.text}"
        line += "" if found.target is None else f"\t{found.target}"
        tokens = token_lines(found.token_logprobs, found.tokens) if per_token else ()
        print_result(found.to_dict(), [line, *tokens], common.json)


def scored_pair(run: Run, line: str) -> Pair:
    """The text of a line; for a translator, the two texts that a tab separates."""
    from seqloom.inference.scoring import Pair

    if run.model.task != "translation":
        return Pair(line, None)
    if line.count("\t") != 1:
        raise DataError(
            f"{line[:60]!r}: a translator scores a text and its translation with one tab between them"
        )
    return Pair(*line.split("\t"))
