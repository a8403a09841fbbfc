"""Encoders in worker processes: blocks of records are sent over pipes, and ids come back.

`multiprocessing` is not used, since it would import the caller's script again in every worker: a script
without a main guard would break, and each worker would load torch. A worker is `python -m
seqloom.text.workers`; it exits when its input ends.
"""

import json
import os
import signal
import struct
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.python_process import python_command, python_environment
from seqloom.text.encoder import Encoded, RecordEncoder, utf8_lengths


def encode(encoder: RecordEncoder, records: list[str]) -> Encoded:
    """Returns (ids as bytes, ids per record, UTF-8 bytes per record)."""
    tokens, counts = encoder(records)
    return tokens, counts, utf8_lengths(records)


class _Worker(NamedTuple):
    """A worker process and its pipes."""

    process: subprocess.Popen
    stdin: IO[bytes]
    stdout: IO[bytes]


class EncoderPool:
    """`count` worker processes, each with an encoder for every field.

    `submit` never blocks; the caller bounds the number of blocks in flight.
    """

    def __init__(self, tokenizers: list[Tokenizer], adds_eos: bool, count: int):
        # Workers divide the cores among themselves, so none uses threads.
        environment = python_environment({"TOKENIZERS_PARALLELISM": "false"})
        setup = json.dumps([adds_eos, [tokenizer.to_str() for tokenizer in tokenizers]]).encode()
        self.threads = ThreadPoolExecutor(count)
        self.workers: list[_Worker] = []
        self.idle: SimpleQueue[_Worker] = SimpleQueue()
        try:
            for _ in range(count):
                self.workers.append(_start_worker(environment))
            for worker in self.workers:
                _send(worker.stdin, setup)
                self.idle.put(worker)
        except OSError as error:
            self.close()
            raise DataError(f"cannot start tokenizing workers ({error}); give workers=1") from error

    def submit(self, field: int, records: list[str]) -> Future[Encoded]:
        """Returns the future of `encode(encoders[field], records)`."""
        return self.threads.submit(self._request, field, records)

    def _request(self, field: int, records: list[str]) -> Encoded:
        worker = self.idle.get()
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        try:
            _send(worker.stdin, struct.pack("<q", field), lengths.tobytes(), "".join(records).encode())
            tokens, counts, sizes = (_receive(worker.stdout) for _ in range(3))
        except (OSError, EOFError) as error:
            raise DataError(
                "a tokenizing worker ended early, perhaps out of memory; try again with workers=1"
            ) from error
        finally:
            # A dead worker is also put back: the next request then fails immediately instead of waiting for
            # ever.
            self.idle.put(worker)
        return tokens, np.frombuffer(counts, np.int64), np.frombuffer(sizes, np.int64)

    def close(self) -> None:
        """Kills the workers, even busy ones."""
        for worker in self.workers:
            worker.process.kill()
        self.threads.shutdown(cancel_futures=True)
        for worker in self.workers:
            worker.process.wait()
            worker.stdout.close()
            with suppress(OSError):  # closing flushes input that the worker has not read
                worker.stdin.close()


def _start_worker(environment: dict[str, str]) -> _Worker:
    process = subprocess.Popen(
        python_command("seqloom.text.workers"),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    if process.stdin is None or process.stdout is None:
        raise OSError("no pipe to the worker")
    return _Worker(process, process.stdin, process.stdout)


def _send(pipe: IO[bytes], *frames: bytes) -> None:
    for frame in frames:
        pipe.write(struct.pack("<q", len(frame)))
        pipe.write(frame)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    header = pipe.read(8)
    if len(header) < 8:
        raise EOFError
    (length,) = struct.unpack("<q", header)
    frame = pipe.read(length)
    if len(frame) < length:
        raise EOFError
    return frame


def _serve(source: IO[bytes], target: IO[bytes]) -> None:
    """Encodes blocks of records from `source` until it ends."""
    adds_eos, tokenizers = json.loads(_receive(source))
    encoders = [RecordEncoder(Tokenizer.from_str(text), adds_eos) for text in tokenizers]
    while True:
        (field,) = struct.unpack("<q", _receive(source))
        stops = np.cumsum(np.frombuffer(_receive(source), np.int64)).tolist()
        text = _receive(source).decode()
        records = [text[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]
        tokens, counts, sizes = encode(encoders[field], records)
        _send(target, tokens, counts.tobytes(), sizes.tobytes())


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes the pipe
    try:
        _serve(sys.stdin.buffer, sys.stdout.buffer)
    except (EOFError, BrokenPipeError):
        os._exit(0)
