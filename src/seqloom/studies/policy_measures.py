"""How good a policy is beside its reference  [I8]: rewards, win rate, KL, perplexity on other text, length and diversity of its answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seqloom.errors import UserError
from seqloom.evaluation import conditions
from seqloom.inference.answers import Answer, answer_log_probs, answer_scores, sample_answers
from seqloom.inference.evaluation_data import Data, as_language_model, read_data
from seqloom.inference.feedback_numbers import implicit_reward_numbers, likelihood_numbers
from seqloom.measure.number import Number, make_signature
from seqloom.measure.preferences import distinct, win_rate
from seqloom.results import Result
from seqloom.run import Run, RunLike, as_run
from seqloom.text.chat_field import ChatEncoder
from seqloom.text.chat_records import Messages
from seqloom.text.chats import PLAIN, Chats, Prompts

Judge = Callable[[str, str], float]


@dataclass(frozen=True)
class PolicyMeasures(Result):
    """Numbers of one policy; `proxy` is the score of a reward run, `gold` that of an exact judge, None without one."""

    name: str
    kl: float  # KL(π ‖ π_ref), mean over sampled answers
    proxy: float | None
    gold: float | None
    win_rate: float | None  # in per cent, over the reference, by the judge, else by the reward run
    win_low: float | None
    win_high: float | None
    words: float  # of an answer
    distinct: float  # share of different pairs of words
    perplexity: float | None  # of given answers


def question(prompt: str | Messages) -> str:
    """The text of a prompt: its last message."""
    return prompt if isinstance(prompt, str) else prompt[-1].content


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def measure_policy(
    name: str,
    run: Run,
    reference: Run,
    prompts: Sequence[str | Messages],
    n: int = 8,
    max_tokens: int = 64,
    reward: Run | None = None,
    judge: Judge | None = None,
    held_out: Sequence[Answer] = (),
    seed: int = 0,
) -> PolicyMeasures:
    """Samples `n` answers to each prompt from both policies and compares them; `held_out` are answers whose perplexity is measured.

    The answers of both policies to a prompt are compared pair by pair, so a win rate has as many comparisons as there are answers.
    """
    samples = [answer for row in sample_answers(run, prompts, n, max_tokens, seed) for answer in row]
    others = [answer for row in sample_answers(reference, prompts, n, max_tokens, seed + 1) for answer in row]
    questions = [question(prompt) for prompt in prompts for _ in range(n)]
    own, base = answer_log_probs(run, samples), answer_log_probs(reference, samples)
    proxy = answer_scores(reward, samples) if reward else None
    gold = [judge(q, answer.text) for q, answer in zip(questions, samples, strict=True)] if judge else None
    rate = None
    if judge is not None and gold is not None:
        rate = win_rate(gold, [judge(q, answer.text) for q, answer in zip(questions, others, strict=True)])
    elif reward is not None and proxy is not None:
        rate = win_rate(proxy, answer_scores(reward, others))
    return PolicyMeasures(
        name,
        mean([a - b for a, b in zip(own, base, strict=True)]),
        None if proxy is None else mean(proxy),
        None if gold is None else mean(gold),
        rate and rate.value,
        rate and rate.low,
        rate and rate.high,
        mean([len(answer.text.split()) for answer in samples]),
        distinct([answer.text for answer in samples]),
        perplexity(run, held_out) if held_out else None,
    )


def perplexity(run: Run, answers: Sequence[Answer]) -> float:
    """exp(-Σ ln P / tokens) of given answers, their ends included."""
    return math.exp(-sum(answer_log_probs(run, answers)) / sum(len(answer.ids) for answer in answers))


def chat_answers(run: Run, path: str, limit: int = 200) -> list[Answer]:
    """The last answers of the chats of a file, under the run's template and tokenizer."""
    encoder = ChatEncoder(run.tokenizer, run.chat_template or PLAIN)
    chats = [chat for (chat,), _ in zip(Chats([path]), range(limit), strict=False)]
    found = []
    for ids, counted in encoder.encode(chats, last_only=True):
        places = np.flatnonzero(counted)
        if len(places):
            prompt, answer = ids[: places[0]].tolist(), ids[places].tolist()
            found.append(Answer("", tuple(prompt), tuple(answer), True))
    return found


def policy_and_reference(run: RunLike, against: RunLike) -> tuple[Run, Run]:
    """Two runs that read the same tokens."""
    policy, reference = as_run(run), as_run(against)
    if policy.tokenizer.to_str() != reference.tokenizer.to_str():
        raise UserError(
            f"{reference.folder}: another tokenizer than that of {policy.folder}; give the run it began from"
        )
    return policy, reference


def implicit_rewards(
    run: RunLike, against: RunLike, preferences: Data, limit: int | None = None
) -> list[Number]:
    """The numbers of a language model on preferences, and those of the reward β (ln π - ln π_ref) that it implies beside the run it began from."""
    policy, reference = policy_and_reference(run, against)
    for one in (policy, reference):
        if not one.model.predicts_tokens:
            raise UserError(
                f"{one.folder}: a {type(one.model).__name__} is not a language model; give runs of language models"
            )
    policy, reference = (as_language_model(one, preferences) for one in (policy, reference))
    test = read_data(policy, preferences, limit)
    shared = conditions(policy, test.store)
    options = as_run(run).config.tree["objective"]
    beta = float(options.get("beta", 0.1)) if isinstance(options, dict) else 0.1
    batches = policy.config.data(test.store)
    return [
        *likelihood_numbers(policy.model, batches.sequential(), shared),
        *implicit_reward_numbers(policy.model, reference.model, batches.sequential(), shared, beta),
    ]


def compare_policies(
    run: RunLike,
    against: RunLike,
    prompts: str,
    *,
    judge: RunLike | Judge | None = None,
    chats: str | None = None,
    n: int = 4,
    max_tokens: int = 64,
    limit: int = 100,
    seed: int = 0,
) -> list[Number]:
    """The numbers of a policy beside its reference on the prompts of a file: win rate with its interval, KL, length, diversity, perplexity.

    `judge` is a reward run, or a function (prompt, text) → number; without one there is no win rate. `chats` is a file of
    answers whose perplexity should not rise.
    """
    policy, reference = policy_and_reference(run, against)
    questions = [prompt for (prompt, _), _ in zip(Prompts([prompts]), range(limit), strict=False)]
    function = judge if callable(judge) and not isinstance(judge, Run) else None
    reward = None if judge is None or function is not None else as_run(judge)  # type: ignore[arg-type]
    held_out = chat_answers(policy, chats) if chats else []
    found = measure_policy(
        "policy", policy, reference, questions, n, max_tokens, reward, function, held_out, seed
    )
    count = n * len(questions)
    by = "none" if judge is None else "function" if reward is None else reward.folder.name
    signature = make_signature("policy", {"prompts": len(questions), "n": n, "judge": by, "seed": seed})
    numbers = [
        Number("win_rate", found.win_rate, signature, found.win_low, found.win_high, count)
        if found.win_rate is not None
        else None,
        Number("kl", found.kl, signature, n=count),
        Number("reward", found.proxy, signature, n=count) if found.proxy is not None else None,
        Number("words_per_answer", found.words, signature, n=count),
        Number("distinct_pairs", 100 * found.distinct, signature, n=count),
    ]
    if held_out:
        before = perplexity(reference, held_out)
        tokens = sum(len(answer.ids) for answer in held_out)
        numbers += [
            Number("perplexity", found.perplexity or math.nan, signature, n=tokens),
            Number("perplexity_before", before, signature, n=tokens),
        ]
    return [number for number in numbers if number is not None]
