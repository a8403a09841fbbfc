"""The store: the tokenizer's own ids, whatever the text, the blocks and the workers; whole or not there."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from seqloom.errors import NoRoom
from seqloom.text import encoder as encode
from seqloom.text import records as record_files
from seqloom.text import store
from seqloom.text.corpus import JSONLines, Lines, Parallel, Text
from seqloom.text.encoder import RecordEncoder
from seqloom.text.store import build
from seqloom.text.tokenizer import BOS, BPE, BYTES, EOS, Characters, Unigram, WordPiece, Words
from seqloom.text.tokenizer_file import with_template
from seqloom.text.workers import EncoderPool

TEXTS = [
    "The quick brown fox jumps over the lazy dog.\n",
    "the dog's tail  and   the fox's\n",
    "\tif (x): y = 12 é 漢字 ΑΣ <pad>\n",
] * 30


def _foreign() -> Tokenizer:
    """Merges a word with the space after it, so that no chunk could stand alone."""
    tokenizer = Tokenizer(
        models.BPE(
            {"<unk>": 0, "a": 1, " ": 2, "a ": 3, "b": 4, "a b": 5},
            [("a", " "), ("a ", "b")],
            unk_token="<unk>",
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    return tokenizer


def _normalized() -> Tokenizer:
    tokenizer = BPE(TEXTS, size=400)
    tokenizer.normalizer = normalizers.NFKC()
    return tokenizer


def _framed() -> Tokenizer:
    """As a run of BERT's shape has it: <bos> … <eos> around a text, where that is asked for."""
    return Tokenizer.from_str(
        json.dumps(with_template(json.loads(WordPiece(TEXTS, size=200).to_str()), [BOS], [EOS]))
    )


KINDS = {
    "characters": (Characters(TEXTS), "_encode_characters"),
    "bpe": (BPE(TEXTS, size=500), "_encode_chunks"),
    "unigram": (Unigram(TEXTS, size=330), "_encode_chunks"),
    "wordpiece": (WordPiece(TEXTS, size=200), "_encode_chunks"),
    "wordpiece lower": (WordPiece(TEXTS, size=200, lowercase=True), "_encode_chunks"),
    "words": (Words(TEXTS), "_encode_chunks"),
    "words lower": (Words(TEXTS, lowercase=True), "_encode_chunks"),
    "wordpiece framed": (_framed(), "_encode_chunks"),
    "foreign": (_foreign(), "_encode_records"),
    "normalized": (_normalized(), "_encode_records"),
}
# Drawn from what could confuse the cutting: every kind of white space, marks, control tokens, letters that change when lowered.
PIECES = [
    "a",
    "the",
    "fox",
    "'s",
    "'",
    "<",
    "<eos>",
    "<pad>",
    "<unk>",
    " ",
    "  ",
    "\n",
    "\t",
    "\r",
    "\x1c",
    "\x1f",
    "\x85",
    "\xa0",
    "\u2003",
    "\u200b",
    "\u3000",
    "\u0301",
    "é",
    "İ",
    "Σ",
    "ß",
    "漢",
    "\U0001f600",
    "1",
    ".",
    "_",
    "\0",
    "B",
    "a b",
]
RECORD = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))


@pytest.mark.parametrize("kind", KINDS)
def test_only_our_own_tokenizers_are_cut_into_chunks(kind):
    tokenizer, way = KINDS[kind]
    assert RecordEncoder(tokenizer, True).encode.__name__ == way


