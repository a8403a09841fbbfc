"""Tokenizers: nothing is lost, nothing is mistaken for a control token, bad files are refused in one sentence."""

import json
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from seqloom.text import tokenizer as tk_tokenizer
from seqloom.text.tokenizer import (
    BPE,
    EOS,
    SPECIALS,
    UNK,
    Characters,
    Unigram,
    WordPiece,
    Words,
    decode,
    save,
    signature,
)
from seqloom.text.tokenizer_file import File, load

TEXTS = [
    "The quick brown fox jumps over the lazy dog.\n",
    "the dog's tail, the fox's tail\n",
    "  indented\tcode(); é 漢字 <pad> 12\n",
] * 40
TRAINED = [
    Characters(TEXTS),
    BPE(TEXTS, size=400),
    Unigram(TEXTS, size=330),
    WordPiece(TEXTS, size=200),
    Words(TEXTS),
]
LOSSLESS = TRAINED[1:3]
ALL = pytest.mark.parametrize(
    "tokenizer", TRAINED, ids=["characters", "bpe", "unigram", "wordpiece", "words"]
)


@ALL
def test_special_tokens_are_the_first_ids(tokenizer):
    assert [tokenizer.id_to_token(index) for index in range(5)] == list(SPECIALS)
    assert (
        tk_tokenizer.PAD,
        tk_tokenizer.UNK,
        tk_tokenizer.BOS,
        tk_tokenizer.EOS,
        tk_tokenizer.MASK,
    ) == (0, 1, 2, 3, 4)
    assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size()))


@ALL
@given(
    st.lists(st.sampled_from([*SPECIALS, " ", "a", "<", ">", "\n", "eos", "<EOS>"]), max_size=8).map("".join)
)
def test_no_text_spells_a_control_token(tokenizer, text):
    assert all(index > EOS + 1 or index == UNK for index in tokenizer.encode(text).ids)


def test_a_written_unknown_word_is_unknown():
    tokenizer = Words(["the <unk> sat <pad> <eos>"])
    assert tokenizer.encode("<unk> the <pad>").ids == [UNK, tokenizer.token_to_id("the"), UNK]
    assert "<unk>" not in {tokenizer.id_to_token(index) for index in range(5, tokenizer.get_vocab_size())}


@pytest.mark.parametrize("tokenizer", LOSSLESS, ids=["bpe", "unigram"])
@given(st.text())
def test_any_text_comes_back(tokenizer, text):
    assert decode(tokenizer, tokenizer.encode(text).ids) == text


@given(st.text(alphabet=sorted(set("".join(TEXTS)))))
def test_seen_characters_come_back(text):
    ids = TRAINED[0].encode(text).ids
    assert len(ids) == len(text)
    assert decode(TRAINED[0], ids) == text


@given(st.lists(st.sampled_from(sorted(set(" ".join(TEXTS).split()) - set(SPECIALS)))))
def test_words_come_back_joined_with_spaces(words):
    assert decode(TRAINED[4], TRAINED[4].encode("\t".join(words)).ids) == " ".join(words)


@pytest.mark.parametrize("make", [BPE, Unigram, WordPiece])
def test_frequent_words_are_one_token_and_pieces_stay_inside_words(make):
    """A15: most English words one token; subwords do not cross word boundaries."""
    # The unigram trainer proposes what several different words share.
    tokenizer = make(
        ["the fox, the foxes and the tails; then they foxed the tailor of the tail of the fox\n"] * 40,
        size=600,
    )
    for word in ("the", "fox", "tail"):
        assert len(tokenizer.encode(f" {word}").ids) == 1
    for token in tokenizer.get_vocab():
        if token not in SPECIALS:
            piece = (
                decode(tokenizer, [tokenizer.token_to_id(token)])
                if make is not WordPiece
                else token.removeprefix("##")
            )
            assert not re.search(r"\w\s|\s{2}\w", piece), token


def test_marks_stay_with_their_letters():
    assert [piece for piece, _ in tk_tokenizer.BYTES.pre_tokenize_str("हिन्दी भाषा")][1:] != []
    assert len(tk_tokenizer.BYTES.pre_tokenize_str("हिन्दी भाषा")) == 2


def test_words_keeps_the_most_frequent_and_counts_as_a_counter_does():
    tokenizer = Words(["b b a c", "b a A"], size=7)
    assert [tokenizer.id_to_token(index) for index in (5, 6)] == ["b", "a"]
    assert tokenizer.encode("a b c").ids == [6, 5, UNK]
    assert Words(["b A", "a a B"], lowercase=True).encode("A b").ids == [5, 6]


