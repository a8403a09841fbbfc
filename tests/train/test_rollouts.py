"""Rollouts: what is sampled, how it is divided, and that a checkpoint continues it with the same bits."""

from functools import partial
from itertools import islice

import pytest
import torch

from seqloom.batches.prompts import PromptBatch
from seqloom.errors import ConfigError
from seqloom.inference.answers import sample_texts
from seqloom.models import ActorCritic, LanguageModel
from seqloom.nn import Learned, Transformer
from seqloom.objectives.policy import token_log_probs
from seqloom.studies.known_optimum import RepeatedBatch
from seqloom.train.rollouts import RolloutOptions, Rollouts, select_rows, token_rewards

STOP = (0,)


def policy(seed: int = 0) -> ActorCritic:
    torch.manual_seed(seed)
    stack = partial(Transformer, layers=1, heads=2, position=partial(Learned, length=16), dropout=0.5)
    model = ActorCritic(7, 16, stack)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape))
    return model


def prompts(rows: int = 3) -> PromptBatch:
    ids = torch.tensor([[5, 6, 0], [4, 0, 0], [6, 6, 5]])[:rows]
    return PromptBatch.of(ids, torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool()[:rows])


def even_tokens(tokens: torch.Tensor, mask: torch.Tensor, prompts: PromptBatch) -> torch.Tensor:
    return ((tokens[:, 1:] % 2 == 0) & mask).float().sum(1)


def rollouts(model: ActorCritic, **options: object) -> Rollouts:
    reference = policy(1).eval()

    def log_probs(ids: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return token_log_probs(reference, ids, targets, mask)[0]

    made = RolloutOptions(**{"max_tokens": 6, "samples": 4, **options})  # type: ignore[arg-type]
    return Rollouts(RepeatedBatch(prompts()), model, log_probs, even_tokens, made, STOP)


def test_texts_follow_their_prompts_and_end_once() -> None:
    model, batch = policy().eval(), prompts()
    many = batch.repeated(50)
    texts = sample_texts(model, many, 6, STOP, seed=3)
    assert texts.finished.any() and not texts.finished.all()
    for row in range(len(many.ids)):
        prompt = many.ids[row][many.mask[row]].tolist()
        places = (texts.mask[row].nonzero()[:, 0] + 1).tolist()
        assert texts.tokens[row, : len(prompt)].tolist() == prompt
        assert places == list(range(len(prompt), len(prompt) + len(places))) and 1 <= len(places) <= 6
        text = texts.tokens[row, places].tolist()
        assert (text[-1] in STOP) == bool(texts.finished[row]) and not set(STOP) & set(text[:-1])
        assert bool(texts.finished[row]) or len(text) == 6


def test_samples_follow_the_model() -> None:
    """The first token's frequencies are its probabilities."""
    model = policy().eval()
    batch = PromptBatch.of(torch.tensor([[5, 6]] * 4000), torch.ones(4000, 2, dtype=torch.bool))
    texts = sample_texts(model, batch, 1, STOP, seed=0)
    frequencies = torch.bincount(texts.tokens[:, 2], minlength=7) / 4000
    with torch.no_grad():
        expected = model(batch.ids[:1])[0][0, -1].softmax(-1)
    torch.testing.assert_close(frequencies, expected, rtol=0, atol=0.04)


def test_each_text_is_used_once_in_each_pass() -> None:
    source = rollouts(policy(), epochs=2, minibatches=3)
    torch.manual_seed(5)
    stream = list(islice(source.batches(), 6))
    assert [cursor[-1] for _, cursor in stream] == [1, 2, 3, 4, 5, 6]
    assert source.batch is not None
    whole = sorted(source.batch.scores.tolist())
    for first in (0, 3):
        parts = [batch.scores for batch, _ in stream[first : first + 3]]
        assert sorted(torch.cat(parts).tolist()) == whole and [len(part) for part in parts] == [4, 4, 4]


def test_the_reward_is_at_the_last_token_and_the_penalty_at_each() -> None:
    mask = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 0]]).bool()
    penalties = torch.tensor([[0.0, 0.1, 0.2, 0.0], [0.3, 0.0, 0.0, 0.0]])
    got = token_rewards(torch.tensor([2.0, 5.0]), penalties, mask)
    torch.testing.assert_close(got, torch.tensor([[0.0, -0.1, 1.8, 0.0], [4.7, 0.0, 0.0, 0.0]]))


