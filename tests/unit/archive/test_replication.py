"""Replication from one archive into another, in one thread: what is copied, which signals are sent, and what ends it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.archive_server import CHANNEL, SEGMENT, RunningArchive
from tests.support.ports import free_port
from tests.support.replications import end_of_replication
from tests.support.same_recordings import check_equal

from mainstem import archive
from mainstem.archive import RecordingSignal, Signal
from mainstem.archive.server import Accept, ArchiveServer, Challenge, CredentialTable, Reject
from mainstem.archive.server.request_errors import unexpected
from mainstem.errors import ArchiveError, ArchiveErrorCode
from mainstem.recording.catalog import CATALOG_FILE, ENTRY_HEADER_LENGTH, find_catalog_problems, read_catalog
from mainstem.recording.segments import segment_bases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NS_PER_MS = 1_000_000
COUNT = 400
STREAM_ID = 1001


def payload(number: int) -> bytes:
    return number.to_bytes(4, "big") * (1 + number % 600)


class Pair(RunningArchive):
    """A replicating archive and its source on one driver, with a client of each."""

    def __init__(self, directory: Path, *, source: dict[str, Any] | None = None, **options: Any) -> None:
        self.source: Any = None
        self.source_directory = directory / "source"
        self.source_control = f"aeron:udp?endpoint=localhost:{free_port()}"
        self.source_options = {
            "control_channel": self.source_control,
            "local_control_stream_id": 11,
            "segment_file_length": SEGMENT,
            "low_storage_space_threshold": 0,
            **(source or {}),
        }
        control = f"aeron:udp?endpoint=localhost:{free_port()}"
        super().__init__(directory / "replica", control_channel=control, **options)
        self.start_source()

    def start_source(self) -> None:
        self.source = ArchiveServer.launch(
            self.source_directory,
            self.driver.directory,
            threading_mode="INVOKER",
            driver_invoker=self.work,
            **self.source_options,
        )

    def work(self) -> int:
        return super().work() + (self.source.invoke() if self.source is not None else 0)

    def __exit__(self, *error: Any) -> None:
        self.source.close()
        super().__exit__(*error)


class Clients:
    """The clients of a pair: ``far`` is connected to the source, ``near`` to the replicating archive."""

    def __init__(self, pair: Pair, stack: ExitStack, **options: Any) -> None:
        self.pair = pair
        self.far = stack.enter_context(archive.connect(pair.source_control, aeron=pair.aeron, **options))
        self.near = stack.enter_context(archive.connect("aeron:ipc", aeron=pair.aeron))
        self.publication: Any = None

    def publish(self, first: int, count: int) -> int:
        for number in range(first, first + count):
            self.pair.until(lambda: self.publication.offer(payload(number)) > 0)  # noqa: B023
        return int(self.publication.position)

    def begin(self, count: int = COUNT, channel: str = CHANNEL) -> tuple[int, int]:
        """Record a stream that stays open, and return the recording's id and its position."""
        self.far.start_recording(channel, STREAM_ID, auto_stop=True)
        self.publication = self.pair.aeron.add_exclusive_publication(channel, STREAM_ID)
        recording_id = self.signals(self.far, RecordingSignal.START)[-1].recording_id
        position = self.publish(0, count)
        self.pair.until(lambda: self.far.recording_position(recording_id) == position, "it is recorded")
        return recording_id, position

    def finish(self) -> int:
        position = int(self.publication.position)
        self.publication.close()
        self.signals(self.far, RecordingSignal.STOP)
        return position

    def record(self, count: int = COUNT) -> tuple[int, int]:
        recording_id, _ = self.begin(count)
        return recording_id, self.finish()

    def replicate(self, recording_id: int, **options: Any) -> int:
        return self.near.replicate(recording_id, self.pair.source_control, **options)

    def signals(self, client: Any, last: RecordingSignal) -> list[Signal]:
        """Return the next events, up to and including the signal ``last``."""
        found: list[Signal] = []
        for event in client.events(timeout=30.0):
            if isinstance(event, ArchiveError):
                raise event
            found.append(event)
            if event.signal is last:
                break
        return found

    def events(self) -> tuple[list[str], list[ArchiveError]]:
        """Return the names of the signals until a replication ends, and the errors in between."""
        return end_of_replication(self.near)

    def check_equal(self, source_id: int, copy_id: int) -> None:
        """Compare two recordings byte by byte."""
        source, copy = self.far.list_recording(source_id), self.near.list_recording(copy_id)
        assert source is not None
        assert copy is not None
        check_equal(self.pair.source_directory, source, self.pair.directory, copy)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as running:
        yield running


