"""Small models that keep the protocol, and a brute-force enumeration to compare searches with."""

import itertools
import math

import pytest
import torch
from torch import nn


class Table:
    """p(next | last k tokens) from a table: a dict of tuples of at most k tokens → list of V probabilities.

    The state is a (B, k) tensor, −1 where nothing came yet. `seen` notes (rows, positions) of every call, `read` the output layer's.
    """

    continues = generates = True

    def __init__(self, table, order, context=None):
        self.table, self.order, self.context = table, order, context
        self.seen, self.read = [], []

    def features(self, ids, state, mask):
        self.seen.append(tuple(ids.shape))
        memory = torch.full((len(ids), self.order), -1) if state is None else state
        columns = []
        for t in range(ids.shape[1]):
            moved = torch.cat([memory, ids[:, t : t + 1]], 1)[:, 1:]
            memory = moved if mask is None else torch.where(mask[:, t : t + 1], moved, memory)
            rows = [self.table[tuple(token for token in row if token >= 0)] for row in memory.tolist()]
            columns.append(torch.tensor(rows, dtype=torch.float64).log())
        return torch.stack(columns, 1), memory

    def output(self, h):
        self.read.append(tuple(h.shape[:2]))
        return h + 1.5  # logits are free up to a constant


class LSTM(nn.Module):
    """Torch's LSTM behind the protocol, with dropout-free weights large enough to make texts differ."""

    context = None
    continues = generates = True

    def __init__(self, vocabulary=11, dim=12, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embedding, self.head = nn.Embedding(vocabulary, dim), nn.Linear(dim, vocabulary)
        self.rnn = nn.LSTM(dim, dim, 2, batch_first=True)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.7)
        self.double()

    def features(self, ids, state, mask):
        x, outs = self.embedding(ids), []
        h, c = (x.new_zeros(len(ids), 2, x.shape[-1]),) * 2 if state is None else (state["h"], state["c"])
        for t in range(ids.shape[1]):
            out, (h1, c1) = self.rnn(
                x[:, t : t + 1], (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous())
            )
            h1, c1 = h1.transpose(0, 1), c1.transpose(0, 1)
            real = True if mask is None else mask[:, t, None, None]
            h, c = (h1, c1) if mask is None else (torch.where(real, h1, h), torch.where(real, c1, c))
            outs.append(out)
        return torch.cat(outs, 1), {"h": h, "c": c}

    def output(self, h):
        return self.head(h)


class Attention(nn.Module):
    """One causal attention layer with learned positions and a cache of keys and values: the other kind of state, and a context."""

    continues = generates = True

    def __init__(self, vocabulary=11, dim=12, context=16, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.context = context
        self.embedding, self.position, self.head = (
            nn.Embedding(vocabulary, dim),
            nn.Embedding(context, dim),
            nn.Linear(dim, vocabulary),
        )
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.double()

    def features(self, ids, state, mask):
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        if state is None:
            nothing = self.q.weight.new_zeros(len(ids), 0, self.q.out_features)
            state = (nothing, nothing, mask[:, :0])
        place = (state[2].sum(1, keepdim=True) + mask.cumsum(1) - 1).clamp(min=0)
        x = self.embedding(ids) + self.position(place)
        k, v, real = (torch.cat(pair, 1) for pair in zip(state, (self.k(x), self.v(x), mask), strict=True))
        order = real.cumsum(1) - 1
        allowed = real[:, None, :] & (order[:, None, :] <= place[:, :, None])
        score = (self.q(x) @ k.transpose(1, 2)).masked_fill(~allowed, -1e9)
        return x + score.softmax(-1) @ v, (k, v, real)

    def output(self, h):
        return self.head(h)


def random_table(vocabulary, order, seed):
    """Random probabilities after every context of at most `order` tokens."""
    generator = torch.Generator().manual_seed(seed)
    contexts = [c for n in range(order + 1) for c in itertools.product(range(vocabulary), repeat=n)]
    rows = (
        (2 * torch.randn(len(contexts), vocabulary, generator=generator, dtype=torch.float64))
        .softmax(-1)
        .tolist()
    )
    return dict(zip(contexts, rows, strict=True))


def enumerate_all(table, order, prompt, length, stop=(), ban=(), penalty=0.0):
    """Every outcome (score, log P, ids, finished), best first, by plain recursion."""
    found = []

    def walk(text, log_p):
        context = (tuple(prompt) + text)[-order:]
        for token, p in enumerate(table[context]):
            if token in ban or p == 0:
                continue
            total, size = log_p + math.log(p), len(text) + 1
            if token in stop:
                found.append((total / ((5 + size) / 6) ** penalty, total, list(text), True))
            elif size == length:
                found.append((total / ((5 + size) / 6) ** penalty, total, [*text, token], False))
            else:
                walk((*text, token), total)

    walk((), 0.0)
    return sorted(found, key=lambda one: -one[0])


YES, OK, END, BOS = range(4)


def dialogue():
    """Fig 10.8 (X10): yes yes has .5 · .4 = .20, ok ok has .4 · .7 = .28, then the end is certain."""
    table = {c: [0, 0, 1, 0] for n in (2, 3) for c in itertools.product(range(4), repeat=n)}
    table[BOS,] = [0.5, 0.4, 0.1, 0]
    table[BOS, YES] = [0.4, 0.3, 0.3, 0]
    table[BOS, OK] = [0.1, 0.7, 0.2, 0]
    return Table(table, order=3)


@pytest.fixture(scope="session")
def toys():
    """The names above, for tests that cannot import this file."""

    class Toys:
        table, lstm, attention = Table, LSTM, Attention
        random_table, enumerate_all, dialogue = (
            staticmethod(random_table),
            staticmethod(enumerate_all),
            staticmethod(dialogue),
        )

    return Toys


@pytest.fixture(params=["lstm", "attention"])
def network(request):
    """A real network of each kind of state."""
    return {"lstm": LSTM, "attention": Attention}[request.param]()
