"""Signals are heard while one call of a library takes minutes."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from seqloom.errors import Stopped
from seqloom.python_process import python_command, python_environment

# One call of C that takes hours and holds no lock of Python, as a backward pass does.
STUCK = """
import hashlib, sys
import seqloom.environment
from seqloom.cli import main
def stuck():
    print("busy", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
seqloom.environment.processor_name = stuck
sys.argv = ["seqloom", "env"]
main()
"""


def wait_for_work(pid: int) -> None:
    """Returns when a process has computed for a while: it is inside its long call then."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        time.sleep(5)
        return

    def ticks() -> int:
        return int(stat.read_text().rpartition(")")[2].split()[11])

    begun = ticks()
    while ticks() < begun + 30:
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_a_long_call(number: signal.Signals) -> None:
    command = [*python_command("seqloom")[:2], "-c", STUCK]
    process = subprocess.Popen(
        command, env=python_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "busy\n"
        wait_for_work(process.pid)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None  # the first is heard when the call ends
        process.send_signal(number)
        _, err = process.communicate(timeout=800)  # only against a hang
    finally:
        process.kill()
    assert process.returncode in (128 + number, -number) and "Traceback" not in err


def test_ctrl_c_is_called_so():
    assert [str(Stopped(number, 5)).partition(" after")[0] for number in (2, 15)] == [
        "stopped by Ctrl-C",
        "stopped by signal 15",
    ]
