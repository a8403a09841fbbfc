"""Explanations: counts against closed forms and torch's own counter, equations and differences as they are, MathML that always parses."""

from __future__ import annotations

import html.parser
import inspect
import json
import re
import sys
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from seqloom import models, nn
from seqloom.cli import main
from seqloom.config_source import preset_names
from seqloom.equations import Explanation, diff, explain, notation
from seqloom.equations.mathml import math
from seqloom.equations.parts import merge_places
from seqloom.fused.dispatch import plain
from seqloom.run_config import Config

V, T = 50, 10


def part(found, name: str):
    (one,) = [part for part in found.parts if part.name == name]
    return one


@pytest.mark.parametrize("name", preset_names())
def test_the_parts_of_every_preset_add_up(name: str):
    """Parameters: the model's own, tied ones once. FLOPs: those that torch counts, and the products with one vector that it leaves out."""
    found = explain(name, vocabulary=V, length=T)
    with torch.device("meta"):
        assert (
            found.parameters
            == sum(p.numel() for p in Config.load(name).model(V).parameters())
            == sum(p.parameters for p in found.parts)
        )
    if found.parameters > 400_000_000:
        pytest.skip("too large to compute with here")
    model = Config.load(name).model(V).eval()
    ids = torch.arange(T)[None]
    vector = {torch.ops.aten.mv: lambda matrix, vector, out_shape=None: 2 * matrix[0] * matrix[1]}
    with torch.no_grad(), plain(), FlopCounterMode(display=False, custom_mapping=vector) as counter:
        model.run_example(ids)
    assert found.flops == pytest.approx(counter.get_total_flops() / T, rel=1e-12)
    assert found.flops == pytest.approx(sum(p.flops for p in found.parts), rel=1e-12)


def test_a_gpt_costs_what_the_formulas_say():
    d, layers = 16, 3
    found = explain(
        "gpt",
        *[f"model.dim={d}", f"model.stack.layers={layers}", "model.stack.heads=2"],
        vocabulary=V,
        length=T,
    )
    expected = {
        "SelfAttention": (
            4 * d * d,
            2 * 4 * d * d + 2 * T * d,
        ),  # W_Q, W_K, W_V, W_O; the average of the values
        "ScaledDot": (0, 2 * T * d),
        "FeedForward": (8 * d * d + 5 * d, 2 * 8 * d * d),
    }
    for name, (parameters, flops) in expected.items():
        one = part(found, name)
        assert (one.times, one.parameters, one.flops) == (layers, layers * parameters, layers * flops)
    assert (part(found, "LayerNorm").times, part(found, "LayerNorm").parameters) == (
        2 * layers + 1,
        (2 * layers + 1) * 2 * d,
    )
    assert (part(found, "Embedding").parameters, part(found, "Output").parameters) == (V * d, 0)
    assert part(found, "Output").flops == 2 * V * d and part(found, "Output").shared == {
        "table": "embedding.table"
    }


def test_the_small_gpt_2_has_the_parameters_that_it_is_known_for():
    sizes = [
        "model.dim=768",
        "model.stack.layers=12",
        "model.stack.heads=12",
        "model.stack.position.length=1024",
        "model.stack.bias=true",
    ]
    assert explain("gpt", *sizes, vocabulary=50_257, length=1).parameters == 124_439_808


def test_an_lstm_costs_what_the_formulas_say():
    found = explain(
        "lstm-lm", *["model.dim=6", "model.stack.dim=5", "model.stack.layers=3"], vocabulary=V, length=T
    )
    first, rest = [p for p in found.parts if p.name == "LSTM"]
    assert (first.parameters, first.flops) == (4 * 5 * (6 + 5 + 1), 2 * 4 * 5 * (6 + 5))
    assert (rest.times, rest.parameters, rest.flops) == (2, 2 * 4 * 5 * (5 + 5 + 1), 2 * 2 * 4 * 5 * (5 + 5))
    assert first.places == ["stack.layers.0.0.cell"] and rest.places == ["stack.layers.1–2.0.cell"]


