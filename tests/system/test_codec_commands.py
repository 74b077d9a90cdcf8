"""``mainstem pub --codec`` and ``mainstem sub --codec``: JSON lines in the shell, another format on the wire."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.support.live_driver import wait_for
from tests.support.waiting import STALL_S

from mainstem import Aeron, MediaDriver
from mainstem.codecs import find_codec

pytestmark = [pytest.mark.system]

TIMEOUT_S = STALL_S


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "mainstem", *map(str, arguments)]


LINES = ['{"id": 1, "name": "ebb"}', '{"id": 2, "name": "flow"}']
ROWS = [json.loads(line) for line in LINES]
CODEC = find_codec("msgpack")


def test_pub_encodes_lines_and_names_an_invalid_one() -> None:
    with (
        MediaDriver.launch() as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_subscription("aeron:ipc", 7) as subscription,
    ):
        arguments = command("pub", "aeron:ipc", 7, "--dir", driver.directory, "--codec", "msgpack")
        lines = "\n".join([*LINES, "[1]", ""])
        done = subprocess.run(arguments, input=lines, text=True, capture_output=True, timeout=TIMEOUT_S)
        received: list[bytes] = []
        wait_for(lambda: received.extend(subscription.poll_bytes(10)) or len(received) == 2)
    assert [row for each in received for row in CODEC.decode(each)] == ROWS
    assert done.returncode == 1
    assert "line 3: a line must be a JSON object" in done.stderr


def test_sub_prints_rows_and_problems_as_json_lines() -> None:
    with (
        MediaDriver.launch() as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_publication("aeron:ipc", 7) as publication,
    ):
        arguments = command("sub", "aeron:ipc", 7, "--dir", driver.directory, "--codec", "msgpack", "-n", 3)
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as reading:
            wait_for(lambda: publication.is_connected)
            for message in (CODEC.encode(ROWS[0]), b"\xc1", CODEC.encode(ROWS[1])):
                publication.send(message, timeout=TIMEOUT_S)
            printed = [json.loads(line) for line in reading.communicate(timeout=TIMEOUT_S)[0].splitlines()]
    assert [printed[0], printed[2]] == ROWS
    assert printed[1]["payload"] == "wQ=="