@pytest.fixture
def clients(pair: Pair) -> Iterator[Clients]:
    with ExitStack() as stack:
        yield Clients(pair, stack)


def test_a_recording_is_copied_byte_by_byte(clients: Clients) -> None:
    recording_id, end = clients.record()
    replication_id = clients.replicate(recording_id)
    seen = clients.signals(clients.near, RecordingSignal.STOP)
    assert [each.signal.name for each in seen] == ["REPLICATE", "EXTEND", "SYNC", "REPLICATE_END", "STOP"]
    assert {each.correlation_id for each in seen} == {replication_id}
    assert {each.recording_id for each in seen} == {0}
    assert [each.position for each in seen] == [0, 0, end, -1, end]
    assert seen[1].subscription_id >= 0
    clients.check_equal(recording_id, 0)
    clients.pair.until(lambda: clients.pair.server.stats().replications == 0)
    clients.pair.until(lambda: clients.pair.source.stats().replays == 0)
    clients.pair.until(lambda: clients.pair.source.stats().control_sessions == 1, "it leaves the source")


def test_a_copy_is_continued_where_it_ended(clients: Clients) -> None:
    recording_id, first = clients.begin()
    clients.replicate(recording_id, stop_position=first)
    assert clients.events() == (["REPLICATE", "EXTEND", "REPLICATE_END", "STOP"], [])
    assert clients.near.stop_position(0) == first
    clients.publish(COUNT, COUNT)
    end = clients.finish()
    clients.replicate(recording_id, dst_recording_id=0, channel_tag_id=41, subscription_tag_id=42)
    assert clients.events() == (["EXTEND", "SYNC", "REPLICATE_END", "STOP"], [])
    assert clients.near.stop_position(0) == end
    clients.check_equal(recording_id, 0)
    # The copy is already complete.
    clients.replicate(recording_id, dst_recording_id=0)
    assert clients.events() == (["SYNC", "REPLICATE_END"], [])


def test_a_replication_follows_an_active_recording_until_it_stops(clients: Clients) -> None:
    recording_id, position = clients.begin()
    clients.replicate(recording_id)
    clients.pair.until(lambda: clients.near.list_recording(0) and clients.near.max_recorded_position(0) == position)
    clients.publish(COUNT, COUNT)
    clients.finish()
    assert clients.events() == (["REPLICATE", "EXTEND", "STOP", "REPLICATE_END"], [])
    clients.check_equal(recording_id, 0)


def test_a_replication_merges_with_the_live_stream_and_needs_the_source_no_more(clients: Clients) -> None:
    control = f"localhost:{free_port()}"
    channel = f"aeron:udp?control-mode=dynamic|control={control}|term-length=64k|ssc=true"
    recording_id, _ = clients.begin(channel=channel)
    clients.replicate(recording_id, live_destination=f"aeron:udp?endpoint=localhost:0|control={control}")
    assert clients.events() == (["REPLICATE", "EXTEND", "MERGE", "REPLICATE_END"], [])
    clients.pair.until(lambda: clients.pair.source.stats().replays == 0)
    position = clients.publish(COUNT, COUNT)
    clients.pair.until(lambda: clients.near.recording_position(0) == position, "the live stream is recorded")
    clients.finish()
    assert [each.position for each in clients.signals(clients.near, RecordingSignal.STOP)] == [position]
    clients.check_equal(recording_id, 0)