@pytest.mark.parametrize(
    "change",
    [
        {
            "added_tokens": [
                {
                    "id": 300,
                    "content": "a b",
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": False,
                }
            ]
        },
        {"normalizer": {"type": "NFC"}},
        {
            "pre_tokenizer": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            }
        },
        {"pre_tokenizer": None},
        {"truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}},
    ],
)
def test_a_changed_tokenizer_is_no_longer_ours(change):
    parts = json.loads(KINDS["bpe"][0].to_str()) | change
    tokenizer = Tokenizer.from_str(json.dumps(parts))
    assert (
        RecordEncoder(tokenizer, False).encode.__name__ == "_encode_joined"
        and RecordEncoder(tokenizer, True).encode.__name__ == "_encode_records"
    )
    text = "the a b fox the a b"
    tokens, _ = RecordEncoder(tokenizer, False)([text])
    assert np.frombuffer(tokens, np.uint16).tolist() == tokenizer.encode(text).ids


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=200)
@given(records=st.lists(RECORD, min_size=1, max_size=6), ends=st.booleans())
def test_ids_equal_the_tokenizers_own(kind, records, ends):
    tokenizer, way = KINDS[kind]
    tokens, counts = RecordEncoder(tokenizer, ends)(records)
    if way == "_encode_records" and not ends:  # lines of one text
        assert (
            np.frombuffer(tokens, np.uint16).tolist()
            == tokenizer.encode("".join(records), add_special_tokens=False).ids
        )
        assert counts.sum() == len(tokens) // 2 and len(counts) == len(records)
        return
    expected = [tokenizer.encode(record, add_special_tokens=False).ids + [EOS] * ends for record in records]
    assert counts.tolist() == [len(ids) for ids in expected]
    assert np.frombuffer(tokens, np.uint16).tolist() == [index for ids in expected for index in ids]


