"""Alignment and unknown words, with a translator whose attention is known: it writes the source in another order and looks at what it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from seqloom.cli import main
from seqloom.decoding import Ensemble
from seqloom.inference.alignment import align, decode_with_spans
from seqloom.inference.derived_runs import ensemble
from seqloom.inference.lexicon import learn_lexicon, read_lexicon
from seqloom.inference.translation import translate
from seqloom.run import Run
from seqloom.text.tokenizer import BPE, EOS, UNK, Characters, WordPiece, Words, save
from seqloom.text.tokenizer_file import load

ENGLISH = "the old dog sees a small cat and hears the river"
GERMAN = {"the": "das", "dog": "hund", "sees": "sieht", "cat": "katze", "hears": "hört", "river": "fluss"}


class Scripted:
    """Writes the tokens of the source through `word`, in the order that `order` gives for their count, then the end; what it writes it looks at."""

    task = "translation"
    context = None
    generates = True
    continues = False
    reads = "text"
    copies = False

    def __init__(self, size: int, word: Callable[[int], int], order: Callable[[int], list[int]]):
        self.size, self.word, self.order = size, word, order

    def prepare_prompt(self, ids, mask, first):
        return (
            torch.full((len(ids), 1), first),
            (ids, mask.sum(1), torch.zeros(len(ids), dtype=torch.long)),
            None,
        )

    def memory_mask(self, source, mask):
        return mask

    def features_with_attention(self, ids, state, mask=None):
        source, lengths, seen = state
        logits = torch.full((*ids.shape, self.size), -20.0)
        alpha = torch.zeros(len(ids), 1, ids.shape[1], source.shape[1])
        for row in range(len(ids)):
            order = self.order(int(lengths[row]) - 1)
            for t in range(ids.shape[1]):
                place = int(seen[row]) + t
                at = order[place] if place < len(order) else int(lengths[row]) - 1
                logits[row, t, self.word(int(source[row, at])) if place < len(order) else EOS] = 0.0
                alpha[row, 0, t, at] = 1.0
        return logits, alpha, (source, lengths, seen + ids.shape[1])

    def features(self, ids, state, mask=None):
        logits, _, state = self.features_with_attention(ids, state, mask)
        return logits, state

    def output(self, h):
        return h


def scripted(
    tokenizer, word=lambda token: token, order=lambda count: list(range(count)), folder=Path("runs/x")
) -> Run:
    parts = {
        "corpus": SimpleNamespace(func=SimpleNamespace(adds_eos=True)),
        "model": SimpleNamespace(keywords={}),
    }
    recipe = SimpleNamespace(parts=parts, reader_class=SimpleNamespace(adds_eos=True))
    return Run(folder, recipe, tokenizer, Scripted(tokenizer.get_vocab_size(), word, order))


def backwards(count: int) -> list[int]:
    return list(range(count))[::-1]


@pytest.fixture
def german() -> Run:
    """Words in reverse order, each through the dictionary; words without an entry are unknown."""
    tokenizer = Words([ENGLISH, " ".join(GERMAN.values())])
    table = {tokenizer.token_to_id(word): tokenizer.token_to_id(other) for word, other in GERMAN.items()}
    return scripted(tokenizer, lambda token: table.get(token, UNK), backwards)


def test_words_and_tokens_are_aligned_as_they_were_looked_at(german: Run) -> None:
    [found] = translate(german, ["the dog sees the river"], align=True)
    assert found.text == "fluss das sieht hund das"
    assert found.alignment.words() == [(4, 0), (3, 1), (2, 2), (1, 3), (0, 4)] == found.alignment.tokens()
    report = found.alignment.to_dict()
    assert report["words"] == "4-0 3-1 2-2 1-3 0-4" and report["source_tokens"] == [
        "the",
        "dog",
        "sees",
        "the",
        "river",
    ]
    assert [word.strip() for word in report["target_tokens"]] == ["fluss", "das", "sieht", "hund", "das"]


@pytest.mark.parametrize(
    "make", [lambda texts: BPE(texts, 270), lambda texts: WordPiece(texts, 60), Characters]
)
def test_words_of_several_tokens_are_aligned_as_a_whole(make) -> None:
    """A copy has every word from itself, however many tokens it has; letters of two bytes included."""
    texts = [ENGLISH, "süße flüsse hören"]
    run = scripted(make(texts))
    for text in texts:
        [found] = translate(run, [text], align=True)
        assert found.text == text
        count = len(text.split())
        assert found.alignment.words() == [(n, n) for n in range(count)]
        assert len(found.alignment.tokens()) == len(run.tokenizer.encode(text).ids) > count


def test_the_pieces_of_a_line_join(german: Run) -> None:
    """Each piece is turned round on its own; what is kept comes from itself."""
    [found] = translate(german, ["the dog {name} sees the river <b>cat</b> 12"], align=True)
    assert found.text == "hund das {name} fluss das sieht <b>katze</b> 12"
    assert found.alignment.words() == [(1, 0), (0, 1), (2, 2), (5, 3), (4, 4), (3, 5), (6, 6), (7, 7)]
    assert (found.alignment.source, found.alignment.target) == (
        "the dog {name} sees the river <b>cat</b> 12",
        found.text,
    )
    long = " ".join(["the dog sees"] * 100)
    [found] = translate(german, [long], align=True)
    assert {(s // 60, t // 60) for s, t in found.alignment.words()} == {(n, n) for n in range(5)}
    assert all(GERMAN[long.split()[s]] == found.text.split()[t] for s, t in found.alignment.words())
    [empty, marks] = translate(german, ["", "12 %"], align=True)
    assert (
        empty.text == ""
        and empty.alignment.words() == []
        and marks.text == "12 %"
        and marks.alignment.words() == [(0, 0), (1, 1)]
    )


def test_an_unknown_word_becomes_the_source_word_or_the_lexicons(german: Run) -> None:
    texts = ["the small dog sees Rex", "the dog sees"]
    assert [found.text for found in translate(german, texts, lexicon={})] == [
        "Rex sieht hund small das",
        "sieht hund das",
    ]
    assert translate(german, texts, lexicon={"small": "kleiner"})[0].text == "Rex sieht hund kleiner das"
    [found] = translate(german, ["Small <i>dog</i> rex"], lexicon={"small": "kleiner"}, align=True)
    assert found.text == "kleiner <i>hund</i> rex" and found.alignment.words() == [(0, 0), (1, 1), (2, 2)]
    [banned] = translate(german, ["the small dog"])
    assert "small" not in banned.text and "<unk>" not in banned.text
    many = translate(german, "the small dog", beam=3, n=3, lexicon={}).outputs
    assert many[0].text == "hund small das" and all("<unk>" not in one.text for one in many)


def test_an_unknown_letter_becomes_the_source_letter() -> None:
    run = scripted(Characters([ENGLISH]))
    [found] = translate(run, ["the öld dög"], lexicon={"ö": "oe"})
    assert found.text == "the oeld doeg"


def test_a_lexicon_is_learnt_from_pairs_and_read_back(german: Run, tmp_path: Path) -> None:
    pairs = [("the dog sees rex", "rex sieht hund das"), ("the cat hears rex", "rex hört katze das")]
    pairs += [("the cat", "kater das"), ("the cat", "katze das")]
    found = learn_lexicon(german, pairs)
    assert found == {
        "the": "das",
        "dog": "hund",
        "sees": "sieht",
        "rex": "rex",
        "cat": "katze",
        "hears": "hört",
    }
    path = tmp_path / "lexicon.tsv"
    path.write_text("the\tdas\n\ndog hund\nice cream\tEis\nthe\tder\n", "utf-8")
    assert read_lexicon(path) == {"the": "das", "dog": "hund", "ice cream": "Eis"}
    path.write_text("the\tdas\nalone\n", "utf-8")
    with pytest.raises(ValueError, match=r"lexicon.tsv:2: not a pair of words"):
        read_lexicon(path)


def test_given_translations_are_aligned(german: Run) -> None:
    [one, other] = align(german, ["the dog sees", "the"], ["sieht hund das", ""])
    assert one.words() == [(2, 0), (1, 1), (0, 2)] and other.words() == []


def test_tokens_spell_the_text_between_them() -> None:
    tokenizer = BPE(["grüße an alle"], 270)
    ids = tokenizer.encode("grüße <an> 日本 alle").ids
    text, spans = decode_with_spans(tokenizer, ids)
    assert text == "grüße <an> 日本 alle" == "".join(text[a:b] for a, b in spans)
    assert decode_with_spans(tokenizer, []) == ("", [])


def test_runs_of_one_tokenizer_translate_together(german: Run) -> None:
    both = ensemble(german, german)
    assert isinstance(both.model, Ensemble) and ensemble(german) is german
    [found] = translate(both, ["the dog"], align=True)
    assert found.text == "hund das" and found.alignment.words() == [(1, 0), (0, 1)]
    other = scripted(Words(["other words"]), folder=Path("runs/other"))
    with pytest.raises(ValueError, match=r"runs/other: its tokenizer differs from that of runs/x"):
        ensemble(german, other)


@pytest.fixture
def command(german: Run, monkeypatch, tmp_path: Path):
    """The commands, with the scripted run behind every folder."""
    for module in ("translate", "inspect_search"):
        monkeypatch.setattr(f"seqloom.cli.{module}.open_run", lambda run, threads, quantize=None: german)
    for name, text in (
        ("en", "the small dog\n\nthe cat\n"),
        ("de", "hund klein das\n\nkatze das\n"),
        ("lexicon", "small\tkleiner\n"),
    ):
        (tmp_path / name).write_text(text, "utf-8")

    def run(*arguments: str) -> None:
        main([str(tmp_path / one[1:]) if one.startswith("@") else one for one in arguments])

    return run


def test_the_command_aligns_and_replaces(command, capsys, tmp_path: Path) -> None:
    command("translate", "run", "--file", "@en", "--align", "--unk", "replace")
    assert capsys.readouterr().out.split("\n") == [
        "hund small das ||| 2-0 1-1 0-2",
        " ||| ",
        "katze das ||| 1-0 0-1",
        "",
    ]
    command(
        "translate",
        "run",
        "--file",
        "@en",
        "--lexicon",
        "@lexicon",
        "--json",
        "--align",
        "--coverage",
        "0.2",
        "--ensemble",
        "b",
        "--ensemble",
        "c",
    )
    first = json.loads(capsys.readouterr().out.split("\n")[0])
    assert first["outputs"][0]["text"] == "hund kleiner das"
    assert first["alignments"][0]["words"] == "2-0 1-1 0-2"
    command("inspect", "alignment", "run", "@en", "@de")
    assert capsys.readouterr().out.split("\n") == ["2-0 1-1 0-2", "", "1-0 0-1", ""]
    command("inspect", "alignment", "run", "@en", "@de", "--json")
    assert json.loads(capsys.readouterr().out.split("\n")[0])["words"] == "2-0 1-1 0-2"
    command("inspect", "alignment", "run", "@en", "@de", "--format", "lexicon", "--out", "@made")
    assert (tmp_path / "made").read_text("utf-8") == "cat\tkatze\ndog\thund\nsmall\tklein\nthe\tdas\n"


def test_unequal_files_are_one_line(command, capsys, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("hund\n", "utf-8")
    with pytest.raises(SystemExit) as end:
        command("inspect", "alignment", "run", "@en", "@short")
    assert end.value.code == 2 and "make them line up" in capsys.readouterr().err


def test_a_saved_tokenizer_spells_alike(german: Run, tmp_path: Path) -> None:
    save(german.tokenizer, tmp_path / "tokenizer.json")
    german.tokenizer = load(tmp_path / "tokenizer.json")
    [found] = translate(german, ["the small dog"], lexicon={})
    assert found.text == "hund small das"
