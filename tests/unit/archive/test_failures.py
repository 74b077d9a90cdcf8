"""An archive whose steps fail in any way: the client is told, and everybody else is served as before."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.archive_server import CHANNEL, SEGMENT, ControlClient, RunningArchive
from tests.support.set_clock import SetClock

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.aeron.agent import AgentInvoker
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.client.context import ClientContext
from mainstem.archive.channels import extension_channel
from mainstem.archive.messages import NULL, RecordingSignal, ResponseCode
from mainstem.archive.server import ArchiveServer
from mainstem.archive.server.access import AcceptAll, allow_all
from mainstem.archive.server.conductor import ArchiveConductor
from mainstem.archive.server.files import ArchiveFiles
from mainstem.archive.server.request_errors import unexpected
from mainstem.archive.server.settings import ArchiveSettings
from mainstem.errors import RecordingError, RecordingNotFound
from mainstem.recording import open_recordings, read_catalog
from mainstem.recording.mark_file import MarkOwner
from mainstem.store.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALL = {"from_recording_id": 0, "record_count": 1000}
STEPS = ("open", "write", "resize", "sync", "rename", "delete", "sync_directory", "close")


class FailingDisk(Disk):
    """A disk of which one operation raises an exception of the given type."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.left = -1  # operations before the one that fails; -1 means that none fails
        self.count = 0
        self.lasts = False  # whether every later operation fails too
        self.only = ""  # the name of the operations that count; empty for all

    def fail(self, left: int, error: Exception) -> None:
        self.left, self.error = left, error

    def fails_from_now(self, error: Exception) -> None:
        self.left, self.error, self.lasts = 0, error, True

    def recovers(self) -> None:
        self.left, self.lasts = -1, False

    def _step(self, name: str) -> None:
        if self.only not in ("", name):
            return
        self.count += 1
        if self.left >= 0:
            self.left -= 1
            if self.left < 0:
                assert self.error is not None
                self.left = 0 if self.lasts else -1
                raise self.error


def _failing(name: str) -> Any:
    def step(self: FailingDisk, *args: Any, **options: Any) -> Any:
        if name == "close":
            result = Disk.close(self, *args)  # also a close that fails has closed
            self._step(name)
            return result
        self._step(name)
        return getattr(Disk, name)(self, *args, **options)

    return step


for _name in STEPS:
    setattr(FailingDisk, _name, _failing(_name))


class FailingArchive(RunningArchive):
    """An archive on a failing disk. ``escaped`` has the exceptions that ended a duty cycle."""

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self.disk, self.durable, self.clock = FailingDisk(), durable, SetClock()
        self.escaped: list[BaseException] = []
        super().__init__(directory)

    def start(self) -> None:
        context = ClientContext(use_invoker=True, driver_invoker=self.driver.do_work)
        aeron = Aeron.connect(self.driver.directory, context=context)
        settings = ArchiveSettings(id=1, threading_mode="INVOKER", file_io_max_length=SEGMENT, **self._options)
        files = ArchiveFiles(
            self.directory, MarkOwner(archive_id=1), segment_length=SEGMENT,
            disk=self.disk, durable=self.durable, clock=self.clock,
        )  # fmt: skip
        conductor = ArchiveConductor(aeron, files, settings, AcceptAll(), allow_all, SYSTEM_CLOCK)
        self.server = ArchiveServer(conductor, aeron, settings)
        self.server._invoker = AgentInvoker(conductor, error_handler=self.escaped.append)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[FailingArchive]:
    with FailingArchive(tmp_path / "archive") as running:
        yield running
        running.disk.left = -1
    assert running.escaped == []


def listed(client: ControlClient) -> dict[int, int]:
    """Return the stop position of each recording."""
    return {each.recording_id: each.stop_position for each in client.listed("ListRecordingsRequest", **ALL)}


def is_told(client: ControlClient, correlation_id: int) -> bool:
    """Whether the client has received an error for a request, or the signal that its recording has begun or ended."""
    client.poll()
    return any(
        each.values.get("correlation_id") == correlation_id
        and (each.values.get("code") == ResponseCode.ERROR or each.name == "RecordingSignalEvent")
        for each in client.received
    )


def use(archive: FailingArchive, client: ControlClient) -> None:
    """Send a request of each kind that touches files. Each of them is answered, and "started" has an effect."""
    fields = {"stream_id": 1001, "source_location": 0, "auto_stop": 0, "channel": CHANNEL}
    started = client.send("StartRecordingRequest2", **fields)
    subscription = client.response(started)
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        for _ in range(60):
            publication.offer(b"x" * 1000)
        archive.until(lambda: is_told(client, started), "a signal or an error")
        for _ in range(30):
            archive.work()
        if subscription.code == ResponseCode.OK:
            fields = {"subscription_id": subscription.relevant_id}
            assert client.response(client.send("StopRecordingSubscriptionRequest", **fields)).code == ResponseCode.OK
    requests: list[tuple[str, dict[str, Any]]] = [
        ("UpdateChannelRequest", {"recording_id": 0, "channel": "aeron:ipc?alias=" + "long" * 30}),
        ("TruncateRecordingRequest", {"recording_id": 0, "position": 0}),
        ("PurgeRecordingRequest", {"recording_id": 0}),
    ]
    for name, values in requests:
        client.response(client.send(name, **values))
        for _ in range(10):
            archive.work()