def test_white_space_is_what_the_library_takes_it_for():
    """Every character on which Oniguruma's or Rust's white space splits, and no other, is in SPACE."""
    everything = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    ours = set(re.findall(f"[{tk_tokenizer.SPACE}]", "".join(everything)))
    onig = {
        piece
        for piece, _ in pre_tokenizers.Split(Regex(r"\s"), "isolated").pre_tokenize_str("".join(everything))
        if len(piece) == 1
    }
    rust = {
        character
        for character in everything
        if not pre_tokenizers.WhitespaceSplit().pre_tokenize_str(character)
    }
    assert ours == onig == rust
    lower = normalizers.Lowercase()
    assert not [c for c in everything if bool(ours & set(lower.normalize_str(c))) != (c in ours)]


@pytest.mark.parametrize("make", [BPE, WordPiece, Words])
def test_learning_twice_gives_the_same_tokenizer(make):
    assert signature(make(TEXTS, size=300)) == signature(make(iter(TEXTS), size=300))


def test_learning_reads_a_bounded_sample(monkeypatch):
    monkeypatch.setattr(tk_tokenizer, "MAX_TRAINING_CHARACTERS", 10)
    read = []

    def stream():
        for word in ["aa bb ", "cc dd ", "never "]:
            read.append(word)
            yield word

    tokenizer = Words(stream())
    assert read == ["aa bb ", "cc dd "]
    assert [tokenizer.id_to_token(index) for index in range(5, tokenizer.get_vocab_size())] == [
        "aa",
        "bb",
        "cc",
        "d",
    ]


@pytest.mark.parametrize("make", [Characters, Words, BPE, WordPiece, Unigram])
def test_an_empty_corpus_is_refused(make):
    with pytest.raises(ValueError, match="no text to train"):
        make(iter(["", ""]))


@pytest.mark.parametrize(("make", "size"), [(BPE, 260), (Unigram, 10), (WordPiece, 9), (Words, 5)])
def test_a_size_below_the_alphabet_is_refused(make, size):
    with pytest.raises(ValueError, match=f"size {size} is too small"):
        make(TEXTS, size=size)


@pytest.mark.parametrize("make", [BPE, WordPiece])
def test_the_smallest_size_named_by_the_error_works(make):
    with pytest.raises(ValueError) as caught:
        make(TEXTS, size=6)
    least = int(re.search(r"give size (\d+)", str(caught.value))[1])
    assert make(TEXTS, size=least).get_vocab_size() <= least


def test_a_reader_error_passes_through_training():
    def stream():
        yield "abc"
        raise ValueError("file:2: bad")

    for make in (Characters, Words, BPE, WordPiece, Unigram):
        with pytest.raises(ValueError, match="file:2: bad"):
            make(stream())


@ALL
def test_saved_is_loaded(tokenizer, tmp_path):
    save(tokenizer, tmp_path / "tokenizer.json")
    again = load(tmp_path / "tokenizer.json")
    assert signature(again) == signature(tokenizer)
    assert again.encode(TEXTS[2]).ids == tokenizer.encode(TEXTS[2]).ids
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_decode_takes_arrays_and_skips_special_tokens():
    ids = [tk_tokenizer.BOS, *TRAINED[1].encode("the fox").ids, tk_tokenizer.EOS, tk_tokenizer.PAD]
    assert decode(TRAINED[1], np.array(ids, np.uint16)) == "the fox"


def _broken(change):
    parts = json.loads(TRAINED[1].to_str())
    change(parts)
    return json.dumps(parts)


def _pairs(prefix):
    return {
        "type": "BPE",
        "vocab": {"a": 0, "é": 1, "aé": 2},
        "merges": [["a", "é"]],
        "continuing_subword_prefix": prefix,
    }


BROKEN = {
    "empty": "",
    "not json": "{",
    "other json": "[1, 2]",
    "deep json": "[" * 100_000,
    "no model": _broken(lambda parts: parts.pop("model")),
    "merge of unknown pieces": _broken(lambda parts: parts["model"]["merges"].append(["qq", "xx"])),
    "ids with a hole": _broken(lambda parts: parts["model"]["vocab"].update({"zzzz": 99_999})),
    "added token without a name": _broken(lambda parts: parts["added_tokens"].append({"id": 5})),
    "bad pattern": _broken(
        lambda parts: parts["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": "("})
    ),
    # From here on the library panics, or would end the process.
    "panic when read": _broken(
        lambda parts: parts.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})
    ),
    "panic when used": _broken(
        lambda parts: parts.update(pre_tokenizer={"type": "FixedLength", "length": 0})
    ),
    "abort: half a character": _broken(lambda parts: parts.update(model=_pairs("a"))),
    "abort: beyond the piece": _broken(lambda parts: parts.update(model=_pairs("aaaa"))),
}


