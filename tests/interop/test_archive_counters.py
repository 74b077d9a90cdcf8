"""The counters of Java's archive and Mainstem's, on Mainstem's driver, as the operator commands show them."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.java_archive import JavaArchive
from tests.interop.mainstem_archive import mainstem_archive
from tests.support import java
from tests.support.ports import free_port
from tests.support.waiting import StallTimeout

import mainstem
from mainstem import archive
from mainstem.archive import RecordingSignal, Signal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]
CHANNEL = "aeron:ipc?term-length=64k"
LABELS = {
    "Archive Errors",
    "Archive Control Sessions",
    "archive-conductor max cycle time in ns: SHARED",
    "archive-conductor work cycle time exceeded count: threshold=100ms SHARED",
    "archive-recorder max write time in ns",
    "archive-recorder total write bytes",
    "archive-recorder total write time in ns",
    "archive-replayer max read time in ns",
    "archive-replayer total read bytes",
    "archive-replayer total read time in ns",
    "Archive Recording Sessions",
    "Archive Replay Sessions",
}


def asked(*words: object) -> Any:
    line = [sys.executable, "-m", "mainstem", *map(str, words), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["java", "mainstem"])
def test_recordings_and_replays_are_named(start_driver: DriverFactory, tmp_path: Path, kind: str) -> None:
    driver = start_driver("mainstem")
    with ExitStack() as stack:
        if kind == "java":
            java.require_java()
            control = stack.enter_context(JavaArchive(tmp_path, driver.directory, has_driver=False)).control
        else:
            control = f"aeron:udp?endpoint=localhost:{free_port()}"
            stack.enter_context(mainstem_archive(tmp_path, driver.directory, control))
        aeron = stack.enter_context(mainstem.connect(driver.directory))
        client = stack.enter_context(archive.connect(control, aeron=aeron, client_name="billing"))
        client.start_recording(CHANNEL, 1001)
        publication = stack.enter_context(aeron.add_exclusive_publication(CHANNEL, 1001))
        event = next(client.events(timeout=20.0))
        assert isinstance(event, Signal)
        assert event.signal is RecordingSignal.START
        for _ in range(200):
            publication.send(bytes(1000), timeout=20.0)
        stall = StallTimeout("the recording is complete")
        while client.recording_position(event.recording_id) != publication.position:
            stall.check()

        counters = asked("stat", "--dir", driver.directory, "--stream", 1001)["counters"]
        (recorded,) = [each for each in counters if each["type"] == "rec-pos"]
        assert (recorded["archive_id"], recorded["recording_id"]) == (client.archive_id, event.recording_id)
        assert (recorded["value"], recorded["channel"]) == (publication.position, "aeron:ipc")
        counters = asked("stat", "--dir", driver.directory)["counters"]
        named = {each["type"] for each in counters}
        of_archive = {each["type"]: each for each in counters if each["label"].partition(" - ")[0] in LABELS}
        assert {each["label"].partition(" - ")[0] for each in of_archive.values()} == LABELS
        # For padding, Java's archive counts only the header.
        assert 0 <= publication.position - of_archive["archive-write-bytes"]["value"] < 4 * 1408
        assert of_archive["archive-write-time"]["value"] >= of_archive["archive-max-write-time"]["value"] > 0
        assert of_archive["archive-max-cycle-time"]["value"] > 0
        assert not {str(number) for number in range(100, 118)} & named

        (stream,) = asked("streams", "--dir", driver.directory, "--stream", 1001)["streams"]
        (reader,) = stream["publication"]["subscribers"]
        assert reader["recording"] == {
            "archive_id": client.archive_id,
            "recording_id": event.recording_id,
            "position": publication.position,
        }
        (reasons,) = asked("why", "--dir", driver.directory, "--stream", 1001)["streams"]
        name = f"recording {event.recording_id} of archive {client.archive_id}"
        assert f"{name} is at {publication.position:,}" in reasons["sentence"]

        client.start_replay(event.recording_id, "aeron:ipc", 1002)
        with aeron.add_subscription("aeron:ipc", 1002):  # nobody reads this subscription
            stall = StallTimeout("the replay is stalled")
            while True:
                found = asked("why", "--dir", driver.directory, "--stream", 1002)["streams"]
                if found and found[0]["stalled"] and found[0]["rule"] == "slow-subscriber":
                    break
                stall.check()
            assert found[0]["sentence"].startswith(f"replay of archive {client.archive_id}: subscription ")
            rows = asked("streams", "--dir", driver.directory)["streams"]
            purposes = {each["publication"]["purpose"] for each in rows if each["publication"]}
            assert f"replay of archive {client.archive_id}" in purposes
