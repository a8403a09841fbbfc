"""Numbers equal their definitions and carry their signatures."""

import math

import pytest
import sacrebleu

from seqloom.measure.number import Number, likelihood, make_signature
from seqloom.measure.translation import translation


def test_likelihood_is_its_definition() -> None:
    each, perplexity, bits = likelihood(6.0 * math.log(2), 3, 12, {"data": "abc"})
    assert each.value == pytest.approx(2 * math.log(2))
    assert perplexity.value == pytest.approx(4.0)
    assert bits.value == pytest.approx(0.5)
    assert "data:abc" in each.signature and "tokens:3" in each.signature and "bytes:12" in bits.signature


def test_bleu_and_chrf_are_sacrebleus() -> None:
    outputs, references = (
        ["the cat sat on the mat .", "hello there"],
        ["the cat sat on a mat .", "hello world"],
    )
    bleu, chrf = translation(outputs, references, {"data": "abc"})
    assert bleu.value == sacrebleu.corpus_bleu(outputs, [references]).score
    assert chrf.value == sacrebleu.corpus_chrf(outputs, [references]).score
    assert (
        "tok:13a" in bleu.signature
        and f"version:{sacrebleu.__version__}" in bleu.signature
        and bleu.signature.endswith("data:abc")
    )


def test_a_signature_names_all_facts() -> None:
    assert make_signature("nats", {"a": 1, "b": "x"}) == "nats|a:1|b:x"
    assert Number("n", 1.0, "s", 0.5, float("inf"), 3).to_dict() == {
        "name": "n",
        "value": 1.0,
        "low": 0.5,
        "high": None,
        "n": 3,
        "signature": "s",
    }
