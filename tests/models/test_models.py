"""Arrangements refuse what cannot work, in a sentence, and generate by the one protocol."""

from functools import partial

import pytest
import torch

from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import RNN, AttentiveRNN, Concatenated, Learned, Rotary, Transformer

SMALL = partial(Transformer, layers=1, heads=2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LanguageModel(9, 8, partial(SMALL, heads=3)), "3 heads"),
        (lambda: LanguageModel(9, 8, partial(SMALL, causal=False)), "causal"),
        (lambda: LanguageModel(9, 8, partial(RNN, direction="both")), "causal"),
        (lambda: LanguageModel(9, 8, partial(RNN, direction="up")), "forward, backward or both"),
        (lambda: LanguageModel(9, 8, partial(RNN, layers=0)), "at least one layer"),
        (lambda: LanguageModel(9, 6, partial(SMALL, position=Rotary)), "even head size"),
        (lambda: LanguageModel(9, 8, partial(SMALL, position=partial(Concatenated, code=Rotary))), "no vector to concatenate"),
        (lambda: LanguageModel(9, 8, SMALL, dropout=1.0), "dropout"),
        (lambda: Seq2Seq(9, 10, 8, SMALL, SMALL), "one vocabulary"),
        (lambda: Seq2Seq(9, 9, 8, SMALL, partial(SMALL, causal=False)), "causal"),
    ],
)
def test_what_cannot_work_is_refused(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_sequence_beyond_learned_positions_is_refused_whole_or_in_steps() -> None:
    model = LanguageModel(9, 8, partial(SMALL, position=partial(Learned, length=4)))
    with pytest.raises(ValueError, match="5 positions is longer than the 4 learned"):
        model(torch.zeros(1, 5, dtype=torch.long))
    _, state = model(torch.zeros(1, 4, dtype=torch.long))
    with pytest.raises(ValueError, match="5 positions"):
        model(torch.zeros(1, 1, dtype=torch.long), state)
    assert model.context == 4


def test_a_tied_output_is_the_embeddings_table_and_counts_once() -> None:
    tied, own = (LanguageModel(9, 8, SMALL, tied=tied) for tied in (True, False))
    assert tied.output.table is tied.embedding.table and own.output.table is not own.embedding.table
    assert sum(p.numel() for p in own.parameters()) == sum(p.numel() for p in tied.parameters()) + 9 * 8 + 9


def test_a_translator_needs_its_source() -> None:
    for decoder in (SMALL, partial(AttentiveRNN, dim=8)):
        model = Seq2Seq(9, 9, 8, partial(SMALL, causal=False), decoder)
        ids, state, mask = model.prompt(torch.tensor([[5, 6, 3]]), None, 2)
        assert ids.tolist() == [[2]] and mask is None
        logits, _ = model(ids, state)
        assert logits.shape == (1, 1, 9)
        with pytest.raises(ValueError, match="memory"):
            model.decoder.start(1)
