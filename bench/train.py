"""Training speed: tokens per second of a whole step (forward, loss, backward, clipping, AdamW) against the same model elsewhere.

The same sizes, the same data, each variant in a process of its own, in turns. Peers start from our weights and must give our loss before they
are timed. A ratio is relative to the fastest peer. Where there is dropout, the peers drop attention weights as well, as is their custom; the peer
"same places" drops only where we do, so that places and method can be told apart. Left out: compiled models, which need a minute
to start, and half precision, which these processors do not have.

    python bench/train.py [--quick] [--rounds N] [--only WORD] [--cpu] [--json]
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probe import Row, apart, benchmark_options, interleave, lone, probe, record, show
from seqloom.batches.batch import TokenBatch
from seqloom.models import LanguageModel
from seqloom.nn import RNN, Learned, Transformer
from seqloom.objectives.likelihood import next_token
from seqloom.train.options import AdamW, GlobalNorm
from seqloom.train.process import keep_freed_memory

CLIP = 1.0


class GPTSize(NamedTuple):
    layers: int
    dim: int
    heads: int
    context: int
    batch: int
    vocabulary: int

    @property
    def cost(self) -> float:
        """GFLOP for each token: three products of two operations for each weight of a matrix, and the causal half of the scores."""
        weights = 12 * self.layers * self.dim**2 + self.vocabulary * self.dim
        return 6e-9 * (weights + self.layers * self.context * self.dim)


class LSTMSize(NamedTuple):
    layers: int
    dim: int
    context: int
    batch: int
    vocabulary: int

    @property
    def cost(self) -> float:
        return 6e-9 * (8 * self.layers * self.dim**2 + self.vocabulary * self.dim)


# ---- ours


def our_step(model: LanguageModel) -> Callable[[Tensor, Tensor], float]:
    """One step from the trainer's own pieces, as its loop does it, without what happens only now and then: data, metrics, checkpoints."""
    keep_freed_memory()
    optimizer, clip, parameters = AdamW(model.parameters()), GlobalNorm(CLIP), list(model.parameters())

    def step(ids: Tensor, targets: Tensor) -> float:
        batch = TokenBatch(ids, targets, torch.ones_like(ids, dtype=torch.bool))
        loss, numbers, _ = next_token(model, batch)
        (loss / batch.num_targets).backward()
        clip([weight.grad for weight in parameters])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return numbers["nats"] / batch.num_targets

    return step


# ---- the Transformer of a competent person


