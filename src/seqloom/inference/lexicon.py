"""Unknown words  [L2]: a written <unk> becomes the word of a lexicon for the source word that it looked at, or that word itself
(PosUnk, Luong et al. 2015)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seqloom.inference.alignment import Aligned, AlignedSegment, align_stream
from seqloom.run import Run
from seqloom.text.lines import lines

Lexicon = Mapping[str, str]


def read_lexicon(path: str | Path) -> dict[str, str]:
    """A word and its translation on each line, with a tab or a space between; the first of several is taken."""
    found: dict[str, str] = {}
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in (line.split("\t") if "\t" in line else line.split())]
        if len(cells) < 2 or not cells[0] or not cells[1]:
            raise ValueError(f"{path}:{number}: no pair of words; write a word, a tab and its translation")
        found.setdefault(cells[0], cells[1])
    return found


def learn_lexicon(run: Run, records: Iterable[tuple[str, str]]) -> dict[str, str]:
    """For each source word the target word that looks at it most often in these pairs, by the run's attention."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in align_stream(run, records):
        sources, targets = one.source.split(), one.target.split()
        for source, target in one.words():
            counts[sources[source]][targets[target]] += 1
    return {
        word: min(found, key=lambda other: (-found[other], other)) for word, found in sorted(counts.items())
    }


def replace_unk(
    source: str, target: str, ids: Sequence[int], block: AlignedSegment, lexicon: Lexicon, unknown: int | None
) -> Aligned:
    """`target`, spelt with its `unknown` tokens, with each of them replaced; its tokens' places follow."""
    text, spans, last = "", [], 0
    for token, (a, b), row in zip(ids, block.target, block.weights, strict=True):
        text += target[last:a]
        start = len(text)
        if token != unknown or not block.source:
            text += target[a:b]
        else:
            gap = len(target[a:b]) - len(target[a:b].lstrip())  # the space before a word belongs to its token
            alone = (a + gap == 0 or target[a + gap - 1].isspace()) and (
                b == len(target) or target[b].isspace()
            )
            text += target[a : a + gap] + replacement(source, block.source[int(row.argmax())], alone, lexicon)
        spans.append((start, len(text)))
        last = b
    return Aligned(source, text + target[last:], [AlignedSegment(block.source, spans, block.weights)])


def replacement(source: str, span: tuple[int, int], word: bool, lexicon: Lexicon) -> str:
    """What stands for the source at a token: the whole word around it where a word is asked, its own characters otherwise."""
    a, b = span
    a += len(source[a:b]) - len(source[a:b].lstrip())
    if word:
        a = max((place + 1 for place in range(a) if source[place].isspace()), default=0)
        b = next((place for place in range(b, len(source)) if source[place].isspace()), len(source))
    found = source[a:b].strip()
    return lexicon.get(found) or lexicon.get(found.lower()) or found
