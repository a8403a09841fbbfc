"""`python -m seqloom.world`: computes the figures of docs/world.md
(entropy, oracle BLEU, showcase, vocabulary)."""

import math

from seqloom.world.grammar import GRAMMAR

from . import SHOWCASE, describe, entropy, scenes, translate

SAMPLE = 3000


def vocabulary() -> dict[str, list[str]]:
    """Returns the English word forms by tag; a word with two tags is in both lists."""
    words_by_tag: dict[str, list[str]] = {}
    for word, tags in GRAMMAR.vocabulary().items():
        for tag in tags:
            words_by_tag.setdefault(tag, []).append(word)
    words_by_tag["DET"].append("an")
    return {tag: sorted(words) for tag, words in sorted(words_by_tag.items())}


def oracle_bleu(count: int = SAMPLE, seed: int = 0) -> tuple[float, str]:
    """Returns the BLEU of the most probable translations against sampled ones,
    which is the best a translator can reach, and sacrebleu's signature."""
    from sacrebleu.metrics import BLEU

    sample = list(scenes(count, seed))
    metric = BLEU()
    outputs = [translate(scene.english) for scene in sample]
    score = metric.corpus_score(outputs, [[scene.french for scene in sample]])
    return score.score, str(metric.get_signature())


def figures() -> str:
    """Returns all figures as Markdown."""
    exact = entropy()
    sample = list(scenes(SAMPLE))
    bleu, signature = oracle_bleu()
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
        f"| longest of {SAMPLE} sentences | {max(len(scene.words) for scene in sample)} |",
        f'| with "it", of {SAMPLE} | {sum(scene.antecedent is not None for scene in sample)} |',
        f'| with "bank", of {SAMPLE} | {sum(scene.bank is not None for scene in sample)} |',
        f"| different English sentences, of {SAMPLE} | {len({scene.english for scene in sample})} |",
        f"| oracle BLEU over {SAMPLE} sentences | {bleu:.2f} |",
        "",
        f"BLEU: sacrebleu, `{signature}`.",
        "",
        "| English | French | it | bank | log p |",
        "|---|---|---|---|---|",
    ]
    for scene in map(describe, SHOWCASE):
        antecedent = scene.words[scene.antecedent[1]] if scene.antecedent else ""
        lines.append(
            f"| {scene.english} | {scene.french} | {antecedent} | {scene.bank or ''} | {scene.english_logp:.2f} |"
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