def test_a_replication_that_is_stopped_keeps_what_it_has(clients: Clients) -> None:
    recording_id, position = clients.begin()
    replication_id = clients.replicate(recording_id)
    clients.pair.until(lambda: clients.near.list_recording(0) and clients.near.max_recorded_position(0) == position)
    clients.near.stop_replication(replication_id)
    assert clients.events() == (["REPLICATE", "EXTEND", "REPLICATE_END", "STOP"], [])
    assert clients.near.stop_position(0) == position
    with pytest.raises(ArchiveError, match=str(replication_id)) as caught:
        clients.near.stop_replication(replication_id)
    assert caught.value.code is ArchiveErrorCode.UNKNOWN_REPLICATION
    clients.publish(COUNT, 1)
    clients.finish()
    clients.replicate(recording_id, dst_recording_id=0)
    assert clients.events()[0] == ["EXTEND", "SYNC", "REPLICATE_END", "STOP"]
    clients.check_equal(recording_id, 0)


def test_stopping_the_copys_recording_ends_the_replication_with_an_error(clients: Clients) -> None:
    recording_id, position = clients.begin()
    clients.replicate(recording_id)
    clients.pair.until(lambda: clients.near.list_recording(0) and clients.near.max_recorded_position(0) == position)
    assert clients.near.stop_recording_by_identity(0)
    names, errors = clients.events()
    assert names == ["REPLICATE", "EXTEND", "STOP", "REPLICATE_END"]
    assert f"the copy was stopped at position {position}, before the end of the recording" in str(errors[0])
    clients.finish()


@pytest.mark.parametrize("how", ["truncated", "truncated where the copy is", "stopped"])
def test_a_source_that_is_cut_during_a_replication_is_reported(clients: Clients, how: str) -> None:
    recording_id, end = clients.record(4 * COUNT)
    clients.replicate(recording_id)
    pair = clients.pair
    pair.until(lambda: clients.near.list_recording(0) and clients.near.max_recorded_position(0) > 0)
    if how == "stopped":
        clients.far.stop_all_replays()
    else:
        position = SEGMENT if how == "truncated" else clients.near.max_recorded_position(0)
        clients.far.truncate_recording(recording_id, position)
    names, errors = clients.events()
    assert names == ["REPLICATE", "EXTEND", "STOP", "REPLICATE_END"]
    reached = clients.near.stop_position(0)
    assert reached is not None
    assert reached < end
    assert f"the replay ended at position {reached}, before position {end}" in str(errors[0])


def test_an_empty_copy_takes_on_the_source_recording(clients: Clients) -> None:
    recording_id, _ = clients.record(20)
    clients.replicate(recording_id)
    assert clients.events()[1] == []
    clients.near.truncate_recording(0, 0)
    clients.signals(clients.near, RecordingSignal.DELETE)
    other, end = clients.record(40)
    # A longer entry moves the entries that follow it in the catalog.
    clients.replicate(recording_id)
    assert clients.events()[1] == []
    clients.near.update_channel(0, "aeron:ipc")
    clients.replicate(other, dst_recording_id=0)
    assert clients.events() == (["EXTEND", "SYNC", "REPLICATE_END", "STOP"], [])
    assert clients.near.stop_position(0) == end
    clients.check_equal(other, 0)
    clients.check_equal(recording_id, 1)


def test_an_empty_recording_is_in_sync_at_once(clients: Clients) -> None:
    recording_id, _ = clients.record(1)
    clients.far.truncate_recording(recording_id, 0)
    clients.signals(clients.far, RecordingSignal.DELETE)
    clients.replicate(recording_id)
    assert clients.events() == (["REPLICATE", "SYNC", "REPLICATE_END"], [])
    assert segment_bases(clients.pair.directory, 0) == []


def test_the_replay_takes_the_session_that_was_asked_for(clients: Clients) -> None:
    recording_id, _ = clients.record()
    clients.replicate(recording_id, replication_session_id=-4711, file_io_max_length=64 << 10)
    assert clients.events()[1] == []
    copy = clients.near.list_recording(0)
    assert copy is not None
    assert copy.session_id == -4711
    clients.check_equal(recording_id, 0)


