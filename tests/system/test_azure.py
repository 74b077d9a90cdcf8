"""``mainstem ship`` and ``mainstem recordings`` against Azurite, run as processes the way a user starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.object_stores import azurite_options, azurite_server, make_container
from tests.support.shipping import ManualClock, Station, payloads

from mainstem import open_recordings
from mainstem._internal.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.system]


@pytest.fixture
def azurite() -> Iterator[str]:
    with azurite_server() as endpoint:
        yield endpoint


def test_a_recording_is_shipped_to_azure_and_looked_after_by_commands(tmp_path: Path, azurite: str) -> None:
    url, options = f"abfs://{make_container(azurite)}/north/tides", azurite_options(azurite)

    def run(*command: str, status: int = 0) -> Any:
        flags = [f"--store-option={name}={value}" for name, value in options.items()]
        done = subprocess.run(
            [sys.executable, "-m", "mainstem", *command, *flags, "--json"],
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)

    station = Station(tmp_path / "recorder", ManualClock(SYSTEM_CLOCK.epoch_ns()))
    station.send(payloads(300))
    assert run("ship", str(station.directory), url, "--once")["lag_bytes"] == 0
    (row,) = run("recordings", "ls", url)
    assert (row["recording_id"], row["end_position"]) == (0, station.writer.position), row
    assert run("recordings", "show", url)
    assert run("recordings", "verify", url, "--check-frames") == []
    with open_recordings(url, options) as recordings:
        assert [bytes(value.as_py()) for value in recordings.scan().to_arrow()["payload"]] == station.sent
    # A time in the future: everything is older, but the segment that the recording is writing stays.
    run("recordings", "rm", url, "--older-than", "2100-01-01T00:00:00Z", "--grace-period", "0s")
    (row,) = run("recordings", "ls", url)
    with open_recordings(url, options) as recordings:
        left = [bytes(value.as_py()) for value in recordings.scan().to_arrow()["payload"]]
    assert 0 < len(left) < len(station.sent)
    assert left == station.sent[len(station.sent) - len(left) :]
    assert run("recordings", "verify", url, "--check-frames") == []
    station.stop()
