"""A recorder that is killed and restarted loses and duplicates nothing, while the publisher keeps sending."""

from __future__ import annotations

import logging
import random
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import StallTimeout, wait_for
from tests.system.programs.recording_station import STREAM, message

from mainstem import Aeron, MediaDriver
from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.recording import Recorder, RecorderSlot, messages, open_recording, open_recordings, read_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.system, pytest.mark.long]

PROGRAM = Path(__file__).parent / "programs" / "recording_station.py"
TERM = "term-length=64k"
COUNT = 6000
TIMEOUT_S = 200


@contextmanager
def station(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == word


def recorded_position(recordings: Path) -> int:
    try:
        readers = open_recordings(recordings)
    except Exception:
        return 0
    position = max((reader.end_position() for reader in readers), default=0)
    for reader in readers:
        reader.close()
    return position


def until_recorded(recordings: Path, position: int) -> None:
    wait_for(lambda: recorded_position(recordings) >= position, progress=lambda: recorded_position(recordings))


def check(recordings: Path, count: int) -> None:
    assert [d.recording_id for d in read_catalog(recordings)] == [0]
    with open_recording(recordings, 0) as reader:
        found = [payload for _, payload in messages(reader, 0, reader.end_position())]
    assert [int.from_bytes(payload[:8], "little") for payload in found] == list(range(count))
    assert found == [message(number) for number in range(count)]


def size_of(count: int) -> int:
    """Return roughly how many bytes the messages take in the stream."""
    return sum(64 + len(message(number)) for number in range(count))


def udp() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"aeron:udp?endpoint=127.0.0.1:{probe.getsockname()[1]}|{TERM}"


@pytest.mark.parametrize("medium", ["ipc", "udp"])
def test_repeatedly_killing_the_recorder_loses_and_duplicates_nothing(tmp_path: Path, medium: str) -> None:
    channel = f"aeron:ipc?{TERM}" if medium == "ipc" else udp()
    recordings, rng = tmp_path / "recordings", random.Random(5)
    with ExitStack() as stack:
        # A dead recorder's position holds the stream back this long, so the next recorder must start within it.
        driver = stack.enter_context(MediaDriver.launch(client_liveness_timeout_ns=5_000_000_000))
        start = partial(station, "record", driver.directory, channel, recordings)
        recorder = stack.enter_context(start())
        says(recorder, "ready")
        publisher = stack.enter_context(station("publish", driver.directory, channel, COUNT))
        for part in (0.1, 0.3, 0.6):
            until_recorded(recordings, int(size_of(COUNT) * part * rng.uniform(0.5, 1.0)))
            recorder.kill()
            recorder.wait()
            recorder = stack.enter_context(start())
            says(recorder, "ready")
        says(publisher, "done")
        until_complete(recordings, COUNT)
        recorder.communicate("stop\n", timeout=TIMEOUT_S)
        assert recorder.returncode == 0
    check(recordings, COUNT)


def until_complete(recordings: Path, count: int) -> None:
    wait_for(
        lambda: recorded_messages(recordings) >= count, progress=lambda: recorded_position(recordings), poll_s=0.05
    )


def recorded_messages(recordings: Path) -> int:
    with open_recording(recordings, 0) as reader:
        return reader.messages_before(reader.end_position())


def test_a_recorder_slot_holds_the_stream_until_the_recorder_restarts(tmp_path: Path) -> None:
    channel, recordings = udp(), tmp_path / "recordings"
    liveness_s = 1.5
    with (
        MediaDriver.launch(client_liveness_timeout_ns=int(liveness_s * 1e9)) as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_subscription(channel, STREAM) as held,
        RecorderSlot(recordings) as anchor,
        station("publish", driver.directory, channel, COUNT) as publisher,
    ):
        anchor.add_subscription(held)

        def hold(until: float, position: int = 1 << 62) -> None:
            while time.monotonic() < until and recorded_position(recordings) < position:
                anchor.do_work(SYSTEM_CLOCK.monotonic_ns())
                time.sleep(0.005)

        with station("record", driver.directory, channel, recordings) as recorder:
            says(recorder, "ready")
            hold(time.monotonic() + TIMEOUT_S, size_of(COUNT) // 3)
            recorder.kill()
        stall = StallTimeout("the driver gives the dead recorder up")
        while not aeron.counters.value(SystemCounter.CLIENT_TIMEOUTS):
            stall.check()
            hold(time.monotonic() + 0.05)
        assert publisher.poll() is None
        with station("record", driver.directory, channel, recordings) as recorder:
            says(recorder, "ready")
            stall = StallTimeout("the recorder catches up")
            while recorded_messages(recordings) < COUNT:
                stall.check(recorded_position(recordings))
                hold(time.monotonic() + 0.3)
            recorder.communicate("stop\n", timeout=TIMEOUT_S)
        says(publisher, "done")
    check(recordings, COUNT)


def test_a_recorder_that_is_too_late_starts_a_new_recording(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    channel, recordings = f"aeron:ipc?{TERM}", tmp_path / "recordings"
    with (
        MediaDriver.launch() as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_exclusive_publication(channel, STREAM) as publication,
    ):

        def record(numbers: range) -> None:
            with aeron.add_subscription(channel, STREAM) as subscription, Recorder(recordings) as recorder:
                recorder.add_subscription(subscription)
                for number in numbers:
                    publication.send(message(number), timeout=TIMEOUT_S)
                    while number == numbers[-1] and publication.position not in recorder.active.values():
                        recorder.do_work()
                    recorder.do_work()

        record(range(10))
        with aeron.add_subscription(channel, STREAM) as other:
            publication.send(message(10), timeout=TIMEOUT_S)
            while not any(image.position == publication.position for image in other.images):
                other.poll(lambda fragment: None)
            # The driver updates the consumed position in its duty cycle, and runs one between two commands.
            for _ in range(2):
                aeron.add_subscription(channel, STREAM + 1).close()
        with caplog.at_level(logging.WARNING):
            record(range(11, 20))
    assert "a new recording starts" in caplog.text
    found = []
    for reader in open_recordings(recordings):
        with reader:
            part = [
                int.from_bytes(p[:8], "little")
                for _, p in messages(reader, reader.start_position, reader.end_position())
            ]
            found.append(part)
    assert found == [list(range(10)), list(range(11, 20))]
