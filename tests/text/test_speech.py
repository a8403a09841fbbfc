"""The reader of recordings: tables of sound files, ready features beside a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqloom.errors import DataError
from seqloom.text.records import RecordSchema, field_class
from seqloom.text.speech import Speech
from seqloom.text.store import build, in_memory_store
from seqloom.text.tokenizer import Characters
from seqloom.world import speak


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    """Two sentences of the world as files."""
    (tmp_path / "clips").mkdir()
    for name, text in (("a", "The dog sleeps."), ("b", "A cat eats.")):
        (tmp_path / "clips" / f"{name}.wav").write_bytes(speak(text).wav())
    return tmp_path


def texts_of(reader: Speech) -> list[tuple[str, str]]:
    return [(recording.name, text) for recording, text in reader]


EXPECTED = [("clips/a.wav", "the dog sleeps"), ("clips/b.wav", "a cat eats")]


def test_tables_with_and_without_a_header_are_read(sounds: Path) -> None:
    rows = "clips/a.wav\tthe dog sleeps\nclips/b.wav\ta cat eats\n"
    forms = {
        "a.tsv": rows,
        "b.tsv": "file\ttext\n" + rows,
        "c.csv": "id,speaker,sentence,path\n0,x,the dog sleeps,clips/a.wav\n1,x,a cat eats,clips/b.wav\n",
        "d.jsonl": '{"audio_filepath": "clips/a.wav", "duration": 1, "text": "the dog sleeps"}\n'
        '{"audio_filepath": "clips/b.wav", "duration": 1, "text": "a cat eats"}\n',
    }
    for name, content in forms.items():
        (sounds / name).write_text(content)
        assert texts_of(Speech([sounds / name])) == EXPECTED
    (sounds / "e.tsv").write_text("x\ta\tthe dog sleeps\n")
    assert texts_of(Speech([sounds / "e.tsv"], columns=(1, 2))) == [("a", "the dog sleeps")]
    (sounds / "f.tsv").write_text("file\ttext\na.wav\tthe dog sleeps\n")
    (recording, _), *_ = Speech([sounds / "f.tsv"], folder="clips")
    assert recording.frames().shape[1] == 40


def test_wrong_rows_are_named(sounds: Path) -> None:
    table = sounds / "t.tsv"
    wrong = {
        "clips/a.wav\tthe dog\nclips/none.wav\tx\n": r"t.tsv:2: .*none.wav: no such file",
        "clips/a.wav\tthe dog\nclips/b.wav\n": r"t.tsv:2: 1 cells",
        "clips/a.wav\t \n": r"t.tsv:1: no text for clips/a.wav",
    }
    for content, message in wrong.items():
        table.write_text(content)
        with pytest.raises(DataError, match=message):
            build(Speech([table]), Characters(["the dog x"]), sounds / "cache")


def test_the_digest_depends_on_the_sound(sounds: Path) -> None:
    table = sounds / "t.tsv"
    table.write_text("clips/a.wav\tthe dog sleeps\n")
    before = Speech([table]).digest()
    assert Speech([table]).digest() == before
    assert Speech([table], bins=20).digest() != before
    (sounds / "clips" / "a.wav").write_bytes(speak("The dog sleeps.", number=1).wav())
    assert Speech([table]).digest() != before


def test_ready_features_beside_a_table(tmp_path: Path) -> None:
    table, arrays = tmp_path / "t.tsv", tmp_path / "t.npz"
    table.write_text("id\ttext\nx\tone\ny\ttwo\n")
    frames = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float16)
    options = {"features": "ready", "bins": 4, "normalize": False}
    np.savez(arrays, frames=frames, lengths=np.array([4, 5]))
    joined = [recording.frames() for recording, _ in Speech([table, arrays], **options)]
    assert np.array_equal(np.concatenate(joined), frames.astype(np.float32))
    assert [len(part) for part in joined] == [4, 5]
    np.savez(arrays, y=frames[4:], x=frames[:4])
    by_name = [recording.frames() for recording, _ in Speech([table, arrays], **options)]
    assert all(np.array_equal(a, b) for a, b in zip(joined, by_name, strict=True))
    np.savez(arrays, frames=frames, lengths=np.array([4, 4, 1]))
    with pytest.raises(DataError, match="3 recordings of 9 frames, but the table has 2 rows"):
        list(Speech([table, arrays], **options))
    np.savez(arrays, x=frames)
    with pytest.raises(DataError, match="no array 'y'"):
        list(Speech([table, arrays], **options))


def test_the_store_holds_the_frames(sounds: Path) -> None:
    table = sounds / "t.tsv"
    table.write_text("clips/a.wav\tthe dog sleeps\nclips/b.wav\ta cat eats\n")
    reader = Speech([table])
    tokenizer = Characters([text for _, text in reader])
    store = build(reader, tokenizer, sounds / "cache")
    assert store.names == ("audio", "audio_shape", "text")
    for index, (recording, text) in enumerate(reader):
        numbers, shape, ids = store[index]
        assert np.array_equal(numbers.reshape(shape), recording.frames())
        assert tokenizer.decode(ids.tolist()[:-1]) == text
    schema = RecordSchema(reader.kinds, [tokenizer], True, [])
    in_memory = in_memory_store(list(reader), schema)
    assert np.array_equal(in_memory[1][0], store[1][0])
    assert field_class("audio").is_input
