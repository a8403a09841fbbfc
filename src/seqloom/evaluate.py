"""What a model is worth on data: likelihood for all, and BLEU and chrF where records are pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import nn

from seqloom import tasks
from seqloom.data import Blocks, Windows
from seqloom.data.batch import Batch, Batches
from seqloom.generate import Coverage, Ensemble, Greedy, Pick, Text, beam, complete, generate, seeds
from seqloom.measure import Number, likelihood, pronunciation, sign, translation
from seqloom.measure.labels import Confusion
from seqloom.nn.state import State
from seqloom.run import Run
from seqloom.text.store import Store, build
from seqloom.text.tokenizer import signature


@torch.no_grad()
def totals(model: nn.Module, objective: Callable, batches: Iterator[Batch]) -> tuple[dict[str, float], int]:
    """The sum over the batches of each number that the objective gives, and how many tokens count."""
    training, sums, count = model.training, Counter({"nats": 0.0}), 0
    state: State = None
    model.eval()
    for batch in batches:
        _, numbers, state = objective(model, batch, state if batch.carry else None)
        sums.update(numbers)
        count += batch.weight
    model.train(training)
    return dict(sums), count


def nats(model: nn.Module, objective: Callable, batches: Iterator[Batch]) -> tuple[float, int]:
    """Σ -ln P over every counted token of the batches, and how many there are."""
    sums, count = totals(model, objective, batches)
    return sums["nats"], count


def octets(store: Store) -> int:
    """The UTF-8 bytes of what is predicted: the last field of each record."""
    return int(store.fields[-1].bytes[-1] - store.fields[-1].bytes[0])


class Answer(NamedTuple):
    """One text that a model wrote: ln P with its end, the score of the search, and whether it ended by itself."""

    text: str
    log_probability: float
    score: float
    finished: bool
    ids: tuple[int, ...] = ()


def together(runs: Sequence[Run]) -> Run:
    """Several runs as one that averages their probabilities [L6]: models of any kinds, with one tokenizer. It has the first one's config."""
    first, *others = runs
    for other in others:
        if signature(other.tokenizer) != signature(first.tokenizer) or other.ends != first.ends:
            raise ValueError(
                f"{other.folder}: its tokenizer is not that of {first.folder}; an ensemble needs one: train both on the same text, or with "
                f"tokenizer.type=File tokenizer.path={first.folder / 'tokenizer.json'}"
            )
    return Run(first.folder, first.recipe, first.tokenizer, Ensemble([run.model for run in runs])) if others else first


def answer(
    run: Run,
    texts: Sequence[str],
    pick: Pick = Greedy(),
    width: int = 1,
    penalty: float = 0.6,
    length: int = 200,
    nbest: int = 1,
    seed: int = 0,
    tokens: int = 4096,
    progress: Callable[[int], None] | None = None,
    coverage: float = 0.0,
    unknown: bool = False,
) -> list[list[Answer]]:
    """What the model writes for each text, `nbest` of each: a translator's translation, a language model's continuation.

    Texts of like length go together, as many as fit `tokens`. `width` above 1 is beam search, as is any with a `coverage` penalty. With
    `unknown` the model may write <unk>, which the text leaves out and `ids` show.
    """
    if not hasattr(run.model, "prompt"):
        raise ValueError(f"{run.folder}: a {type(run.model).__name__} writes no text; use a language model or a translator")
    ban, stop = tuple(token for token in run.banned if not (unknown and token == run.specials.unk)), run.specials.stops
    ids, mask = run.encode(list(texts), begin=run.model.continues)
    lengths = mask.sum(1)
    order = lengths.argsort(stable=True).tolist()
    written: list[list[Answer]] = [[] for _ in texts]
    chances = seeds(seed, len(texts))
    while order:
        rows = [order.pop()]
        while order and (len(rows) + 1) * int(lengths[rows[0]]) * max(width, nbest) <= tokens:
            rows.append(order.pop())
        longest = int(lengths[rows[0]])
        with torch.inference_mode():
            prompt, state, real = run.model.prompt(ids[rows, :longest], mask[rows, :longest], run.specials.bos)
        if width > 1 or coverage:
            cover = Coverage(coverage, mask[rows, :longest]) if coverage else None
            found = beam(run.model, prompt, state, real, width=width, length=length, penalty=penalty, nbest=nbest, stop=stop, ban=ban, coverage=cover)
        else:
            chosen = [chances[row] for row in rows]
            found = [[text] for text in complete(run.model, prompt, state, real, pick=pick, length=length, stop=stop, ban=ban, seed=chosen)]
            for row, (text,) in zip(rows, found, strict=True):
                go_on(run, ids[row, : lengths[row]].tolist(), text, pick, length, chances[row])
        for row, texts_found in zip(rows, found, strict=True):
            written[row] = [
                Answer(run.decode(t.ids), t.log_probability, getattr(t, "score", t.log_probability), t.finished, tuple(t.ids)) for t in texts_found
            ]
        if progress:
            progress(len(rows))
    return written


