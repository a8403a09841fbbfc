"""One iteration of reinforcement on a GPT of 25 M parameters in single precision: 8 prompts of 16 tokens, 4 answers of 64 tokens to each, their
probabilities under the policy and the reference, and one step of AdamW. Ours with GRPO and with PPO (a critic more), against the GRPO of
`trl` on the same weights and prompts, each in its own process.

    python bench/policy_step.py [--iterations N] [--threads N] [--trl PYTHON]

PYTHON is an interpreter that has `trl`, with its own versions of what it needs; default: this one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch

PROMPTS, SAMPLES, PROMPT, NEW, BETA, RATE = 8, 4, 16, 64, 0.05, 1e-5


def prompt_ids(number: int) -> torch.Tensor:
    from rollouts import VOCABULARY

    return torch.randint(50, VOCABULARY, (PROMPTS, PROMPT), generator=torch.Generator().manual_seed(number))


class RandomPrompts:
    """Another batch of prompts for each iteration."""

    def epoch_batches(self) -> int:
        return 1 << 20

    def batches(self, cursor: tuple = (), rank: int = 0, world: int = 1) -> Iterator[tuple]:
        from seqloom.batches.prompts import PromptBatch

        for number in range(1 << 20):
            ids = prompt_ids(number)
            yield PromptBatch.of(ids, torch.ones_like(ids, dtype=torch.bool)), (number,)


def ours(method: str, iterations: int, threads: int) -> list[float]:
    """The seconds of each iteration."""
    from functools import partial

    from rollouts import DIM, HEADS, LAYERS, VOCABULARY, policy
    from seqloom.models import ActorCritic
    from seqloom.nn import FeedForward, Learned, Transformer
    from seqloom.objectives import clipped_policy
    from seqloom.train.feedback import reference_log_probs
    from seqloom.train.process import keep_freed_memory
    from seqloom.train.rollouts import RolloutOptions, Rollouts

    torch.set_num_threads(threads)
    keep_freed_memory()
    frozen = policy().requires_grad_(False)
    stack = partial(
        Transformer, layers=LAYERS, heads=HEADS, position=partial(Learned, length=256),
        feedforward=partial(FeedForward, activation="gelu_tanh"),
    )  # fmt: skip
    model = policy() if method == "grpo" else ActorCritic(VOCABULARY, DIM, stack)
    model.load_state_dict(frozen.state_dict(), strict=False)
    model.train()
    advantage = "grpo" if method == "grpo" else "gae"
    options = RolloutOptions(
        advantage=advantage, samples=SAMPLES, max_tokens=NEW, beta=BETA, epochs=1, minibatches=1
    )
    source = Rollouts(
        RandomPrompts(),  # type: ignore[arg-type]
        model,
        partial(reference_log_probs, frozen, False),
        lambda tokens, mask, prompts: (tokens[:, PROMPT:] % 2).float().mean(1),
        options,
        (),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    seconds = []
    batches = source.batches()
    for _ in range(iterations + 1):
        start = time.perf_counter()
        batch, _ = next(batches)
        loss, _, _ = clipped_policy(model, batch)
        (loss / batch.num_targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def theirs(iterations: int, threads: int) -> list[float]:
    """The seconds of each iteration of trl's GRPO."""
    import transformers
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from trl import GRPOConfig, GRPOTrainer

    import peers
    from rollouts import VOCABULARY, policy

    torch.set_num_threads(threads)
    peer = peers.transformers(policy(), eos_token_id=0, pad_token_id=0).train()
    words = Tokenizer(models.WordLevel({str(n): n for n in range(VOCABULARY)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="0", pad_token="0", padding_side="left"
    )
    rows = [" ".join(map(str, row)) for n in range(iterations + 2) for row in prompt_ids(n).tolist()]
    marks: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *args: object, **kwargs: object) -> None:
            marks.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(f"{folder}/policy")  # from which trl loads the policy and the reference
        options = GRPOConfig(
            output_dir=folder, use_cpu=True, model_init_kwargs={"dtype": "float32"}, bf16=False, gradient_checkpointing=False, learning_rate=RATE,
            per_device_train_batch_size=PROMPTS * SAMPLES, num_generations=SAMPLES, beta=BETA,
            max_completion_length=NEW, max_steps=iterations + 1, num_iterations=1, report_to=[],
            save_strategy="no", logging_steps=1000, disable_tqdm=True, max_grad_norm=1.0,
            generation_kwargs={"min_new_tokens": NEW}, shuffle_dataset=False,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=f"{folder}/policy", args=options, processing_class=tokenizer, train_dataset=Dataset.from_dict({"prompt": rows}),
            reward_funcs=lambda completions, **more: [
                sum(int(word) % 2 for word in text.split()) / NEW for text in completions
            ],
            callbacks=[Clock()],
        )  # fmt: skip
        trainer.train()
    return [after - before for before, after in itertools.pairwise(marks)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--trl", default=sys.executable, help="the interpreter that has trl")
    parser.add_argument("--worker", choices=["grpo", "ppo", "trl"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        count, threads = options.iterations, options.threads
        seconds = theirs(count, threads) if options.worker == "trl" else ours(options.worker, count, threads)
        print(json.dumps(seconds))
        return
    medians = {}
    for name in ("grpo", "ppo", "trl"):
        command = [options.trl if name == "trl" else sys.executable, __file__, "--worker", name]
        command += ["--iterations", str(options.iterations), "--threads", str(options.threads)]
        finished = subprocess.run(command, capture_output=True, text=True)
        if finished.returncode:
            sys.exit(f"{name}: {finished.stderr.strip().splitlines()[-1]}")
        seconds = json.loads(finished.stdout.splitlines()[-1])
        medians[name] = statistics.median(seconds)
        title = "trl GRPO" if name == "trl" else f"seqloom {name.upper()}"
        spread = f"from {min(seconds):.2f} to {max(seconds):.2f}"
        print(
            f"{title:13} {medians[name]:.2f} s an iteration ({spread}), {options.threads} threads", flush=True
        )
    for name in ("grpo", "ppo"):
        print(f"{name.upper()} is {medians['trl'] / medians[name]:.2f} x trl's GRPO")


if __name__ == "__main__":
    main()