def test_a_replication_over_response_channels(clients: Clients) -> None:
    recording_id, _ = clients.record()
    channels = [f"aeron:udp?control-mode=response|control=localhost:{free_port()}" for _ in range(2)]
    clients.replicate(recording_id, replication_channel=channels[0], src_response_channel=channels[1])
    assert clients.events() == (["REPLICATE", "EXTEND", "SYNC", "REPLICATE_END", "STOP"], [])
    clients.check_equal(recording_id, 0)
    for options, text in (
        ({"live_destination": "aeron:udp?endpoint=localhost:0"}, "live destinations"),
        ({"channel_tag_id": 5}, "tagged replication"),
    ):
        with pytest.raises(ArchiveError, match=f"response channels can't be used with {text}"):
            clients.replicate(recording_id, replication_channel=channels[0], **options)  # type: ignore[arg-type]


def test_an_archive_replicates_from_itself(clients: Clients) -> None:
    recording_id, _ = clients.record()
    clients.replicate(recording_id)
    assert clients.events()[1] == []
    own = clients.pair.server.settings.control_channel
    clients.near.replicate(0, own)
    assert clients.events() == (["REPLICATE", "EXTEND", "SYNC", "REPLICATE_END", "STOP"], [])
    clients.check_equal(recording_id, 1)
    clients.near.replicate(0, "aeron:ipc")
    assert clients.events() == (["REPLICATE", "EXTEND", "SYNC", "REPLICATE_END", "STOP"], [])
    clients.check_equal(recording_id, 2)


# -- failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", ["aeron:udp?endpoint=localhost:{port}", "aeron:udp?endpoint=host.invalid:1"])
def test_a_source_that_cannot_be_reached(tmp_path: Path, channel: str) -> None:
    with Pair(tmp_path, message_timeout_ns=200 * NS_PER_MS) as pair, ExitStack() as stack:
        clients = Clients(pair, stack)
        replication_id = clients.near.replicate(0, channel.format(port=free_port()))
        names, (error,) = clients.events()
        assert names == ["REPLICATE_END"]
        assert (error.code, error.correlation_id) == (
            ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE,
            replication_id,
        )
        assert str(error).startswith("the archive reports: Replication connection failed=")
        assert clients.near.list_recording(0) is None


def test_a_request_that_the_source_refuses_is_reported_as_a_failed_replicate(tmp_path: Path) -> None:
    def refuses_positions(request: str, principal: bytes, /) -> bool:
        del principal
        return not (refusing and request == "RecordingPositionRequest")

    refusing = False
    with Pair(tmp_path, source={"authorizer": refuses_positions}) as pair, ExitStack() as stack:
        clients = Clients(pair, stack)
        recording_id, _ = clients.begin()
        refusing = True
        clients.replicate(recording_id, live_destination="aeron:udp?endpoint=localhost:0")
        _, (error,) = clients.events()
        assert str(error).startswith(
            f"the archive reports: replicate recording {recording_id} of the source archive: "
            f"recording_position of recording {recording_id}: "
        )


def test_recordings_that_do_not_exist(clients: Clients) -> None:
    clients.replicate(4711)
    names, (error,) = clients.events()
    assert names == ["REPLICATE_END"]
    assert error.code is ArchiveErrorCode.UNKNOWN_RECORDING
    assert str(error) == "the archive reports: unknown src recording id 4711"  # all of it: programs compare Java's text
    recording_id, _ = clients.record(1)
    with pytest.raises(ArchiveError, match="unknown destination recording id 815") as caught:
        clients.replicate(recording_id, dst_recording_id=815)
    assert caught.value.code is ArchiveErrorCode.UNKNOWN_RECORDING


LIES: tuple[dict[str, Any], ...] = (
    {"term_buffer_length": 0},
    {"term_buffer_length": -1},
    {"segment_file_length": 0},
    {"segment_file_length": -65536},
    {"mtu_length": 0},
    {"mtu_length": -5},
    {"start_position": -32},
    {"start_position": 1},
    {"start_position": (1 << 63) - 32, "stop_position": (1 << 63) - 32},
    {"stop_position": -2},
    {"start_timestamp": 1 << 62},
    {"recording_id": 99},
)


