"""The coreference probe: what is "it", the animal or the street?   [T13, X22]

In the built-in world the adjective decides: too tired, and French says il; too wide, and it says elle. A translator that has read the
sentence gives both pronouns after the same French words; d = ln P(right) - ln P(wrong) is its decision. An edge of attention carries the
decision if hiding it changes d: edges from "it" in the encoder, and from the place of the pronoun to the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import DataError, RunError
from seqloom.inspect.attention_maps import BATCH_TOKENS
from seqloom.inspect.given_texts import check_texts
from seqloom.inspect.reading import Reading, picked, pieces
from seqloom.inspect.refusals import refusal
from seqloom.inspect.removed_edges import AttentionLayer, HideEdges, attention_layers
from seqloom.inspect.token_list import framed_spans
from seqloom.nn.capture import capture, change
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.run import Run, RunLike, as_run
from seqloom.world import Scene, describe, scenes

PRONOUN = re.compile(r"\b(il|elle) (est|était)\b")
OTHER = {"il": "elle", "elle": "il"}
EXAMPLES = (
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
)


@dataclass(frozen=True)
class Decision(Result):
    """One sentence: what "it" means, both pronouns after the French words before them, and ln P of each."""

    english: str
    french: str  # the words before the pronoun
    meant: str
    right: str
    wrong: str
    right_logprob: float
    wrong_logprob: float

    @property
    def correct(self) -> bool:
        return self.right_logprob > self.wrong_logprob


@dataclass(frozen=True)
class DecisionEdge(Result):
    """One edge of attention, and the change of d when it is hidden."""

    sentence: int
    layer: str
    head: int
    reads: str  # source: from "it"; cross: from the place of the pronoun
    query: str
    key: str
    weight: float
    effect: float


@dataclass(frozen=True)
class DecisionLayer(Result):
    """The change of d when all heads of a layer lose their edges from "it", or from the pronoun, to one word."""

    sentence: int
    layer: str
    reads: str
    key: str
    effect: float


@dataclass(frozen=True)
class Coreference(Result):
    """The decisions of a translator on sentences of the world, and what carries those of the first sentences."""

    run: str
    decisions: tuple[Decision, ...] = field(repr=False)
    accuracy: float
    pairs: int  # sentences that differ in the adjective only, two by two
    pair_accuracy: float | None  # both of a pair right
    edges: tuple[DecisionEdge, ...] = field(repr=False)
    layers: tuple[DecisionLayer, ...] = field(repr=False)


def coreference(
    run: RunLike,
    texts: Sequence[str] = EXAMPLES,
    *,
    pairs: int = 50,
    seed: int = 0,
    progress: ProgressOption = False,
) -> Coreference:
    """Both pronouns for each text, with the edges that carry the decision, and the accuracy on `pairs` pairs of the world.

    >>> seqloom.inspect.coreference(translator)
    Traceback (most recent call last):
        ...
    seqloom.errors.RunError: ...its tokenizer writes il and elle alike, as unknown words; train it on the world, as seqloom demo does
    """
    run = as_run(run)
    if run.model.task != "translation":
        raise refusal(
            run,
            "coreference",
            "asks for a French pronoun, so it needs a translator of the world, as seqloom demo trains one",
        )
    found = [scene_of(text) for text in check_texts(texts, least=0)]
    decisions: list[Decision] = []
    edges: list[DecisionEdge] = []
    layers: list[DecisionLayer] = []
    with Reporter("sentences", len(found) + 2 * pairs, progress) as report:
        for number, scene in enumerate(found):
            question = ask(run, scene)
            decisions.append(question.decision)
            some, by_layer = edges_of(run, scene, question, number)
            edges += some
            layers += by_layer
            report.advance()
        for pair in minimal_pairs(pairs, seed):
            decisions += [ask(run, scene).decision for scene in pair]
            report.advance(2)
    right = [decision.correct for decision in decisions]
    paired = right[len(found) :]
    both = [a and b for a, b in zip(paired[::2], paired[1::2], strict=True)]
    return Coreference(
        str(run.folder),
        tuple(decisions),
        float(np.mean(right)),
        len(both),
        float(np.mean(both)) if both else None,
        tuple(edges),
        tuple(layers),
    )


def scene_of(text: str) -> Scene:
    """The scene of a sentence with "it"."""
    scene = describe(text)
    if scene.antecedent is None or not PRONOUN.search(scene.french):
        raise DataError(f'{text!r} has no "it" that means a noun; give one such as {EXAMPLES[0]!r}')
    return scene


def minimal_pairs(count: int, seed: int) -> Iterator[tuple[Scene, Scene]]:
    """Pairs of sentences that differ in the last adjective, which decides what "it" means and so the French pronoun.

    Candidates are drawn from the world; the other adjective is one that was drawn with another antecedent.
    """
    adjectives: dict[str, None] = {}
    seen: set[str] = set()
    left = count
    for scene in scenes(400 * count, seed):
        if not left:
            return
        if scene.antecedent is None or not PRONOUN.search(scene.french):
            continue
        stem, adjective = " ".join(scene.english.split()[:-1]), scene.words[-2]
        adjectives[adjective] = None
        if stem in seen:
            continue
        for other in adjectives:
            partner = partner_of(scene, stem, other)
            if partner is not None:
                seen.add(stem)
                left -= 1
                yield scene, partner
                break


def partner_of(scene: Scene, stem: str, adjective: str) -> Scene | None:
    """The sentence with another adjective, if "it" then means the other noun and French says so."""
    if adjective == scene.words[-2]:
        return None
    try:
        partner = describe(f"{stem} {adjective}.")
    except DataError:
        return None
    first, second = PRONOUN.search(scene.french), PRONOUN.search(partner.french)
    if partner.antecedent in (None, scene.antecedent) or not first or not second or first[1] == second[1]:
        return None
    return partner


class Question(NamedTuple):
    """A sentence ready to be asked: its decision, d as a reading, the decoder's position before the pronoun."""

    decision: Decision
    reading: Reading
    place: int


