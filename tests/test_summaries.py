"""Summaries from a table to text: train, evaluate, summarize, explain and resume with the commands of a user."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

import seqloom
from seqloom.batches import Summaries
from seqloom.cli import main
from seqloom.decoding import beam_search, generate_batch
from seqloom.errors import RunError
from seqloom.inference.completion import banned_ids, prepare_prompt
from seqloom.inference.summarization import unknown_words
from seqloom.run import load
from seqloom.text.corpus import Table
from seqloom.text.records import RecordSchema
from seqloom.text.store import build, in_memory_store
from seqloom.text.tokenizer import Words
from seqloom.text.unknown_words import UNKNOWN, source_words, unknown_id
from seqloom.train.loop import TrainLoop
from seqloom.world import report

SMALL = [
    *("model.dim=16", "model.dropout=0", "model.encoder.dim=16", "model.decoder.dim=16"),
    *("model.decoder.dropout=0", "model.decoder.attention.dim=16", "tokenizer.size=120"),
    *("batches.batch_tokens=1000", "train.steps=16", "train.eval_every=8", "train.log_every=4"),
]
DOCUMENT = "Velan has worked for years on a mill in Jasaham. On Sunday the first guests came in."


class PowerCut(Exception):
    pass


def write_table(path: Path, start: int, count: int) -> Path:
    rows = (report(1, index) for index in range(start, start + count))
    path.write_text("document\tsummary\n" + "".join(f"{row.document}\t{row.summary}\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def pointer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("summaries")
    write_table(folder / "train.tsv", 0, 80)
    write_table(folder / "test.tsv", 100, 12)
    main(
        ["train", "pointer", "--data", str(folder / "train.tsv"), "--out", str(folder / "run"), "-q", *SMALL]
    )
    return folder / "run"


def test_unknown_words_have_ids_of_their_own():
    tokenizer = Words(["a cat sat . a cat"], lowercase=True, punctuation=True)
    schema = RecordSchema(["document", "summary"], [tokenizer], True, [])
    store = in_memory_store([("A Zorg sat, a zorg.", "Blip zorg")], schema)
    document, summary = (row.tolist() for row in store[0])
    known = [tokenizer.token_to_id(word) for word in ("a", "sat", ".")]
    comma = unknown_id(",")
    zorg = unknown_id("zorg")
    assert document == [known[0], zorg, known[1], comma, known[0], zorg, known[2], 3]
    assert summary == [unknown_id("blip"), zorg, 3] and min(zorg, comma) >= UNKNOWN
    assert source_words(tokenizer, "A Zorg sat,") == ["A", "Zorg", "sat", ","]


def test_the_store_on_disk_has_the_same_ids(tmp_path: Path):
    tokenizer = Words(["a cat sat"], punctuation=True)
    records = [(f"a word{index} sat, cat", f"word{index} a") for index in range(50)]
    path = tmp_path / "a.tsv"
    path.write_text("".join("\t".join(record) + "\n" for record in records))
    reader = Table([path], kinds=("document", "summary"))
    stored = build(reader, tokenizer, tmp_path / "cache")
    memory = in_memory_store(records, RecordSchema(reader.kinds, [tokenizer], True, []))
    for index in range(50):
        for one, other in zip(stored[index], memory[index], strict=True):
            assert one.tolist() == other.tolist()


def test_long_documents_are_cut_and_keep_their_end():
    tokenizer = Words(["a b c d e f"])
    schema = RecordSchema(["document", "summary"], [tokenizer], True, [])
    store = in_memory_store([("a b c d e f", "a b c"), ("a b", "c")], schema)
    data = Summaries(store, max_source=4, max_target=3)
    batch = data.collate(data.ordered_groups().__next__()[0])
    rows = sorted(zip(batch.source.tolist(), batch.targets.tolist(), strict=True))
    ids = {word: tokenizer.token_to_id(word) for word in "abcdef"}
    assert [ids["a"], ids["b"], ids["c"], 3] in [source for source, _ in rows]
    assert [ids["a"], ids["b"], 3] in [targets for _, targets in rows]
    assert data.num_cut == 1 and data.num_skipped == 0


def test_greedy_and_beam_copy_words_of_the_source(pointer: Path):
    """The words V + j that a search writes are those at the position j; greedy search is a beam of one."""
    run = load(pointer)
    vocabulary = run.tokenizer.get_vocab_size()
    ids, mask = run.encode([DOCUMENT, "Korelger bought forty buckets of colour."])
    assert (ids >= UNKNOWN).any()
    prompt, state, prompt_mask = prepare_prompt(run, ids, mask)
    banned = banned_ids(run)
    greedy = generate_batch(run.model, prompt, state, prompt_mask, max_tokens=8, banned=banned)
    beam = beam_search(
        run.model, prompt, state, prompt_mask, width=1, length_penalty=0.0, max_tokens=8, banned=banned
    )
    assert [text.ids for text in greedy] == [best[0].ids for best in beam]
    wide = beam_search(run.model, prompt, state, prompt_mask, width=4, max_tokens=8, banned=banned, nbest=4)
    alone = prepare_prompt(run, ids[1:][:, mask[1]], mask[1:][:, mask[1]])
    single = beam_search(run.model, *alone, width=4, max_tokens=8, banned=banned, nbest=4)
    assert [found.ids for found in wide[1]] == [found.ids for found in single[0]]
    written = {
        token - vocabulary for best in wide for found in best for token in found.ids if token >= vocabulary
    }
    assert all(position < ids.shape[1] for position in written)


def test_copied_ids_come_out_as_the_source_s_words(pointer: Path):
    from seqloom.inference.detokenizer import Detokenizer

    run = load(pointer)
    vocabulary = run.tokenizer.get_vocab_size()
    detokenizer = Detokenizer(run, DOCUMENT, run.encode([DOCUMENT])[0][0].tolist())
    opens, dot = (run.tokenizer.token_to_id(word) for word in ("opens", "."))
    assert detokenizer([vocabulary, opens, vocabulary + 9, dot]) == "Velan opens Jasaham."


def test_evaluate_has_rouge_baselines_and_novelty(pointer: Path, capsys: pytest.CaptureFixture):
    main(["evaluate", str(pointer), str(pointer.parent / "test.tsv"), "--json", "--beam", "2", "--by-length"])
    found = json.loads(capsys.readouterr().out)
    numbers = {number["name"]: number for number in found["numbers"]}
    names = (
        "rouge_1 rouge_2 rouge_l rouge_l_lead rouge_l_first_sentence new_words new_pairs copied copied_span"
    )
    assert set(names.split()) <= set(numbers) and "bits_per_byte" not in numbers
    assert "search:beam2-0.6|cut:0" in numbers["rouge_l"]["signature"]
    assert sum(bucket["number"]["n"] for bucket in found["by_length"]) == 12


def test_unknown_words_of_perfect_summaries(pointer: Path):
    run = load(pointer)
    reports = [report(1, index) for index in range(100, 112)]
    documents, summaries = [row.document for row in reports], [row.summary for row in reports]
    [number] = unknown_words(run, summaries, summaries, documents, {})
    assert number.value == 100.0 and number.n >= 12  # names, most of which the vocabulary does not have
    assert unknown_words(run, [""] * 12, summaries, documents, {})[0].value == 0.0


def test_summarize_reads_texts_files_and_tables(pointer: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    run = str(pointer)
    main(["summarize", run, DOCUMENT, "--beam", "2", "--json"])
    one = json.loads(capsys.readouterr().out)
    assert one["source"] == DOCUMENT and one["num_cut"] == 0
    (tmp_path / "a.txt").write_text(DOCUMENT.replace(". ", ".\n") + "\n")
    main(["summarize", run, "--file", str(tmp_path / "a.txt"), "--beam", "2", "-q"])
    assert capsys.readouterr().out.strip() == " ".join(one["outputs"][0]["text"].split())
    for name, content in {
        "a.tsv": f"document\n{DOCUMENT}\n{DOCUMENT}\n",
        "b.tsv": f"document\tsummary\n{DOCUMENT}\t\n{DOCUMENT}\tx\n",
        "a.jsonl": json.dumps({"document": DOCUMENT}) + "\n" + json.dumps({"document": DOCUMENT}) + "\n",
    }.items():
        (tmp_path / name).write_text(content)
        main(["summarize", run, "--file", str(tmp_path / name), "--beam", "2", "-q"])
        assert len(capsys.readouterr().out.splitlines()) == 2
    found = seqloom.summarize(run, [DOCUMENT, DOCUMENT], beam=2, n=2)
    assert [len(summary.outputs) for summary in found] == [2, 2]
    assert found[0].text == one["outputs"][0]["text"]


def test_a_long_document_is_cut_aloud(pointer: Path, caplog: pytest.LogCaptureFixture):
    run = load(pointer)
    long = "The theatre in Veloburg was grey . " * 20_000
    with caplog.at_level(logging.WARNING, "seqloom"):
        found = seqloom.summarize(run, [long, DOCUMENT], beam=1, max_tokens=3)
    assert [summary.num_cut for summary in found] == [140_000 - 399, 0]
    message = "1 of 2 documents have more than 399 tokens, of which only the first 399 are read; 139601 are left out"
    assert message in caplog.text


def test_a_wrong_verb_says_the_right_one(pointer: Path):
    with pytest.raises(RunError, match="writes summaries; use: seqloom summarize"):
        seqloom.predict(pointer, "a")


@pytest.mark.parametrize(
    "row, message",
    {
        "only one cell": "a.tsv:3: 1 cells, but the first row has 2; repair the row",
        "half a surrogate \ud800\tx": "a.tsv",
    }.items(),
)
def test_a_wrong_row_is_named(row: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    text = f"document\tsummary\na b c\tb\n{row}\nd e f\te\n"
    (tmp_path / "a.tsv").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SystemExit) as end:
        main(["train", "pointer", "--data", str(tmp_path / "a.tsv"), "--out", str(tmp_path / "run"), *SMALL])
    assert end.value.code == 2 and message in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_an_empty_document_is_an_error(pointer: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "a.txt").write_text("\n")
    with pytest.raises(SystemExit) as end:
        main(["summarize", str(pointer), "--file", str(tmp_path / "a.txt")])
    assert end.value.code == 2 and "a.txt: an empty document; give a text" in capsys.readouterr().err


def test_resuming_gives_the_same_bits(pointer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = str(pointer.parent / "train.tsv")
    step = TrainLoop.train_step

    def failing(loop: TrainLoop, *arguments: object) -> object:
        if loop.step == 12:
            raise PowerCut
        return step(loop, *arguments)

    monkeypatch.setattr(TrainLoop, "train_step", failing)
    with pytest.raises(PowerCut):
        seqloom.fit("pointer", *SMALL, data=data, out=tmp_path / "run")
    monkeypatch.undo()
    seqloom.fit("pointer", *SMALL, data=data, out=tmp_path / "run")
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (pointer / name).read_bytes()


def test_explain_and_inspect(pointer: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    main(["explain", str(pointer)])
    assert "P(w) = p_gen P_vocab(w) + (1 - p_gen) Σ_{j: xⱼ = w} αⱼ" in capsys.readouterr().out
    main(["inspect", "attention", str(pointer), DOCUMENT, "--out", str(tmp_path / "a.html")])
    assert "Velan" in (tmp_path / "a.html").read_text("utf-8")


def test_the_transformer_writes_summaries_too(pointer: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    small = ["model.dim=16", "model.encoder.layers=1", "model.decoder.layers=1", "model.encoder.heads=2"]
    small += ["model.decoder.heads=2", "tokenizer.size=400", "train.steps=4", "train.eval_every=4"]
    data = str(pointer.parent / "train.tsv")
    main(["train", "summarizer", "--data", data, "--out", str(tmp_path / "run"), "-q", *small])
    main(["evaluate", str(tmp_path / "run"), str(pointer.parent / "test.tsv"), "--beam", "1", "-q"])
    assert "ROUGE-L" in capsys.readouterr().out
