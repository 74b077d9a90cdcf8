"""What an archive holds and does for clients that send much and read nothing: within named limits, and beside other clients."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.support.archive_server import CHANNEL, ControlClient, RunningArchive
from tests.support.many_recordings import make_recordings

from mainstem.archive.messages import decode, encode
from mainstem.archive.server import duty_cycle
from mainstem.archive.server.conductor import MAX_REQUEST_LENGTH
from mainstem.archive.server.control_session import MAX_QUEUED_BYTES
from mainstem.archive.server.files import ArchiveFiles
from mainstem.archive.server.listings import MAX_CHANNEL_PART, MAX_SEARCHES
from mainstem.archive.server.replays import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
FOREVER_NS = 3600 * 10**9
LONG = "aeron:ipc?alias=" + 1200 * "x"


class Memory:
    """Measures how many bytes are allocated in a block beyond those at its beginning."""

    def __enter__(self) -> Self:
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    @property
    def held(self) -> int:
        return tracemalloc.get_traced_memory()[0] - self._before

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()


def is_served(client: ControlClient) -> bool:
    return client.ask("StopReplayRequest", replay_session_id=-5) == 0


def request(client: ControlClient, name: str, number: int, **fields: Any) -> bytes:
    return encode(name, control_session_id=client.session_id, correlation_id=number, **fields)


def send_long(archive: RunningArchive, client: ControlClient, number: int) -> None:
    message = request(client, "StopRecordingRequest", number, stream_id=1, channel=LONG)
    archive.until(lambda: client.requests.offer(message) > 0)


def responses_of(client: ControlClient) -> list[int]:
    return [each.correlation_id for each in client.received if each.name == "ControlResponse"]


def cycles_until(archive: RunningArchive, what: Callable[[], bool]) -> int:
    """Return how many duty cycles it takes until ``what`` returns True."""
    cycles = 0
    while not what():
        archive.work()
        cycles += 1
        assert cycles < 1000
    return cycles


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "long"])
def test_clients_that_read_no_responses_hold_a_limited_number_of_bytes(tmp_path: Path, is_long: bool) -> None:
    """An error quotes a long channel, so 1,024 responses could have a megabyte."""
    with RunningArchive(tmp_path, connect_timeout_ns=FOREVER_NS, max_queued_responses=1024) as archive:
        served, greedy = archive.connected(), [archive.connected() for _ in range(3)]
        sent = most = 0
        name, fields = (
            ("StopRecordingRequest", {"stream_id": 1, "channel": LONG}) if is_long else ("ArchiveIdRequest", {})
        )
        with Memory() as memory:
            for number in range(1400):
                for client in greedy:
                    message = request(client, name, number, **fields)
                    sent += len(message) * (client.requests.offer(message) > 0)
                archive.work()
                if number % 20 == 0:
                    most = max(most, memory.held)
        # Each of them is told that it must read, and loses its session.
        assert sent > len(greedy) * (MAX_QUEUED_BYTES if is_long else 24 * KIB)
        assert most < len(greedy) * 1.5 * MAX_QUEUED_BYTES
        assert archive.server.stats().control_sessions == 1
        assert is_served(served)


def test_a_client_that_reads_a_little_keeps_its_session_and_gets_every_response(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, connect_timeout_ns=FOREVER_NS) as archive:
        client = archive.connected()
        for _ in range(5):  # the number of queued bytes goes down with the queue
            client.received.clear()
            for number in range(150):  # more than the response publication has room for
                send_long(archive, client, number)
            for _ in range(50):
                archive.work()
            archive.until(lambda: client.poll() or len(responses_of(client)) == 150)
            assert responses_of(client) == list(range(150))
        assert is_served(client)


def test_a_flood_of_small_requests_delays_other_clients_by_a_few_cycles(tmp_path: Path) -> None:
    with RunningArchive(tmp_path) as archive:
        served, floods = archive.connected(), [archive.connected() for _ in range(4)]

        def flood() -> None:
            for client in floods:
                while client.requests.offer(request(client, "KeepAliveRequest", 1)) > 0:
                    pass

        for _ in range(20):
            flood()
            correlation_id = served.send("StopReplayRequest", replay_session_id=-5)

            def has_response(expected: int = correlation_id) -> bool:
                flood()
                served.poll()
                return any(each.values.get("correlation_id") == expected for each in served.received)

            assert cycles_until(archive, has_response) <= 2 * (1 + len(floods))


def test_unfinished_and_long_requests_hold_no_more_than_the_longest_valid_one(tmp_path: Path) -> None:
    """Before a client has authenticated, it can send messages of several megabytes in fragments."""
    with RunningArchive(tmp_path) as archive:
        served = archive.connected()
        publications = [archive.aeron.add_exclusive_publication("aeron:ipc?term-length=16m", 10) for _ in range(4)]
        message = bytes(publications[0].max_message_length)
        with Memory() as memory:
            for publication in publications:
                archive.until(lambda: publication.offer(message) > 0)  # noqa: B023
            archive.until(lambda: archive.server.stats().refused == {"length": 4})
            held = memory.held
        assert held < len(publications) * 4 * MAX_REQUEST_LENGTH
        assert is_served(served)
        # A request of several fragments that is not too long is read as it was sent.
        fields = {"stream_id": 1, "channel": "aeron:ipc?alias=" + 4000 * "x"}
        assert "no recording found for streamId=1" in served.error("StopRecordingRequest", **fields)[1]


def test_searches_and_listings_of_many_sessions_share_one_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duty_cycle, "SLICE_NS", 0)
    make_recordings(tmp_path, 150)
    looked_at = 0
    find = ArchiveFiles.find

    def counted(self: ArchiveFiles, recording_id: int) -> Any:
        nonlocal looked_at
        looked_at += 1
        return find(self, recording_id)

    monkeypatch.setattr(ArchiveFiles, "find", counted)
    with RunningArchive(tmp_path, connect_timeout_ns=FOREVER_NS) as archive:
        served, greedy = archive.connected(), [archive.connected() for _ in range(4)]
        wanted = {"min_recording_id": 0, "session_id": -1, "stream_id": 5, "channel": "x"}
        for client in greedy:
            for number in range(MAX_SEARCHES):
                client.send_bytes(request(client, "FindLastMatchingRecordingRequest", -1 - number, **wanted))
            client.send("ListRecordingsRequest", from_recording_id=0, record_count=150)
        archive.until(lambda: is_served(served))
        before, cycles = looked_at, 50
        for _ in range(cycles):
            archive.work()
        assert 0 < looked_at - before <= 10 * cycles
        assert is_served(served)
        # None of them is forgotten, however little time there is.
        for client in greedy:
            archive.until(lambda: client.poll() or len(client.received) >= 150 + MAX_SEARCHES, "all of it")  # noqa: B023
            found = [each.relevant_id for each in client.received if each.values.get("correlation_id") in range(-16, 0)]
            assert found == [-1] * MAX_SEARCHES
            assert sum(each.name == "RecordingDescriptor" for each in client.received) == 150


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("FindLastMatchingRecordingRequest", {"min_recording_id": 0, "session_id": 1, "stream_id": 1}),
        ("ListRecordingsForUriRequest", {"from_recording_id": 0, "record_count": 1, "stream_id": 1}),
        (
            "ListRecordingSubscriptionsRequest",
            {"pseudo_index": 0, "subscription_count": 1, "apply_stream_id": 0, "stream_id": 0},
        ),
    ],
)
def test_a_part_of_a_channel_that_no_channel_has_is_not_looked_for(
    tmp_path: Path, name: str, fields: dict[str, int]
) -> None:
    with RunningArchive(tmp_path) as archive:
        client = archive.connected()
        client.requests = archive.aeron.add_exclusive_publication("aeron:ipc?term-length=1m", 10)
        client.connect()
        client.session_id = client.response().control_session_id

        def look_for(length: int) -> str:
            client.send_bytes(request(client, name, length, **fields, channel=length * "x"))
            return str(client.response(length).error_message)

        refused = f"{MAX_CHANNEL_PART + 1} characters of a channel to look for exceed {MAX_CHANNEL_PART}"
        assert look_for(MAX_CHANNEL_PART + 1) == refused
        assert look_for(MAX_CHANNEL_PART) == ""


def test_replay_tokens_are_limited_for_each_session_and_expire(tmp_path: Path) -> None:
    make_recordings(tmp_path, 1)
    with RunningArchive(tmp_path, connect_timeout_ns=400_000_000) as archive:
        one, other = archive.connected(), archive.connected()
        for client in (one, other):
            for _ in range(MAX_TOKENS):
                client.ask("ReplayTokenRequest", recording_id=0)
            assert f"{MAX_TOKENS} replay tokens" in client.error("ReplayTokenRequest", recording_id=0)[1]

        for client in (one, other):

            def has_one(client: ControlClient = client) -> bool:
                return client.response(client.send("ReplayTokenRequest", recording_id=0)).error_message == ""

            archive.until(has_one, "the tokens expire")


def test_recording_events_that_nobody_reads_hold_nothing_and_delay_nothing(tmp_path: Path) -> None:
    events = "aeron:ipc?term-length=64k"
    with RunningArchive(tmp_path, recording_events_channel=events, max_concurrent_recordings=20) as archive:
        unread = archive.aeron.add_subscription(events, 30)
        client = archive.connected()
        client.record(3000)
        publications = [archive.aeron.add_exclusive_publication(CHANNEL, 3000) for _ in range(20)]
        archive.until(lambda: archive.server.stats().recordings == 20)
        positions: dict[Any, int] = {}
        with Memory() as memory:
            for _ in range(150):
                for each in publications:
                    position = each.offer(bytes(64))
                    positions[each] = position if position > 0 else positions[each]
                archive.work()
            # 3,000 messages are over twice as many events as the publication has room for.
            assert memory.held < MIB
        recorded = {recording.image.session_id: recording for recording in archive.server._conductor._active}
        archive.until(lambda: all(recorded[each.session_id].position == positions[each] for each in publications))
        assert is_served(client)
        # Once they are read, the last position of each recording follows.
        latest: dict[int, int] = {}

        def read() -> bool:
            for data in unread.poll_bytes(1000):
                event = decode(data)
                if event.name == "RecordingProgress":
                    latest[event.recording_id] = event.position
            return sorted(latest.values()) == sorted(positions.values())

        archive.until(read, "the last progress of each recording")
