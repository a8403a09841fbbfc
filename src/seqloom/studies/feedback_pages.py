"""Pages of learning from feedback: the chain with its over-optimisation, and the problem whose optimum is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seqloom.report.page import escape, page, table
from seqloom.report.plots import PLOT_STYLE, Series, plot
from seqloom.studies.feedback_chain import FeedbackChain
from seqloom.studies.known_optimum import OptimumStudy
from seqloom.studies.policy_measures import PolicyMeasures


def fixed(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def root(kl: float) -> float:
    """√KL; a sampled KL may be slightly below 0."""
    return math.sqrt(max(kl, 0.0))


def policy_rows(points: Sequence[PolicyMeasures]) -> list[list[str]]:
    return [
        [
            point.name,
            fixed(point.kl),
            fixed(point.proxy),
            fixed(point.gold, 3),
            ""
            if point.win_rate is None
            else f"{point.win_rate:.0f} [{point.win_low:.0f}, {point.win_high:.0f}]",
            fixed(point.perplexity),
            fixed(point.words, 1),
            fixed(point.distinct),
        ]
        for point in points
    ]


HEAD = ["policy", "KL", "reward model", "judge", "wins over sft, %", "perplexity", "words", "distinct pairs"]


def chain_page(chain: FeedbackChain) -> str:
    """Samples before and after, and reward model and judge against √KL."""
    path = chain.path
    xs = [root(point.kl) for point in path]
    best = chain.best_of
    proxy = plot(
        [
            Series("PPO", xs, [point.proxy for point in path], [point.name for point in path]),
            Series(
                "best of n", [root(b.kl) for b in best], [b.proxy for b in best], [f"n = {b.n}" for b in best]
            ),
        ],
        "√KL(π ‖ π_sft)",
        "score of the reward model",
    )
    gold = plot(
        [
            Series("PPO", xs, [point.gold for point in path], [point.name for point in path]),
            Series(
                "best of n", [root(b.kl) for b in best], [b.gold for b in best], [f"n = {b.n}" for b in best]
            ),
            Series("stopped at the KL limit", [root(chain.chosen.kl)], [chain.chosen.gold]),
        ],
        "√KL(π ‖ π_sft)",
        "reward of the exact judge",
    )
    samples = table(
        ["prompt", "before (sft)", f"after ({chain.chosen.name})", f"over-optimised ({path[-1].name})"],
        [list(sample) for sample in chain.samples],
        text=(0, 1, 2, 3),
    )
    last, peak = path[-1], chain.peak
    best_rows = [
        [f"best of {b.n}", fixed(b.kl), fixed(b.proxy), fixed(b.gold, 3), *[""] * (len(HEAD) - 4)]
        for b in best
    ]
    body = (
        "<h1>From a language model to a policy</h1>"
        "<p class=soft>Supervised tuning, a reward model, PPO; on sentences about things of the built-in world, whose judge is exact.</p>"
        f"<p>The reward model has learnt from {chain.preferences} preferences and agrees with {chain.reward_accuracy:.0f} % of held-out ones. "
        f"Along PPO its score rises from {fixed(chain.before.proxy)} to {fixed(last.proxy)}. The judge gives {fixed(chain.before.gold, 3)} at first, "
        f"{fixed(peak.gold, 3)} at its best ({escape(peak.name)}, KL {fixed(peak.kl)}) and {fixed(last.gold, 3)} at the end "
        f"(KL {fixed(last.kl)}). Stopping before the KL exceeds {chain.kl_limit:g} nats gives {fixed(chain.chosen.gold, 3)}.</p>"
        f"<h2>Samples</h2>{samples}"
        f"<h2>The reward model, which PPO maximises</h2>{proxy}"
        f"<h2>The judge, which nobody shows to PPO</h2>{gold}"
        "<p class=soft>Gao, Schulman and Hilton (2023): both curves against √KL; the distance between them is over-optimisation. "
        "Best of n has KL ln n - (n - 1)/n.</p>"
        f"<h2>Every measured policy</h2>{table(HEAD, policy_rows(path) + best_rows)}"
    )
    return page("From a language model to a policy", body, style=PLOT_STYLE)


def optimum_page(study: OptimumStudy) -> str:
    """How far each method is from the optimum, and its way there beside the exact frontier."""
    exact = Series("exact optimum for each β", [p[2] for p in study.frontier], [p[1] for p in study.frontier])
    first = {outcome.method: outcome for outcome in reversed(study.outcomes)}
    series = [exact]
    for method, outcome in sorted(first.items()):
        series.append(Series(method, [p.kl for p in outcome.path], [p.reward for p in outcome.path]))
    rows = [
        [
            outcome.method,
            outcome.seed,
            f"{100 * outcome.reached:.1f} %",
            f"{outcome.final.value:.4f}",
            f"{outcome.final.reward:.4f}",
            f"{outcome.final.kl:.4f}",
            f"{outcome.final.kl_from_optimum:.4f}",
            f"{outcome.seconds:.1f}",
        ]
        for outcome in study.outcomes
    ]
    head = ["method", "seed", "reached", "J(π)", "E[r]", "KL(π ‖ π_ref)", "KL(π* ‖ π)", "seconds"]
    body = (
        "<h1>Reinforcement on a problem whose optimum is known</h1>"
        "<p>Every answer to every prompt is enumerated, so π*(y | x) ∝ π_ref(y | x) exp(r(x, y)/β) is exact. "
        f"β = {study.beta:g}: J(π_ref) = {study.start.value:.4f}, J(π*) = {study.optimum.value:.4f}. "
        "“Reached” is the share of this way.</p>"
        f"{table(head, rows)}"
        f"<h2>Reward against KL</h2>{plot(series, 'KL(π ‖ π_ref), nats', 'E[r]')}"
        "<p class=soft>No policy is above the exact curve. GRPO as its authors write it divides rewards by the deviation of their group and "
        "leaves the KL penalty undivided in the loss: the weight of the penalty differs from prompt to prompt, and so does its optimum.</p>"
    )
    return page("Reinforcement on a problem whose optimum is known", body, style=PLOT_STYLE)