class PlainBlock(nn.Module):
    def __init__(self, size: GPTSize, dropout: float, drop_weights: bool):
        super().__init__()
        self.heads, self.weight_dropout = size.heads, dropout if drop_weights else 0.0
        self.norm1, self.norm2 = nn.LayerNorm(size.dim), nn.LayerNorm(size.dim)
        self.qkv, self.proj = nn.Linear(size.dim, 3 * size.dim), nn.Linear(size.dim, size.dim)
        self.mlp = nn.Sequential(
            nn.Linear(size.dim, 4 * size.dim), nn.GELU(), nn.Linear(4 * size.dim, size.dim)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.weight_dropout if self.training else 0.0
        )
        x = x + self.dropout(self.proj(y.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class PlainGPT(nn.Module):
    def __init__(self, size: GPTSize, dropout: float, drop_weights: bool = True):
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.dim)
        self.places = nn.Parameter(torch.zeros(size.context, size.dim))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(PlainBlock(size, dropout, drop_weights) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.dim)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.dropout(self.tokens(ids) + self.places[: ids.shape[1]])
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def ordered(self) -> list[Tensor]:
        blocks = [[b.norm1, b.qkv, b.proj, b.norm2, b.mlp] for b in self.blocks]
        inside = [weight for parts in blocks for part in parts for weight in part.parameters()]
        return [self.tokens.weight, self.places, *inside, *self.norm.parameters()]


# ---- in the manner of nanoGPT: modules by hand, a tied head, two groups of parameters


class NanoAttention(nn.Module):
    def __init__(self, size: GPTSize, dropout: float):
        super().__init__()
        self.heads, self.p = size.heads, dropout
        self.join = nn.Linear(size.dim, 3 * size.dim)
        self.out = nn.Linear(size.dim, size.dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.size()
        q, k, v = self.join(x).split(d, dim=2)
        q = q.view(b, t, self.heads, d // self.heads).transpose(1, 2)  # (B, H, T, K)
        k = k.view(b, t, self.heads, d // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, d // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=None, dropout_p=self.p if self.training else 0, is_causal=True
        )
        return self.drop(self.out(y.transpose(1, 2).contiguous().view(b, t, d)))


class NanoBlock(nn.Module):
    def __init__(self, size: GPTSize, dropout: float):
        super().__init__()
        self.ln1, self.attention = nn.LayerNorm(size.dim), NanoAttention(size, dropout)
        self.ln2, self.widen, self.act = nn.LayerNorm(size.dim), nn.Linear(size.dim, 4 * size.dim), nn.GELU()
        self.narrow, self.drop = nn.Linear(4 * size.dim, size.dim), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.ln1(x))
        return x + self.drop(self.narrow(self.act(self.widen(self.ln2(x)))))


class NanoGPT(nn.Module):
    def __init__(self, size: GPTSize, dropout: float):
        super().__init__()
        self.token, self.place = nn.Embedding(size.vocabulary, size.dim), nn.Embedding(size.context, size.dim)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([NanoBlock(size, dropout) for _ in range(size.layers)])
        self.ln = nn.LayerNorm(size.dim)
        self.head = nn.Linear(size.dim, size.vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.drop(self.token(ids) + self.place(torch.arange(ids.size(1))))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def ordered(self) -> list[Tensor]:
        return [weight for name, weight in self.named_parameters() if name != "head.weight"]


# ---- transformers


class HuggingGPT(nn.Module):
    def __init__(self, size: GPTSize, dropout: float):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=size.vocabulary,
            n_positions=size.context,
            n_embd=size.dim,
            n_layer=size.layers,
            n_head=size.heads,
            activation_function="gelu",
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
            attn_implementation="sdpa",
        )
        self.model = GPT2LMHeadModel(config)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        logits = self.model(input_ids=ids).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def ordered(self) -> list[Tensor]:
        """Its matrices stand the other way round."""
        return [
            weight.T if ".c_" in name and weight.dim() == 2 else weight
            for name, weight in self.model.transformer.named_parameters()
        ]


# ---- LSTM


class PlainLSTM(nn.Module):
    def __init__(self, size: LSTMSize, dropout: float, tied: bool):
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.dim)
        self.lstm = nn.LSTM(size.dim, size.dim, size.layers, batch_first=True, dropout=dropout)
        self.head = nn.Linear(size.dim, size.vocabulary, bias=not tied)
        if tied:
            self.head.weight = self.tokens.weight
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        y, _ = self.lstm(self.dropout(self.tokens(ids)))
        return F.cross_entropy(self.head(self.dropout(y)).flatten(0, 1), targets.flatten())

    def ordered(self) -> list[Tensor]:
        """Of its two biases ours has one; the other is 0 from the start."""
        for name, weight in self.lstm.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(weight)
        body = [weight for name, weight in self.lstm.named_parameters() if not name.startswith("bias_hh")]
        head = [] if self.head.bias is None else list(self.head.parameters())
        return [self.tokens.weight, *body, *head]


def peer_step(model: nn.Module, groups: list | None = None) -> Callable[[Tensor, Tensor], float]:
    optimizer = torch.optim.AdamW(groups or model.parameters(), lr=1e-3)

    def step(ids: Tensor, targets: Tensor) -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = model(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return step


def two_groups(model: nn.Module) -> list[dict]:
    weights = list(model.parameters())
    decayed, free = [w for w in weights if w.dim() > 1], [w for w in weights if w.dim() < 2]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": free, "weight_decay": 0.0}]


def our_order(model: LanguageModel) -> list[Tensor]:
    """Our weights in the order of reading, which is the order of the peers' `ordered`."""
    stack, ends = model.stack, [model.embedding.table]
    own = [] if model.output.bias is None else [model.output.table, model.output.bias]
    if isinstance(stack, RNN):
        return ends + [weight for layer in stack.layers for weight in layer.parameters()] + own
    for b in stack.blocks:
        parts = [
            b.attention_norm,
            b.attention.qkv_proj,
            b.attention.out_proj,
            b.feedforward_norm,
            b.feedforward.in_proj,
            b.feedforward.out_proj,
        ]
        own += [weight for part in parts for weight in part.parameters()]
    return [*ends, stack.position.table, *own, *stack.norm.parameters()]


@torch.no_grad()
def same(name: str, ours: LanguageModel, peer: nn.Module, ids: Tensor, targets: Tensor) -> None:
    """Gives the peer our weights and demands our loss."""
    for here, there in zip(our_order(ours), peer.ordered(), strict=True):
        there.copy_(here)
    ours.eval(), peer.eval()
    wanted = F.cross_entropy(ours(ids)[0].flatten(0, 1), targets.flatten()).item()
    got = peer(ids, targets).item()
    ours.train(), peer.train()
    if not math.isclose(wanted, got, rel_tol=1e-5):
        raise ValueError(f"{name} is not the same model: its loss is {got:.6f} where ours is {wanted:.6f}")


Peers = dict[str, Callable[[], nn.Module]]


def gpt(size: GPTSize, dropout: float) -> tuple[Callable[[], LanguageModel], Peers]:
    stack = partial(
        Transformer,
        layers=size.layers,
        heads=size.heads,
        position=partial(Learned, length=size.context),
        dropout=dropout,
    )
    peers: Peers = {"plain torch": PlainGPT, "as nanoGPT": NanoGPT, "transformers GPT-2": HuggingGPT}
    peers = {name: partial(peer, size, dropout) for name, peer in peers.items()}
    if dropout:
        peers["plain torch, same places"] = partial(PlainGPT, size, dropout, drop_weights=False)
    return partial(LanguageModel, size.vocabulary, size.dim, stack), peers


def lstm(size: LSTMSize, dropout: float, tied: bool) -> tuple[Callable[[], LanguageModel], Peers]:
    ours = partial(
        LanguageModel,
        size.vocabulary,
        size.dim,
        partial(RNN, layers=size.layers, dropout=dropout),
        tied=tied,
        dropout=dropout,
    )
    return ours, {"nn.LSTM": partial(PlainLSTM, size, dropout, tied)}


SMALL = GPTSize(layers=4, dim=128, heads=4, context=64, batch=12, vocabulary=65)
LARGE = GPTSize(layers=6, dim=384, heads=6, context=256, batch=12, vocabulary=65)
ZAREMBA = LSTMSize(layers=2, dim=650, context=35, batch=20, vocabulary=10_000)

CASES: dict[str, tuple[GPTSize | LSTMSize, Callable, int]] = {  # size, models, steps in one timing
    "GPT 4 x 128, context 64": (SMALL, partial(gpt, SMALL, 0.0), 5),
    "GPT 4 x 128, context 64, dropout 0.2": (SMALL, partial(gpt, SMALL, 0.2), 5),
    "GPT 6 x 384, context 256": (LARGE, partial(gpt, LARGE, 0.0), 1),
    "GPT 6 x 384, context 256, dropout 0.2": (LARGE, partial(gpt, LARGE, 0.2), 1),
    "LSTM 2 x 650, V 10k, tied": (ZAREMBA, partial(lstm, ZAREMBA, 0.0, True), 1),
    "LSTM 2 x 650, V 10k, not tied": (ZAREMBA, partial(lstm, ZAREMBA, 0.0, False), 1),
    "LSTM 2 x 650, V 10k, not tied, dropout 0.5": (ZAREMBA, partial(lstm, ZAREMBA, 0.5, False), 1),
}


OURS = "seqloom"


def variant(title: str, name: str, threads: int) -> Callable[[], float]:
    """The work of one variant: some steps on the same batch, whoever does them. Runs in a process of its own."""
    size, models, count = CASES[title]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    text = torch.randint(size.vocabulary, (size.batch, size.context + 1))
    ids, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    make, peers = models()
    ours = make()
    if name == OURS:
        step = our_step(ours)
    else:
        peer = peers[name]()
        same(name, ours, peer, ids, targets)
        step = peer_step(peer, two_groups(peer) if isinstance(peer, NanoGPT) else None)

    def work() -> float:
        for _ in range(count):
            step(ids, targets)
        return float(count * ids.numel())

    return work


def measure(title: str, rounds: int, cpu: bool) -> list[Row]:
    """One case: all variants learn the same batch."""
    size, models, _ = CASES[title]
    names = [OURS, *models()[1]]
    if cpu:
        return interleave(
            {name: variant(title, name, 1) for name in names}, rounds, size.cost, lone, time.process_time
        )
    return interleave({name: apart(variant, title, name, 2) for name in names}, rounds, size.cost, probe)


def main() -> None:
    parser = benchmark_options(__doc__, "the small model only, few rounds")
    options = parser.parse_args()
    for title in CASES:
        if options.only not in title or (options.quick and CASES[title][0] is not SMALL):
            continue
        rows = measure(title, options.rounds or (5 if options.quick else 15), options.cpu)
        if options.json:
            print(record(title, rows), flush=True)
        else:
            show(title, rows)


if __name__ == "__main__":
    main()
