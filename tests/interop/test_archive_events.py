"""Recording events from Java's archive and from Mainstem's, received by Java's client and by Mainstem's."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.interop.java_archive import JavaArchive
from tests.interop.mainstem_archive import mainstem_archive
from tests.support import java
from tests.support.ports import free_port
from tests.support.recorded import recorded_position
from tests.support.waiting import STALL_S, wait_for

import mainstem
from mainstem import archive
from mainstem.archive import RecordingEvents, RecordingProgress, RecordingStarted, RecordingStopped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop]
COUNT = 100


@contextmanager
def archive_with_events(kind: str, path: Path, driver: Path, port: int) -> Iterator[str]:
    """Run an archive that publishes events to subscribers that connect to `port`, and yield its control channel."""
    channel = f"aeron:udp?control-mode=dynamic|control=localhost:{port}"
    if kind == "java":
        java.require_java()
        options = {"recording_events_enabled": "true", "recording_events_channel": channel}
        with JavaArchive(path, driver, has_driver=False, **options) as served:
            yield served.control
    else:
        control = f"aeron:udp?endpoint=localhost:{free_port()}"
        with mainstem_archive(path, driver, control, "--set", f"recording_events_channel={channel}"):
            yield control


def record(control: str, driver: Path) -> tuple[int, int]:
    """Record a stream to its end, and return its session and end position."""
    with mainstem.connect(driver) as aeron, archive.connect(control, aeron=aeron) as client:
        client.start_recording("aeron:ipc", 1001, auto_stop=True)
        with aeron.add_exclusive_publication("aeron:ipc?term-length=64k", 1001) as publication:
            for number in range(COUNT):
                publication.send(number.to_bytes(4, "big") * 100, timeout=STALL_S)
            wait_for(lambda: recorded_position(client, 0) == publication.position)
            return publication.session_id, publication.position


def subscriber(port: int) -> str:
    return f"aeron:udp?control=localhost:{port}|endpoint=localhost:0"


def check(events: list[object], session_id: int, end: int) -> None:
    started, *progress, stopped = events
    assert started == RecordingStarted(
        recording_id=0,
        start_position=0,
        session_id=session_id,
        stream_id=1001,
        channel="aeron:ipc",
        source_identity="aeron:ipc",
    )
    assert stopped == RecordingStopped(recording_id=0, start_position=0, stop_position=end)
    positions = [each.position for each in progress if isinstance(each, RecordingProgress) and not each.start_position]
    assert len(positions) == len(progress)
    assert positions == sorted(set(positions))
    assert positions[-1] == end


@pytest.mark.parametrize("kind", ["java", "mainstem"])
async def test_events_reach_both_clients_of_mainstem(kind: str, start_driver: DriverFactory, tmp_path: Path) -> None:
    driver, port = start_driver("mainstem").directory, free_port()
    with archive_with_events(kind, tmp_path / "archive", driver, port) as control, mainstem.connect(driver) as aeron:
        async with mainstem.aio.connect(driver) as other:
            subscription = aeron.add_subscription(subscriber(port), 30)
            second = await other.add_subscription(subscriber(port), 30)
            wait_for(lambda: subscription.is_connected)
            while not second.is_connected:
                await asyncio.sleep(0.01)
            session_id, end = await asyncio.to_thread(record, control, driver)
            events: list[object] = []
            for event in RecordingEvents(subscription).events(timeout=STALL_S):
                events.append(event)
                if isinstance(event, RecordingStopped):
                    break
            check(events, session_id, end)
            events.clear()
            async for event in archive.aio.RecordingEvents(second).events(timeout=STALL_S):
                events.append(event)
                if isinstance(event, RecordingStopped):
                    break
            check(events, session_id, end)


@pytest.mark.parametrize("kind", ["java", "mainstem"])
def test_javas_listener_hears_the_same_of_either_archive(
    kind: str, start_driver: DriverFactory, tmp_path: Path
) -> None:
    java.require_java()
    driver, port = start_driver("mainstem").directory, free_port()
    with archive_with_events(kind, tmp_path / "archive", driver, port) as control:
        listener = java.start("ListenToRecordings", driver, subscriber(port))
        try:
            assert listener.stdout is not None
            assert listener.stdout.readline() == "listening\n"
            session_id, end = record(control, driver)
            lines = listener.communicate(timeout=STALL_S)[0].splitlines()
        finally:
            listener.kill()
    assert lines[0] == f"started 0 0 {session_id} 1001 aeron:ipc aeron:ipc"
    assert lines[-1] == f"stopped 0 0 {end}"
    assert lines[-2] == f"progress 0 0 {end}"
