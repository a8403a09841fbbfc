"""Losses that parts add reach the objective while training, weighed as the loop needs it, and nobody else."""

import subprocess
import sys
import threading
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from seqloom.batches import PairBatch, TokenBatch
from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import Experts, FeedForward, Transformer, layer
from seqloom.objectives import next_token, translation

experts = partial(Experts, experts=4, top_k=1, balance=0.5, expert=partial(FeedForward, dim=8))
stack = partial(Transformer, layers=2, heads=2, feedforward=experts)


def language() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(9, 8, stack).double()


def batch(rows: int, counted: int = 5) -> TokenBatch:
    ids = torch.randint(0, 9, (rows, 5))
    return TokenBatch(ids, ids.roll(-1, 1), (torch.arange(5) < counted).expand(rows, 5))


# The collector


def test_the_innermost_collection_gets_it_and_outside_nothing_is_kept():
    one, two, three = (torch.tensor(float(n)) for n in range(3))
    layer.add_aux_loss(one)
    with layer.collect_aux_losses() as outer:
        assert outer == []
        layer.add_aux_loss(one)
        with layer.collect_aux_losses() as inner:
            layer.add_aux_loss(two)
        layer.add_aux_loss(three)
    layer.add_aux_loss(one)
    assert outer == [one, three] and inner == [two] and not layer.collecting_losses()


def test_an_error_inside_closes_the_collection():
    with pytest.raises(KeyError), layer.collect_aux_losses():
        raise KeyError
    assert not layer.collecting_losses()


def test_another_thread_has_its_own():
    """A model that generates beside one that learns adds nothing to it."""
    with layer.collect_aux_losses() as losses:
        thread = threading.Thread(target=lambda: layer.add_aux_loss(torch.ones(())))
        thread.start()
        thread.join()
    assert losses == []


# In the objectives


def test_the_loss_is_the_likelihood_and_the_weight_times_what_was_added():
    model, text = language().train(), batch(3, counted=4)
    with layer.collect_aux_losses() as losses:
        model.features(text.ids)
    assert len(losses) == 2  # one for each layer
    loss, numbers, _ = next_token(model, text)
    assert numbers["aux_loss"] == pytest.approx(float(sum(losses).detach()))
    assert float(loss.detach()) == pytest.approx(numbers["nats"] + 12 * numbers["aux_loss"], rel=1e-6)


def test_a_translators_two_sides_add():
    torch.manual_seed(0)
    model = Seq2Seq(9, 9, 8, partial(stack, causal=False, layers=1), stack).double().train()
    text = batch(3)
    pair = PairBatch(text.ids, text.mask, text.ids, text.targets, text.mask)
    loss, numbers, _ = translation(model, pair, smoothing=0.0)
    with layer.collect_aux_losses() as losses:
        model.features(pair.ids, model.start(pair.source, pair.source_mask), pair.mask)
    assert len(losses) == 3
    assert numbers["aux_loss"] == pytest.approx(float(sum(losses).detach()))
    assert float(loss.detach()) == pytest.approx(numbers["nats"] + 15 * numbers["aux_loss"], rel=1e-6)


def test_evaluation_and_models_that_add_nothing_are_left_alone():
    text = batch(2)
    loss, numbers, _ = next_token(language().eval(), text)
    assert float(loss.detach()) == numbers["nats"] and set(numbers) == {"nats"}
    free = LanguageModel(9, 8, partial(Transformer, layers=1, heads=2)).train()
    loss, numbers, _ = next_token(free, text)
    assert float(loss.detach()) == numbers["nats"] and set(numbers) == {"nats"}


def test_no_grad_counts_it_and_keeps_no_graph():
    with torch.no_grad():
        loss, numbers, _ = next_token(language().train(), batch(2))
    assert not loss.requires_grad and numbers["aux_loss"] > 0


PARTS = [batch(3), batch(1, counted=2)]


def expected() -> list[torch.Tensor]:
    """The gradient of Σ (nats + weight · extra) / Σ weight over the parts of a step, written out."""
    model = language().train()
    total = 0
    for part in PARTS:
        with layer.collect_aux_losses() as losses:
            h, _ = model.features(part.ids)
        log_p = model.output(h).log_softmax(-1)
        nats = -log_p.gather(-1, part.targets[..., None])[..., 0][part.mask].sum()
        total = total + (nats + int(part.mask.sum()) * sum(losses)) / 17
    return torch.autograd.grad(total, list(model.parameters()))


def test_accumulated_parts_add_up_as_the_loop_adds_them():
    model = language().train()
    for part in PARTS:
        (next_token(model, part)[0] / 17).backward()
    for weight, gradient in zip(model.parameters(), expected(), strict=True):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-5, atol=1e-7)


RANK = """
import os
import sys
from functools import partial
import torch
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel
from seqloom.batches import TokenBatch
from seqloom.models import LanguageModel
from seqloom.nn import Experts, FeedForward, Transformer
from seqloom.objectives import next_token
from seqloom.train.loop import TrainStep

folder, rank = sys.argv[1], int(sys.argv[2])
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
experts = partial(Experts, experts=4, top_k=1, balance=0.5, expert=partial(FeedForward, dim=8))
model = LanguageModel(9, 8, partial(Transformer, layers=2, heads=2, feedforward=experts)).double()
own = load_file(f"{folder}/{rank}.safetensors")
batch = TokenBatch(own.pop("ids"), own.pop("targets"), own.pop("mask"))
with torch.no_grad():
    for name, weight in model.named_parameters():
        weight.copy_(own[name])
module = DistributedDataParallel(TrainStep(model, next_token)).train()
for _ in range(2):  # an expert without a gradient on one rank would end the second round
    model.zero_grad()
    (module(batch, None)[0] * (2 / 17)).backward()
save_file({name: weight.grad for name, weight in model.named_parameters()}, f"{folder}/gradient-{rank}.safetensors")
torch.distributed.barrier()
os._exit(0)  # gloo's threads may abort a process that ends while the other still waits
"""


def test_two_processes_have_the_gradient_of_their_sum(tmp_path):
    from safetensors.torch import save_file

    weights = {name: weight.detach().clone() for name, weight in language().named_parameters()}
    for rank, part in enumerate(PARTS):
        tensors = {"ids": part.ids, "targets": part.targets, "mask": part.mask}
        save_file(
            {**weights, **{name: tensor.contiguous() for name, tensor in tensors.items()}},
            tmp_path / f"{rank}.safetensors",
        )
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(tmp_path), str(rank)], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=800)
        assert process.returncode == 0, errors
    names = [name for name, _ in language().named_parameters()]
    for rank in range(2):
        found = load_file(tmp_path / f"gradient-{rank}.safetensors")
        for name, gradient in zip(names, expected(), strict=True):
            torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-7)