def test_an_image_that_cannot_be_recorded_is_reported(
    archive: FailingArchive, caplog: pytest.LogCaptureFixture
) -> None:
    """The request has been answered before its image arrives, so an error under its id follows, whatever the type."""
    client = archive.connected()
    started = client.send("StartRecordingRequest2", stream_id=1001, source_location=0, auto_stop=0, channel=CHANNEL)
    subscription_id = client.response(started).relevant_id
    archive.disk.fail(0, struct.error("argument out of range"))
    archive.aeron.add_exclusive_publication(CHANNEL, 1001)
    response = client.take(lambda each: each.values.get("correlation_id") == started)
    assert (response.code, response.error_message) == (ResponseCode.ERROR, "error: argument out of range")
    assert "argument out of range" in caplog.text
    assert unexpected
    unexpected.clear()
    # The subscription is open, and records the next image.
    archive.aeron.add_exclusive_publication(CHANNEL, 1001)
    assert client.signal()[0] == RecordingSignal.START
    assert client.ask("StopRecordingSubscriptionRequest", subscription_id=subscription_id) == 0
    assert client.signal()[0] == RecordingSignal.STOP
    assert NULL not in listed(client).values()


def test_an_error_without_an_errno_that_ends_a_recording_keeps_its_text(archive: FailingArchive) -> None:
    client = archive.connected()
    started = client.send("StartRecordingRequest2", stream_id=1001, source_location=0, auto_stop=0, channel=CHANNEL)
    assert client.response(started).code == ResponseCode.OK
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        assert client.signal()[0] == RecordingSignal.START
        archive.disk.fail(0, RecordingNotFound("its files have gone"))
        publication.offer(b"x")
        response = client.take(lambda each: each.values.get("code") == ResponseCode.ERROR)
    assert (response.correlation_id, response.error_message) == (started, "recording 0: its files have gone")


def test_a_stop_position_that_cannot_be_written_is_reported_and_written_later(archive: FailingArchive) -> None:
    client = archive.connected()
    started = client.send("StartRecordingRequest2", stream_id=1001, source_location=0, auto_stop=0, channel=CHANNEL)
    assert client.response(started).code == ResponseCode.OK
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        assert client.signal()[0] == RecordingSignal.START
        position = publication.offer(b"x")
        archive.until(lambda: archive.server._conductor._active.get(0).position == position)
        archive.disk.fails_from_now(OSError(errno.ENOSPC, "No space left on device"))
    response = client.take(lambda each: each.values.get("code") == ResponseCode.ERROR)
    assert response.correlation_id == started
    assert "recording 0 cannot be stopped in the catalog" in response.error_message
    assert listed(client) == {0: NULL}
    archive.clock.set_by_ms = -3_600_000
    archive.disk.recovers()
    archive.until(lambda: listed(client) == {0: position})


def test_a_control_subscription_that_fails_every_time_does_not_stop_the_others(archive: FailingArchive) -> None:
    class Broken:
        polls = 0

        def poll_limited(self, limit: int, max_length: int) -> list[Any]:
            self.polls += 1
            raise RecordingError(f"nothing can be read from it, not even {limit} messages of {max_length} bytes")

        def close(self) -> None: ...

    broken = Broken()
    archive.server._conductor._control.insert(0, broken)
    client = archive.connected()
    assert listed(client) == {}
    assert broken.polls


def test_a_failed_request_of_any_type_is_answered(archive: FailingArchive) -> None:
    client, other = archive.connected(), archive.connected()
    client.record(1001, auto_stop=True)
    archive.aeron.add_exclusive_publication(CHANNEL, 1001).close()
    client.signal()
    client.signal()
    archive.disk.fail(0, KeyError("missing"))
    text = client.error("UpdateChannelRequest", recording_id=0, channel="aeron:ipc?alias=other")[1]
    assert text == "KeyError: 'missing'"
    unexpected.clear()
    assert list(listed(other)) == [0]
    assert client.ask("UpdateChannelRequest", recording_id=0, channel="aeron:ipc?alias=other") == 0


def test_a_failure_after_the_catalog_was_replaced_leaves_every_entry_in_its_place(archive: FailingArchive) -> None:
    client = archive.connected()
    for stream_id in (1001, 1002):
        client.record(stream_id, auto_stop=True)
        archive.aeron.add_exclusive_publication(CHANNEL, stream_id).close()
        client.signal()
        client.signal()
    for operation in range(20):
        archive.disk.fail(operation, OSError(errno.EIO, "Input/output error"))
        channel = f"aeron:ipc?alias={'long' * (20 * operation + 20)}"
        client.response(client.send("UpdateChannelRequest", recording_id=0, channel=channel))
        archive.disk.left = -1
        found = client.listed("ListRecordingsRequest", **ALL)
        assert [(each.recording_id, each.stream_id) for each in found] == [(0, 1001), (1, 1002)]
        assert client.ask("UpdateChannelRequest", recording_id=1, channel=f"aeron:ipc?alias={operation}") == 0
        assert client.listed("ListRecordingsRequest", **ALL)[1].original_channel == f"aeron:ipc?alias={operation}"


