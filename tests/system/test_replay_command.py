"""``mainstem replay`` and ``mainstem export``: recordings sent to a channel and written to files."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.live_driver import TIMEOUT_S, wait_for
from tests.support.streams import Stream, record

from mainstem import Aeron, MediaDriver
from mainstem.recording import Recorder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

START_NS = 1_769_860_800_000_000_000
TIDES = [b"tide %d" % number for number in range(500)]


@pytest.fixture
def location(tmp_path: Path) -> Path:
    path = tmp_path / "recordings"
    with Recorder(path) as recorder:
        for stream_id in (1001, 1002):
            writer = Stream(session_id=stream_id, stream_id=stream_id).start(recorder)
            stream = Stream(session_id=stream_id, stream_id=stream_id)
            record(writer, stream, TIDES, time_ns=START_NS, step_ns=2_000_000)
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "mainstem", *map(str, arguments)]


@pytest.mark.parametrize("speed", ["1", "max"])
def test_a_recording_is_replayed_once_and_in_order(location: Path, speed: str) -> None:
    with (
        MediaDriver.launch() as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_subscription("aeron:ipc", 77) as subscription,
    ):
        arguments = command("replay", location, "aeron:ipc", "--stream", 77, "--recording", 1, "--speed", speed,
                            "--dir", driver.directory)  # fmt: skip
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
            received: list[bytes] = []

            def is_complete() -> bool:
                received.extend(subscription.poll_bytes(1000))
                return len(received) >= len(TIDES)

            wait_for(is_complete)
            report = process.communicate(timeout=TIMEOUT_S)[1]
    assert process.returncode == 0, report
    assert "replayed 500 messages" in report
    assert received == TIDES


def test_one_of_several_recordings_must_be_chosen(location: Path) -> None:
    done = subprocess.run(command("replay", location, "aeron:ipc", "--stream", 77), capture_output=True, text=True)
    assert done.returncode == 1
    assert "choose one with --recording: 0 (stream 1001), 1 (stream 1002)" in done.stderr


def test_an_export_is_complete_or_missing(location: Path, tmp_path: Path) -> None:
    out = tmp_path / "tides.jsonl"
    arguments = command("export", location, "--format", "jsonl", "--payload-encoding", "text", "--stream", 1002, "--until",
                        "2026-01-31T12:00:00.5", "--columns", "stream_id,payload", "-o", out)  # fmt: skip
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["stream_id"] for row in rows} == {1002}
    assert 0 < len(rows) < len(TIDES)
    assert [row["payload"].encode() for row in rows] == TIDES[: len(rows)]

    broken = tmp_path / "broken.csv"
    (location / "0-0.rec").write_bytes(b"\xff" * 4096)
    done = subprocess.run(command("export", location, "--format", "csv", "-o", broken), capture_output=True, text=True)
    assert done.returncode == 1
    assert "0-0.rec" in done.stderr
    assert not broken.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recordings", "tides.jsonl"]