def test_lines_of_one_text_are_read_as_one(tmp_path):
    """A tokenizer that puts something before a text does so once, and one that joins line ends joins them; each token counts for its line."""
    pieces = ["<unk>", "▁", "a", "b", "\n", "\n\n", "▁a"]
    tokenizer = Tokenizer(
        models.BPE(
            {one: index for index, one in enumerate(pieces)}, [("▁", "a"), ("\n", "\n")], unk_token="<unk>"
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    text = "ab\n\n\nb a\nab\n"
    store = build(Text(put(tmp_path / "a.txt", text)), tokenizer, tmp_path / "cache")
    assert store.fields[0].tokens.tolist() == tokenizer.encode(text).ids == [6, 3, 5, 4, 3, 6, 4, 2, 3, 4]
    assert np.diff(store.fields[0].offsets).tolist() == [3, 0, 1, 3, 3]
    assert np.diff(store.fields[0].bytes).tolist() == [3, 1, 1, 4, 3]


def test_forgetting_chunks_changes_nothing(monkeypatch):
    monkeypatch.setattr(encode, "CACHE_BYTES", 3000)
    tokenizer, _ = KINDS["bpe"]
    encoder = RecordEncoder(tokenizer, False)
    sizes = []
    for round_ in range(30):
        records = [f"word{round_ * 7 + number} the fox" for number in range(7)]
        tokens, _ = encoder(records)
        assert np.frombuffer(tokens, np.uint16).tolist() == [
            index for record in records for index in tokenizer.encode(record).ids
        ]
        sizes.append(len(encoder.chunks))
    assert max(sizes) < 40


def test_a_large_vocabulary_needs_four_bytes():
    tokenizer = Words([" ".join(f"w{number}" for number in range(70_000))])
    encoder = RecordEncoder(tokenizer, False)
    tokens, _ = encoder(["w69999 w0"])
    assert encoder.dtype == np.uint32
    assert np.frombuffer(tokens, np.uint32).tolist() == tokenizer.encode("w69999 w0").ids


def put(path, content):
    path.write_bytes(content.encode())
    return path


def expected(reader, tokenizer):
    return [[tokenizer.encode(text).ids + [EOS] * reader.adds_eos for text in record] for record in reader]


@pytest.mark.parametrize("kind", ["characters", "bpe", "words", "foreign"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_store_holds_every_record(tmp_path, monkeypatch, kind, workers):
    """Blocks of 300 characters, the first two encoded here and the rest by workers: the ids and their order stay the same."""
    monkeypatch.setattr(record_files, "BLOCK", 300)
    monkeypatch.setattr(record_files, "SERIAL_BLOCKS", 2)
    tokenizer, _ = KINDS[kind]
    rows = [f"{text.strip()} {number} é" if number % 7 else "" for number, text in enumerate(TEXTS)]
    reader = Parallel(
        [put(tmp_path / "a", "\n".join(rows) + "\n"), put(tmp_path / "b", "\n".join(reversed(rows)) + "\n")]
    )
    done = []
    whole = build(reader, tokenizer, tmp_path / "cache", workers, done.append)
    records = list(reader)
    assert len(whole) == len(records)
    assert [[ids.tolist() for ids in record] for record in whole] == expected(reader, tokenizer)
    for index, field in enumerate(whole.fields):
        assert np.diff(field.bytes).tolist() == [len(record[index].encode()) for record in records]
        assert field.offsets[0] == 0 and field.offsets[-1] == len(field.tokens)
    assert sum(done) == sum(len(text.encode()) for record in records for text in record)
    assert whole[-1][0].tolist() == whole[len(whole) - 1][0].tolist()
    with pytest.raises(IndexError):
        whole[len(whole)]


def test_each_field_may_have_its_tokenizer(tmp_path):
    reader = Parallel([put(tmp_path / "a", "the fox\n"), put(tmp_path / "b", "the dog\n")])
    pair = [KINDS["bpe"][0], KINDS["characters"][0]]
    (record,) = build(reader, pair, tmp_path / "cache")
    assert [ids.tolist() for ids in record] == [
        [*pair[0].encode("the fox").ids, EOS],
        [*pair[1].encode("the dog").ids, EOS],
    ]
    with pytest.raises(ValueError, match="3 tokenizers for records of 2 fields"):
        build(reader, [*pair, pair[0]], tmp_path / "cache")


def test_raw_text_has_no_ends(tmp_path):
    path = put(tmp_path / "t", "the fox\n\nthe dog")
    tokens = build(Text([path]), KINDS["characters"][0], tmp_path / "cache").fields[0].tokens
    assert tokens.tolist() == KINDS["characters"][0].encode(path.read_text()).ids


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=30), st.floats(0.01, 0.99))
def test_split_is_the_nearest_cut_that_reaches_the_fraction(counts, fraction):
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    whole = store.Store([store.Column(np.arange(offsets[-1], dtype=np.uint16), offsets, offsets * 2)], "x")
    head, tail = whole.split(fraction)
    assert len(head) >= 1 and len(tail) >= 1
    assert [r[0].tolist() for r in head] + [r[0].tolist() for r in tail] == [r[0].tolist() for r in whole]
    for part in (head, tail):
        field = part.fields[0]
        assert field.offsets[0] == 0 == field.bytes[0] and field.offsets[-1] == len(field.tokens)
        assert np.shares_memory(field.tokens, whole.fields[0].tokens) or not len(field.tokens)
        assert field.bytes.tolist() == (field.offsets * 2).tolist()
    wanted = offsets[-1] * (1 - fraction)
    cut = len(head)
    assert cut == len(whole) - 1 or len(head.fields[0].tokens) >= wanted - 0.5
    assert cut == 1 or offsets[cut - 1] < wanted + 0.5
    assert len({whole.digest, head.digest, tail.digest}) == 3


@pytest.mark.parametrize("fraction", [0, 1, -0.1, float("nan")])
def test_a_fraction_must_leave_two_parts(tmp_path, fraction):
    whole = build(Lines([put(tmp_path / "t", "a\nb\n")]), KINDS["bpe"][0], tmp_path)
    with pytest.raises(ValueError, match="not between 0 and 1"):
        whole.split(fraction)


def test_one_record_cannot_be_split(tmp_path):
    with pytest.raises(ValueError, match="one record cannot be split"):
        build(Lines([put(tmp_path / "t", "a\n")]), KINDS["bpe"][0], tmp_path).split(0.5)


def test_the_cache_is_used_and_follows_the_content(tmp_path, monkeypatch):
    path, cache, tokenizer = put(tmp_path / "t", "the fox\n"), tmp_path / "cache", KINDS["bpe"][0]
    first = build(Lines([path]), tokenizer, cache)
    with monkeypatch.context() as patch:
        patch.setattr(record_files, "write_store", lambda *a: pytest.fail("built again"))
        assert build(Lines([path]), tokenizer, cache).digest == first.digest
    put(path, "the dog\n")
    assert build(Lines([path]), tokenizer, cache)[0][0].tolist() == [*tokenizer.encode("the dog").ids, EOS]
    assert build(Text([path]), tokenizer, cache).digest != build(Lines([path]), tokenizer, cache).digest
    assert build(Lines([path]), KINDS["words"][0], cache)[0][0].tolist() == [
        *KINDS["words"][0].encode("the dog").ids,
        EOS,
    ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "0.tokens").write_bytes(b"x"),
        lambda place: (place / "0.offsets").unlink(),
        lambda place: (place / "0.bytes").write_bytes((place / "0.bytes").read_bytes() + b"x"),
        lambda place: (place / "store.json").write_text("{"),
        lambda place: (place / "store.json").write_text("[]"),
        lambda place: (place / "store.json").unlink(),
    ],
)
def test_a_damaged_store_is_built_again(tmp_path, damage):
    reader, cache, tokenizer = (
        Lines([put(tmp_path / "t", "the fox\nthe dog\n")]),
        tmp_path / "cache",
        KINDS["bpe"][0],
    )
    build(reader, tokenizer, cache)
    (place,) = cache.iterdir()
    damage(place)
    assert [[ids.tolist() for ids in record] for record in build(reader, tokenizer, cache)] == expected(
        reader, tokenizer
    )
    assert list(cache.iterdir()) == [place]


