"""Error rates against jiwer and against counts by hand."""

from __future__ import annotations

import jiwer
import pytest

from seqloom.measure.speech import error_counts, normalize_text, transcription


def test_the_normaliser() -> None:
    cases = {
        "Hello,  WORLD!": "hello world",
        "It’s Anna's — don't!": "it's anna's don't",
        "'quoted' well-known": "quoted well known",
        "ﬁve 3.5 €": "five 3 5",
        "": "",
    }
    for text, expected in cases.items():
        assert normalize_text(text) == expected
    assert normalize_text(" A,  b ", "none") == "A, b"


def test_error_rates_are_jiwers() -> None:
    references = ["the cat sat on the mat", "a dog", "yes no", "six seven"]
    outputs = ["the cat sit on mat", "a big dog", "yes no", ""]
    numbers, by_record = transcription(outputs, references, {"data": "x"})
    by_name = {number.name: number for number in numbers}
    assert by_name["wer"].value == pytest.approx(100 * jiwer.wer(references, outputs))
    assert by_name["cer"].value == pytest.approx(100 * jiwer.cer(references, outputs))
    assert by_name["ser"].value == 75.0
    assert by_record.tolist() == [[2, 6], [1, 2], [0, 2], [2, 2]]
    assert by_name["wer"].signature.startswith("WER|words:12|norm:lower-nopunct|jiwer:")


def test_empty_texts_count() -> None:
    assert error_counts(["a b", ""], ["", ""], "words").tolist() == [[2, 0], [0, 0]]
    assert error_counts([""], ["abc"], "characters").tolist() == [[3, 3]]
