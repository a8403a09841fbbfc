"""Tags that mark spans: only paths that BIO and its kin allow are said, and only such are learnt."""

from pathlib import Path

import pytest
import torch

import seqloom
from seqloom.measure.spans import spans
from seqloom.run import load
from support.labelled_data import OPTIONS, put

NAMES = {"king": "PER", "queen": "PER", "river": "LOC"}
SENTENCES = [
    f"the old {name} {verb} the {other} ."
    for name in NAMES
    for other in NAMES
    for verb in ("sees", "hears", "finds")
]


def columns(spoilt: int | None = None) -> str:
    """Names of two words, `old king`; the sentence `spoilt` begins one with its inside."""
    blocks = []
    for number, text in enumerate(SENTENCES):
        tags, words = [], text.split()
        for place, word in enumerate(words):
            after = NAMES.get(words[place + 1]) if place + 1 < len(words) else None
            tags.append(
                f"B-{after}"
                if word == "old"
                else f"I-{NAMES[word]}"
                if word in NAMES and words[place - 1] == "old"
                else "O"
            )
        if number == spoilt:
            tags[1] = "O"
        blocks.append("\n".join(f"{word} {tag}" for word, tag in zip(words, tags, strict=True)))
    return "\n\n".join(blocks) + "\n\n"


def fit(folder: Path, text: str, head: str, steps: int = 2) -> seqloom.Run:
    options = [
        *OPTIONS["tagger"],
        f"train.steps={steps}",
        f"train.eval_every={steps}",
        "corpus={type: Columns}",
    ]
    options.append(f"model.head={{type: {head}, spans: true}}")
    return seqloom.fit(
        "tagger", *options, data=[put(folder / "a.conll", text)], out=folder / "run", progress=False
    )


@pytest.mark.parametrize("head", ["CRF", "SoftmaxHead"])
def test_only_paths_that_are_allowed_are_said(tmp_path: Path, head: str):
    fit(tmp_path, columns(), head)
    run = load(tmp_path / "run")
    with torch.no_grad():
        run.model.score.weight.normal_(std=30)  # whatever the scores say
    said = [one.tags for one in seqloom.predict(run, [text.split() for text in SENTENCES])]
    assert len({tag for tags in said for tag in tags}) > 2
    for tags in said:
        assert all(
            not tag.startswith("I-") or before in (f"B-{tag[2:]}", tag)
            for before, tag in zip(["O", *tags], tags, strict=False)
        )
        assert len(spans(tags)) == sum(tag.startswith("B-") for tag in tags)
    run.model.head.allowed = None
    assert [one.tags for one in seqloom.predict(run, [text.split() for text in SENTENCES])] != said


def test_what_is_learnt_must_be_allowed(tmp_path: Path):
    with pytest.raises(
        ValueError,
        match=r"^sentence 12 of the training text has I-PER after O, which no spans allow; leave model\.head\.spans out$",
    ):
        fit(tmp_path, columns(spoilt=11), "CRF")
    assert not (tmp_path / "run").exists()


def test_labels_that_mark_no_spans_are_told(tmp_path: Path):
    with pytest.raises(ValueError, match="DET, NOUN are not span labels"):
        fit(tmp_path, "the DET\nking NOUN\n\n" * 30, "SoftmaxHead")
