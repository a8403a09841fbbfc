"""From a language model to a policy: each preset through the one loop, exact resume, rewards, and clear errors."""

import json
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom.batches.prompts import PromptBatch
from seqloom.errors import ConfigError, UserError
from seqloom.evaluation import evaluate
from seqloom.models import ActorCritic, LanguageModel, RewardModel
from seqloom.nn import lora
from seqloom.run import Run
from seqloom.run_config import Config
from seqloom.studies.policy_measures import implicit_rewards
from seqloom.train import feedback, loop
from seqloom.train.preparation import prepare
from seqloom.train.rewards import ExactAnswer, Length, OwnReward, Regex, RewardOnIds, RewardRun

ANSWERS = {"animal": "tired", "street": "wide", "bank": "muddy"}
SMALL = ("train.eval_every=4", "train.save_every=3", "train.log_every=1")


def fits(prompt: str, text: str) -> float:
    """The user's own reward."""
    return float(any(subject in prompt and word in text for subject, word in ANSWERS.items()))


def write(path: Path, records: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("feedback")
    words = list(ANSWERS.values())
    chats, preferences = [], []
    for number in range(60):
        subject = list(ANSWERS)[number % 3]
        prompt = f"how is the {subject} {number}?"
        chats.append({"prompt": prompt, "completion": words[number // 3 % 3]})
        wrong = words[(number % 3 + 1) % 3]
        preferences.append({"prompt": prompt, "chosen": ANSWERS[subject], "rejected": wrong})
    return {
        "chats": write(folder / "chats.jsonl", chats),
        "preferences": write(folder / "preferences.jsonl", preferences),
    }


@pytest.fixture(scope="module")
def base(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small model that has seen chats."""
    out = tmp_path_factory.mktemp("base") / "sft"
    sizes = {
        "model.dim": 24,
        "model.stack.layers": 1,
        "model.stack.heads": 2,
        "model.stack.position.length": 64,
    }
    lr = "train.optimizer.lr=1e-2"
    return seqloom.fit("sft", sizes, lr, *SMALL, data=data["chats"], out=out, steps=120, progress=False)


def train(preset: str, base: Run, data: Path, out: Path, *changes: str, steps: int = 4) -> Run:
    return seqloom.fit(
        preset,
        *changes,
        *SMALL,
        data=data,
        base=base.folder,
        out=out,
        steps=steps,
        parts=[fits],
        progress=False,  # type: ignore[list-item]
    )


PPO = ("rollouts.reward=fits", "rollouts.max_tokens=8", "rollouts.minibatches=2", "batches.batch=4")


def test_reward_presets_learn_preferences(base: Run, data: dict[str, Path], tmp_path: Path) -> None:
    run = train("reward", base, data["preferences"], tmp_path / "r", "train.optimizer.lr=3e-3", steps=40)
    assert isinstance(run.model, RewardModel)
    numbers = {number.name: number for number in run.results.valid}
    assert numbers["preference_accuracy"].value > 90 and numbers["calibration_error"].value < 50
    assert "embedding.table" in json.loads((run.folder / "begin.json").read_text())["loaded"]


def test_the_implied_reward_is_measured_on_preferences(
    base: Run, data: dict[str, Path], tmp_path: Path
) -> None:
    run = train("dpo", base, data["preferences"], tmp_path / "dpo", "train.optimizer.lr=3e-3", steps=40)
    found = {number.name: number for number in implicit_rewards(run, base, str(data["preferences"]))}
    assert found["implicit_reward_accuracy"].value > 90 and found["implicit_reward_loss"].value < 0.69
    assert found["perplexity_of_chosen"].value > 1
    before = {number.name: number for number in implicit_rewards(base, base, str(data["preferences"]))}
    assert before["implicit_reward_accuracy"].value == 50  # all are ties
    assert before["implicit_reward_loss"].value == pytest.approx(0.6931, abs=1e-3)
    reward = train("reward", base, data["preferences"], tmp_path / "reward")
    with pytest.raises(UserError, match="not a language model; give"):
        implicit_rewards(reward, base, str(data["preferences"]))


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto"])
def test_dpo_begins_at_its_reference(base: Run, data: dict[str, Path], tmp_path: Path, loss: str) -> None:
    """Before the first step every ratio is 0: the losses are ln 2, (1/2β)² and 1."""
    extra = ["batches.mismatched=true"] if loss == "kto" else []
    run = train("dpo", base, data["preferences"], tmp_path / "d", f"objective.loss={loss}", *extra)
    first = next(line for line in run.metrics() if "loss" in line)
    expected = {"dpo": 0.6931, "ipo": 25.0, "kto": 1.0}[loss]
    assert first["loss"] == pytest.approx(expected, rel=1e-3)
    assert run.results.valid[0].name == "preference_accuracy"
    assert isinstance(run.model, LanguageModel)


def test_a_reference_without_adapters_is_the_run_it_began_from(
    base: Run, data: dict[str, Path], tmp_path: Path
) -> None:
    changes = ["lora.rank=2", *PPO]
    config = Config.load("grpo", changes, data["chats"], parts=[fits])  # type: ignore[list-item]
    config = feedback.finetune.from_run(config, base.folder, changes, [fits])  # type: ignore[list-item]
    prepared = prepare(config, describes_data=False)
    for part in prepared.model.modules():
        if isinstance(part, lora.LoRA):
            torch.nn.init.normal_(part.lora_b)
    reference = feedback.make_reference(config, prepared.model, prepared.tokenizer)
    ids = torch.randint(5, 20, (3, 9))
    mask = torch.ones(3, 8, dtype=torch.bool)
    torch.manual_seed(0)
    got = reference(ids[:, :-1], ids[:, 1:], mask)
    with torch.no_grad():
        before = base.model.eval()(ids[:, :-1])[0].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        after = prepared.model.eval()(ids[:, :-1])[0].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    torch.testing.assert_close(got, before, rtol=1e-4, atol=1e-4)
    assert (got - after).abs().max() > 0.01


@pytest.mark.parametrize("preset", ["ppo", "grpo"])
def test_policies_learn_a_reward(base: Run, data: dict[str, Path], tmp_path: Path, preset: str) -> None:
    reward = "rollouts.reward={type: Regex, pattern: tired}"
    changes = [reward, *PPO[1:], "train.optimizer.lr=3e-3", "rollouts.beta=0.01", "rollouts.samples=8"]
    run = train(preset, base, data["chats"], tmp_path / preset, *changes, steps=60)
    rewards = [line["reward"] for line in run.metrics() if "reward" in line]
    assert sum(rewards[-10:]) / 10 > sum(rewards[:4]) / 4 + 0.2
    assert {number.name for number in run.results.valid} >= {"penalised_reward", "reward", "kl"}
    assert isinstance(run.model, ActorCritic) == (preset == "ppo")
    assert seqloom.generate(run, "user: how is the bank?\nassistant: ", max_tokens=5).text


@pytest.mark.parametrize("stop", [4, 5, 8])
def test_a_stopped_ppo_ends_with_the_same_bits(
    base: Run, data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    changes = [*PPO, "rollouts.kl_target=0.1"]
    whole = train("ppo", base, data["chats"], tmp_path / "whole", *changes, steps=10)
    step = loop.TrainLoop.train_step

    def failing(self: loop.TrainLoop, *given: object) -> int:
        if self.step == stop:
            raise ZeroDivisionError
        return step(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(loop.TrainLoop, "train_step", failing)
    with pytest.raises(ZeroDivisionError):
        train("ppo", base, data["chats"], tmp_path / "cut", *changes, steps=10)
    monkeypatch.undo()
    train("ppo", base, data["chats"], tmp_path / "cut", *changes, steps=10)
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole.folder / name).read_bytes()


def test_training_ends_at_the_limit_of_the_kl(base: Run, data: dict[str, Path], tmp_path: Path) -> None:
    run = train(
        "grpo",
        base,
        data["chats"],
        tmp_path / "g",
        *PPO,
        "rollouts.kl_limit=0.01",
        "train.optimizer.lr=1e-2",
        steps=60,
    )
    assert 1 < run.results.steps < 60


def test_a_reward_run_scores_ids(base: Run, data: dict[str, Path], tmp_path: Path) -> None:
    reward = train("reward", base, data["preferences"], tmp_path / "r", "train.optimizer.lr=3e-3", steps=40)
    changes = [f"rollouts.reward={{type: RewardRun, run: {reward.folder}}}", *PPO[1:]]
    run = train("ppo", base, data["chats"], tmp_path / "p", *changes)
    assert run.results.steps == 4
    on_ids = RewardOnIds(RewardRun(str(reward.folder)), reward.tokenizer)

    def encode(text: str) -> list[int]:
        return reward.tokenizer.encode(text, add_special_tokens=False).ids

    prompt = encode("user: how is the bank 5?\nassistant: ")
    rows = [[*prompt, *encode(word), 3] for word in ("muddy", "tired")]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    positions = torch.arange(1, width)
    mask = (positions >= len(prompt)) & (positions < torch.tensor([[len(row)] for row in rows]))
    prompts = PromptBatch.of(torch.tensor([prompt] * 2), torch.ones(2, len(prompt), dtype=torch.bool))
    good, bad = on_ids(tokens, mask, prompts).tolist()
    alone = reward.model.eval().scores(
        (torch.tensor(rows[:1]), torch.ones(1, len(rows[0]), dtype=torch.bool))
    )  # type: ignore[operator]
    assert good > bad and good == pytest.approx(float(alone), rel=1e-4)


@pytest.mark.parametrize(("pattern", "warned"), [("never written", True), ("tired", False)])
def test_rewards_that_never_differ_are_warned_of(
    base: Run,
    data: dict[str, Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    pattern: str,
    warned: bool,
) -> None:
    changes = [f"rollouts.reward={{type: Regex, pattern: {pattern}}}", *PPO[1:], "rollouts.cut_penalty=0"]
    train("grpo", base, data["chats"], tmp_path / "grpo", *changes, "rollouts.samples=8", steps=12)
    found = [record for record in caplog.records if "nothing to learn" in record.message]
    assert len(found) == warned


def test_one_file_has_one_digest_for_a_policy_and_the_run_it_began_from(
    base: Run, data: dict[str, Path], tmp_path: Path
) -> None:
    tuned = train("dpo", base, data["preferences"], tmp_path / "dpo")
    for name in ("preferences", "chats"):
        digests = {evaluate(run, str(data[name])).data_sha256 for run in (base, tuned)}
        assert len(digests) == 1


def test_rules_by_hand() -> None:
    texts = ["one two three", "It is  Muddy.", ""]
    assert list(Length(2)(texts, texts, texts)) == [-0.5, -0.5, -1.0]
    assert list(Regex("[Mm]ud")(texts, texts, texts)) == [0, 1, 0]
    assert list(ExactAnswer()(texts, texts, ["one", "it is muddy", ""])) == [0, 1, 1]
    assert list(OwnReward(fits)(["the bank"] * 3, texts, texts)) == [0, 0, 0]


def test_mistakes_are_named(base: Run, data: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--from RUN"):
        seqloom.fit("dpo", data=data["preferences"], out=tmp_path / "a", progress=False)
    with pytest.raises(ConfigError, match="train one with"):
        train(
            "ppo",
            base,
            data["chats"],
            tmp_path / "b",
            f"rollouts.reward={{type: RewardRun, run: {base.folder}}}",
        )
    with pytest.raises(ConfigError, match=r"rollouts\.reward"):
        train("ppo", base, data["chats"], tmp_path / "c", "rollouts.reward=fit")
    with pytest.raises(ConfigError, match="regular expression"):
        Regex("(")
    with pytest.raises(UserError, match="ZeroDivisionError"):
        OwnReward(lambda prompt, text: 1 / 0)(["a"], ["b"], ["c"])
    assert not (tmp_path / "c" / "config.yaml").exists()
    questions = tmp_path / "questions.txt"
    questions.write_text("".join(f"how is the bank {number}?\n" for number in range(30)), encoding="utf-8")
    for preset in ("ppo", "grpo"):
        with pytest.raises(ConfigError, match=r"no answers.*RewardRun.*LabelRun.*Regex.*Length.*--code"):
            train(preset, base, questions, tmp_path / "d")
