"""The loop against a model re-run from scratch at every step, and against probabilities known in closed form."""

import itertools

import pytest
import torch
from scipy.stats import chisquare

from seqloom.decoding import Greedy, RandomSampler, generate_batch, generate_steps, row_seeds

PROMPTS = [[1, 5, 6], [4], [7, 8, 9, 10, 4], [5, 5]]


def padded(prompts):
    width = max(map(len, prompts))
    ids = torch.tensor([prompt + [0] * (width - len(prompt)) for prompt in prompts])
    return ids, torch.tensor([[t < len(prompt) for t in range(width)] for prompt in prompts])


def rerun(model, prompt, length, stop=(3,), ban=(0, 2)):
    """Greedy with no state at all: the whole text through the model at every step."""
    text, total = [], 0.0
    while len(text) < length:
        h, _ = model.features(torch.tensor([prompt + text]), None, None)
        log_p = model.output(h)[0, -1].log_softmax(-1).tolist()
        token = max((i for i in range(len(log_p)) if i not in ban), key=lambda i: log_p[i])
        total += log_p[token]
        if token in stop:
            return text, total, True
        text.append(token)
    return text, total, False


def log_probability(model, prompt, text):
    """Teacher forcing: the sum of log p of every token of the text."""
    h, _ = model.features(torch.tensor([prompt + text]), None, None)
    log_p = model.output(h).detach()[0].log_softmax(-1)
    return sum(float(log_p[len(prompt) - 1 + t, token]) for t, token in enumerate(text))


def test_greedy_in_a_padded_batch_equals_each_prompt_rerun_from_scratch(network):
    texts = generate_batch(network, *_with_mask(PROMPTS), max_tokens=9, stop_ids=(3, 6))
    for prompt, text in zip(PROMPTS, texts, strict=True):
        ids, total, finished = rerun(network, prompt, 9, stop=(3, 6))
        assert (text.ids, text.finished) == (ids, finished)
        assert text.log_probability == pytest.approx(total)


def _with_mask(prompts):
    ids, mask = padded(prompts)
    return ids, None, mask


def test_sampled_texts_do_not_depend_on_the_batch(network):
    ids, mask = padded(PROMPTS)
    options = {"sampler": RandomSampler(temperature=1.5, top_k=7, top_p=0.95), "max_tokens": 8}
    together = generate_batch(network, ids, mask=mask, seed=row_seeds(11, 4), **options)
    assert together == generate_batch(network, ids, mask=mask, seed=11, **options)
    assert len({tuple(text.ids) for text in together}) > 1
    for row, prompt in enumerate(PROMPTS):
        [alone] = generate_batch(
            network, torch.tensor([prompt]), seed=row_seeds(11, 4)[row : row + 1], **options
        )
        assert (alone.ids, alone.finished) == (together[row].ids, together[row].finished)
        assert alone.log_probability == pytest.approx(together[row].log_probability)


def test_log_probability_is_the_models_own_whatever_the_pick(network):
    ids, mask = padded(PROMPTS)
    for pick in (Greedy(), RandomSampler(temperature=4.0), RandomSampler(temperature=0.2, top_k=2)):
        for prompt, text in zip(
            PROMPTS,
            generate_batch(network, ids, mask=mask, sampler=pick, max_tokens=6, stop_ids=(), seed=3),
            strict=True,
        ):
            assert text.log_probability == pytest.approx(log_probability(network, prompt, text.ids))


def test_continuing_from_a_state_is_continuing_the_text(network):
    [whole] = generate_batch(network, torch.tensor([[1, 5, 6, 7]]), max_tokens=6)
    _, state = network.features(torch.tensor([[1, 5]]), None, None)
    [rest] = generate_batch(network, torch.tensor([[6, 7]]), state, max_tokens=6)
    assert rest.ids == whole.ids