def test_an_additive_score_counts_its_products_with_a_vector():
    found = explain("rnnsearch", "model.decoder.attention.dim=7", vocabulary=V, length=T)
    assert part(found, "Additive").flops == 2 * T * 7


def test_which_part_has_most():
    """With a small vocabulary the feed-forward parts, with a large one the embedding [G7]."""
    small, large = explain("gpt", vocabulary=V, length=T), explain("gpt", vocabulary=50_000, length=T)
    assert small.ranking()[0][0] == "FeedForward" and large.ranking()[0][0] == "Embedding"
    assert "Embedding has most parameters: 6,400,000 of 7,199,488 (88.9 %)" in large.to_text()
    for found in (small, large):
        counts = [row[2] for row in found.ranking()]
        assert counts == sorted(counts, reverse=True) and sum(counts) == found.parameters


def test_an_output_of_its_own_counts_again():
    tied, own = (
        explain("gpt", vocabulary=V, length=T),
        explain("gpt", "model.tied=false", vocabulary=V, length=T),
    )
    assert own.parameters - tied.parameters == V * 128 + V and not part(own, "Output").shared


def test_options_letters_and_equation():
    found = explain("gpt", *["model.stack.norm={type: LayerNorm, affine: false}"], vocabulary=V, length=T)
    attention = part(found, "SelfAttention")
    assert (
        attention.options["heads"] == 4
        and attention.options["bias"] is False
        and attention.defaults["causal"] is True
    )
    assert attention.letters == {"H": 4} and part(found, "ScaledDot").letters == {"K": 32}
    assert part(found, "ScaledDot").equation[0].startswith("s(q, k) = q · k / √K")
    assert part(found, "LayerNorm").options == {"dim": 128, "affine": False}
    assert part(found, "SelfAttention").weights["qkv_proj.weight"] == [384, 128]


def test_a_watched_constructor_leaves_no_watcher():
    before = sys.getprofile()
    explain("gpt", vocabulary=V, length=T)
    assert sys.getprofile() is before


def test_places_are_told_together_where_no_number_is_missing():
    assert merge_places(["a.0.x", "a.1.x", "b", "a.2.x"]) == ["a.0–2.x", "b"]
    assert merge_places(["a.0.x", "a.2.x"]) == ["a.0.x", "a.2.x"]
    assert merge_places(["a.0.0", "a.0.1", "a.1.0", "a.1.1"]) == ["a.0–1.0–1"]


def test_a_run_is_explained_with_its_own_vocabulary(tmp_path: Path, text: Path):
    import seqloom

    tiny = ["model.dim=8", "model.stack.dim=6", "train.steps=2", "train.eval_every=2"]
    run = seqloom.fit("lstm-lm", *tiny, data=[str(text)], out=tmp_path / "run", progress=False)
    found = explain(str(tmp_path / "run"))
    assert found.vocabulary == run.tokenizer.get_vocab_size()
    assert found.parameters == sum(p.numel() for p in run.model.parameters()) == run.results.parameters.total


# Two models


def test_equal_models_have_no_difference():
    found = diff(explain("gpt", vocabulary=V, length=T), explain("gpt", vocabulary=V, length=T))
    assert not found and found.to_dict()["equal"]
    assert found.to_text() == "no difference between gpt and gpt\n" and "No difference." in found.to_html()


def test_only_what_differs_is_shown():
    found = diff(
        explain("gpt", vocabulary=V, length=T),
        explain("gpt", *["model.stack.bias=true", "train.steps=5"], vocabulary=V, length=T),
    )
    rows = {(group.place, row.what): (row.first, row.second) for group in found.parts for row in group.rows}
    assert rows["stack", "bias"] == (False, True)
    assert rows["stack.blocks.0–3.attention", "weight out_proj.bias"] == (None, [128])
    assert {place for place, _ in rows} == {"stack", "stack.blocks.0–3.attention"}
    assert [(row.what, row.first, row.second) for row in found.config] == [("train.steps", 2000, 5)]
    assert [(row.what, row.second - row.first) for row in found.totals] == [
        ("parameters", 4 * (3 * 128 + 128))
    ]


