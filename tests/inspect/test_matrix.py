"""Every verb of `inspect` on every family: it works, or one line says why not. `imported` is a small random BERT in the layout of MiniLM, which
`seqloom import` reads; MiniLM itself is read if SEQLOOM_MINILM, or an installed package, provides it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.cli import main
from seqloom.inspect import attention, heads
from seqloom.inspect.layer_vectors import text_vectors
from seqloom.run import load
from support.hf_folders import make
from support.minilm import minilm_folder

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
TRANSLATORS = ("rnnsearch", "convs2s", "transformer")
OWN = ("lstm", *TRANSLATORS, "bert", "gpt", "encoder", "classifier", "tagger")
RUNS = (*OWN, "imported")
TEXT = "the old cat"
LINES = "the old cat sees a river\na cat sees\nthe river sees the old man\na man sees a cat\nthe cat sees\n"
VERBS = {
    "tokens": "RUN TEXT",
    "activations": "RUN",
    "attention": "RUN TEXT --edges 5",
    "trace": "RUN TEXT",
    "gates": "RUN TEXT",
    "gradients": "RUN --file LOSS --max-texts 2",
    "heads": "RUN --file LOSS --max-texts 2",
    "geometry": "RUN --file LINES",
    "similarity": "RUN RUN --file LINES",
    "coreference": "RUN --pairs 1",
    "contexts": "RUN cat --file LINES",
    "beam": "RUN TEXT --max-tokens 5",
    "alignment": "RUN SOURCE TARGET",
    "patch": "RUN aa ab",
    "sound": "RUN a.wav",
}
NO_ATTENTION = dict.fromkeys(("lstm", "classifier", "tagger"), "no attention")
NOT_TRANSLATORS = [name for name in RUNS if name not in TRANSLATORS]
NO_LANGUAGE_MODEL = [name for name in RUNS if name not in ("lstm", "gpt")]
# what cannot be shown, and why; a pair that is not here works
WHY_NOT: dict[str, dict[str, str]] = {
    "attention": NO_ATTENTION,
    "heads": NO_ATTENTION,
    "gates": dict.fromkeys(
        ("convs2s", "transformer", "bert", "gpt", "encoder", "imported"), "no recurrent cells"
    ),
    "gradients": dict.fromkeys(("encoder", "imported"), "no loss"),
    "geometry": {"tagger": "not from a Tagger"},
    "similarity": {"tagger": "not from a Tagger"},
    "contexts": {"tagger": "not from a Tagger"},
    "coreference": {
        **dict.fromkeys(NOT_TRANSLATORS, "needs a translator of the world"),
        **dict.fromkeys(TRANSLATORS, "train it on the world"),
    },
    "beam": dict.fromkeys(("bert", "encoder", "classifier", "tagger", "imported"), "does not generate text"),
    "alignment": dict.fromkeys(NOT_TRANSLATORS, "inspect alignment does not fit this run"),
    "sound": dict.fromkeys(RUNS, "inspect sound does not fit this run"),
    "patch": {
        **dict.fromkeys(NO_LANGUAGE_MODEL, "needs a language model"),
        "lstm": "the same answer",  # a model of a few steps goes on alike after both texts
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("matrix")
    for name in OWN:
        shutil.copytree(GOLDEN / name, folder / name)
    make("bert body", folder / "hf")
    main(["import", str(folder / "hf"), "--out", str(folder / "imported"), "-q"])
    files = {
        "LINES": LINES,
        "PAIRS": "the old cat\tun chat\na man\tun homme\n",
        "SOURCE": "the cat\n",
        "TARGET": "eht\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return folder


def words_of(place: Path, verb: str, name: str) -> list[str]:
    loss = "PAIRS" if name in TRANSLATORS else "LINES"
    meaning = {"RUN": str(place / name), "TEXT": TEXT, "LOSS": str(place / loss)}
    meaning |= {word: str(place / word) for word in ("LINES", "SOURCE", "TARGET")}
    return ["inspect", verb, *(meaning.get(word, word) for word in VERBS[verb].split()), "-q"]


def check_verb(place: Path, verb: str, name: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The verb works on the run of that name, or says why not if runs of this kind do not have what it shows."""
    why_not = WHY_NOT.get(verb, {}).get(kind)
    if why_not is None:
        main([*words_of(place, verb, name), "--json"])
        shown = capsys.readouterr()
        assert json.loads(shown.out) and not shown.err
        return
    with pytest.raises(SystemExit) as end:
        main(words_of(place, verb, name))
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and why_not in shown.err and not shown.out


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_shows_a_run_or_says_why_not(place: Path, verb: str, name: str, capsys):
    check_verb(place, verb, name, name, capsys)