def test_sampled_texts_follow_the_joint_distribution(toys):
    table = {(0,): [0.1, 0.2, 0.3, 0.4], (1,): [0.3, 0.2, 0.1, 0.4], (2,): [0.25, 0.25, 0.4, 0.1]}
    texts = generate_batch(
        toys.table(table, 1),
        torch.full((4000, 1), 1),
        sampler=RandomSampler(),
        max_tokens=2,
        stop_ids=(3,),
        banned=(),
        seed=0,
    )
    outcomes = toys.enumerate_all(table, 1, [1], 2, stop=(3,))
    counts = {tuple(ids) + (("end",) if finished else ()): 0 for _, _, ids, finished in outcomes}
    for text in texts:
        counts[tuple(text.ids) + (("end",) if text.finished else ())] += 1
    expected = [4000 * 2.718281828459045**log_p for _, log_p, _, _ in outcomes]
    assert chisquare(list(counts.values()), expected).pvalue > 0.01


def test_samples_of_one_prompt_are_repeated_rows_and_differ(network):
    ids = torch.tensor([[1, 5, 6], [4, 7, 8]]).repeat_interleave(5, 0)
    texts = generate_batch(network, ids, sampler=RandomSampler(temperature=2.0), max_tokens=6)
    assert len({tuple(text.ids) for text in texts[:5]}) > 1
    again = generate_batch(network, ids, sampler=RandomSampler(temperature=2.0), max_tokens=6)
    other = generate_batch(network, ids, sampler=RandomSampler(temperature=2.0), max_tokens=6, seed=1)
    assert texts == again and texts != other


def chain(toys, **options):
    """A table that counts down: token n is followed by n − 1, and 0 ends."""
    return toys.table({(n,): [float(i == max(n - 1, 0)) for i in range(9)] for n in range(9)}, 1, **options)


def test_a_finished_row_leaves_the_batch_and_only_last_positions_reach_the_output(toys):
    model = chain(toys)
    steps = list(
        generate_steps(
            model, torch.tensor([[5, 3], [5, 6], [8, 1], [8, 4]]), stop_ids=(0,), banned=(), max_tokens=5
        )
    )
    assert model.seen == [(4, 2), (3, 1), (3, 1), (2, 1), (1, 1)]
    assert model.read == [(4, 1), (3, 1), (3, 1), (2, 1), (1, 1)]
    assert torch.stack([step.tokens for step in steps], 1).tolist() == [
        [2, 1, 0, -1, -1],
        [5, 4, 3, 2, 1],
        [0, -1, -1, -1, -1],
        [3, 2, 1, 0, -1],
    ]
    assert torch.stack([step.finished for step in steps]).sum(0).tolist() == [3, 0, 5, 2]
    assert [step.finished[0].item() for step in steps] == [False, False, True, True, True]


def test_the_last_token_is_never_fed_back(toys):
    model = chain(toys)
    assert [
        text.ids for text in generate_batch(model, torch.tensor([[8]]), max_tokens=3, banned=(), stop_ids=())
    ] == [[7, 6, 5]]
    assert len(model.seen) == 3


def test_streaming_does_no_work_ahead(toys):
    model = chain(toys)
    steps = generate_steps(model, torch.tensor([[8]]), banned=(), stop_ids=())
    assert model.seen == []
    next(steps), next(steps)
    assert len(model.seen) == 2


def test_banned_tokens_never_come_out_and_their_mass_is_not_handed_on(toys):
    table = {(n,): [0.4, 0.1, 0.3, 0.2] for n in range(4)}
    [text] = generate_batch(
        toys.table(table, 1), torch.tensor([[1]]), max_tokens=3, stop_ids=(), banned=(0, 2)
    )
    assert text.ids == [3, 3, 3] and text.log_probability == pytest.approx(3 * torch.tensor(0.2).log().item())
    many = torch.ones(200, 1, dtype=torch.int64)
    texts = generate_batch(
        toys.table(table, 1),
        many,
        sampler=RandomSampler(temperature=3.0),
        max_tokens=3,
        stop_ids=(),
        banned=(0, 2),
    )
    assert set(itertools.chain.from_iterable(text.ids for text in texts)) == {1, 3}


def test_any_stop_token_ends_and_is_left_out_but_counted(toys):
    table = {(0,): [0, 0.9, 0.1], (1,): [0, 0, 1], (2,): [1, 0, 0]}
    [text] = generate_batch(toys.table(table, 1), torch.tensor([[0]]), stop_ids=(2, 1), banned=())
    assert (text.ids, text.finished) == ([], True) and text.log_probability == pytest.approx(
        torch.tensor(0.9).log().item()
    )
    [text] = generate_batch(toys.table(table, 1), torch.tensor([[0]]), stop_ids=(2,), banned=())
    assert (text.ids, text.finished) == ([1], True)