def go_on(run: Run, prompt: list[int], text: Text, pick: Pick, length: int, seed: int) -> None:
    """Lengthen a continuation that a full context cut short, from the last half of what fits, as often as it takes."""
    model = run.model
    while model.continues and model.context is not None and not text.finished and len(text.ids) < length:
        tail = [*prompt, *text.ids][-max(1, model.context // 2) :]
        left = length - len(text.ids)
        again = [seed + len(text.ids)]
        (more,) = complete(model, torch.tensor([tail]), pick=pick, length=left, stop=run.specials.stops, ban=run.banned, seed=again)
        text.ids += more.ids
        text.log_probability, text.finished = text.log_probability + more.log_probability, more.finished


def stream(run: Run, text: str, pick: Pick, length: int, seed: int = 0) -> Iterator[str]:
    """What `answer` gives for one text to continue, piece by piece as it comes."""
    ids, _ = run.encode([text], begin=True)
    known, begun, written, context, chance = ids[0].tolist(), ids.shape[1], "", run.model.context, seeds(seed, 1)[0]
    finished = False
    while not finished and (left := begun + length - len(known)) > 0:
        again = [chance + len(known) - begun]
        for step in generate(run.model, ids, pick=pick, length=left, stop=run.specials.stops, ban=run.banned, seed=again):
            if finished := bool(step.finished[0]):
                break
            known.append(int(step.tokens[0]))
            whole = run.decode(known[begun:])
            if not whole.endswith("\ufffd"):  # a character may take several tokens
                yield whole[len(written) :]
                written = whole
        if context is not None:
            ids = torch.tensor([known[-max(1, context // 2) :]])


def striding(run: Run, store: Store, window: int | None, stride: int | None) -> Batches:
    """The run's own data over the store, or windows of another width and stride: each token counts once, and all but those of the first window
    have at least window - stride tokens before them   [I5]"""
    if window is None and stride is None:
        return run.recipe.data(store)
    own = run.recipe.data(store)
    if not isinstance(own, Windows | Blocks):
        raise ValueError("--window and --stride are for language models, which read one long text; leave them out")
    window = window or min(own.width, run.model.context or own.width)
    stride = stride or window
    if not 0 < stride <= window or (run.model.context and window > run.model.context):
        most = f" and at most the {run.model.context} tokens that the model reads at once" if run.model.context else ""
        raise ValueError(f"--window {window} --stride {stride}: give a stride from 1 to the window{most}")
    return Windows(store, window, max(1, own.batch * own.width // window), stride)


def labelled(run: Run, store: Store, most: int | None = None) -> tasks.Measured:
    """The numbers of a run that gives labels: what its answers are worth, and -ln P of the right ones."""
    facts = {"data": store.digest[:12], "tokenizer": signature(run.tokenizer), "seed": run.recipe.seed}
    found = tasks.measure(run, store, facts, most)
    total, count = nats(run.model, run.recipe.objective, islice(run.recipe.data(store).once(), most))
    return found._replace(numbers=[*found.numbers, Number("nats per label", total / max(count, 1), sign("nats", {"labels": count, **facts}))])


def confused(run: Run, paths: list[str]) -> Confusion:
    """How often each label was taken for which."""
    found = labelled(run, build(run.recipe.reader(paths), run.tokenizer, labels=run.labels)).confusion if tasks.of(run.model) else None
    if found is None:
        raise ValueError(f"{run.folder}: a {type(run.model).__name__} gives no labels; leave --confusion out")
    return found


def held_out(run: Run, store: Store, most: int) -> list[Number]:
    """The numbers of at most `most` batches: the likelihood, or what labels are worth; bits per byte only where that is all of them."""
    if tasks.of(run.model):
        return labelled(run, store, most).numbers
    total, count = nats(run.model, run.recipe.objective, islice(run.recipe.data(store).once(), most))
    facts = {"data": store.digest[:12], "tokenizer": signature(run.tokenizer), "seed": run.recipe.seed}
    return likelihood(total, count, octets(store) if count == len(store.fields[-1].tokens) else 0, facts)


def evaluate(
    run: Run,
    paths: list[str],
    width: int = 1,
    penalty: float = 0.6,
    progress: Callable[[int], None] | None = None,
    window: int | None = None,
    stride: int | None = None,
) -> list[Number]:
    """Every number of a run on the given files, each with its signature. `window` and `stride` are of a language model's reading."""
    store = build(run.recipe.reader(paths), run.tokenizer, labels=run.labels)
    if tasks.of(run.model):
        return labelled(run, store).numbers
    if not hasattr(run.model, "output"):
        raise ValueError(f"{run.folder}: an {type(run.model).__name__} has no output to measure; embed texts with it, or train a task from it")
    facts = {"data": store.digest[:12], "tokenizer": signature(run.tokenizer), "seed": run.recipe.seed}
    source = striding(run, store, window, stride)
    facts |= {name: getattr(source, name) for name in ("width", "stride", "rate") if hasattr(source, name)}
    sums, count = totals(run.model, run.recipe.objective, source.once())
    numbers = likelihood(sums["nats"], count, octets(store) if count == len(store.fields[-1].tokens) else 0, facts)
    for name, right, of in (("accuracy", "right", count), ("next segment", "told", sums.get("pairs", 0))):
        if right in sums:
            numbers.append(Number(name, 100 * sums[right] / max(of, 1), sign("accuracy", {"of": int(of), **facts})))
    if len(store.fields) == 2:
        records = list(run.recipe.reader(paths))
        outputs = answer(run, [record[0] for record in records], width=width, penalty=penalty, progress=progress)
        facts |= {"search": f"beam{width}-{penalty}" if width > 1 else "greedy"}
        texts, (sources, targets) = [found[0].text for found in outputs], zip(*records, strict=True)
        spoken = run.recipe.parts["corpus"].func.measure == "pronunciation"
        numbers += pronunciation(sources, texts, targets, facts) if spoken else translation(texts, targets, facts)
    return numbers
