"""From a config to what a training needs: options, tokenizer, stores, the initial model, and the job of the loop. What the data holds is
logged before the training begins."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from seqloom import config_tree, evaluation, layouts
from seqloom.batches.batch import Batches, first_rows
from seqloom.errors import ConfigError
from seqloom.models.base import Model
from seqloom.nn.embedding import Embedding
from seqloom.results import ProgressOption, Reporter
from seqloom.run import Run
from seqloom.run_config import Config
from seqloom.text import labels, tokenizer, tokenizer_file
from seqloom.text.store import Store
from seqloom.train.budget import affordable_rows, count_parameters, refuse_parameters
from seqloom.train.options import (
    SGD,
    AdamW,
    ByValue,
    Constant,
    Cosine,
    GlobalNorm,
    InverseSquareRoot,
    LinearDecay,
    NoClip,
    PerTensor,
    TrainJob,
    TrainOptions,
)
from seqloom.train.process import ProcessGroup

if TYPE_CHECKING:
    from seqloom.train.finetune import InitReport
    from seqloom.train.solvers import Solver

OPTIMIZERS = (AdamW, SGD)
CLIPS = (GlobalNorm, PerTensor, ByValue, NoClip)
SCHEDULES = (Constant, LinearDecay, Cosine, InverseSquareRoot)
MANY_HELD_OUT = 50  # records above which a share that is too large is warned of
logger = logging.getLogger("seqloom.train")
TRAIN_PARTS: config_tree.Names = {part.__name__: part for part in (*OPTIMIZERS, *CLIPS, *SCHEDULES)}
PROFILE_PAIRS = 2000  # pairs that the profiles of the languages are made of


def build_options(config: Config) -> TrainOptions | Solver:
    """The options in the `train` section of a config: of gradient steps, or of the solver that its `type` names."""
    return read_options(config.tree, config.lines)


def read_options(tree: config_tree.Tree, lines: config_tree.Locations) -> TrainOptions | Solver:
    """The options in the `train` section of a tree."""
    section = tree.get("train", {})
    if isinstance(section, dict) and "type" in section:
        from seqloom.train.solvers import SOLVERS

        return config_tree.build(section, SOLVERS, "train", lines)()
    return config_tree.options(TrainOptions, section, TRAIN_PARTS, "train", lines)()


class PreparedRun(NamedTuple):
    """A config with its tokenizer, data and initial model."""

    config: Config
    tokenizer: Tokenizer
    train: Store
    valid: Store
    model: Model
    init_report: InitReport | None
    labels: Sequence[str] = ()


def prepare(
    config: Config,
    saved: Path | None = None,
    progress: ProgressOption = False,
    is_main: bool = True,
    describes_data: bool = True,
    resumes: bool = False,
) -> PreparedRun:
    """Builds the tokenizer, the stores and the model; reads the tokenizer and the labels of a run folder if it has them.

    `saved` is the path of the run's tokenizer.json; `resumes` says that its weights come from a checkpoint.
    Only the main process logs what it does, and what the data is if `describes_data`.
    Sizes that do not fit each other raise before any data is read,
    and sizes that do not fit the data raise before anything is written.
    """
    meta_model = config.meta_model()
    refuse_parameters(config, count_parameters(meta_model))
    if saved and saved.exists():
        trained_tokenizer = tokenizer_file.load(saved)
    else:
        trained_tokenizer = base_tokenizer(config) or layouts.with_family_template(
            meta_model, config.tokenizer()
        )
    if saved and saved.with_name("labels.json").exists():
        label_names: Sequence[str] = labels.load(saved.with_name("labels.json"))
    else:
        label_names = config.labels()
    what = "tokenizing, MB" if meta_model.reads == "text" else "reading, MB"
    with Reporter(what, progress=progress if is_main else False) as report:
        train, valid = config.stores(trained_tokenizer, lambda size: report.advance(size / 1e6), label_names)
    check_positions(config, meta_model, [train, valid])
    if is_main and describes_data and not (saved and saved.exists()):
        log_data(config, train, valid, label_names)
        if config.lines.preset == "sft" and not config.finetunes:
            logger.warning(
                "sft: without --from RUN the model begins with random weights; name a run that was trained before to tune it"
            )
    refuse_parameters(config, count_parameters(config.meta_model(trained_tokenizer.get_vocab_size())))
    model = config.model(trained_tokenizer.get_vocab_size(), label_names)
    if model.predicts_labels:
        model.set_unk_id(train.specials.unk)
    if not resumes:
        if any(isinstance(part, Embedding) and part.vectors is not None for part in model.modules()):
            from seqloom.train.initialize import load_word_vectors

            load_word_vectors(model, trained_tokenizer)
        if model.predicts_labels or model.reads == "audio":
            from seqloom.train.initialize import initialize_from_data

            initialize_from_data(model, train, label_names)
    init_report = None
    if config.finetunes:
        from seqloom.train import finetune

        init_report = finetune.initialize(model, config, saved.parent if saved and resumes else None)
        if init_report and is_main:
            for line in init_report.lines(model):
                logger.info("%s", line)
    batch, _ = next(make_data(config, model, trained_tokenizer)(train).batches())
    with torch.no_grad():
        config.objective(model, first_rows(batch, affordable_rows(model, batch)), None)
    return PreparedRun(config, trained_tokenizer, train, valid, model, init_report, label_names)


def check_positions(config: Config, model: Model, stores: Sequence[Store]) -> None:
    """Raises for chats that are longer than the positions that the model has."""
    context, batches = model.context, config.parts["batches"]
    parameters = inspect.signature(batches).parameters
    if context is None or "max_length" not in parameters:
        return
    columns = [column for store in stores for column in store.columns("chat")]
    longest = max((int(column.sizes(np.arange(column.num_records)).max()) for column in columns), default=0)
    if min(longest, parameters["max_length"].default) - 1 > context:  # the last token is a target only
        raise ConfigError(
            f"{config.lines.locate('batches.max_length')}: the longest chat has {longest} tokens, more than the {context} learned "
            f"positions of the model; cut chats with batches.max_length={context}, or train a model with a larger position.length"
        )


def base_tokenizer(config: Config) -> Tokenizer | None:
    """The tokenizer of the run that a config fine-tunes; None if it fine-tunes none."""
    if not config.finetunes:
        return None
    from seqloom.train.finetune import source_tokenizer

    return source_tokenizer(config)


def make_data(
    config: Config, model: Model, tokenizer: Tokenizer, group: ProcessGroup = ProcessGroup()
) -> Callable[[Store], Batches]:
    """How a store becomes batches; training from feedback adds what its objective needs of a reference and a reward."""
    if not config.uses_feedback:
        return config.data
    from seqloom.train.feedback import FeedbackData

    return FeedbackData(config, model, tokenizer, group).data


def data_digests(prepared: PreparedRun) -> dict[str, str]:
    """Digests of the data that a run is trained on."""
    digests = {
        "training data": prepared.train.digest,
        "held-out data": prepared.valid.digest,
        "tokenizer": tokenizer.signature(prepared.tokenizer),
    }
    if prepared.labels:
        digests["labels"] = labels.signature(prepared.labels)
    return digests


def make_job(folder: Path, prepared: PreparedRun, group: ProcessGroup = ProcessGroup()) -> TrainJob:
    """The job of a training that begins."""
    config, model = prepared.config, prepared.model
    data = make_data(config, model, prepared.tokenizer, group)
    return TrainJob(
        folder,
        model,
        config.objective,
        data(prepared.train),
        data(prepared.valid),
        group,
        config.seed,
        lr_factors(model, config),
        partial(count_bytes, folder, prepared),
    )


def lr_factors(model: Model, config: Config) -> dict[str, float]:
    """Factors of the learning rate by parameter, if the config fine-tunes a run."""
    if not config.finetunes:
        return {}
    from seqloom.train import finetune

    return finetune.lr_factors(model, config)


def count_bytes(folder: Path, prepared: PreparedRun, count: int) -> int:
    """The UTF-8 bytes of the held-out text if `count` tokens are all of it, else 0."""
    if not prepared.model.predicts_tokens:
        return 0
    return evaluation.utf8_bytes(as_run(folder, prepared), prepared.valid, count)


def as_run(folder: Path, prepared: PreparedRun) -> Run:
    return Run(folder, prepared.config, prepared.tokenizer, prepared.model, prepared.labels)


def log_data(config: Config, train: Store, valid: Store, labels: Sequence[str]) -> None:
    """Logs what the training files hold and what is held out; suspicions are warnings."""
    reader = config.reader(config.files.train)
    if reader.is_plain:
        names, text = ", ".join(Path(path).name for path in reader.paths), train.fields[0]
        logger.info(
            "%s: %s bytes, %s tokens to learn from", names, f"{text.num_bytes:,}", f"{text.num_tokens:,}"
        )
    else:
        from seqloom.text.summary import TRAINING_RECORDS, describe

        summary = describe(reader, TRAINING_RECORDS)
        for line in summary.lines():
            logger.info("%s", line)
        for warning in summary.warnings:
            logger.warning("%s", warning)
    logger.info("held out: %s", held_out(config, train, valid, labels))
    if config.files.valid:
        warn_of_swapped_valid(config)


def warn_of_swapped_valid(config: Config) -> None:
    """Logs a warning if the held-out source looks more like the target that is learnt than like its source."""
    profiles = language_profiles(config)
    if not profiles:
        return
    from seqloom.text.pair_checks import looks_swapped

    reader = config.reader(config.files.valid)
    if looks_swapped(profiles, [pair[0] for pair in islice(reader, PROFILE_PAIRS)]):
        logger.warning(
            "%s: the held-out source looks like the target language of the training data; "
            "give --valid its files in the order of --data",
            config.files.valid[0],
        )


def held_out(config: Config, train: Store, valid: Store, labels: Sequence[str]) -> str:
    """What is held out, in a few words."""
    if config.files.valid:
        how = "given files"
    elif config.files.split == "content":
        share, wanted = len(valid) / max(len(valid) + len(train), 1), config.files.valid_fraction
        is_near = abs(share - wanted) < 0.2 * wanted
        how = f"a share of {wanted if is_near else share:.2g}, drawn by content"
        if share > 2 * wanted and len(valid) > MANY_HELD_OUT:
            logger.warning(
                "equal records are held out together, so that %.2g of the data is held out instead of %g: it has few different "
                "records; check the columns, or give a file as --valid",
                share,
                wanted,
            )
    else:
        share = valid.fields[0].num_tokens / max(valid.fields[0].num_tokens + train.fields[0].num_tokens, 1)
        wanted = config.files.valid_fraction
        is_exact = (
            abs(share - wanted) < 0.1 * wanted
        )  # of little data more is held out, so that there is something to measure
        how = f"the last {wanted if is_exact else share:.3g} of the data"
    if config.kinds() == ("text",):
        return f"{how}, {valid.fields[0].num_bytes:,} bytes"
    counts = ""
    if columns := valid.columns("label"):
        from seqloom.text.summary import SHOWN_LABELS

        numbers = np.bincount(columns[0].gathered().tokens.astype(np.int64), minlength=len(labels))
        named = list(zip(labels, numbers.tolist(), strict=True))[:SHOWN_LABELS]
        counts = ": " + ", ".join(f"{label} {number:,}" for label, number in named)
        counts += f" and {len(labels) - SHOWN_LABELS:,} more" if len(labels) > SHOWN_LABELS else ""
    return f"{len(valid):,} records, {how}{counts}"


def language_profiles(config: Config) -> list[dict[str, float]]:
    """The character trigrams of both sides of the training pairs; empty if records are no pairs of two texts."""
    reader = config.reader(config.files.train)
    if reader.kinds != ("text", "text") or reader.measure == "pronunciation":
        return []
    from seqloom.text.pair_checks import trigram_profile

    pairs = list(islice(reader, PROFILE_PAIRS))
    return [trigram_profile(pair[side] for pair in pairs) for side in (0, 1)]
