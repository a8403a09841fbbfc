"""A chat with a model: what it has learnt comes back, the history fits, and the terminal works."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

import seqloom
from seqloom.cli import main
from seqloom.errors import UserError
from seqloom.run import Run
from seqloom.text.chat_records import Message

PAIRS = {"one": "uno", "two": "dos", "three": "tres", "four": "cuatro"}
CHANGES = (
    "tokenizer=Characters",
    "batches.max_length=120",
    "batches.batch_tokens=1000",
    "model.dim=48",
    "model.stack.layers=2",
    "train.schedule.warmup=5",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model that has learnt four answers by heart."""
    folder = tmp_path_factory.mktemp("chat")
    lines = [
        json.dumps(
            {"messages": [{"role": "user", "content": word}, {"role": "assistant", "content": answer}]}
        )
        for word, answer in PAIRS.items()
    ]
    data = folder / "chats.jsonl"
    data.write_text("\n".join(lines * 5) + "\n", encoding="utf-8")
    return seqloom.fit(
        "chat", *CHANGES, data=str(data), valid=str(data), out=folder / "run", steps=120, progress=False
    )


def test_a_model_answers_as_it_was_trained(run: Run) -> None:
    assert run.chat_template is not None and "eos_token" in run.chat_template
    for word, answer in PAIRS.items():
        chat = seqloom.Chat(run, temperature=0, max_tokens=20)
        reply = chat.say(word)
        assert (reply.text, reply.finish_reason, reply.left_out) == (answer, "stop", 0)
        assert chat.messages == [Message("user", word), Message("assistant", answer)]
        assert reply.tokens == len(answer)


def test_a_stream_is_the_answer(run: Run) -> None:
    chat = seqloom.Chat(run, temperature=0)
    assert "".join(chat.stream("three")) == "tres"
    first = seqloom.Chat(run, seed=3, temperature=2.0, max_tokens=12)
    second = seqloom.Chat(run, seed=3, temperature=2.0, max_tokens=12)
    assert first.say("one").text == second.say("one").text


def test_leaving_a_stream_keeps_what_was_said(run: Run) -> None:
    chat = seqloom.Chat(run, temperature=0)
    stream = chat.stream("four")
    begun = next(stream)
    stream.close()
    assert chat.messages[-1] == Message("assistant", begun)


def test_undo_system_save_and_load(run: Run, tmp_path: Path) -> None:
    chat = seqloom.Chat(run, system="count", temperature=0, max_tokens=5)
    chat.say("one")
    assert chat.undo() and [message.role for message in chat.messages] == ["system"]
    assert not chat.undo()
    chat.set_system("")
    assert chat.messages == []
    chat.say("two")
    chat.save(tmp_path / "chat.jsonl")
    other = seqloom.Chat(run, temperature=0)
    other.load(tmp_path / "chat.jsonl")
    assert other.messages == chat.messages


def test_the_history_fits_into_the_context_by_complete_turns(run: Run) -> None:
    chat = seqloom.Chat(run, system="s", temperature=0, max_tokens=30)
    for _ in range(30):
        reply = chat.say("one two three")
        assert reply.prompt_tokens + 30 <= run.context
    assert reply.left_out > 0 and reply.left_out % 2 == 0
    assert len(chat.messages) == 61  # nothing is lost from the chat itself
    with pytest.raises(UserError, match="shorten it"):
        chat.say("x" * 1000)
    assert len(chat.messages) == 61