def test_an_interrupted_build_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "BLOCK", 10)
    reader = Lines([put(tmp_path / "t", "the fox\n" * 20)])

    def interrupt(size):
        raise KeyboardInterrupt

    for workers in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            build(reader, KINDS["bpe"][0], tmp_path / "cache", workers, interrupt)
        assert list((tmp_path / "cache").iterdir()) == []


KILLED = """
import sys
from seqloom.text import records as record_files, store
from seqloom.text.corpus import Lines
from seqloom.text.tokenizer_file import load
record_files.BLOCK = 10
def progress(size):
    print("begun", flush=True)
    sys.stdin.read()
store.build(Lines([sys.argv[1]]), load(sys.argv[2]), sys.argv[3], 1, progress)
"""


def test_what_a_killed_build_left_is_never_taken_and_swept_later(tmp_path):
    path, cache, tokenizer = put(tmp_path / "t", "the fox\n" * 20), tmp_path / "cache", KINDS["bpe"][0]
    tokenizer.save(str(tmp_path / "t.json"))
    environment = os.environ | {"PYTHONPATH": str(Path(store.__file__).parents[2])}
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), str(tmp_path / "t.json"), str(cache)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline() == b"begun\n"
    (left,) = cache.iterdir()
    os.utime(left, (0, 0))
    build(Lines([put(tmp_path / "u", "other\n")]), tokenizer, cache)
    assert left.exists(), "a living build was swept"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    os.utime(left, (0, 0))
    reader = Lines([path])
    assert [[ids.tolist() for ids in record] for record in build(reader, tokenizer, cache)] == expected(
        reader, tokenizer
    )
    assert not left.exists()