def test_another_part_in_the_same_place_stands_beside_it():
    found = diff(
        explain("gpt", vocabulary=V, length=T),
        explain("gpt", "model.stack.norm=RMSNorm", vocabulary=V, length=T),
    )
    (group,) = found.parts
    rows = {row.what: (row.first, row.second) for row in group.rows}
    assert rows["part"] == ("9 × LayerNorm (dim 128)", "9 × RMSNorm (dim 128)") and set(rows) == {
        "part",
        "equation",
        "weights",
        "parameters",
    }
    assert rows["equation"][1] == ["y = γ ⊙ x / √(1/d Σ xᵢ² + ε)"]
    text, page, marked = (found.to_text(), found.to_html(), found.to_markdown())
    assert (
        "9 × RMSNorm (dim 128)" in text
        and "<msqrt>" in page
        and "| part | 9 × LayerNorm (dim 128) | 9 × RMSNorm (dim 128) |" in marked
    )


def test_a_pair_of_equations_is_said_once():
    found = diff(
        explain("lstm-lm", vocabulary=V, length=T),
        explain("lstm-lm", "model.stack.cell=GRU", vocabulary=V, length=T),
    )
    assert [[row.what for row in group.rows] for group in found.parts] == [
        ["part", "equation", "weights", "parameters", "flops"],
        ["part", "weights", "parameters", "flops"],
    ]
    assert found.second == "lstm-lm model.stack.cell=GRU"


def test_every_difference_is_the_same_from_the_other_side():
    one, two = (explain(name, vocabulary=V, length=T) for name in ("gpt", "lstm-lm"))
    there, back = diff(one, two), diff(two, one)

    def rows(found, turned: bool) -> set[tuple[str, str, str]]:
        every = [*found.totals, *found.config, *(row for group in found.parts for row in group.rows)]
        return {
            (row.what, *((str(row.second), str(row.first)) if turned else (str(row.first), str(row.second))))
            for row in every
        }

    assert rows(there, False) == rows(back, True)


def test_names_and_equations_are_not_cut():
    text = diff(explain("gpt", vocabulary=V, length=T), explain("lstm-lm", vocabulary=V, length=T)).to_text()
    lines = text.splitlines()
    assert any(line.startswith("  train.optimizer.weight_decay ") for line in lines)
    assert "stack.position, only in gpt" in lines and "stack.layers.0.0.cell, only in lstm-lm" in lines
    assert any("αⱼ = exp(sⱼ) / Σ exp(s)" in line and "nothing is visible" in line for line in lines)
    assert all(line.count("FLOP a token") for line in lines if line.startswith("  flops"))


# Forms


