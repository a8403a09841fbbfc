"""Encoders in processes of their own: blocks of records go out over pipes and ids come back, a bounded number on the way.

Not `multiprocessing`, which would import the caller's script again in every worker: a script without a main guard would break,
and each worker would load torch. A worker is `python -m seqloom.text.workers`; it ends when its input does.
"""

import json
import os
import signal
import struct
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import numpy as np
from tokenizers import Tokenizer

from seqloom.text.encoder import RecordEncoder


def encode(encoder: RecordEncoder, records: list[str]) -> tuple[bytes, np.ndarray, np.ndarray]:
    """(ids as bytes, ids per record, UTF-8 bytes per record)."""
    tokens, counts = encoder(records)
    sizes = (
        map(len, records) if all(map(str.isascii, records)) else (len(record.encode()) for record in records)
    )
    return tokens, counts, np.fromiter(sizes, np.int64, len(records))


class EncoderPool:
    """`count` workers, each with an encoder for every field. `submit` never waits; the caller bounds how much is on the way."""

    def __init__(self, tokenizers: list[Tokenizer], ends: bool, count: int):
        # Workers find the package where this process did, and share the cores among themselves rather than within.
        paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TOKENIZERS_PARALLELISM": "false",
        }
        setup = json.dumps([ends, [tokenizer.to_str() for tokenizer in tokenizers]]).encode()
        self.threads = ThreadPoolExecutor(count)
        self.workers: list[subprocess.Popen] = []
        self.idle: SimpleQueue[subprocess.Popen] = SimpleQueue()
        try:
            for _ in range(count):
                self.workers.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-m", "seqloom.text.workers"],
                        env=environment,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                    )
                )
            for worker in self.workers:
                _send(worker.stdin, setup)
                self.idle.put(worker)
        except OSError as error:
            self.close()
            raise ValueError(f"tokenizing workers cannot be started ({error}); give workers=1") from error

    def submit(self, field: int, records: list[str]) -> Future:
        """The future of `encode(encoders[field], records)`."""
        return self.threads.submit(self._ask, field, records)

    def _ask(self, field: int, records: list[str]) -> tuple[bytes, np.ndarray, np.ndarray]:
        worker = self.idle.get()
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        try:
            _send(worker.stdin, struct.pack("<q", field), lengths.tobytes(), "".join(records).encode())
            tokens, counts, sizes = (_receive(worker.stdout) for _ in range(3))
        except (OSError, EOFError) as error:
            raise ValueError(
                "a tokenizing worker ended early, perhaps out of memory; try again with workers=1"
            ) from error
        finally:
            self.idle.put(
                worker
            )  # a dead one too: whoever takes it next fails at once instead of waiting for ever
        return tokens, np.frombuffer(counts, np.int64), np.frombuffer(sizes, np.int64)

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        for worker in self.workers:
            worker.kill()
        self.threads.shutdown(cancel_futures=True)
        for worker in self.workers:
            worker.wait()
            worker.stdout.close()
            with suppress(OSError):  # what it had not read yet
                worker.stdin.close()


def _send(pipe: BinaryIO, *frames: bytes) -> None:
    for frame in frames:
        pipe.write(struct.pack("<q", len(frame)))
        pipe.write(frame)
    pipe.flush()


def _receive(pipe: BinaryIO) -> bytes:
    header = pipe.read(8)
    if len(header) < 8:
        raise EOFError
    (length,) = struct.unpack("<q", header)
    frame = pipe.read(length)
    if len(frame) < length:
        raise EOFError
    return frame


def _serve(source: BinaryIO, target: BinaryIO) -> None:
    ends, tokenizers = json.loads(_receive(source))
    encoders = [RecordEncoder(Tokenizer.from_str(text), ends) for text in tokenizers]
    while True:
        (field,) = struct.unpack("<q", _receive(source))
        stops = np.cumsum(np.frombuffer(_receive(source), np.int64)).tolist()
        text = _receive(source).decode()
        records = [text[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]
        tokens, counts, sizes = encode(encoders[field], records)
        _send(target, tokens, counts.tobytes(), sizes.tobytes())


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer; it closes the pipe
    try:
        _serve(sys.stdin.buffer, sys.stdout.buffer)
    except (EOFError, BrokenPipeError):
        os._exit(0)