def test_two_builders_at_once_both_end_well(tmp_path, monkeypatch):
    """Both finish writing before either renames."""
    reader, cache, tokenizer = (
        Lines([put(tmp_path / "t", "the fox\n" * 20)]),
        tmp_path / "cache",
        KINDS["bpe"][0],
    )
    barrier, publish, stores = threading.Barrier(2), record_files.publish, []

    def together(*arguments):
        barrier.wait(30)
        publish(*arguments)

    monkeypatch.setattr(record_files, "publish", together)
    threads = [
        threading.Thread(target=lambda: stores.append(build(reader, tokenizer, cache))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [[[ids.tolist() for ids in record] for record in one] for one in stores] == [
        expected(reader, tokenizer)
    ] * 2
    assert len(list(cache.iterdir())) == 1


def test_a_full_disk_is_one_clear_error(tmp_path, monkeypatch):
    def full(self, *arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(record_files.ColumnWriter, "add", full)
    with pytest.raises(NoRoom, match=r"cache: .*the disk is full; free some space"):
        build(Lines([put(tmp_path / "t", "a\n")]), KINDS["bpe"][0], tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_that_is_a_file_is_one_clear_error(tmp_path):
    path = put(tmp_path / "t", "a\n")
    with pytest.raises(ValueError, match=r"t/cache: the tokenized text cannot be written"):
        build(Lines([path]), KINDS["bpe"][0], path / "cache")


def test_errors_of_the_reader_pass_through(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "BLOCK", 100_000)
    monkeypatch.setattr(record_files, "SERIAL_BLOCKS", 1)
    path = tmp_path / "t"
    path.write_bytes(b"the fox\n" * 200_000 + b"\xff\n")
    with pytest.raises(ValueError, match=r"t:200001: byte 1"):
        build(Lines([path]), KINDS["words"][0], tmp_path / "cache", 2)
    with pytest.raises(ValueError, match="j:2: field 'text' is neither text"):
        build(
            JSONLines([put(tmp_path / "j", '{"text": "a"}\n{"text": []}\n')]),
            KINDS["bpe"][0],
            tmp_path / "cache",
        )
    with pytest.raises(ValueError, match="no records; give a file"):
        build(JSONLines([put(tmp_path / "j", "\n\n")]), KINDS["bpe"][0], tmp_path / "cache")
    with pytest.raises(ValueError, match="0 workers"):
        build(Lines([put(tmp_path / "t", "a\n")]), KINDS["bpe"][0], tmp_path / "cache", workers=0)


def test_a_worker_that_dies_is_one_clear_error_and_none_stay():
    pool = EncoderPool([KINDS["bpe"][0]], True, 2)
    assert np.frombuffer(pool.submit(0, ["the fox"]).result()[0], np.uint16).tolist() == [
        *KINDS["bpe"][0].encode("the fox").ids,
        EOS,
    ]
    for worker in pool.workers:
        worker.process.kill()
    for future in [
        pool.submit(0, ["the fox"]) for _ in range(6)
    ]:  # more than there are workers: none may wait for a dead one
        with pytest.raises(ValueError, match="a tokenizing worker ended early"):
            future.result(30)
    pool.close()
    assert all(worker.process.poll() is not None for worker in pool.workers)


def test_workers_end_with_their_parent():
    script = (
        "import sys, time\nfrom seqloom.text.workers import EncoderPool as Pool\nfrom seqloom.text.tokenizer import BPE\n"
        "pool = Pool([BPE(['a b'])], True, 2)\nprint(*(w.process.pid for w in pool.workers), flush=True)\ntime.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(store.__file__).parents[2])},
    )
    workers = [int(word) for word in child.stdout.readline().split()]
    assert len(workers) == 2
    child.kill()
    child.communicate()

    def lives(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    while any(map(lives, workers)):  # the suite's own time limit ends a loop that would not
        time.sleep(0.05)


def test_the_text_room_needs_no_torch():
    code = "import sys, seqloom.text.store, seqloom.text.workers; sys.exit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(Path(store.__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_the_pattern_of_bytes_is_the_one_that_is_trusted():
    assert json.loads(KINDS["bpe"][0].to_str())["pre_tokenizer"] == json.loads(BYTES.__getstate__())


@pytest.mark.data
def test_wikitext_has_the_tokens_and_types_it_is_known_for(tmp_path):
    folder = os.environ.get("SEQLOOM_DATA") or pytest.skip("SEQLOOM_DATA is not set")
    reader = Lines([f"{folder}/wikitext-2/train.txt.gz"])
    tokenizer = Words(text for (text,) in reader)
    assert tokenizer.get_vocab_size() == 33_278 - 2 + 5  # <unk> and <eos> are among the types it is known for
    assert len(build(reader, tokenizer, tmp_path).fields[0].tokens) == 2_088_628