class Nested(html.parser.HTMLParser):
    """Every element closed in order; nothing that a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attributes):
        assert not {"src", "href"} & dict(attributes).keys()
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["gpt", "rnnsearch"])
def test_a_page_is_whole_and_needs_no_network(name: str):
    page = explain(name, vocabulary=V, length=T).to_html()
    reader = Nested()
    reader.feed(page)
    assert not reader.open and "http" not in page and "url(" not in page and "<script" not in page
    formulas = re.findall(r"<math.*?</math>", page)
    assert len(formulas) > 10 and all(ET.fromstring(formula) is not None for formula in formulas)


@pytest.mark.parametrize("form", [Explanation.to_text, Explanation.to_markdown, Explanation.to_html])
def test_an_equation_is_said_once_for_each_kind(form: Callable[[Explanation], str]):
    shown = form(explain("lstm-lm", vocabulary=V, length=T))
    assert (
        shown.count("tanh") == 2
        and shown.count("equation as above") == 1
        and shown.count("LSTM (size") + shown.count("LSTM <small>") == 2
    )


def test_markdown_states_the_equations():
    marked = explain("gpt", vocabulary=V, length=T).to_markdown()
    assert "```text\ns(q, k) = q · k / √K" in marked and "| FeedForward | 4 | 526,848 |" in marked


def run(arguments: list[str], capsys: pytest.CaptureFixture) -> str:
    main(arguments)
    return capsys.readouterr().out


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert "4 × SelfAttention (size 128, heads 4, bias false)" in run(
        ["explain", "gpt", "--vocabulary", "50"], capsys
    )
    one = json.loads(
        run(
            ["explain", "gpt", "model.stack.layers=2", "batches.width=10", "--vocabulary", "50", "--json"],
            capsys,
        )
    )
    assert (
        one["parameters"] == explain("gpt", "model.stack.layers=2", vocabulary=V, length=T).parameters
        and one["training_flops"] == 3 * one["flops"]
    )
    two = json.loads(
        run(["explain", "gpt", "model.stack.layers=2", "gpt", "model.stack.heads=8", "--json"], capsys)
    )
    heads = [
        (row["first"], row["second"])
        for group in two["parts"]
        for row in group["rows"]
        if row["what"] == "heads" and group["place"] == "stack"
    ]
    assert heads == [(4, 8)]
    page, text = tmp_path / "gpt.html", tmp_path / "gpt.md"
    assert run(["explain", "gpt", "--out", str(page)], capsys) == f"page: {page}\n"
    assert page.read_text("utf-8") == explain("gpt").to_html()
    run(["explain", "gpt", "model.stack.norm=RMSNorm", "gpt", "--out", str(text)], capsys)
    changed = explain("gpt", "model.stack.norm=RMSNorm", against="gpt")
    assert text.read_text("utf-8") == changed.to_markdown()


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["gpt", "gpt", "gpt"], "explain takes one model, or two to compare"),
        (["gpt", "nothing-of-the-kind"], "no preset and no file has this name"),
        (["gpt", "--vocabulary", "0"], "Must be >= 1"),
        (["gpt", "--out", "gpt.pdf"], "its ending names no format"),
        (["gpt", "model.stack.layer=4"], "did you mean 'layers'"),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as left:
        main(["explain", *arguments])
    assert left.value.code == 2 and sentence in capsys.readouterr().err


def test_notebooks_show_a_page_that_needs_no_network():
    for result in (explain("gpt", vocabulary=V), explain("gpt", against="llama", vocabulary=V)):
        shown = result._repr_html_()
        assert shown.startswith("<iframe sandbox") and "http" not in shown and len(shown) < 2_000_000


def test_a_config_is_explained_as_its_preset():
    config = Config.preset("gpt").change({"model.stack.norm": nn.RMSNorm})
    assert explain(config).parts == explain("gpt", "model.stack.norm=RMSNorm").parts
    assert explain("gpt", against=config).parts == explain("gpt", against=config).parts != []


# Notation


def shape(formula: str) -> str:
    """MathML as a term: msub(W, Q); rows of one and invisible signs are left out."""

    def term(node: ET.Element) -> str:
        inner = [term(child) for child in node]
        inner = [one for one in inner if one not in ("", "\u2061")]
        if node.tag in ("mi", "mn", "mo", "mtext"):
            return node.text or ""
        if node.tag in ("mrow", "math"):
            return " ".join(inner)
        return f"{node.tag}({', '.join(inner)})" if node.tag != "mspace" else ""

    return term(ET.fromstring(math(formula)))


@pytest.mark.parametrize(
    "formula, expected",
    [
        ("W_Q x", "msub(W, Q) x"),
        ("hₜ₋₁", "msub(h, t − 1)"),
        ("αₜⱼ", "msub(α, t j)"),
        ("uᵀ tanh(q + k)", "msup(u, T) tanh ( q + k )"),
        ("s = q · k / √K", "s = mfrac(q · k, msqrt(K))"),
        ("(x - μ) / √(σ² + ε) + β", "mfrac(x − μ, msqrt(msup(σ, 2) + ε)) + β"),
        ("1/d Σ xᵢ²", "mfrac(1, d) ∑ msubsup(x, i, 2)"),
        ("Σⱼ αⱼ mⱼ", "munder(∑, j) msub(α, j) msub(m, j)"),
        ("exp(s) / Σ exp(s)", "mfrac(exp ( s ), ∑ exp ( s ))"),
        ("x ⊙ m / (1 - p)", "x ⊙ mfrac(m, 1 − p)"),
        ("base^(-2k/d)", "msup(base, − mfrac(2 k, d))"),
        ("2^(-8h/H)", "msup(2, − mfrac(8 h, H))"),
        ("[h; c]", "[ h ; c ]"),
        ("q' = R(t) q", "q ′ = R ( t ) q"),
        ("c̃ ← f(x̄)", "c̃ ← f ( x̄ )"),
        ("f(x", "f ( x"),
        ("x)", "x )"),
        ("x_", "x _"),
        ("√", "√"),
        ("", ""),
    ],
)
def test_formulas(formula: str, expected: str):
    assert shape(formula) == expected


def letters(text: str) -> list[str]:
    return sorted(
        one for one in unicodedata.normalize("NFKC", text.replace("Σ", "").replace("Π", "")) if one.isalnum()
    )


@settings(max_examples=300, deadline=None)
@given(
    st.text(st.sampled_from(list("abWxh σαΣΠ√()[]{}_^/·⊙=+-,;…|ₜ₁ᵢⱼ²ᵀ'′<>&\"12 \n\t")), max_size=25)
    | st.text(max_size=20)
)
def test_any_text_is_mathml_and_loses_no_letter(text: str):
    made = ET.fromstring("".join(one for one in math(text) if one.isprintable() or one in "\n\t"))
    assert letters("".join(made.itertext())) == letters("".join(one for one in text if one.isprintable()))


def every_part() -> list[type]:
    """Both packages import their names at first use, so `vars` does not hold them."""
    public = [getattr(package, name) for package in (models, nn) for name in package.__all__]
    return [part for part in public if inspect.isclass(part) and part.__module__.startswith("seqloom")]


@pytest.mark.parametrize("kind", every_part(), ids=lambda kind: kind.__name__)
def test_the_docstring_of_every_part_is_read_whole(kind: type):
    """Pieces of a line put together are the line; its mathematics is MathML; a part with an equals sign in front states an equation."""
    doc = inspect.cleandoc(kind.__doc__ or "")
    for line in doc.splitlines():
        pieces = notation.pieces(line, notation.equation_names(doc.splitlines()))
        assert "".join("".join(piece.text for piece in pieces).split()) == "".join(line.split())
        assert all(ET.fromstring(math(piece.text)) is not None for piece in pieces if piece.kind == "math")


@pytest.mark.parametrize(
    "line, expected",
    [
        (
            "s(q, k) = q · k / √K   [F8, D-10]: with K terms",
            ["math s(q, k) = q · k / √K", "reference [F8, D-10]", "prose : with K terms"],
        ),
        ("[x; p]   [H5, D-13]", ["prose [x; p]", "reference [H5, D-13]"]),
        ("ωₖ = base^(-2k/d), k from 0", ["math ωₖ = base^(-2k/d),", "prose k from 0"]),
        ("for f = self-attention", ["prose for f = self-attention"]),
        ("logitsₜ = output(stack(wₜ))", ["math logitsₜ = output(stack(wₜ))"]),
        ("`scale` multiplies by √D", ["prose `scale` multiplies by √D"]),
    ],
)
def test_mathematics_and_prose_are_told_apart(line: str, expected: list[str]):
    assert [
        f"{piece.kind} {piece.text}" for piece in notation.pieces(line, notation.equation_names([line]))
    ] == expected
