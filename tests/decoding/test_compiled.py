"""Generation through compiled code, in single precision, against the equations in double: a beam written out in plain Python, and the loop."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn

from seqloom.decoding import Greedy, RandomSampler, beam_search, generate_batch
from seqloom.fused.dispatch import plain
from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import GRU, RNN, ALiBi, AttentiveRNN, Learned, Rotary, Transformer, quantize

MODELS = {
    "learned": lambda: LanguageModel(
        40, 32, partial(Transformer, layers=2, heads=4, position=partial(Learned, length=32))
    ),
    "rotary": lambda: LanguageModel(40, 32, partial(Transformer, layers=2, heads=4, position=Rotary)),
    "alibi": lambda: LanguageModel(40, 32, partial(Transformer, layers=2, heads=4, position=ALiBi)),
    "gru": lambda: LanguageModel(40, 32, partial(RNN, dim=24, cell=GRU, layers=2)),
    "translator": lambda: Seq2Seq(
        40,
        40,
        32,
        partial(Transformer, layers=1, heads=4, causal=False),
        partial(Transformer, layers=2, heads=4),
    ),
    "attentive": lambda: Seq2Seq(
        40, 40, 32, partial(RNN, dim=16, direction="both"), partial(AttentiveRNN, dim=24)
    ),
}
SOURCES = torch.tensor([[5, 6, 7, 8, 9], [9, 5, 0, 0, 0], [11, 12, 13, 0, 0]])
REAL = SOURCES > 0
STOP, BAN = 3, (0, 2)


def made(name, seed=0):
    torch.manual_seed(seed)
    model = MODELS[name]().float().eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.25)
    return model


def opened(model, rows=slice(None)):
    with torch.inference_mode():
        return model.prepare_prompt(SOURCES[rows], REAL[rows], 1)


@torch.no_grad()
def log_p(model, row, text):
    """ln P of every next token in double precision, the equations as they stand, the whole text read at once."""
    source = SOURCES[row : row + 1, : int(REAL[row].sum())]
    with plain():
        ids, state, _ = model.prepare_prompt(source, None, 1)
        logits, _ = model(torch.cat([ids, torch.tensor([text], dtype=torch.int64).reshape(1, -1)], 1), state)
    return logits[0, -1].log_softmax(-1).tolist()


def literal_beam(model, row, width, length, penalty):
    """Every continuation of every prefix, sorted; outcomes among the best `width`; the best `width` others live on. No bound."""
    live, outcomes = [(0.0, [])], []
    for t in range(1, length + 1):
        every = sorted(
            (
                (total + p, [*text, token])
                for total, text in live
                for token, p in enumerate(log_p(model, row, text))
                if token not in BAN
            ),
            reverse=True,
        )
        scale = ((5 + t) / 6) ** penalty
        outcomes += [(total / scale, text[:-1], True) for total, text in every[:width] if text[-1] == STOP]
        going = [one for one in every if one[1][-1] != STOP][:width]
        if t == length:
            outcomes += [(total / scale, text, False) for total, text in going]
        live = going
    return sorted(outcomes, reverse=True)


@pytest.mark.parametrize("width, penalty", [(1, 0.0), (3, 0.6), (5, 1.0)])
@pytest.mark.parametrize("name", MODELS)
def test_beams_are_the_literal_beam(name, width, penalty):
    model = made(name)
    double = copy.deepcopy(model).double()
    found = beam_search(
        model, *opened(model), width=width, max_tokens=6, length_penalty=penalty, stop_ids=(STOP,), banned=BAN
    )
    for row, (best,) in enumerate(found):
        score, text, finished = literal_beam(double, row, width, 6, penalty)[0]
        assert best.score == pytest.approx(score, abs=1e-4)
        assert (best.ids, best.finished) == (text, finished)


@pytest.mark.parametrize("kind", ["single", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_of_unequal_prompts_is_each_alone(name, kind):
    model = made(name)
    if kind == "int8":
        quantize(model)
    for pick in (Greedy(), RandomSampler(top_k=5), RandomSampler(temperature=1.3, top_p=0.8)):
        together = generate_batch(
            model, *opened(model), sampler=pick, max_tokens=12, stop_ids=(STOP,), banned=BAN, seed=[7, 8, 9]
        )
        for row in range(3):
            alone_rows = slice(row, row + 1)
            count = int(REAL[row].sum())
            with torch.inference_mode():
                prompt = model.prepare_prompt(SOURCES[alone_rows, :count], None, 1)
            [alone] = generate_batch(
                model, *prompt, sampler=pick, max_tokens=12, stop_ids=(STOP,), banned=BAN, seed=[7 + row]
            )
            assert alone.ids == together[row].ids and alone.finished == together[row].finished
            assert alone.log_probability == pytest.approx(together[row].log_probability, abs=1e-3)
    beams = beam_search(model, *opened(model), width=4, max_tokens=8, nbest=4)
    for row in range(3):
        with torch.inference_mode():
            prompt = model.prepare_prompt(SOURCES[row : row + 1, : int(REAL[row].sum())], None, 1)
        [alone] = beam_search(model, *prompt, width=4, max_tokens=8, nbest=4)
        assert [one.score for one in alone] == pytest.approx([one.score for one in beams[row]], abs=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_the_loop_is_the_equations(name):
    model = made(name)
    double = copy.deepcopy(model).double()
    for row, text in enumerate(
        generate_batch(model, *opened(model), max_tokens=10, stop_ids=(STOP,), banned=BAN)
    ):
        chosen = [*text.ids, STOP] if text.finished else text.ids
        assert len(text.log_probabilities) == len(chosen) and text.log_probability == pytest.approx(
            sum(text.log_probabilities)
        )
        for t, token in enumerate(chosen):
            every = log_p(double, row, chosen[:t])
            assert text.log_probabilities[t] == pytest.approx(every[token], abs=1e-4)
            assert every[token] > max(p for other, p in enumerate(every) if other not in BAN) - 1e-4


def test_top_k_among_few_is_top_k_among_all():
    """The pick sees only k tokens, in the order of their ids: the same choice for the same chance as with the whole row."""

    class All(RandomSampler):
        num_candidates = None

    model = made("learned")
    for seed in range(5):
        for options in ({"top_k": 5}, {"top_k": 12, "temperature": 2.0, "top_p": 0.9}):
            some, every = (
                generate_batch(model, *opened(model), sampler=kind(**options), max_tokens=15, seed=seed)
                for kind in (RandomSampler, All)
            )
            assert [text.ids for text in some] == [text.ids for text in every]
            assert [text.log_probability for text in some] == pytest.approx(
                [text.log_probability for text in every], abs=1e-4
            )


def test_what_was_said_is_less_likely_to_come_again():
    """Each step equals the rule on the logits themselves; the log-probabilities stay the model's."""
    model, theta = made("learned"), 1.7
    double = copy.deepcopy(model).double()
    texts = generate_batch(
        model, *opened(model), max_tokens=12, stop_ids=(), banned=BAN, repetition_penalty=theta
    )
    assert texts != generate_batch(model, *opened(model), max_tokens=12, stop_ids=(), banned=BAN)
    for row, text in enumerate(texts):
        prompt = SOURCES[row, : int(REAL[row].sum())].tolist()
        for t, token in enumerate(text.ids):
            with torch.no_grad(), plain():
                logits = double(torch.tensor([[*prompt, *text.ids[:t]]]))[0][0, -1].tolist()
            said = {*prompt, *text.ids[:t]}
            scored = [x if i not in said else x / theta if x > 0 else x * theta for i, x in enumerate(logits)]
            assert scored[token] > max(x for i, x in enumerate(scored) if i not in BAN) - 1e-4
            total = math.log(sum(math.exp(x) for x in logits))
            assert text.log_probabilities[t] == pytest.approx(logits[token] - total, abs=1e-4)
    with pytest.raises(ValueError, match="repetition"):
        generate_batch(model, *opened(model), repetition_penalty=0.0)


def test_a_text_may_end_when_the_caller_says_so():
    model = made("learned")
    free = generate_batch(model, *opened(model), max_tokens=12, stop_ids=(), banned=BAN)
    asked = []

    def until(row, ids):
        asked.append((row, list(ids)))
        return len(ids) == row + 2

    texts = generate_batch(model, *opened(model), max_tokens=12, stop_ids=(), banned=BAN, stop_when=until)
    assert [text.ids for text in texts] == [text.ids[: row + 2] for row, text in enumerate(free)]
    assert (
        all(text.finished for text in texts) and asked[0] == (0, free[0].ids[:1]) and len(asked) == 2 + 3 + 4
    )
