"""Chats as batches: only the assistant's turns are targets, in ids, loss and gradient; packing loses nothing."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer

from seqloom.batches import Comparisons, Turns
from seqloom.errors import ConfigError
from seqloom.models import LanguageModel
from seqloom.nn import Transformer
from seqloom.objectives import next_token
from seqloom.text.chats import ChatReader, Chats, Preferences
from seqloom.text.records import iter_texts
from seqloom.text.store import Store, build
from seqloom.text.tokenizer import BPE, EOS, Characters


def write(path: Path, count: int = 40) -> str:
    lines = []
    for number in range(count):
        messages = [
            {"role": "user", "content": f"question {number} " + "why " * (number % 7)},
            {"role": "assistant", "content": f"answer {number}"},
            {"role": "user", "content": "more"},
            {"role": "assistant", "content": "no " * (1 + number % 5) + "<eos>"},
        ]
        lines.append(json.dumps({"messages": messages[: 4 if number % 3 else 2]}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def make_store(reader: ChatReader, folder: Path) -> tuple[Store, Tokenizer]:
    tokenizer = Characters(iter_texts(reader))
    return build(reader, tokenizer, folder), tokenizer


def targets_of(batch: object, tokenizer: Tokenizer) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(batch.targets, batch.mask, strict=True)]  # type: ignore[attr-defined]


def test_the_targets_are_the_turns_and_their_end(tmp_path: Path) -> None:
    reader = Chats([write(tmp_path / "chats.jsonl")])
    store, tokenizer = make_store(reader, tmp_path)
    chats = {json.dumps([tuple(message) for message in chat]): chat for (chat,) in reader}
    data = Turns(store, batch_tokens=400)
    found = []
    for batch in data.sequential():
        for row, mask in zip(batch.targets, batch.mask, strict=True):
            ids = row[mask].tolist()
            found.append("".join("|" if index == EOS else tokenizer.id_to_token(index) for index in ids))
    expected = [
        "".join(f"{message.content}|" for message in chat if message.role == "assistant")
        for chat in chats.values()
    ]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("pack", [False, True])
def test_the_gradient_is_zero_elsewhere(tmp_path: Path, pack: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store, tokenizer = make_store(Chats([write(tmp_path / "chats.jsonl", 8)]), tmp_path)
    torch.manual_seed(0)
    stack = partial(Transformer, layers=1, heads=2)
    model = LanguageModel(tokenizer.get_vocab_size(), dim=16, stack=stack)
    batch, _ = next(Turns(store, batch_tokens=600, max_length=200, pack=pack).batches())
    kept = []
    features = model.features

    def keeping(*arguments, **options):  # type: ignore[no-untyped-def]
        h, state = features(*arguments, **options)
        h.retain_grad()
        kept.append(h)
        return h, state

    monkeypatch.setattr(model, "features", keeping)
    loss, _, _ = next_token(model, batch)
    loss.backward()
    grad = kept[0].grad
    assert (grad[~batch.mask] == 0).all() and (grad[batch.mask].abs().sum(-1) > 0).all()
    logits = model(batch.ids)[0].log_softmax(-1)
    picked = logits.gather(-1, batch.targets[..., None])[..., 0]
    assert torch.allclose(loss, -(picked * batch.mask).sum(), rtol=1e-5)
    changed = batch._replace(targets=torch.where(batch.mask, batch.targets, 3))
    assert next_token(model, changed)[0] == loss


def test_packing_keeps_every_chat_and_wastes_less(tmp_path: Path) -> None:
    store, _ = make_store(Chats([write(tmp_path / "chats.jsonl", 60)]), tmp_path)
    lengths = store.fields[0].sizes(np.arange(60))
    data = Turns(store, batch_tokens=1024, max_length=256, pack=True)
    tokens = targets = 0
    stream = data.batches()
    for _ in range(data.epoch_batches()):
        batch, _ = next(stream)
        assert batch.ids.shape[1] < 256
        tokens += batch.ids.numel()
        targets += int(batch.mask.sum())
    plain = Turns(store, batch_tokens=1024, max_length=256)
    assert targets == sum(int(batch.mask.sum()) for batch in plain.sequential())
    assert tokens < 1.15 * lengths.sum()
    first = [batch.ids.tolist() for batch, _ in zip_n(data.batches(), 3)]
    cursor = next(data.batches())[1]
    again = [batch.ids.tolist() for batch, _ in zip_n(data.batches(cursor), 2)]
    assert first[1:] == again


def zip_n(stream, count):  # type: ignore[no-untyped-def]
    return [next(stream) for _ in range(count)]


def test_special_tokens_of_a_tokenizer_are_used(tmp_path: Path) -> None:
    reader = Chats([write(tmp_path / "chats.jsonl")], template="chatml")
    tokenizer = BPE(iter_texts(reader), 400)
    tokenizer.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    store = build(reader, tokenizer, tmp_path)
    start, end = map(tokenizer.token_to_id, ("<|im_start|>", "<|im_end|>"))
    ids, counted = store[0]
    assert (ids == start).sum() == 2 == (ids == end).sum()
    assert ids[counted > 0][-1] == end and (ids[counted > 0] == start).sum() == 0


def test_chats_without_an_answer_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": "only a question"}) + "\n", encoding="utf-8")
    store, _ = make_store(Chats([path]), tmp_path)
    with pytest.raises(ConfigError, match="no chat has a turn of the assistant"):
        Turns(store)


def test_preferences_are_two_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [{"prompt": f"say {n}", "chosen": "yes " * n + "!", "rejected": "no"} for n in range(1, 9)]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    store, tokenizer = make_store(Preferences([path]), tmp_path)
    pairs = []
    for batch in Comparisons(store, batch_tokens=200).sequential():
        texts = [tokenizer.decode(row, skip_special_tokens=False) for row in targets_of(batch, tokenizer)]
        half = len(texts) // 2
        assert batch.num_targets == half
        pairs += list(zip(texts[:half], texts[half:], strict=True))
    assert sorted(pairs) == sorted(("yes " * n + "!<eos>", "no<eos>") for n in range(1, 9))
    with pytest.raises(ConfigError, match="use corpus Preferences"):
        Comparisons(make_store(Chats([path]), tmp_path)[0])


def test_mismatched_prompts_have_the_answer_of_the_next_pair(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [
        {"prompt": f"say {word}", "chosen": f"{word}!", "rejected": "no"} for word in ("one", "six", "ten")
    ]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    store, tokenizer = make_store(Preferences([path]), tmp_path)
    (batch,) = Comparisons(store, mismatched=True).sequential()
    texts = [
        tokenizer.decode(row[mask].tolist()) for row, mask in zip(batch.tokens, batch.token_mask, strict=True)
    ]
    assert batch.num_pairs == batch.num_targets == 3 and len(texts) == 9
    answers = [text.rpartition("assistant: ")[2] for text in texts]
    assert answers[6:] == [*answers[1:3], answers[0]]
    assert [text.rpartition("assistant: ")[0] for text in texts[6:]] == [
        text.rpartition("assistant: ")[0] for text in texts[:3]
    ]
