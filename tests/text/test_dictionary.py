"""Pronouncing dictionaries: both forms read alike, words stay together, and letters never meet phonemes."""

import hashlib
from pathlib import Path

import pytest

from seqloom.cli import main
from seqloom.text.dictionary import Dictionary
from seqloom.text.tokenizer import UNK, Pattern, save
from seqloom.text.tokenizer_file import load

NLTK = "HELLO 1 HH AH0 L OW1\nHELLO 2 HH EH0 L OW1\n\nA. 1 EY1\n"
CMU = ";;; a comment\nHELLO  HH AH0 L OW1\nHELLO(2)  HH EH0 L OW1 # as some say\nA.  EY1\n"


@pytest.mark.parametrize("text", [NLTK, CMU])
def test_both_forms_read_alike(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.dict"
    path.write_text(text, "utf-8")
    assert list(Dictionary([path])) == [("hello", "HH AH0 L OW1"), ("hello", "HH EH0 L OW1"), ("a.", "EY1")]
    path.write_text("HELLO HH\nALONE\n", "utf-8")
    with pytest.raises(ValueError, match=r"a.dict:2: the word 'ALONE' has no phonemes"):
        list(Dictionary([path]))


def test_words_stay_together_and_nothing_is_lost(tmp_path: Path, capsys) -> None:
    path = tmp_path / "all.dict"
    rows = [f"WORD{n}{form} 1 EY1 {'B' * n}" for n in range(1, 300) for form in ("", "S")] + ["WORD7 2 AH0"]
    path.write_text("\n".join(rows) + "\n", "utf-8")
    main(["dictionary", str(path), "--out", str(tmp_path / "cut")])
    lines = {
        name: (tmp_path / "cut" / f"{name}.dict").read_text("utf-8").splitlines()
        for name in ("train", "valid", "test")
    }
    assert sorted(line for part in lines.values() for line in part) == sorted(rows)
    words = [{line.split()[0] for line in part} for part in lines.values()]
    assert not (words[0] & words[1] or words[0] & words[2] or words[1] & words[2])
    assert 0.8 < len(words[0]) / 598 < 0.97 and "train: " in capsys.readouterr().out
    assert all(hashlib.sha256(word.lower().encode()).digest()[0] < 13 for word in words[2])
    path.write_text("A EY1\n", "utf-8")
    with pytest.raises(SystemExit):
        main(["dictionary", str(path), "--out", str(tmp_path / "none")])
    assert "one record" not in capsys.readouterr().out


def test_letters_and_phonemes_are_tokens_of_one_vocabulary(tmp_path: Path) -> None:
    tokenizer = Pattern(["hello", "HH AH0 L OW1", "o'neil"], r"[A-Z]+[0-9]?|\S")
    assert tokenizer.encode("hello").tokens == list("hello") and tokenizer.encode("HH AH0 L OW1").tokens == [
        "HH",
        "AH0",
        "L",
        "OW1",
    ]
    assert tokenizer.encode("o'n").tokens == ["o", "'", "n"] and tokenizer.encode("q").ids == [UNK]
    assert tokenizer.decode(tokenizer.encode("HH AH0 L OW1").ids) == "HH AH0 L OW1"
    save(tokenizer, tmp_path / "tokenizer.json")
    assert load(tmp_path / "tokenizer.json").encode("hello AH0").ids == tokenizer.encode("hello AH0").ids
    with pytest.raises(ValueError, match="not a regular expression"):
        Pattern(["a"], "(")
    with pytest.raises(ValueError, match="matches nothing"):
        Pattern(["abc"], "[0-9]")
