"""The verb demo: trains a translator, or the chain of human feedback, on the built-in world and measures it, in a few minutes."""

from __future__ import annotations

from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from seqloom.cli.app import START, app, logger, print_result
from seqloom.cli.options import OUTPUT, Common, CommonOptions, Machine, MachineOptions, Minutes

if TYPE_CHECKING:
    from seqloom.run import Run


MAX_TOKENS = 64  # of a translation; the longest of the world has fewer, and a model that has just begun to learn never ends

# So many that none is read three times in four minutes: of 20,000, read ten times, the model learns rare agreements by heart.
SENTENCES = 100_000
KINDS = ("text", "text")
MORE_STEPS = 1000  # to suggest after too few


class Translated(NamedTuple):
    """A sentence of the showcase, what the model makes of it, and its right translations, the most probable first."""

    source: str
    translation: str
    expected: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return self.translation in self.expected

    def lines(self) -> list[str]:
        """The sentence and its translation; a wrong one is followed by a right one."""
        if self.is_right:
            return [self.source, f"    {self.translation}"]
        return [
            self.source,
            f"    wrong: {self.translation or '(no words)'}",
            f"    right: {self.nearest}",
            *(f"    {difference}" for difference in self.differences()),
        ]

    @property
    def nearest(self) -> str:
        """The right translation that is most like the model's."""
        return max(self.expected, key=lambda right: SequenceMatcher(None, right, self.translation).ratio())

    def differences(self) -> list[str]:
        """The words in which the translation is wrong, in one line; none if it is another sentence altogether."""
        given, right = self.translation.split(), self.nearest.split()
        matcher = SequenceMatcher(None, given, right, autojunk=False)
        if matcher.ratio() < 0.5:
            return []
        pairs = [
            f"{' '.join(given[a:b]) or 'nothing'} instead of {' '.join(right[c:d]) or 'nothing'}"
            for kind, a, b, c, d in matcher.get_opcodes()
            if kind != "equal"
        ]
        return ["it writes " + ", ".join(pairs)]


def run_demo(
    folder: Path, minutes: float, seed: int, threads: int | None, progress: bool
) -> tuple[dict[str, Any], list[str]]:
    """Trains on the world's text, measures on held-out sentences and translates ten; the report and its lines."""
    from seqloom.config_source import config_of, is_run
    from seqloom.data.world_files import world_paths
    from seqloom.run import load
    from seqloom.run_config import Config
    from seqloom.train.fit import train

    if is_run(folder):
        tree, lines = config_of(folder)
        if lines.preset == "world" and "minutes" not in tree.get("train", {}):
            return report(load(folder), progress)  # it was lengthened by steps
    train_files, valid_files = (world_paths(KINDS, split, SENTENCES) for split in ("train", "valid"))
    config = Config.load("world", [f"train.minutes={minutes:g}"], train_files, valid_files, seed)
    return report(train(config, folder, threads, progress), progress)


def advice(run: Run) -> str:
    """What to do with a model that had too few steps, as on a slow or busy machine."""
    return (
        f"few are right after {run.results.steps:,} steps: the machine is slow or busy; train on with: "
        f"seqloom train {run.folder} --steps +{MORE_STEPS}, then again: seqloom demo --out {run.folder}"
    )


def report(run: Run, progress: bool = True) -> tuple[dict[str, Any], list[str]]:
    """The scores of the run on the test text and its translations of the showcase; the report and its lines."""
    from dataclasses import replace

    from seqloom import world
    from seqloom.data.world_files import world_paths
    from seqloom.evaluation import evaluate
    from seqloom.inference.completion import complete
    from seqloom.text.lines import lines as read_lines

    test = world_paths(KINDS, "test", SENTENCES)
    found = evaluate(run, test, progress=progress, max_tokens=MAX_TOKENS)
    english, french = (list(read_lines(path)) for path in test)
    floor = -sum(world.translation_log_probability(e, f) for e, f in zip(english, french, strict=True))
    floor /= found["nats_per_token"].n or 1
    plan = replace(run.decoding, max_tokens=MAX_TOKENS).plan()
    completions = complete(run, list(world.SHOWCASE), plan)

    def expected(sentence: str) -> tuple[str, ...]:
        found = world.translations(sentence)
        return tuple(sorted(found, key=lambda french: -found[french]))

    translations = [candidates[0].text for candidates in completions]
    shown = [Translated(e, f, expected(e)) for e, f in zip(world.SHOWCASE, translations, strict=True)]
    right = sum(one.is_right for one in shown)
    few = [] if 2 * right >= len(shown) or not run.results.steps else [advice(run)]
    lines = [
        *(line for one in shown for line in one.lines()),
        f"{right} of {len(shown)} right",
        *few,
        f"BLEU {found['bleu'].value:.1f}, chrF {found['chrf'].value:.1f} on {len(english):,} held-out sentences; "
        f"loss {found['nats_per_token'].value:.4f} nats per token, the floor that no model can beat is {floor:.4f}",
        f"run: {run.folder}",
        f'next: seqloom inspect attention {run.folder} "The bank near the school was muddy." --open · '
        f"seqloom inspect coreference {run.folder} · seqloom explain {run.folder}",
    ]
    return {
        "run": str(run.folder),
        "numbers": [number.to_dict() for number in found.numbers],
        "floor": floor,
        "translations": [
            {"source": one.source, "translation": one.translation, "right": one.is_right} for one in shown
        ],
    }, lines


