"""The chain of human feedback: data, measures and pages on a few steps; the judge is exact."""

import math
from pathlib import Path
from typing import Any

import pytest

from seqloom import world
from seqloom.cli import main
from seqloom.studies import feedback_chain as study
from seqloom.studies.feedback_pages import chain_page
from seqloom.studies.known_optimum import known_optimum
from seqloom.studies.policy_measures import PolicyMeasures, compare_policies
from seqloom.world.judge import NOUNS, described_nouns, gold_reward, judge, noun_of, prompt_for


def test_the_judge_knows_the_language() -> None:
    prompt = prompt_for("bank")
    assert noun_of(prompt) == "bank"
    assert judge(prompt, "The bank near the school was muddy.") == (True, True, 6)
    assert gold_reward(prompt, "The bank near the school was muddy.") == pytest.approx(2 + 3 * 6 / 16)
    assert gold_reward(prompt, "bank bank bank") == pytest.approx(1 + 3 / 16)
    assert gold_reward(prompt, "") == 0


def test_described_nouns_are_sentences_of_the_world() -> None:
    pairs = list(described_nouns(40, seed=3))
    assert len(pairs) == 40 and pairs == list(described_nouns(40, seed=3))
    assert all(world.log_probability(text) > -math.inf and noun_of(prompt) in NOUNS for prompt, text in pairs)
    about = [judge(prompt, text).mentions for prompt, text in pairs]
    assert all(about[1::2]) and not all(about[::2])


def test_a_reward_of_zero_is_a_reward() -> None:
    def point(name: str, gold: float | None) -> PolicyMeasures:
        return PolicyMeasures(name, 0.0, None, gold, None, None, None, 1.0, 1.0, None)

    path = (point("unknown", None), point("worse", -1.0), point("best", 0.0))
    chain = study.FeedbackChain(Path(), 0, 0.0, None, None, 0.0, path[0], path, path[0], (), ())
    assert chain.peak.name == "best"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few sentences, and two or three steps of each training."""
    fit = study.fit

    def short(preset: str, changes: dict[str, Any], **options: Any) -> Any:
        sizes = {"model.dim": 16, "model.stack.layers": 1, "model.stack.heads": 2} if preset == "sft" else {}
        small = (
            {"train.eval_every": 2, "rollouts.samples": 2, "rollouts.max_tokens": 8}
            if preset == "ppo"
            else {}
        )
        return fit(preset, {**changes, **sizes, **small}, **{**options, "steps": 4})

    monkeypatch.setattr(study, "fit", short)
    for name, value in {
        "CHATS": 60,
        "HELD_OUT_CHATS": 5,
        "HELD_OUT_PAIRS": 12,
        "MAX_TOKENS": 8,
        "BEST_OF": (1, 2),
    }.items():
        monkeypatch.setattr(study, name, value)
    monkeypatch.setattr(study, "NOUNS", NOUNS[:2])


def test_the_chain_is_measured_from_its_checkpoints(
    small: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    main(["demo", "feedback", "--out", str(tmp_path / "f"), "--minutes", "1", "--threads", "1", "-q"])
    out = capsys.readouterr().out
    assert f"page: {tmp_path / 'f' / 'feedback.html'}" in out and "best by the judge" in out
    page = (tmp_path / "f" / "feedback.html").read_text("utf-8")
    assert page.count("<svg") == 2 and "Tell me about the bank." in page and "<script" not in page
    runs = [study.load(tmp_path / "f" / name) for name in ("sft", "reward", "ppo")]
    chain = study.measure_chain(tmp_path / "f", *runs, kl_limit=1e9, preferences=8, seed=0)
    assert [point.name for point in chain.path] == ["sft", "step 2", "step 4"]
    assert chain.path[0].kl == 0 and chain.chosen.name == "step 4" and chain.peak.gold is not None
    assert [best.n for best in chain.best_of] == [1, 2] and chain.best_of[1].proxy >= chain.best_of[0].proxy
    assert chain.best_of[1].kl == pytest.approx(math.log(2) - 1 / 2)
    assert "over-optimised" in chain_page(chain)
    numbers = compare_policies(
        runs[2], runs[0], str(tmp_path / "f" / "data" / "prompts.jsonl"), judge=runs[1], n=2
    )
    assert [number.name for number in numbers] == [
        "win_rate",
        "kl",
        "reward",
        "words_per_answer",
        "distinct_pairs",
    ]
    assert numbers[0].n == 4 and numbers[0].low is not None


def test_the_demo_of_the_optimum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    result = known_optimum(["rloo"], seeds=1, steps=4)
    monkeypatch.setattr("seqloom.studies.known_optimum.known_optimum", lambda: result)
    main(["demo", "optimum", "--out", str(tmp_path / "o"), "--threads", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("rloo") and lines[-1] == f"page: {tmp_path / 'o' / 'optimum.html'}"
    page = (tmp_path / "o" / "optimum.html").read_text("utf-8")
    assert "rloo" in page and "exact optimum" in page and result.outcomes[0].final.step == 4