def test_some_of_these_files_really_panic():
    with pytest.raises(BaseException) as caught:
        Tokenizer.from_str(BROKEN["panic when read"])
    assert not isinstance(caught.value, Exception)


def test_padding_to_any_length_is_left_out(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(
        _broken(
            lambda parts: parts.update(
                padding={
                    "strategy": {"Fixed": 10**13},
                    "direction": "Right",
                    "pad_id": 0,
                    "pad_to_multiple_of": None,
                    "pad_type_id": 0,
                    "pad_token": "x",
                }
            )
        )
    )
    assert load(path).encode("the fox").ids == TRAINED[1].encode("the fox").ids


@pytest.mark.parametrize("name", BROKEN)
def test_a_bad_file_is_one_clear_error(name, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(BROKEN[name])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        load(path)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_file_never_ends_the_process(tmp_path_factory, data):
    text = TRAINED[4].to_str()
    start = data.draw(st.integers(0, len(text)))
    path = tmp_path_factory.mktemp("damaged") / "tokenizer.json"
    path.write_text(
        text[:start] + data.draw(st.text(max_size=5)) + text[start + data.draw(st.integers(0, 30)) :],
        encoding="utf-8",
    )
    try:
        assert isinstance(load(path), Tokenizer)
    except ValueError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize("what", ["missing", "folder", "latin"])
def test_what_cannot_be_read_is_one_clear_error(what, tmp_path):
    path = tmp_path / "tokenizer.json"
    if what == "folder":
        path.mkdir()
    if what == "latin":
        path.write_bytes("é".encode("latin-1"))
    with pytest.raises(ValueError, match=r"tokenizer\.json: cannot read"):
        load(path)


def test_file_takes_our_own_as_it_is(tmp_path):
    save(TRAINED[1], tmp_path / "t.json")
    assert signature(File(iter(()), path=str(tmp_path / "t.json"))) == signature(TRAINED[1])


@pytest.mark.parametrize(
    "model",
    [
        models.WordLevel({"[U]": 0, "a": 1, "b": 2, "[CLS]": 3}, unk_token="[U]"),
        models.BPE({"a": 0, "b": 1, "ab": 2, "[U]": 3, "[CLS]": 4}, [("a", "b")], unk_token="[U]"),
        models.WordPiece({"[U]": 0, "a": 1, "b": 2, "[CLS]": 3}, unk_token="[U]"),
        models.Unigram(
            [("[U]", 0.0), ("a", -1.0), ("b", -2.0), ("[CLS]", -3.0)], unk_id=0, byte_fallback=False
        ),
    ],
)
def test_file_moves_a_foreign_tokenizer_up_by_five(model, tmp_path):
    foreign = Tokenizer(model)
    foreign.pre_tokenizer = pre_tokenizers.Whitespace()
    foreign.add_special_tokens(["[CLS]"])
    foreign.post_processor = processors.TemplateProcessing(
        "[CLS] $A", special_tokens=[("[CLS]", foreign.token_to_id("[CLS]"))]
    )
    foreign.enable_truncation(3)
    foreign.save(str(tmp_path / "t.json"))
    ours = File(iter(()), path=str(tmp_path / "t.json"))
    foreign.no_truncation()
    for text in ("a b ab b a b", "a z"):
        assert ours.encode(text).ids == [
            index + 5 for index in foreign.encode(text, add_special_tokens=False).ids
        ]
    assert [ours.id_to_token(index) for index in range(5)] == list(SPECIALS)


def test_file_refuses_special_tokens_in_other_places(tmp_path):
    Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>")).save(str(tmp_path / "t.json"))
    with pytest.raises(ValueError, match=r"t\.json: <unk> has id 0"):
        File(iter(()), path=str(tmp_path / "t.json"))


def test_words_of_a_file_are_known_besides(tmp_path):
    """From a list, from GloVe's text, from a folder of vectors: each once, after those of the text."""
    (tmp_path / "vectors").mkdir()
    for path, text in (
        ("list", "owl\ncat\n\n"),
        ("glove.txt", "owl 0.1 0.2\ncat 1 2\n"),
        ("vectors/words.txt", "Owl\ncat\n<eos>\n"),
    ):
        (tmp_path / path).write_text(text, "utf-8")
    for path in ("list", "glove.txt", "vectors"):
        tokenizer = Words(["the cat sees the dog"], lowercase=True, extra_words=str(tmp_path / path))
        assert tokenizer.get_vocab_size() == 5 + 4 + 1 and tokenizer.token_to_id("owl") == 9
        assert tokenizer.encode("the OWL <eos>").ids == [tokenizer.token_to_id("the"), 9, UNK]
    with pytest.raises(ValueError, match="none: no such file"):
        Words(["a"], extra_words=str(tmp_path / "none"))
