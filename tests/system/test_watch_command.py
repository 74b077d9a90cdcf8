"""`--watch` prints one document per line to a pipe, or updates in place in a terminal, until a signal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from tests.support.case_selection import long_after
from tests.support.waiting import STALL_S

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

pytestmark = pytest.mark.system
COMMANDS = [
    ["stat", "--stream", "1001"],
    ["why", "--samples", "2", "--duration", "50ms", "--all"],
    ["streams"],
    ["backlog"],
]


@pytest.mark.parametrize("command", long_after(2, COMMANDS), ids=lambda command: command[0])
def test_watch_runs_until_a_signal(command: list[str]) -> None:
    arguments = [sys.executable, "-m", "mainstem", *command, "--watch", "--interval", "50ms"]
    with (
        MediaDriver.launch(threads=True) as driver,
        Aeron.connect(driver.directory, client_name="prices") as aeron,
        aeron.add_publication("aeron:ipc", 1001),
    ):
        arguments += ["--dir", driver.directory]
        with subprocess.Popen([*arguments, "--json"], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            documents = [json.loads(process.stdout.readline()) for _ in range(3)]
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(timeout=STALL_S) == 0
        if command[0] == "stat":
            assert all(any("1001" in each["label"] for each in d["counters"]) for d in documents)
        else:
            assert [d["streams"][0]["stream_id"] for d in documents] == [1001, 1001, 1001]
        shown = _in_a_terminal(arguments, "\x1b[H", 3)
        assert "1001" in shown.split("\x1b[H")[2]
        assert "\x1b[K" in shown


def _in_a_terminal(arguments: list[str], mark: str, count: int) -> str:
    """Return what a command writes to a terminal; interrupt it once `mark` has occurred more than `count` times."""
    parent, child = pty.openpty()
    with subprocess.Popen(arguments, stdin=child, stdout=child, stderr=subprocess.DEVNULL, close_fds=True) as process:
        os.close(child)
        text = ""
        while text.count(mark) <= count:
            text += os.read(parent, 4096).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        try:
            while data := os.read(parent, 4096):
                text += data.decode(errors="replace")
        except OSError:  # the other end is closed
            pass
        os.close(parent)
        assert process.wait(timeout=STALL_S) == 0
    return text
