"""Unknown words  [L2]: a generated <unk> is replaced by the lexicon's word for the source word it attends to, or by that
source word itself (PosUnk, Luong et al. 2015)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seqloom.errors import UserError
from seqloom.inference.alignment import Aligned, AlignedSegment, CharSpan, align_stream
from seqloom.run import Run
from seqloom.text.lines import lines

Lexicon = Mapping[str, str]


def read_lexicon(path: str | Path) -> dict[str, str]:
    """Reads a word and its translation from each line, separated by a tab or a space; the first of several counts."""
    lexicon: dict[str, str] = {}
    for line_number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in (line.split("\t") if "\t" in line else line.split())]
        if len(cells) < 2 or not cells[0] or not cells[1]:
            raise UserError(
                f"{path}:{line_number}: not a pair of words; write a word, a tab and its translation"
            )
        lexicon.setdefault(cells[0], cells[1])
    return lexicon


def learn_lexicon(run: Run, records: Iterable[tuple[str, str]]) -> dict[str, str]:
    """For each source word the target word that is aligned to it most often in these pairs, by the run's attention."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for aligned in align_stream(run, records):
        source_words = aligned.source.split()
        target_words = aligned.target.split()
        for source, target in aligned.words():
            counts[source_words[source]][target_words[target]] += 1
    return {
        word: min(target_counts, key=lambda target: (-target_counts[target], target))
        for word, target_counts in sorted(counts.items())
    }


def replace_unk(
    source: str,
    target: str,
    ids: Sequence[int],
    segment: AlignedSegment,
    lexicon: Lexicon,
    unk_id: int | None,
) -> Aligned:
    """`target`, in which unknown tokens are spelt out, with each of them replaced and the tokens' spans adjusted."""
    text = ""
    spans: list[CharSpan] = []
    last = 0
    for token, (start, end), weights in zip(ids, segment.target, segment.weights, strict=True):
        text += target[last:start]
        new_start = len(text)
        token_text = target[start:end]
        if token != unk_id or not segment.source:
            text += token_text
        else:
            spaces = len(token_text) - len(
                token_text.lstrip()
            )  # the space before a word belongs to its token
            word_start = start + spaces
            starts_word = word_start == 0 or target[word_start - 1].isspace()
            ends_word = end == len(target) or target[end].isspace()
            span = segment.source[int(weights.argmax())]
            text += target[start:word_start]
            text += replacement(source, span, starts_word and ends_word, lexicon)
        spans.append((new_start, len(text)))
        last = end
    return Aligned(source, text + target[last:], [AlignedSegment(segment.source, spans, segment.weights)])


def replacement(source: str, span: CharSpan, is_word: bool, lexicon: Lexicon) -> str:
    """The replacement for an unknown token that attends to the characters `span` of the source.

    If the unknown token is a word by itself, it is replaced by the entire source word, otherwise by these characters.
    """
    start, end = span
    start += len(source[start:end]) - len(source[start:end].lstrip())
    if is_word:
        start = max((i + 1 for i in range(start) if source[i].isspace()), default=0)
        end = next((i for i in range(end, len(source)) if source[i].isspace()), len(source))
    word = source[start:end].strip()
    return lexicon.get(word) or lexicon.get(word.lower()) or word