def test_numbers_of_a_rollout_belong_together() -> None:
    source = rollouts(policy(), beta=0.3, decay=1.0)
    batch, _ = next(source.batches())
    torch.testing.assert_close(batch.kl, (batch.log_probs - batch.reference).sum(1))
    torch.testing.assert_close(batch.scores, batch.rewards - 0.3 * batch.kl)
    assert batch.values is not None and batch.returns is not None
    first = batch.mask.float().argmax(1)[:, None]
    torch.testing.assert_close(batch.returns.gather(1, first)[:, 0], batch.scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("advantage", ["grpo", "grpo-undivided", "rloo"])
def test_groups_are_the_texts_of_one_prompt(advantage: str) -> None:
    source = rollouts(policy(), advantage=advantage)
    batch, _ = next(source.batches())
    assert source.batch is not None and batch.returns is None
    sums = source.batch.advantages.amax(1) + source.batch.advantages.amin(1)
    torch.testing.assert_close(sums.view(3, 4).sum(1), torch.zeros(3), rtol=0, atol=1e-4)


@pytest.mark.parametrize("stop", [1, 3, 4, 5])
def test_a_restored_source_continues_with_the_same_bits(stop: int) -> None:
    options = {"epochs": 2, "minibatches": 2, "kl_target": 0.5}
    model = policy()
    one = rollouts(model, **options)
    torch.manual_seed(9)
    stream = one.batches()
    for _ in range(stop):
        _, cursor = next(stream)
    tensors = {name: tensor.clone() for name, tensor in one.tensors().items()}
    random_state = torch.get_rng_state()
    expected = [next(stream)[0] for _ in range(6)]
    other = rollouts(model, **options)
    other.restore(tensors)
    torch.set_rng_state(random_state)
    for batch, want in zip((batch for batch, _ in islice(other.batches(cursor), 6)), expected, strict=True):
        for got, value in zip(batch, want, strict=True):
            assert torch.equal(got, value) if isinstance(value, torch.Tensor) else got == value
    assert other.beta == one.beta


def test_beta_rises_while_the_kl_is_above_its_target() -> None:
    source = rollouts(policy(), kl_target=1e-6)
    list(islice(source.batches(), 5))
    assert source.beta == pytest.approx(0.05 * 1.02**3)  # two steps of each rollout


def test_training_ends_above_the_limit_of_the_kl() -> None:
    source = rollouts(policy(), kl_limit=1e-6)
    next(source.batches())
    assert source.ended


def test_evaluation_is_the_same_every_time_and_leaves_no_trace() -> None:
    source = rollouts(policy().train())
    state = torch.get_rng_state()
    first, second = (next(iter(source.sequential())) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(state, torch.get_rng_state())
    assert len(first.tokens) == 3 and source.model.training


def test_rows_lose_the_columns_that_are_padding() -> None:
    batch, _ = next(rollouts(policy()).batches())
    shortest = int(batch.mask.sum(1).argmin())
    row = select_rows(batch, torch.tensor([shortest]))
    assert bool(row.mask[0, -1]) and row.tokens.shape[1] == row.mask.shape[1] + 1


def test_wrong_options_are_named() -> None:
    with pytest.raises(ConfigError, match="at least 2"):
        RolloutOptions(advantage="grpo", samples=1)
    with pytest.raises(ConfigError, match="ActorCritic"):
        torch.manual_seed(0)
        plain = LanguageModel(
            7, 16, partial(Transformer, layers=1, heads=2, position=partial(Learned, length=16))
        )
        rollouts(plain)  # type: ignore[arg-type]
