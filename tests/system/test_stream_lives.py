"""A publisher ends and restarts with the same session and term ids, recorded by one command or by two."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.support.case_selection import long_after
from tests.support.live_driver import TIMEOUT_S, wait_for
from tests.support.ports import free_port

from mainstem import Aeron, MediaDriver
from mainstem.errors import RegistrationError
from mainstem.recording import messages, open_recordings, read_catalog

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.aeron.client import ExclusivePublication

pytestmark = pytest.mark.system
IDS = "session-id=500|init-term-id=3|term-id=3|term-offset=0|term-length=64k"


def found(path: Path) -> list[list[bytes]]:
    with open_recordings(path) as recordings:
        return [[data for _, data in messages(r, r.start_position, r.end_position())] for r in recordings]


def publish(driver: str, channel: str, count: int) -> None:
    with Aeron.connect(driver) as aeron:
        added: list[ExclusivePublication] = []

        def is_added() -> bool:
            # The driver keeps the session until the previous publication has lingered.
            with suppress(RegistrationError):
                added.append(aeron.add_exclusive_publication(channel, 1001))
            return bool(added)

        wait_for(is_added)
        (publication,) = added
        wait_for(lambda: publication.is_connected)
        for number in range(count):
            publication.send(b"%d" % number, timeout=TIMEOUT_S)
        publication.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "restarts"), long_after(1, [("udp", False), ("udp", True), ("ipc", False), ("ipc", True)])
)
def test_each_life_of_a_publisher_gets_its_own_recording(tmp_path: Path, kind: str, restarts: bool) -> None:
    channel = "aeron:ipc" if kind == "ipc" else f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    publishing = f"{channel}{'?' if kind == 'ipc' else '|'}{IDS}"
    settings = {"image_liveness_timeout_ns": 1_000_000_000, "publication_linger_timeout_ns": 200_000_000}
    with MediaDriver.launch(**settings) as driver:
        arguments = [sys.executable, "-m", "mainstem", "record", channel, "--stream", "1001", "--out", str(tmp_path)]
        arguments += ["--dir", driver.directory, "--json"]
        recorded = 0
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        for life, count in enumerate((50, 100)):
            # Over the network, use a new driver each time, since the previous one may still be sending its end of stream.
            with MediaDriver.launch(**settings) as other:
                publish(driver.directory if kind == "ipc" else other.directory, publishing, count)

                def is_recorded(life: int = life) -> bool:
                    catalog = read_catalog(tmp_path) if (tmp_path / "archive.catalog").exists() else []
                    return len(catalog) > life and catalog[life].stop_position > 0

                wait_for(is_recorded)
            if restarts or life:
                process.send_signal(signal.SIGTERM)
                recorded += json.loads(process.communicate(timeout=TIMEOUT_S)[0])["messages"]
            if restarts and not life:
                process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert recorded == 150
    assert found(tmp_path) == [[b"%d" % number for number in range(count)] for count in (50, 100)]