def test_a_source_that_describes_a_recording_that_cannot_exist_ends_the_replication(clients: Clients) -> None:
    recording_id, _ = clients.record(1)
    clients.near.start_recording("aeron:ipc", 1002)
    clients.pair.aeron.add_exclusive_publication("aeron:ipc", 1002).close()
    target = clients.signals(clients.near, RecordingSignal.STOP)[-1].recording_id
    (told,) = read_catalog(clients.pair.source_directory)
    (before,) = clients.near.list_recordings()
    for lie in LIES:
        with (clients.pair.source_directory / CATALOG_FILE).open("r+b") as file:
            file.seek(told.entry_offset + ENTRY_HEADER_LENGTH)
            file.write(replace(told, **lie).encode())
        for dst_recording_id in (None, target):
            clients.replicate(recording_id, dst_recording_id=dst_recording_id)
            names, errors = clients.events()
            assert names == ["REPLICATE_END"], lie
            assert len(errors) == 1, lie
    assert list(clients.near.list_recordings()) == [before]
    assert not find_catalog_problems(clients.pair.directory)
    assert not unexpected


def test_recordings_that_a_replication_cannot_extend(clients: Clients) -> None:
    recording_id, position = clients.begin()
    clients.replicate(recording_id)
    clients.pair.until(lambda: clients.near.list_recording(0) and clients.near.max_recorded_position(0) == position)
    with pytest.raises(ArchiveError, match="active recording 0") as caught:
        clients.replicate(recording_id, dst_recording_id=0)
    assert caught.value.code is ArchiveErrorCode.ACTIVE_RECORDING
    # The same session and stream are already being recorded.
    clients.replicate(recording_id, replication_channel=f"aeron:udp?endpoint=localhost:{free_port()}")
    clients.finish()
    names: list[str] = []
    while not names.count("REPLICATE_END") == names.count("STOP") == 2:
        event = next(clients.near.events(timeout=30.0))
        assert isinstance(event, Signal)
        names.append(event.signal.name)
    # A different stream does not continue the recording.
    other, _ = clients.record(7)
    clients.replicate(other, dst_recording_id=0)
    names, (error,) = clients.events()
    assert names == ["REPLICATE_END"]
    assert error.code is ArchiveErrorCode.GENERIC
    assert "must be less than the limit" in str(error)


def test_a_stream_that_has_ended_cannot_be_joined_live(clients: Clients) -> None:
    recording_id, _ = clients.record(1)
    clients.replicate(recording_id, live_destination="aeron:udp?endpoint=localhost:0")
    names, (error,) = clients.events()
    assert names == ["REPLICATE", "REPLICATE_END"]
    assert str(error) == "the archive reports: cannot live merge without active source recording"


def test_reads_shorter_than_a_frame_are_refused(clients: Clients) -> None:
    recording_id, _ = clients.record(1)
    clients.replicate(recording_id, file_io_max_length=32)
    names, (error,) = clients.events()
    assert names == ["REPLICATE_END"]
    assert "Replication fileIoMaxLength (32) is less than than the recording mtuLength (" in str(error)


def test_credentials_of_the_source(tmp_path: Path) -> None:
    authenticator = CredentialTable({b"copy:secret": b"copy"})
    with Pair(tmp_path, source={"authenticator": authenticator}) as pair, ExitStack() as stack:
        clients = Clients(pair, stack, credentials=b"copy:secret")
        recording_id, _ = clients.record()
        clients.replicate(recording_id, credentials=b"copy:guess")
        names, (error,) = clients.events()
        assert names == ["REPLICATE_END"]
        assert error.code is ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE
        assert "authentication rejected" in str(error)
        clients.replicate(recording_id, credentials=b"copy:secret")
        assert clients.events()[1] == []
        clients.check_equal(recording_id, 0)