def test_heads_are_cut_out_of_an_imported_run_and_every_verb_reads_the_smaller_one(place: Path, capsys):
    smaller = str(place / "smaller")
    main([*words_of(place, "heads", "imported"), "--prune", "3", "--out", smaller, "--json"])
    pruned = json.loads(capsys.readouterr().out)["pruned"]
    assert pruned["parameters"][1] < pruned["parameters"][0]
    for verb in VERBS:
        check_verb(place, verb, "smaller", "imported", capsys)


@pytest.fixture(scope="module")
def minilm(place: Path) -> Path:
    """The folder of MiniLM's files; `place` has the run that is imported from it."""
    folder = minilm_folder()
    if folder is None:
        pytest.skip("needs MiniLM: set SEQLOOM_MINILM to its folder")
    main(["import", str(folder), "--out", str(place / "minilm"), "-q"])
    return folder


@pytest.mark.data
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_shows_minilm_or_says_why_not(place: Path, minilm: Path, verb: str, capsys):
    check_verb(place, verb, "minilm", "imported", capsys)


@pytest.mark.data
def test_what_minilm_shows_is_a_plain_computation_from_transformers(place: Path, minilm: Path):
    """Its vectors are hidden states, its maps attentions; distance, entropy and similarity of heads follow from these in plain numpy."""
    from transformers import AutoModel, AutoTokenizer

    run = load(place / "minilm")
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    model = AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    with torch.no_grad():
        theirs = model(
            **tokenizer(TEXT, return_tensors="pt"), output_hidden_states=True, output_attentions=True
        )
    [vectors] = text_vectors(run, [TEXT])
    names = ["stack.input", *(f"stack.blocks.{block}" for block in range(6))]
    for name, states in zip(names, theirs.hidden_states, strict=True):
        assert np.allclose(vectors.layers[name], states[0].numpy(), atol=1e-5)
    weights = [head.double().numpy() for layer in theirs.attentions for head in layer[0]]
    found = attention(run, TEXT, edges=1)
    for one, expected in zip(found.maps, weights, strict=True):
        assert np.allclose(one.weights, expected, atol=1e-5)
    measured = heads(run, [TEXT])
    apart = np.abs(np.subtract.outer(np.arange(len(weights[0])), np.arange(len(weights[0]))))
    for number, (one, expected) in enumerate(zip(measured.heads, weights, strict=True)):
        assert one.distance == pytest.approx((expected * apart).sum(1).mean(), abs=1e-4)
        assert one.entropy == pytest.approx(-(expected * np.log2(expected)).sum(1).mean(), abs=1e-4)
        for other in (0, 40):
            middle = (expected + weights[other]) / 2
            divergence = sum(
                (half * np.log2(half / middle)).sum(1) / 2 for half in (expected, weights[other])
            )
            distance = np.sqrt(np.maximum(divergence, 0)).mean()
            assert measured.js_distances[number, other] == pytest.approx(distance, abs=1e-4)


ONE_TEXT = ["attention", "trace", "gates", "tokens", "activations", "beam"]


@pytest.mark.parametrize("verb", ONE_TEXT)
@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_text_is_one_line(place: Path, verb: str, text: str, capsys):
    run = str(place / ("lstm" if verb == "gates" else "gpt"))
    with pytest.raises(SystemExit) as end:
        main(["inspect", verb, run, text, "-q"])
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and "empty" in shown.err


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrong_run_is_one_line_with_the_nearest(place: Path, verb: str, capsys, monkeypatch):
    monkeypatch.chdir(place)
    words = [word if word != str(place / "gpt") else "gtp" for word in words_of(place, verb, "gpt")]
    with pytest.raises(SystemExit) as end:
        main(words)
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and "gtp" in shown.err


LONG = "the old cat sees a river " * 17_000  # 102,000 words


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("attention", "bert"),
        ("attention", "rnnsearch"),
        ("attention", "encoder"),
        ("attention", "imported"),
        ("trace", "imported"),
        ("activations", "imported"),
        ("trace", "lstm"),
        ("gates", "lstm"),
        ("tokens", "gpt"),
        ("activations", "lstm"),
    ],
)
def test_a_hundred_thousand_tokens_are_read_in_windows(place: Path, verb: str, name: str, capsys, tmp_path):
    more = [] if verb in ("tokens", "activations") else ["--out", str(tmp_path / "page.html")]
    more += ["--edges", "3", "--max-tokens", "12"] if verb == "attention" else []
    main(["inspect", verb, str(place / name), LONG, "-q", *more])
    shown = capsys.readouterr().out
    assert shown and ("window 1 of" in shown or verb == "tokens")
    assert not more or (tmp_path / "page.html").stat().st_size < 2_000_000


@pytest.mark.parametrize("verb", ["beam", "patch"])
def test_a_hundred_thousand_tokens_that_cannot_be_read_are_one_line(place: Path, verb: str, capsys):
    texts = [LONG, LONG] if verb == "patch" else [LONG]
    with pytest.raises(SystemExit) as end:
        main(["inspect", verb, str(place / "gpt"), *texts, "-q"])
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and "shorte" in shown.err
