"""`python -m seqloom.world`: the figures of docs/world.md (entropy, oracle BLEU, showcase, vocabulary), computed afresh."""

import math

from seqloom.world.grammar import GRAMMAR

from . import SHOWCASE, describe, entropy, scenes, translate

SAMPLE = 3000


def vocabulary() -> dict[str, list[str]]:
    """The English word forms by tag; a word with two tags stands under both."""
    found: dict[str, list[str]] = {}
    for word, tags in GRAMMAR.vocabulary().items():
        for tag in tags:
            found.setdefault(tag, []).append(word)
    found["DET"].append("an")
    return {tag: sorted(words) for tag, words in sorted(found.items())}


def oracle_bleu(count: int = SAMPLE, seed: int = 0) -> tuple[float, str]:
    """BLEU of the most probable translation against sampled ones: what a perfect translator can reach; with sacrebleu's signature."""
    from sacrebleu.metrics import BLEU

    sample, metric = list(scenes(count, seed)), BLEU()
    score = metric.corpus_score([translate(one.english) for one in sample], [[one.french for one in sample]])
    return score.score, str(metric.get_signature())


def figures() -> str:
    """Everything, as Markdown."""
    exact, sample, (bleu, signature) = entropy(), list(scenes(SAMPLE)), oracle_bleu()
    lines = [
        "| figure | value |",
        "|---|---|",
        f"| rules, symbols | {sum(1 for _ in GRAMMAR)}, {len(GRAMMAR.rules)} |",
        f"| English word forms | {len(GRAMMAR.vocabulary()) + 1} |",
        f"| words per sentence, the full stop included | {exact.words:.4f} |",
        f"| entropy of English, nats per sentence | {exact.english:.4f} |",
        f"| entropy of English, nats per word | {exact.english / exact.words:.4f} |",
        f"| least perplexity per English word | {math.exp(exact.english / exact.words):.4f} |",
        f"| entropy of French given English, nats per sentence | {exact.french:.4f} |",
        f"| longest of {SAMPLE} sentences | {max(len(one.words) for one in sample)} |",
        f'| with "it", of {SAMPLE} | {sum(one.antecedent is not None for one in sample)} |',
        f'| with "bank", of {SAMPLE} | {sum(one.bank is not None for one in sample)} |',
        f"| different English sentences, of {SAMPLE} | {len({one.english for one in sample})} |",
        f"| oracle BLEU over {SAMPLE} sentences | {bleu:.2f} |",
        "",
        f"BLEU: sacrebleu, `{signature}`.",
        "",
        "| English | French | it | bank | log p |",
        "|---|---|---|---|---|",
    ]
    for one in map(describe, SHOWCASE):
        meant = one.words[one.antecedent[1]] if one.antecedent else ""
        lines.append(
            f"| {one.english} | {one.french} | {meant} | {one.bank or ''} | {one.english_logp:.2f} |"
        )
    lines += [
        "",
        "| tag | words |",
        "|---|---|",
        *(f"| {tag} | {' '.join(words)} |" for tag, words in vocabulary().items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(figures(), end="")
