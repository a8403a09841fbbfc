"""Words from characters: literal loops over one word, and each word alone equals the same word in any batch."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from seqloom.fused.dispatch import plain
from seqloom.nn import GRU, CharCNN, CharEmbedding, CharRNN
from seqloom.nn.char_embedding import CharEncoder, unique_rows

READERS = [
    CharCNN,
    partial(CharCNN, widths=(2, 3, 5)),
    partial(CharCNN, widths=(1,)),
    CharRNN,
    partial(CharRNN, cell=GRU),
]
every = pytest.mark.parametrize("letters", READERS, ids=str)


def made(letters) -> CharEmbedding:
    torch.manual_seed(2)
    part = CharEmbedding(9, 8, char_dim=3, encoder=letters)
    for weight in part.parameters():
        torch.nn.init.normal_(weight)
    return part


def batch() -> tuple[Tensor, Tensor]:
    """Words of 0 to 6 characters; some occur twice, padding holds anything."""
    lengths = torch.tensor([[6, 1, 3, 0], [3, 2, 1, 0]])
    ids = torch.randint(9, (2, 4, 6))
    ids[1, 0, :3], ids[1, 2, :1] = ids[0, 2, :3], ids[0, 1, :1]
    return ids, torch.arange(6) < lengths[..., None]


def convolved(part: CharCNN, word: Tensor) -> Tensor:
    found = []
    for width, taps in zip(part.widths, part.taps, strict=True):
        best = None
        for begin in range(-(width - 1), len(word)):
            window = [word[t] if 0 <= t < len(word) else torch.zeros(3) for t in range(begin, begin + width)]
            value = torch.tanh(taps.weight @ torch.cat(window) + taps.bias)
            best = value if best is None else torch.maximum(best, value)
        found.append(best)
    return torch.cat(found)


def recurred(part: CharRNN, word: Tensor) -> Tensor:
    ends = []
    for way, order in zip(part.rnn.layers[0], (word, word.flip(0)), strict=True):
        state = way.cell.start(1)
        for x in order:
            state = way.cell.step(way.cell.project_input(x[None]), state)
        ends.append(state[0][0])
    return torch.cat(ends)


@every
def test_a_word_is_its_characters_read_one_by_one(letters):
    part, (ids, mask) = made(letters), batch()
    found = part(ids, mask)
    assert found.shape == (2, 4, 8)
    literal = recurred if isinstance(part.encoder, CharRNN) else convolved
    for b in range(2):
        for t in range(4):
            word = part.embedding(ids[b, t, mask[b, t]])
            expected = literal(part.encoder, word) if len(word) else torch.zeros(8)
            torch.testing.assert_close(found[b, t], expected)


@every
def test_fast_is_plain_in_values_and_gradients(letters):
    part, (ids, mask) = made(letters), batch()
    weights = torch.randn(2, 4, 8)

    def run() -> list[Tensor]:
        y = part(ids, mask)
        return [y, *torch.autograd.grad((y * weights).sum(), list(part.parameters()))]

    quick = run()
    with plain():
        for a, b in zip(quick, run(), strict=True):
            torch.testing.assert_close(a, b)


@every
def test_gradients_are_finite_differences(letters):
    part, (ids, mask) = made(letters), batch()
    table = part.embedding.table.detach().requires_grad_()
    call = lambda table: torch.func.functional_call(part, {"embedding.table": table}, (ids, mask))  # noqa: E731
    assert torch.autograd.gradcheck(call, [table])


@every
def test_padding_changes_nothing(letters):
    part, (ids, mask) = made(letters), batch()
    other = torch.where(mask, ids, (ids + 1) % 9)
    torch.testing.assert_close(part(other, mask), part(ids, mask))
    wider = torch.cat([ids, ids], -1)
    torch.testing.assert_close(part(wider, torch.cat([mask, torch.zeros_like(mask)], -1)), part(ids, mask))
    torch.testing.assert_close(
        part(ids[:1, :1]), part(ids[:1, :1], mask[:1, :1])
    )  # six real characters: no mask needed


@every
def test_no_words_and_no_characters(letters):
    part = made(letters)
    assert part(torch.zeros(2, 0, 5, dtype=torch.long)).shape == (2, 0, 8)
    assert not part(torch.zeros(2, 3, 0, dtype=torch.long)).any()
    assert not part(torch.zeros(2, 3, 4, dtype=torch.long), torch.zeros(2, 3, 4, dtype=torch.bool)).any()


def test_each_distinct_word_is_read_once():
    seen: list[int] = []

    class Counting(CharEncoder):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            seen.append(len(x))
            return x.new_zeros(len(x), self.dim)

    ids, mask = batch()
    CharEmbedding(9, 4, char_dim=3, encoder=Counting)(ids, mask)
    assert seen == [5]  # of eight words, two occur twice and two are empty


def test_rows_whose_numbers_agree_are_told_apart(monkeypatch: pytest.MonkeyPatch):
    rows = torch.tensor([[1, 2], [2, 1], [1, 2], [3, 0]])
    for all_alike in (False, True):
        if all_alike:  # the worst of numbers
            monkeypatch.setattr(torch, "full_like", lambda like, _: torch.zeros_like(like))
        words, place = unique_rows(rows)
        assert torch.equal(words[place], rows) and len(words) == 3


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: CharRNN(3, 5), "odd"),
        (lambda: CharCNN(3, 5, widths=()), "widths"),
        (lambda: CharCNN(3, 1, widths=(2, 3)), "fewer"),
        (lambda: CharCNN(3, 4, widths=(0,)), "at least 1"),
    ],
)
def test_sizes_that_do_not_fit(make, said: str):
    with pytest.raises(ValueError, match=said):
        make()