class Challenging:
    """Accepts one credential directly, and another one after a challenge."""

    def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept | Challenge | Reject:
        if challenge is None and credentials == b"ops:ask":
            return Challenge(b"challenge!")
        return Accept(b"ops") if credentials == (b"ops:secret" if challenge is None else b"ops:answer") else Reject()


def test_a_source_that_challenges_is_reported_and_left(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def answer(challenge: bytes) -> bytes:
        asked.append(challenge)
        return b"ops:answer"

    with Pair(tmp_path, source={"authenticator": Challenging()}) as pair, ExitStack() as stack:
        clients = Clients(pair, stack, credentials=b"ops:ask", on_challenge=answer)
        assert asked == [b"challenge!"]
        recording_id, _ = clients.record()
        clients.replicate(recording_id, credentials=b"ops:ask")
        names, (error,) = clients.events()
        assert names == ["REPLICATE_END"]
        assert error.code is ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE
        assert "Replication does not support challenge/response authentication" in str(error)
        pair.until(lambda: pair.source.stats().control_sessions == 1, "it leaves the source")
        clients.replicate(recording_id, credentials=b"ops:secret")
        assert clients.events()[1] == []
        clients.check_equal(recording_id, 0)


def test_the_limit_of_replications(tmp_path: Path) -> None:
    with Pair(tmp_path, max_concurrent_replications=1) as pair, ExitStack() as stack:
        clients = Clients(pair, stack)
        recording_id, _ = clients.begin()
        replication_id = clients.replicate(recording_id)
        with pytest.raises(ArchiveError, match="max concurrent replications reached 1"):
            clients.replicate(recording_id)
        clients.near.stop_replication(replication_id)
        clients.events()
        clients.finish()
        clients.replicate(recording_id)
        assert clients.events()[1] == []


def test_an_archive_without_an_address_needs_channels(tmp_path: Path) -> None:
    with RunningArchive(tmp_path) as running, archive.connect("aeron:ipc", aeron=running.aeron) as client:
        with pytest.raises(ArchiveError, match="set replication_channel of the archive"):
            client.replicate(0, "aeron:udp?endpoint=localhost:1")
        with pytest.raises(ArchiveError, match="set control_response_channel of the archive"):
            client.replicate(0, "aeron:udp?endpoint=localhost:1", replication_channel="aeron:udp?endpoint=localhost:0")


def test_a_source_that_goes_away_is_reported(clients: Clients) -> None:
    recording_id, position = clients.begin()
    clients.replicate(recording_id)
    clients.pair.until(lambda: clients.near.list_recording(0) and clients.near.max_recorded_position(0) == position)
    clients.pair.source.close()
    names, errors = clients.events()
    # The archive notices the end of the stream first, or that of its control session.
    assert (sorted(names[-2:]), len(errors)) == (["REPLICATE_END", "STOP"], 1)
    assert clients.near.stop_position(0) == position
    clients.pair.start_source()
    far = archive.connect(clients.pair.source_control, aeron=clients.pair.aeron)
    clients.far.close()
    clients.far = far
    clients.replicate(recording_id, dst_recording_id=0)
    assert clients.events() == (["SYNC", "REPLICATE_END"], [])
    clients.check_equal(recording_id, 0)
    far.close()


def test_an_archive_that_ends_while_it_replicates_continues_later(clients: Clients) -> None:
    recording_id, position = clients.begin()
    clients.replicate(recording_id)
    pair = clients.pair
    pair.until(lambda: clients.near.list_recording(0) and clients.near.max_recorded_position(0) == position)
    pair.stop()
    pair.start()
    clients.near.close()
    clients.near = archive.connect("aeron:ipc", aeron=pair.aeron)
    assert clients.near.stop_position(0) == position
    clients.publish(COUNT, COUNT)
    clients.finish()
    clients.replicate(recording_id, dst_recording_id=0)
    assert clients.events() == (["EXTEND", "SYNC", "REPLICATE_END", "STOP"], [])
    clients.check_equal(recording_id, 0)
    clients.near.close()