def ask(run: Run, scene: Scene) -> Question:
    """Both pronouns after the same French words."""
    found = list(PRONOUN.finditer(scene.french))[-1]
    before, pronoun, verb = scene.french[: found.start()], found[1], found[2]
    targets = [
        run.tokenizer.encode(f"{before}{word} {verb}", add_special_tokens=False).ids
        for word in (pronoun, OTHER[pronoun])
    ]
    shared = next(
        (at for at, (a, b) in enumerate(zip(*targets, strict=False)) if a != b), min(map(len, targets))
    )
    if targets[0] == targets[1]:
        raise RunError(
            f"{run.folder}: its tokenizer writes il and elle alike, as unknown words; train it on the world, as seqloom demo does"
        )
    source, mask = run.encode([scene.english])
    bos = run.specials.bos
    first = run.specials.first_id if bos is None else bos

    def log_probability(batch: int, target: list[int]) -> Tensor:
        start, state, _ = run.model.prepare_prompt(source.expand(batch, -1), mask.expand(batch, -1), first)
        wanted = torch.tensor([target])
        ids = torch.cat([start, wanted[:, :-1].expand(batch, -1)], 1)
        return picked(run.model(ids, state)[0], wanted)[:, shared:].sum(1)

    def scores(batch: int) -> Tensor:
        return (log_probability(batch, targets[0]) - log_probability(batch, targets[1]))[:, None]

    with torch.no_grad():
        right, wrong = (float(log_probability(1, target)) for target in targets)
    meant = scene.words[scene.antecedent[1]] if scene.antecedent else ""
    decision = Decision(scene.english, before.strip(), meant, pronoun, OTHER[pronoun], right, wrong)
    tokens = pieces(run, [first, *targets[0][:-1]])
    reading = Reading(
        tokens, pieces(run, source[0].tolist()), (f"{pronoun} - {OTHER[pronoun]}",), "d", scores
    )
    return Question(decision, reading, shared)


class Variant(NamedTuple):
    """Edges that are hidden together: of one layer, rows (head, query, key)."""

    layer: int
    rows: tuple[tuple[int, int, int], ...]


def edges_of(
    run: Run, scene: Scene, question: Question, number: int
) -> tuple[list[DecisionEdge], list[DecisionLayer]]:
    """The effects of the edges from "it" in the encoder, and from the place of the pronoun to the source: one by one, and for each
    word those of all heads of a layer together."""
    reading = question.reading
    layers = [layer for layer in attention_layers(run.model, True) if layer.reads in ("source", "cross")]
    if not layers:
        return [], []
    spans = framed_spans(run, scene.english)
    it = re.search(r"\bit\b", scene.english)
    asking = [
        position
        for position, span in enumerate(spans)
        if it and span is not None and span[0] < it.end() and span[1] > it.start()
    ]
    with torch.no_grad(), capture(run.model, *(f"{layer.path}.weights" for layer in layers)) as captured:
        reading.scores(1)
    variants: list[Variant] = []
    weights: dict[tuple[int, int, int, int], float] = {}
    for index, layer in enumerate(layers):
        found = captured.all()[f"{layer.path}.weights"][0].numpy()  # (H, T, S), of the right pronoun
        queries = asking if layer.reads == "source" else [question.place]
        for query in queries:
            visible = np.flatnonzero((found[:, query] > 0).any(0)).tolist()
            if len(visible) < 2:
                continue
            for key in visible:
                rows = [(head, query, key) for head in range(len(found))]
                variants += [Variant(index, tuple(rows)), *(Variant(index, (row,)) for row in rows)]
                weights |= {(index, *row): float(found[row]) for row in rows}
    effects = variant_effects(run, reading, layers, variants)
    edges: list[DecisionEdge] = []
    by_layer: list[DecisionLayer] = []
    for variant, effect in zip(variants, effects.tolist(), strict=True):
        layer = layers[variant.layer]
        head, query, key = variant.rows[0]
        key_name = reading.source[key].strip()
        if len(variant.rows) > 1:
            by_layer.append(DecisionLayer(number, layer.path, layer.reads, key_name, effect))
            continue
        query_name = reading.source[query].strip() if layer.reads == "source" else question.decision.right
        weight = weights[variant.layer, head, query, key]
        edges.append(
            DecisionEdge(number, layer.path, head, layer.reads, query_name, key_name, weight, effect)
        )
    return edges, by_layer


def variant_effects(
    run: Run, reading: Reading, layers: list[AttentionLayer], variants: Sequence[Variant]
) -> np.ndarray:
    """The change of d by hiding the edges of each variant, many copies at a time."""
    size = max(1, BATCH_TOKENS // (len(reading.tokens) + len(reading.source)))
    found: list[np.ndarray] = []
    with torch.no_grad():
        unchanged = float(reading.scores(1))
        for start in range(0, len(variants), size):
            part = variants[start : start + size]
            changes = {}
            for index, layer in enumerate(layers):
                rows = [
                    (copy, *row) for copy, one in enumerate(part) if one.layer == index for row in one.rows
                ]
                if rows:
                    name, value = ("score", float("-inf")) if layer.softmax else ("weights", 0.0)
                    changes[f"{layer.path}.{name}"] = HideEdges(np.array(rows), value)
            with change(run.model, changes):
                found.append((reading.scores(len(part))[:, 0].double() - unchanged).numpy())
    return np.concatenate(found) if found else np.zeros(0)