@app.command(group=START)
def demo(
    name: Literal["translator", "feedback", "optimum"] = "translator",
    /,
    *,
    minutes: Minutes = 4.0,
    out: Annotated[Path, Parameter(group=OUTPUT)] = Path("runs/demo"),
    open: Annotated[bool, Parameter(group=OUTPUT)] = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Train a small model and show what it can do.

    Examples:
      seqloom demo
      seqloom demo --minutes 2 --out runs/first
      seqloom demo feedback --open

    Parameters
    ----------
    name
        What to show: translator, English to French on the built-in world; feedback, a language model that learns from preferences; or
        optimum, methods of reinforcement on a problem whose optimum is known (always 400 steps each).
    minutes
        Minutes of training.
    out
        The folder of the run.
    open
        Show the equations of the translator, or the page of the feedback, in the browser.
    """
    if name == "optimum":
        show_optimum(out, machine, common, open)
        return
    if name == "feedback":
        show_feedback(out, minutes, machine, common, open)
        return
    result, lines = run_demo(out, minutes, machine.seed, machine.threads, common.progress)
    print_result(result, lines, common.json)
    if open:
        show_equations(out)


def show_equations(run: Path) -> None:
    """Writes the page of the run's equations and opens it in the browser."""
    import webbrowser

    from seqloom import files
    from seqloom.equations import explain

    page = run / "reports" / "explain.html"
    page.parent.mkdir(exist_ok=True)
    files.write_atomic(page, explain(str(run)).to_html())
    logger.info("page: %s", page)
    webbrowser.open(page.resolve().as_uri())


def show_feedback(out: Path, minutes: float, machine: Machine, common: Common, open: bool) -> None:
    """Trains the chain of human feedback, writes its page and prints what it found."""
    from seqloom import files
    from seqloom.studies.feedback_chain import feedback_chain
    from seqloom.studies.feedback_pages import chain_page

    out = Path("runs/feedback") if out == Path("runs/demo") else out
    chain = feedback_chain(out, minutes, seed=machine.seed, threads=machine.threads, progress=common.progress)
    page = out / "feedback.html"
    files.write_atomic(page, chain_page(chain))
    lines = []
    for sample in chain.samples[:4]:
        lines += [
            sample.prompt,
            f"    before: {sample.before}",
            f"    after:  {sample.after}",
            f"    last:   {sample.last}",
        ]
    for title, point in (
        ("sft", chain.before),
        (f"stopped, {chain.chosen.name}", chain.chosen),
        (f"last, {chain.path[-1].name}", chain.path[-1]),
    ):
        lines.append(
            f"{title}: judge {point.gold:.3f}, reward model {point.proxy:.2f}, KL {point.kl:.2f}, perplexity {point.perplexity:.2f}, "
            f"wins over sft {point.win_rate:.0f} % [{point.win_low:.0f}, {point.win_high:.0f}]"
        )
    lines += [
        f"best by the judge: {chain.peak.name} with {chain.peak.gold:.3f}; "
        f"the reward model agrees with {chain.reward_accuracy:.0f} % of held-out preferences",
        f"page: {page}",
        f"next: seqloom prefer {out}/sft --file {out}/data/prompts.jsonl · "
        f"seqloom train dpo --from {out}/sft --data {out}/data/preferences.jsonl",
    ]
    print_result(chain.to_dict(), lines, common.json)
    if open:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def show_optimum(out: Path, machine: Machine, common: Common, open: bool) -> None:
    """Trains each method on the problem whose optimum is known, writes the page and prints how far each is from it."""
    from seqloom import files
    from seqloom.studies.feedback_pages import optimum_page
    from seqloom.studies.known_optimum import known_optimum
    from seqloom.threads import thread_count, use_threads

    out = Path("runs/optimum") if out == Path("runs/demo") else out
    with use_threads(thread_count(machine.threads)):
        study = known_optimum()
    out.mkdir(parents=True, exist_ok=True)
    page = out / "optimum.html"
    files.write_atomic(page, optimum_page(study))
    lines = [
        f"J of the reference {study.start.value:.4f}, of the optimum {study.optimum.value:.4f}, β {study.beta:g}"
    ]
    lines += [
        f"{outcome.method:15} seed {outcome.seed}: reached {100 * outcome.reached:5.1f} %, KL(π* ‖ π) {outcome.final.kl_from_optimum:.4f}, "
        f"{outcome.seconds:.1f} s"
        for outcome in study.outcomes
    ]
    print_result(study.to_dict(), [*lines, f"page: {page}"], common.json)
    if open:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