def test_length_is_clipped_to_the_context_of_each_row(toys):
    ids, mask = padded([[8, 7, 8], [8]])
    texts = generate_batch(chain(toys, context=4), ids, mask=mask, stop_ids=(), banned=(), max_tokens=100)
    assert [(text.ids, text.finished) for text in texts] == [([7, 6], False), ([7, 6, 5, 4], False)]


def test_context_clipping_uses_every_position_a_real_model_has(toys):
    model = toys.attention(context=6)
    [text] = generate_batch(model, torch.tensor([[1, 5, 6]]), stop_ids=(), max_tokens=100)
    assert len(text.ids) == 4 and text.ids == rerun(model, [1, 5, 6], 4, stop=())[0]


@pytest.mark.parametrize(
    ("ids", "mask", "options", "message"),
    [
        ([[1, 1, 1, 1, 1]], None, {}, "takes 4 at most"),
        ([[1, 1]], [[False, True]], {}, "on the right"),
        ([[1, 1], [1, 1]], [[True, True], [False, False]], {}, "prompt 1 is empty"),
        ([[1]], None, {"max_tokens": 0}, "at least 1"),
        ([[1], [1]], None, {"seed": [1, 2, 3]}, "3 seeds for 2"),
        ([1], None, {}, "shape"),
        ([[1]], [[1]], {}, "bool"),
    ],
)
def test_mistakes_are_named_before_any_work(toys, ids, mask, options, message):
    model = chain(toys, context=4)
    with pytest.raises(ValueError, match=message):
        generate_steps(model, torch.tensor(ids), mask=None if mask is None else torch.tensor(mask), **options)
    assert model.seen == []


def test_padding_beyond_the_context_is_trimmed(toys):
    ids, mask = torch.tensor([[8, 0, 0, 0, 0, 0]]), torch.tensor([[True] + [False] * 5])
    model = chain(toys, context=4)
    assert generate_batch(model, ids, mask=mask, max_tokens=2, stop_ids=(), banned=())[0].ids == [7, 6]
    assert model.seen[0] == (1, 1)


def test_diverged_models_and_hopeless_bans_are_named(toys):
    with pytest.raises(ValueError, match="NaN"):
        generate_batch(toys.table({(1,): [0.5, float("nan")]}, 1), torch.tensor([[1]]), banned=())
    with pytest.raises(ValueError, match="banned"):
        generate_batch(toys.table({(1,): [1.0, 0.0]}, 1), torch.tensor([[1]]), banned=(0,))
    with pytest.raises(ValueError, match="vocabulary of 2"):
        generate_batch(toys.table({(1,): [1.0, 0.0]}, 1), torch.tensor([[1]]), banned=(2,))


def test_no_prompts_give_no_texts(network):
    assert generate_batch(network, torch.zeros(0, 3, dtype=torch.int64)) == []


def test_streamed_tensors_are_fit_to_train_on_and_the_caller_keeps_gradients(network):
    for step in generate_steps(network, torch.tensor([[1, 5]]), max_tokens=2):
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
        h, _ = network.features(step.tokens[:, None], None, None)
        network.output(h).sum().backward()
    assert network.embedding.weight.grad.abs().sum() > 0


def test_the_model_runs_in_inference_mode(toys):
    modes = []

    class Spy(toys.table):
        def output(self, h):
            modes.append(torch.is_inference_mode_enabled())
            return super().output(h)

    generate_batch(Spy({(n,): [0.5, 0.5] for n in range(2)}, 1), torch.tensor([[1]]), max_tokens=3, banned=())
    assert modes == [True] * 3


def test_half_precision_logits_are_read_in_single():
    class Half:
        context = None

        def features(self, ids, state, mask):
            return torch.tensor([[[0.0, 1.0, 2.0]]], dtype=torch.bfloat16).expand(*ids.shape, 3), state

        def output(self, h):
            return h

    [step] = generate_steps(Half(), torch.tensor([[1]]), max_tokens=1, banned=())
    assert step.log_probabilities.item() == pytest.approx(
        torch.tensor([0.0, 1.0, 2.0]).log_softmax(0)[2].item(), abs=1e-6
    )