def record(archive: FailingArchive, client: ControlClient, publication: Any, count: int) -> None:
    for _ in range(count):
        archive.until(lambda: publication.offer(bytes(992)) > 0)


CHANGES: list[tuple[str, dict[str, int]]] = [
    ("DetachSegmentsRequest", {"new_start_position": SEGMENT}),
    ("PurgeSegmentsRequest", {"new_start_position": SEGMENT}),
    ("TruncateRecordingRequest", {"position": SEGMENT}),
    ("PurgeRecordingRequest", {}),
]


@pytest.mark.parametrize(("name", "fields"), CHANGES, ids=[name for name, _ in CHANGES])
def test_a_change_that_cannot_be_flushed_has_not_been_made(
    archive: FailingArchive, name: str, fields: dict[str, int]
) -> None:
    """The client is told that its request failed. So the recording must not be shorter, or gone after a restart."""
    client = archive.connected()
    client.record(1001, auto_stop=True)
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        record(archive, client, publication, 300)
        client.signal()
    client.signal()
    before = read_catalog(archive.directory)
    archive.disk.only = "sync"
    for _ in range(2 if name == "TruncateRecordingRequest" else 1):  # that one has to flush the index first, once
        archive.disk.fail(0, OSError(errno.EIO, "Input/output error"))
        assert "Input/output error" in client.error(name, recording_id=0, **fields)[1]
        assert archive.disk.left < 0
        assert read_catalog(archive.directory) == before
        with open_recordings(archive.directory) as (reader,):
            assert reader.count_before(reader.end_position()).messages == 300
    assert client.ask(name, recording_id=0, **fields) >= 0
    assert read_catalog(archive.directory) != before


def test_an_extension_that_cannot_be_flushed_leaves_the_recording_stopped(tmp_path: Path) -> None:
    with FailingArchive(tmp_path / "archive", durable=True) as archive:
        client = archive.connected()
        client.record(1001, auto_stop=True)
        with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
            record(archive, client, publication, 3)
            client.signal()
        client.signal()
        (before,) = read_catalog(archive.directory)
        archive.disk.only = "sync"
        failures = 0
        while True:
            archive.disk.fail(failures, OSError(errno.EIO, "Input/output error"))
            asked = client.send(
                "ExtendRecordingRequest2",
                recording_id=0, stream_id=1001, source_location=0, auto_stop=1, channel=CHANNEL,
            )  # fmt: skip
            assert client.response(asked).code == ResponseCode.OK
            channel = extension_channel("aeron:ipc", before)
            publication = archive.aeron.add_exclusive_publication(channel, 1001)
            archive.until(lambda: is_told(client, asked), "a signal or an error")  # noqa: B023
            if archive.disk.left >= 0:
                break
            failures += 1
            assert "Input/output error" in client.response(asked).error_message
            publication.close()
            client.received.clear()
            assert listed(client) == {0: before.stop_position}, f"sync number {failures}"
        archive.disk.left = -1
        assert failures > 2
        publication.close()
        assert [client.signal()[0] for _ in range(2)] == [RecordingSignal.EXTEND, RecordingSignal.STOP]
        assert listed(client) == {0: before.stop_position}
        assert archive.escaped == []


ERRORS = [
    OSError(errno.EIO, "Input/output error"),
    RecordingError("a file is not as expected"),
    struct.error("argument out of range"),
    KeyError("missing"),
    AssertionError("impossible"),
    MemoryError(),
]


@pytest.mark.long
@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
def test_an_exception_in_any_step_ends_only_its_request(tmp_path: Path, error: Exception) -> None:
    at = 0
    while True:
        with FailingArchive(tmp_path / str(at)) as archive:
            client, other = archive.connected(), archive.connected()
            archive.disk.fail(at, error)
            use(archive, client)
            has_failed = archive.disk.left < 0
            archive.disk.left = -1
            # Others are served, and what was asked for later works.
            started = other.send(
                "StartRecordingRequest2", stream_id=1002, source_location=0, auto_stop=1, channel=CHANNEL
            )
            assert other.response(started).code == ResponseCode.OK
            with archive.aeron.add_exclusive_publication(CHANNEL, 1002) as publication:
                publication.offer(b"x")
                signal, recording_id, _ = other.signal()
                assert signal == RecordingSignal.START
            assert other.signal()[:2] == (RecordingSignal.STOP, recording_id)
            assert archive.server.stats().recordings == 0
            assert listed(other)[recording_id] > 0
        assert archive.escaped == []
        if not has_failed:
            break
        at += 1
    assert at > 10
    unexpected.clear()
