"""Persistent subscriptions that read from Java's or Mainstem's archive, on both drivers: nothing is lost or duplicated."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.java_archive import JavaArchive
from tests.interop.mainstem_archive import mainstem_archive
from tests.support import java
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, StallTimeout, wait_for

import mainstem
from mainstem import archive
from mainstem.aeron.cnc import CncFile
from mainstem.aeron.files import MappedFiles
from mainstem.archive import RecordingSignal, Signal, SourceLocation
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

    from mainstem.aeron.client.persistent_subscription import PersistentSubscription

pytestmark = [pytest.mark.interop]

STREAM = 1001
UNTETHERED = "untethered-window-limit-timeout=100ms|untethered-linger-timeout=100ms|untethered-resting-timeout=200ms"
IPC = "aeron:ipc"


class Site:
    """A driver, and an archive that can be stopped and restarted."""

    def __init__(self, driver: Path, path: Path, kind: str) -> None:
        self.driver, self._path, self._kind = driver, path, kind
        self.port = free_port()
        self.url = f"aeron-archive://localhost:{self.port}"
        self.control = f"aeron:udp?endpoint=localhost:{self.port}"
        self._archive = ExitStack()
        self.start()

    def start(self) -> None:
        if self._kind == "java":
            self._archive.enter_context(
                JavaArchive(self._path, self.driver, has_driver=False, control_channel=self.control)
            )
        else:
            self._archive.enter_context(mainstem_archive(self._path, self.driver, self.control))

    def stop(self) -> None:
        self._archive.close()

    def client(self) -> archive.Client:
        """Open a session, retrying because an archive that has just started may not accept one yet."""
        return wait_for(self._connected)

    def _connected(self) -> archive.Client | None:
        try:
            return archive.connect(self.control, directory=self.driver, timeout=5.0)
        except MainstemError:
            return None


@contextmanager
def java_driver(directory: Path) -> Iterator[Path]:
    properties = {"aeron.dir": directory, "aeron.threading.mode": "SHARED", "aeron.term.buffer.sparse.file": "true"}
    process = java.start("io.aeron.driver.MediaDriver", properties=properties, stderr=None)
    try:
        wait_for(lambda: (cnc := CncFile.map(MappedFiles(), str(directory))) is not None and (cnc.close() or True))
        yield directory
    finally:
        process.terminate()
        process.communicate(timeout=STALL_S)


@pytest.fixture(params=["mainstem-mainstem", "mainstem-java", "java-java"])
def site(
    request: pytest.FixtureRequest, start_driver: DriverFactory, aeron_directory: Callable[[], Path], tmp_path: Path
) -> Iterator[Site]:
    """Start a driver and an archive, of the kinds that the parameter names."""
    driver_kind, _, archive_kind = request.param.partition("-")
    if "java" in request.param:
        java.require_java()
    with ExitStack() as stack:
        if driver_kind == "java":
            driver = stack.enter_context(java_driver(aeron_directory()))
        else:
            driver = start_driver("mainstem").directory
        made = Site(driver, tmp_path / "archive", archive_kind)
        stack.callback(made.stop)
        yield made


def payload(number: int) -> bytes:
    return b"%d:" % number + bytes(number * 7919 % 3000)


class Publisher:
    """A thread that publishes numbered messages, unless it is paused."""

    def __init__(self, aeron: mainstem.Aeron, channel: str) -> None:
        self._publication = aeron.add_exclusive_publication(
            f"{channel}{'|' if '?' in channel else '?'}term-length=64k|{UNTETHERED}", STREAM
        )
        self.sent = 0
        self._limit = 0
        self._ends = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ends or self.sent < self._limit)
                if self.sent >= self._limit:
                    return
            self._publication.send(payload(self.sent), timeout=STALL_S)
            self.sent += 1

    def publish(self, count: int, *, wait: bool = True) -> None:
        """Send `count` more messages."""
        with self._changed:
            self._limit += count
            limit = self._limit
            self._changed.notify()
        if wait:
            wait_for(lambda: self.sent == limit, progress=lambda: self.sent)

    @property
    def position(self) -> int:
        return self._publication.position

    def close(self) -> None:
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(STALL_S)
        self._publication.close()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(subscription: PersistentSubscription, received: list[bytes], count: int, rng: random.Random) -> None:
    """Read until `received` has `count` messages."""
    stall = StallTimeout(f"{count} messages")
    while len(received) < count:
        stall.check(len(received))
        got = subscription.poll_bytes(rng.choice([1, 100, 1000]))
        received += got
        if not got:
            time.sleep(0.0005)


def recorded(client: archive.Client, recording_id: int, publisher: Publisher) -> None:
    wait_for(lambda: client.recording_position(recording_id) == publisher.position)


def started(client: archive.Client) -> int:
    event = next(client.events(timeout=STALL_S))
    assert isinstance(event, Signal)
    assert event.signal in (RecordingSignal.START, RecordingSignal.EXTEND)
    return event.recording_id


@pytest.mark.long
def test_late_then_live_then_dropped_then_restarted(site: Site) -> None:
    received: list[bytes] = []
    rng = random.Random(5)
    with ExitStack() as stack:
        aeron = stack.enter_context(mainstem.connect(site.driver))
        client = site.client()
        client.start_recording(IPC, STREAM)
        publisher = stack.enter_context(Publisher(aeron, IPC))
        publisher.publish(1000)
        recording_id = started(client)
        subscription = stack.enter_context(
            aeron.add_persistent_subscription(f"{IPC}?tether=false", STREAM, recordings=site.url)
        )
        # A late start: first the past, then live data, while the publisher continues.
        publisher.publish(500, wait=False)
        read(subscription, received, 1500, rng)
        wait_for(lambda: subscription.poll_bytes() == [] and subscription.is_live)
        # A slow reader: the subscription leaves the live stream, and the archive has what it missed.
        first = subscription._stream.live.images[0]  # type: ignore[union-attr]
        publisher.publish(1000)
        wait_for(lambda: first.closed)
        publisher.publish(200, wait=False)
        read(subscription, received, 2700, rng)
        # The archive restarts while the subscription is live, and extends its recording.
        wait_for(lambda: subscription.poll_bytes() == [] and subscription.is_live)
        assert subscription._stream.live.images[0] is not first  # type: ignore[union-attr]
        recorded(client, recording_id, publisher)
        site.stop()
        client.close()
        assert subscription.poll_bytes() == []
        site.start()
        client = stack.enter_context(site.client())
        client.extend_recording(recording_id, IPC, STREAM)
        assert started(client) == recording_id
        publisher.publish(100, wait=False)
        read(subscription, received, 2800, rng)
        # The subscription leaves the live stream again, and the archive restarts while its recording is being read.
        second = subscription._stream.live.images[0]  # type: ignore[union-attr]
        publisher.publish(1500)
        wait_for(lambda: second.closed)
        recorded(client, recording_id, publisher)
        read(subscription, received, 2810, rng)
        client.close()
        site.stop()
        timer = threading.Timer(0.5, site.start)
        timer.start()
        read(subscription, received, 4300, rng)
        timer.join()
        client = stack.enter_context(site.client())
        client.extend_recording(recording_id, IPC, STREAM)
        assert started(client) == recording_id
        publisher.publish(100, wait=False)
        read(subscription, received, 4400, rng)
        positions = subscription.positions
        assert positions == {recording_id: publisher.position}
        assert received == [payload(number) for number in range(4400)]
    assert not [thread for thread in threading.enumerate() if "archive" in thread.name]


async def test_an_asyncio_subscription_starts_at_a_position(site: Site) -> None:
    channel = f"aeron:udp?endpoint=localhost:{free_port()}"
    async with mainstem.aio.connect(site.driver) as aeron:
        with mainstem.connect(site.driver) as other:
            client = await asyncio.to_thread(site.client)
            with client, Publisher(other, f"{channel}|ssc=true") as publisher:
                client.start_recording(channel, STREAM, SourceLocation.LOCAL)
                await asyncio.to_thread(publisher.publish, 300)
                options: Any = {"recordings": site.url, "options": {"timeout": "20"}}
                received: list[bytes] = []
                async with aeron.add_persistent_subscription(channel, STREAM, **options) as subscription:
                    async for message in subscription:
                        received.append(message)
                        if len(received) == 100:
                            break
                    positions = subscription.positions
                async with aeron.add_persistent_subscription(
                    channel, STREAM, start=positions, **options
                ) as subscription:
                    publisher.publish(200, wait=False)
                    async for message in subscription.messages(timeout=STALL_S):
                        received.append(message)
                        if len(received) == 500:
                            break
                assert received == [payload(number) for number in range(500)]
