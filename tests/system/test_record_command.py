"""``mainstem record`` records everything published or sent to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.live_driver import TIMEOUT_S, wait_for
from tests.support.ports import free_port

from mainstem import Aeron, MediaDriver
from mainstem.bymux import connect
from mainstem.message_keys import framed
from mainstem.recording import messages, open_recording

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

SENT = [f"tide {number}".encode() for number in range(1000)]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "mainstem", "record", *map(str, arguments), "--json"]


def recorded(path: Path) -> list[bytes]:
    with open_recording(path, 0) as reader:
        return [payload for _, payload in messages(reader, 0, reader.end_position())]


@pytest.mark.parametrize("is_spy", [False, True], ids=["subscriber", "spy"])
def test_an_aeron_stream_is_recorded_until_its_publisher_ends(is_spy: bool, tmp_path: Path) -> None:
    channel = f"aeron:udp?endpoint=localhost:{free_port()}|ssc=true" if is_spy else "aeron:ipc"
    (tmp_path / "9223372036854775807-0.rec").touch()  # not the recorder's
    with MediaDriver.launch() as driver, Aeron.connect(driver.directory) as aeron:
        subscribed = f"aeron-spy:{channel}" if is_spy else channel
        arguments = command(subscribed, "--stream", 1001, "--out", tmp_path, "--exit-at-end", "--dir", driver.directory)
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            with aeron.add_exclusive_publication(channel, 1001) as publication:
                wait_for(lambda: publication.is_connected)
                for message in SENT:
                    publication.send(message, timeout=TIMEOUT_S)
            told = json.loads(process.communicate(timeout=TIMEOUT_S)[0])
    assert (told["messages"], told["recordings"]) == (1000, [0])
    assert (told["delayed"], told["unrecorded"]) == (0, 0)
    assert recorded(tmp_path) == SENT


def test_a_bymux_server_records_messages_and_continues_after_a_restart(tmp_path: Path) -> None:
    for part in (SENT[:600], SENT[600:]):
        arguments = command("bymux://127.0.0.1:0", "--out", tmp_path)
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            port = int(process.stderr.readline().rpartition(":")[2])
            with connect("127.0.0.1", port) as connection, connection.open_stream() as stream:
                stream.write(b"".join(map(framed, part)))
                stream.finish()
                # The end of the recorder's half confirms that everything is recorded.
                assert stream.read(timeout=TIMEOUT_S) == b""
            process.send_signal(signal.SIGTERM)
            told = json.loads(process.communicate(timeout=TIMEOUT_S)[0])
        assert told["messages"] == len(part)
    assert recorded(tmp_path) == SENT