def test_a_model_without_a_template_chats_in_plain_turns(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "input.txt"
    text.write_text("user: one\nassistant: uno\nuser: two\nassistant: dos\n" * 30, encoding="utf-8")
    plain = seqloom.fit("gpt", *CHANGES[3:], data=str(text), out=tmp_path / "gpt", steps=150, progress=False)
    assert plain.chat_template is None
    reply = seqloom.Chat(plain, temperature=0, max_tokens=40).say("one")
    assert reply.text == "uno" and reply.finish_reason == "stop"


def test_wrong_options_are_refused(run: Run) -> None:
    with pytest.raises(UserError, match="one answer"):
        seqloom.Chat(run, beam=4)
    with pytest.raises(ValueError, match="U\\+FDD0"):
        seqloom.Chat(run).say("\ufdd0")


def test_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    main(["chat", str(run.folder), "--once", "one", "--greedy"])
    assert capsys.readouterr().out == "uno\n"
    main(["chat", str(run.folder), "--once", "two", "--greedy", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["text"] == "dos" and report["messages"][-1] == {"role": "assistant", "content": "dos"}
    with pytest.raises(SystemExit) as ended:
        main(["chat", str(run.folder), "--json"])
    assert ended.value.code == 2 and "--once" in capsys.readouterr().err


def take_terminal() -> None:
    """Makes stdin the controlling terminal, so that Ctrl-C interrupts, even if this program runs in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, *arguments: str):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "seqloom", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "dumb", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(slave)
        self.shown = ""
        self.begun = 0  # where the text after the last match begins
        self.decode = codecs.getincrementaldecoder("utf-8")().decode

    def wait_for(self, text: str, again: str = "") -> None:
        """Reads until the text appears after what was found before. `again` is typed after each second of silence: a Ctrl-C that comes
        just before Python waits for a line has an effect only with the next key."""
        deadline = time.monotonic() + 600
        while text not in self.shown[self.begun :]:
            assert time.monotonic() < deadline, f"{text!r} did not appear in {self.shown!r}"
            if select.select([self.master], [], [], 1)[0]:
                try:
                    self.shown += self.decode(os.read(self.master, 4096)).replace("\r\n", "\n")
                except OSError:
                    break
            else:
                self.type(again)
        assert text in self.shown[self.begun :], self.shown
        self.begun = self.shown.index(text, self.begun) + len(text)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())


def test_the_terminal(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "chat.jsonl"
    terminal = Terminal("chat", str(run.folder), "--greedy", "--threads", "1")
    try:
        terminal.wait_for("> ")
        terminal.type("one\n")
        terminal.wait_for("uno\n> ")
        terminal.type("/undo\n")
        terminal.wait_for("taken back")
        terminal.type("/tokens 2\n")
        terminal.wait_for("max tokens 2")
        terminal.type("three\n")
        terminal.wait_for("tr\n")
        terminal.type("/undo\n")
        terminal.wait_for("taken back")
        terminal.type("/tokens many\n")
        terminal.wait_for("it takes a number")
        terminal.type("/tokens 20\n")
        terminal.wait_for("max tokens 20")
        terminal.type("/temperature -1\n")
        terminal.wait_for("/temperature -1: ")
        terminal.type("/nothing\n")
        terminal.wait_for("there is no command /nothing")
        terminal.type("one\\\n")
        terminal.wait_for("… ")
        terminal.type("two\n")
        terminal.wait_for("\n> ")
        terminal.type('"""a\n')
        terminal.wait_for("… ")
        terminal.type('b"""\n')
        terminal.wait_for("\n> ")
        terminal.type("/system be kind\n")
        terminal.wait_for("the system message is set")
        terminal.type(f"/save {saved}\n")
        terminal.wait_for(f"saved: {saved}\n> ")
        terminal.type("\x03")
        terminal.wait_for("Ctrl-D leaves\n> ", again="\x03")
        terminal.type("\x03")
        terminal.wait_for("Ctrl-D leaves\n> ", again="\x03")
        terminal.type("\x04")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.process.kill()
        os.close(terminal.master)
    messages = json.loads(saved.read_text(encoding="utf-8"))["messages"]
    assert messages[0] == {"role": "system", "content": "be kind"}
    assert [m["content"] for m in messages if m["role"] == "user"] == ["one\ntwo", "a\nb"]


def test_lines_of_a_pipe_are_messages(run: Run) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seqloom", "chat", str(run.folder), "--greedy", "--threads", "1"],
        input="one\n/clear\ntwo\n/quit\nthree\n",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "uno\ndos\n")


def test_the_perplexity_is_that_of_the_answers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It equals exp of the mean of -ln p over the assistant's tokens and ends, by the model's own logits."""
    import torch

    from seqloom.text.chat_field import ChatEncoder

    record = {"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "dos"}]}
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    [(ids, counted)] = ChatEncoder(run.tokenizer, run.chat_template or "").encode(
        [[Message("user", "one"), Message("assistant", "dos")]]
    )
    with torch.no_grad():
        logs = run.model(torch.tensor(ids[None, :-1]))[0].log_softmax(-1)[0]
    picked = logs[torch.arange(len(ids) - 1), torch.tensor(ids[1:])][torch.tensor(counted[1:] > 0)]
    assert len(picked) == 4  # d, o, s and the end
    for data in (str(path), [record]):
        numbers = {number.name: number.value for number in seqloom.evaluate(run, data).numbers}
        assert numbers["perplexity"] == pytest.approx(float((-picked.mean()).exp()), rel=1e-4)
    monkeypatch.chdir(tmp_path)
    assert seqloom.evaluate(run, "world", limit=3).numbers


def test_preferences_are_measured_by_the_likelihood_of_both_answers(run: Run, tmp_path: Path) -> None:
    """The model prefers what it has learnt; ln P of each answer is that of the model's own logits."""
    import math

    import torch

    from seqloom.text.chat_field import ChatEncoder

    path = tmp_path / "pairs.jsonl"
    pairs = [{"prompt": word, "chosen": PAIRS[word], "rejected": "uno"} for word in ("two", "three", "four")]
    pairs.append({"prompt": "one", "chosen": "cuatro", "rejected": "uno"})  # against what it has learnt
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    numbers = {number.name: number.value for number in seqloom.evaluate(run, str(path))}
    assert numbers["preference_accuracy"] == 75 and numbers["accuracy_by_mean"] == 75
    encoder = ChatEncoder(run.tokenizer, run.chat_template or "")
    log_probs = []
    for pair in pairs:
        chat = [Message("user", pair["prompt"]), Message("assistant", pair["chosen"])]
        [(ids, counted)] = encoder.encode([chat])
        with torch.no_grad():
            rows = run.model(torch.tensor(ids[None, :-1]))[0].log_softmax(-1)[0]
        picked = rows[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
        log_probs += picked[torch.tensor(counted[1:] > 0)].tolist()
    expected = math.exp(-sum(log_probs) / len(log_probs))
    assert numbers["perplexity_of_chosen"] == pytest.approx(expected, rel=1e-3)


def test_an_imported_model_reads_chats_as_chats(run: Run, tmp_path: Path) -> None:
    """A run whose config reads plain text but that has a chat template measures the answers, not the JSON around them."""
    chats = tmp_path / "test.jsonl"
    record = {"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "uno"}]}
    chats.write_text(json.dumps(record) + "\n", encoding="utf-8")
    exported = tmp_path / "hf"
    seqloom.export_checkpoint(run, exported, "huggingface")
    imported = seqloom.import_checkpoint(exported, tmp_path / "imported")
    assert imported.config.template is None and imported.chat_template is not None
    numbers = [seqloom.evaluate(one, str(chats))["perplexity"] for one in (run, imported)]
    assert numbers[0].value == pytest.approx(numbers[1].value, rel=1e-3) and numbers[0].n == numbers[1].n
