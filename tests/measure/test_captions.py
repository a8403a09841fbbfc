"""Caption scores against sacrebleu and against CIDEr-D written out with arrays."""

from __future__ import annotations

import numpy as np
import pytest

from seqloom.measure.captions import caption_numbers, caption_words, cider_scores

OUTPUTS = [
    "A dog runs in the snow.",
    "Two men ride a bike",
    "a girl in a red dress",
    "The cat sleeps",
    "a man a man a man",
    "kite",
]
REFERENCES = [
    ["A black dog is running in the snow .", "a dog runs through snow", "Dog runs in the snow"],
    ["Two men ride bikes down a hill.", "two men on a bike"],
    ["A little girl wearing a red dress", "A girl in a red dress!", "child in dress"],
    ["the dog sleeps on the sofa"],
    ["a man and a dog", "one man"],
    ["a kite", "the kite flies"],
]


def value(name: str) -> float:
    return next(number.value for number in caption_numbers(OUTPUTS, REFERENCES, {}) if number.name == name)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_bleu_is_sacrebleus_on_the_same_words(order: int):
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize="none", max_ngram_order=order, smooth_method="none")
    most = max(map(len, REFERENCES))
    columns = [
        [" ".join(caption_words(texts[number])) if number < len(texts) else None for texts in REFERENCES]
        for number in range(most)
    ]
    expected = metric.corpus_score([" ".join(caption_words(text)) for text in OUTPUTS], columns).score
    assert value(f"bleu_{order}") == pytest.approx(expected, abs=1e-9) and expected > 0


def literal_cider() -> np.ndarray:
    """CIDEr-D with dense vectors over all n-grams, straight from the equation."""
    words = [caption_words(text) for text in OUTPUTS]
    wanted = [[caption_words(text) for text in texts] for texts in REFERENCES]
    scores = np.zeros(len(words))
    for n in range(1, 5):

        def grams(text: list[str], n: int = n) -> list[tuple[str, ...]]:
            return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]

        vocabulary = sorted({gram for texts in [*wanted, words] for text in texts for gram in grams(text)})
        place = {gram: index for index, gram in enumerate(vocabulary)}
        df = np.zeros(len(vocabulary))
        for texts in wanted:
            for gram in {gram for text in texts for gram in grams(text)}:
                df[place[gram]] += 1
        idf = np.log(len(wanted) / np.maximum(df, 1))

        def vector(text: list[str], grams=grams, place=place, idf=idf) -> np.ndarray:
            counts = np.zeros(len(place))
            for gram in grams(text):
                counts[place[gram]] += 1
            return counts * idf

        for row, (found, texts) in enumerate(zip(words, wanted, strict=True)):
            g = vector(found)
            for text in texts:
                r = vector(text)
                norm = np.linalg.norm(g) * np.linalg.norm(r)
                if norm:
                    close = np.exp(-((len(found) - len(text)) ** 2) / (2 * 36))
                    scores[row] += 10 * close * (np.minimum(g, r) * r).sum() / norm / 4 / len(texts)
    return scores


def test_cider_is_its_equation():
    words = [caption_words(text) for text in OUTPUTS]
    wanted = [[caption_words(text) for text in texts] for texts in REFERENCES]
    np.testing.assert_allclose(cider_scores(words, wanted), literal_cider(), rtol=1e-12)
    assert value("cider") == pytest.approx(literal_cider().mean())


def test_a_perfect_caption_of_distinct_pictures_has_cider_10():
    texts = ["a red house near a lake", "two dogs play in deep snow", "the old man reads his book"]
    words = [caption_words(text) for text in texts]
    np.testing.assert_allclose(cider_scores(words, [[text] for text in words]), 10)


def test_exact_match_ignores_case_and_punctuation_and_takes_any_reference():
    assert value("exact_match") == pytest.approx(100 / 6)
    assert caption_words("Don't stop: it's 3-D!") == ["don't", "stop", "it's", "3", "d"]


def test_numbers_have_signatures_and_intervals():
    numbers = {
        number.name: number for number in caption_numbers(OUTPUTS, REFERENCES, {"search": "beam5-0.6"})
    }
    assert set(numbers) == {"exact_match", "bleu_1", "bleu_2", "bleu_3", "bleu_4", "cider"}
    assert numbers["cider"].signature == (
        "CIDEr-D|n:4|sigma:6.0|df:references|nrefs:3|case:lower|tok:words|search:beam5-0.6"
    )
    for number in numbers.values():
        assert number.low <= number.value <= number.high and number.n == 6
