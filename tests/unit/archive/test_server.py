"""The archive server, request by request: who may connect, which requests are refused, and what the responses contain."""

from __future__ import annotations

import logging
import os
import re
import shutil
import struct
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.archive_server import CHANNEL, CONTROL, SEGMENT, ControlClient, RunningArchive
from tests.support.waiting import STALL_S

from mainstem import MediaDriver
from mainstem._internal.log_throttle import LogThrottle
from mainstem.aeron import idle
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.archive.channels import extension_channel
from mainstem.archive.messages import TYPES, RecordingSignal, ResponseCode, decode, encode
from mainstem.archive.server import Accept, ArchiveServer, Challenge, Reject, refused_requests
from mainstem.errors import ArchiveErrorCode, ConfigurationError, RecordingError
from mainstem.recording import find_problems, messages, open_recordings, read_catalog
from mainstem.recording.mark_file import MARK_FILE, Mark
from mainstem.recording.segments import segment_bases
from mainstem.recording.start_limits import SOURCE_SHARE, StartLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NS_PER_MS = 1_000_000
COUNT = 200


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[RunningArchive]:
    with RunningArchive(tmp_path / "archive") as running:
        yield running


def payload(number: int) -> bytes:
    return number.to_bytes(4, "big") * (1 + number % 700)


def publish(archive: RunningArchive, publication: Any, count: int = COUNT, first: int = 0) -> int:
    for number in range(first, first + count):
        archive.until(lambda: publication.offer(payload(number)) > 0, "a message is published")  # noqa: B023
    return int(publication.position)


def record(archive: RunningArchive, client: ControlClient, count: int = COUNT) -> tuple[int, int]:
    """Record a stream to its end, and return the recording's id and end position."""
    client.record(auto_stop=True)
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        end = publish(archive, publication, count)
        signal, recording_id, _ = client.signal()
        assert signal == RecordingSignal.START
    assert client.signal() == (RecordingSignal.STOP, recording_id, end)
    return recording_id, end


def replay(archive: RunningArchive, client: ControlClient, name: str = "ReplayRequest", **fields: Any) -> Any:
    """Start a replay, subscribe to it, and return its image."""
    fields = {"file_io_max_length": -1, "replay_token": -1, "replay_stream_id": 1002, **fields}
    session = client.ask(name, replay_channel="aeron:ipc", **fields)
    subscription = archive.aeron.add_subscription(
        f"aeron:ipc?session-id={struct.unpack('<i', struct.pack('<I', session & 0xFFFFFFFF))[0]}", 1002
    )
    archive.until(lambda: subscription.images, "the replay's image")
    return subscription


def read(archive: RunningArchive, subscription: Any, count: int) -> list[bytes]:
    found: list[bytes] = []

    def more() -> bool:
        found.extend(subscription.poll_bytes(1000))
        return len(found) >= count

    archive.until(more, "the replay's messages")
    return found


def test_an_idle_archive_sleeps_instead_of_yielding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host a yield lasts as long as other threads' time slices, which delays recordings longer than any sleep."""
    slept = threading.Semaphore(0)

    def is_of_archive() -> bool:
        return threading.current_thread().name == "archive-conductor"

    def sleep(seconds: float) -> None:
        time.sleep(min(seconds, 0.001))
        if is_of_archive():
            slept.release()

    def sched_yield() -> None:
        assert not is_of_archive(), "yielded the processor"

    monkeypatch.setattr(idle, "os", SimpleNamespace(sched_yield=sched_yield))
    monkeypatch.setattr(idle, "time", SimpleNamespace(sleep=sleep))
    with (
        MediaDriver.launch() as driver,
        ArchiveServer.launch(tmp_path, driver.directory, control_channel="") as server,
    ):
        assert all(slept.acquire(timeout=STALL_S) for _ in range(20))
        assert not server.closed


# -- sessions ------------------------------------------------------------------------------------------------------------


def test_the_ok_is_repeated_until_the_first_request_and_pings_follow_it(archive: RunningArchive) -> None:
    client = archive.client()
    first = client.response()
    second = client.response()
    assert first == second
    assert (first.relevant_id, first.version) == (first.control_session_id, 1 << 16 | 12 << 8)
    client.session_id = first.control_session_id
    client.send("KeepAliveRequest")
    ping = client.take(lambda each: each.name == "Ping")
    assert ping.control_session_id == client.session_id
    client.received.clear()
    assert client.ask("ArchiveIdRequest") == archive.server.settings.id


def test_another_major_version_is_refused_with_both_versions(archive: RunningArchive) -> None:
    response = archive.client(version=2 << 16).response()
    assert response.code == ResponseCode.ERROR
    assert "2.0.0" in response.error_message
    assert "1.12.0" in response.error_message


class _Guard:
    """Behaves like the reference's test authenticator."""

    def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept | Challenge | Reject:
        if challenge is None and credentials == b"admin:adminC":
            return Challenge(b"challenge!")
        return Accept(b"admin") if credentials in (b"admin:admin", b"admin:CSadmin") else Reject()


def test_authentication_accepts_challenges_and_rejects(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, authenticator=_Guard()) as archive:
        archive.connected(credentials=b"admin:admin")
        client = archive.client(credentials=b"admin:adminC")
        challenge = client.response()
        assert (challenge.name, challenge.encoded_challenge) == ("Challenge", b"challenge!")
        client.session_id = challenge.control_session_id
        # From now on, the server accepts only the challenge response.
        early = client.send("ArchiveIdRequest")
        client.send("ChallengeResponse", encoded_credentials=b"admin:CSadmin")
        client.establish()
        assert early not in [each.values.get("correlation_id") for each in client.received]
        for credentials in (b"", b"admin:wrong"):
            response = archive.client(credentials=credentials).response()
            assert (response.code, response.relevant_id) == (
                ResponseCode.ERROR,
                ArchiveErrorCode.AUTHENTICATION_REJECTED,
            )
            assert "authentication rejected" in response.error_message


def test_an_authenticator_that_fails_rejects(tmp_path: Path) -> None:
    class Broken:
        def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept:
            raise ZeroDivisionError

    with RunningArchive(tmp_path, authenticator=Broken()) as archive:
        assert archive.client().response().relevant_id == ArchiveErrorCode.AUTHENTICATION_REJECTED


def test_the_authorizer_decides_about_each_request(tmp_path: Path) -> None:
    asked = []

    def only_reading(request: str, principal: bytes) -> bool:
        asked.append((request, principal))
        return not request.startswith("Start")

    with RunningArchive(tmp_path, authenticator=_Guard(), authorizer=only_reading) as archive:
        client = archive.connected(credentials=b"admin:admin")
        fields = {"stream_id": 1, "source_location": 0, "channel": CHANNEL}
        assert client.error("StartRecordingRequest", **fields)[0] == ArchiveErrorCode.UNAUTHORISED_ACTION
        assert client.ask("StopReplayRequest", replay_session_id=7) == 0
        assert asked[-1] == ("StopReplayRequest", b"admin")


def test_requests_for_sessions_of_others_are_refused_and_counted(archive: RunningArchive) -> None:
    one, other = archive.connected(), archive.connected()
    stolen = other.send("StopAllReplaysRequest", session_id=one.session_id, recording_id=-1)
    unknown = other.send("StopAllReplaysRequest", session_id=12345, recording_id=-1)
    other.send_bytes(encode("CloseSessionRequest", control_session_id=one.session_id))
    assert one.ask("StopAllReplaysRequest", recording_id=-1) == 0
    assert other.ask("StopAllReplaysRequest", recording_id=-1) == 0
    answered = {each.values.get("correlation_id") for each in one.received + other.received}
    assert not answered & {stolen, unknown}
    assert archive.server.stats().refused == {"foreign session": 2, "unknown session": 1}


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        (b"\x01", "header"),
        (struct.pack("<4H", 8, 3, 99, 14) + bytes(8), "schema id"),
        (struct.pack("<4H", 8, 999, 101, 14) + bytes(8), "template id"),
        (struct.pack("<4H", 4, 8, 101, 14) + bytes(4), "block length"),
        (struct.pack("<4H", 28, 63, 101, 14) + bytes(28) + struct.pack("<I", 1 << 30), "data length"),
    ],
)
def test_unreadable_requests_are_counted_and_affect_no_one(archive: RunningArchive, message: bytes, rule: str) -> None:
    client = archive.connected()
    client.send_bytes(message)
    assert client.ask("StopReplayRequest", replay_session_id=1) == 0
    assert archive.server.stats().refused == {rule: 1}


def test_invalid_response_channels_and_huge_requests_are_rejected(archive: RunningArchive) -> None:
    client = archive.connected()
    client.connect(channel="aeron:nonsense")
    archive.until(lambda: archive.server.stats().refused == {"connect": 1})
    with archive.aeron.add_exclusive_publication("aeron:ipc?term-length=1m", 10) as publication:
        archive.until(lambda: publication.offer(bytes(65 << 10)) > 0)
        archive.until(lambda: archive.server.stats().refused == {"connect": 1, "length": 1})
    # The driver refuses this response channel; the session ends without a response.
    client.connect(channel="aeron:udp?endpoint=host.invalid:0")
    archive.until(lambda: archive.server.stats().control_sessions == 1)
    assert client.ask("StopReplayRequest", replay_session_id=1) == 0


def test_more_sessions_than_the_limit_are_refused(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, max_control_sessions=2) as archive:
        first, second = archive.connected(), archive.connected()
        archive.client()
        archive.until(lambda: archive.server.stats().refused == {"sessions": 1})
        first.send_bytes(encode("CloseSessionRequest", control_session_id=first.session_id))
        archive.until(lambda: archive.server.stats().control_sessions == 1)
        archive.connected()
        assert second.ask("StopReplayRequest", replay_session_id=1) == 0


@pytest.mark.parametrize("archive_id", [-7777, -(1 << 63), 0, (1 << 63) - 1])
def test_every_id_but_minus_one_is_an_archives_own(tmp_path: Path, archive_id: int) -> None:
    with RunningArchive(tmp_path, id=archive_id) as archive:
        assert archive.connected().ask("ArchiveIdRequest") == archive_id
        with pytest.raises(ConfigurationError, match="another archive of this driver has that id"):
            ArchiveServer.launch(
                tmp_path / "other", archive.driver.directory, id=archive_id, driver_invoker=archive.work
            )


def test_sessions_end_with_their_client(archive: RunningArchive) -> None:
    clients = [archive.connected() for _ in range(3)]
    assert archive.server.stats().control_sessions == 3
    clients[0].requests.close()
    clients[1].responses.close()
    clients[2].close()
    archive.until(lambda: archive.server.stats().control_sessions == 0, "the sessions end")


def test_a_client_that_does_not_read_loses_its_session_and_delays_no_other(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, connect_timeout_ns=100 * NS_PER_MS, max_queued_responses=50) as archive:
        lazy, other = archive.connected(), archive.connected()

        def ended() -> bool:
            lazy.requests.offer(
                encode("StopReplayRequest", control_session_id=lazy.session_id, correlation_id=1, replay_session_id=1)
            )
            return archive.server.stats().control_sessions == 1

        archive.until(ended, "the session ends")
        assert other.ask("StopReplayRequest", replay_session_id=1) == 0


def test_every_request_whose_fields_are_zero_is_answered(archive: RunningArchive) -> None:
    """The server knows every request, and none of them ends the session or affects another client."""
    client = archive.connected()
    silent = {"AuthConnectRequest", "CloseSessionRequest", "KeepAliveRequest"}
    answers = ("ControlResponse", "RecordingDescriptor", "RecordingSubscriptionDescriptor")
    for each in TYPES:
        if each.name.endswith(("Request", "Request2")) and each.name not in silent:
            ids = {"control_session_id": client.session_id, "correlation_id": each.template_id}
            client.send_bytes(each.encode(**{field.name: 0 for field in each.fields} | ids))
            found = client.take(lambda message: message.values.get("correlation_id") == each.template_id)  # noqa: B023
            assert found.name in answers
    assert archive.server.stats().refused == {}


def calls_of(cycle: Callable[[], object]) -> int:
    """Return how many functions a call runs."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        cycle()
    finally:
        sys.setprofile(None)
    return calls


def test_idle_recordings_and_sessions_do_not_slow_a_duty_cycle(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, max_concurrent_recordings=100) as archive:
        client = archive.connected()

        def idle_cost() -> int:
            archive.until(lambda: not archive.work(), "all is quiet")
            return min(calls_of(archive.server.invoke) for _ in range(20))

        streams = []
        costs = []
        for stream_id in range(5000, 5030):
            client.record(stream_id)
            streams.append(archive.aeron.add_exclusive_publication(CHANNEL, stream_id))
            publish(archive, streams[-1], 1)
            assert client.signal()[0] == RecordingSignal.START
            if stream_id in (5000, 5029):
                costs.append(idle_cost())
        assert costs[1] - costs[0] < 10
        sessions = [archive.connected() for _ in range(10)]
        # Per session, the server only checks whether it is idle and whether its image has a request.
        assert idle_cost() - costs[1] < 5 * len(sessions)
        for stream in streams:
            publish(archive, stream, 1)
            stream.close()
        archive.until(lambda: archive.server.stats().recordings == 0, "all end")


# -- recordings ----------------------------------------------------------------------------------------------------------


def test_a_recording_is_listed_and_replayed_and_readable_by_others(archive: RunningArchive) -> None:
    client = archive.connected()
    recording_id, end = record(archive, client)
    (descriptor,) = client.listed("ListRecordingsRequest", from_recording_id=0, record_count=10)
    assert (descriptor.recording_id, descriptor.start_position, descriptor.stop_position) == (recording_id, 0, end)
    assert (descriptor.stripped_channel, descriptor.original_channel) == ("aeron:ipc", CHANNEL)
    subscription = replay(archive, client, recording_id=recording_id, position=-1, length=-1)
    assert read(archive, subscription, COUNT) == [payload(number) for number in range(COUNT)]
    archive.until(lambda: subscription.is_end_of_stream or not subscription.images, "the replay ends")
    subscription.close()
    archive.until(lambda: archive.server.stats().replays == 0)
    with open_recordings(archive.directory) as recordings:
        (reader,) = recordings
        found = [data for _, data in messages(reader, reader.start_position, reader.end_position())]
    assert found == [payload(number) for number in range(COUNT)]


def test_recordings_outlive_the_archive_and_keep_their_ids(archive: RunningArchive) -> None:
    client = archive.connected()
    assert record(archive, client)[0] == 0
    client.record(1001)
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        end = publish(archive, publication)
        assert client.signal()[:2] == (RecordingSignal.START, 1)
        archive.until(lambda: client.ask("RecordingPositionRequest", recording_id=1) == end)
        archive.stop()
        archive.start()
        client = archive.connected()
        assert client.ask("StopPositionRequest", recording_id=1) == end
        subscription = replay(archive, client, recording_id=1, position=-1, length=-2)
        assert read(archive, subscription, COUNT) == [payload(number) for number in range(COUNT)]
        subscription.close()
        # An archive never extends a recording on its own.
        client.record(1001)
        assert client.signal()[:2] == (RecordingSignal.START, 2)


def test_stopping_by_each_identity(archive: RunningArchive) -> None:
    client = archive.connected()
    stops = [
        ("StopRecordingRequest", lambda _: {"stream_id": 1001, "channel": "aeron:ipc"}),
        ("StopRecordingSubscriptionRequest", lambda subscription_id: {"subscription_id": subscription_id}),
    ]
    for number, (name, fields) in enumerate(stops):
        subscription_id = client.record()
        with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
            end = publish(archive, publication)
            archive.until(lambda: client.ask("MaxRecordedPositionRequest", recording_id=number) == end)  # noqa: B023
            assert client.ask(name, **fields(subscription_id)) == 0
            assert client.error(name, **fields(subscription_id))[0] == ArchiveErrorCode.UNKNOWN_SUBSCRIPTION
        assert [client.signal() for _ in range(2)][1] == (RecordingSignal.STOP, number, end)
    client.record()
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        publish(archive, publication)
        assert client.signal()[:2] == (RecordingSignal.START, 2)
        assert client.ask("StopRecordingByIdentityRequest", recording_id=2) == 1
        assert client.signal()[:2] == (RecordingSignal.STOP, 2)
        assert client.ask("StopRecordingByIdentityRequest", recording_id=2) == 0
    assert client.error("StopRecordingByIdentityRequest", recording_id=3)[0] == ArchiveErrorCode.UNKNOWN_RECORDING


def test_the_limit_of_recordings_counts_subscriptions_that_wait_for_an_image(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, max_concurrent_recordings=2) as archive:
        client = archive.connected()
        first = client.record(1)
        client.record(2)
        fields = {"stream_id": 3, "source_location": 0, "channel": CHANNEL}
        assert client.error("StartRecordingRequest", **fields)[0] == ArchiveErrorCode.MAX_RECORDINGS
        assert client.ask("StopRecordingSubscriptionRequest", subscription_id=first) == 0
        client.record(3)


@pytest.mark.parametrize("is_hourly", [False, True])
def test_images_beyond_a_limit_wait_to_be_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_hourly: bool
) -> None:
    monkeypatch.setattr(refused_requests, "_throttle", LogThrottle(logging.getLogger("mainstem.archive")))
    with RunningArchive(tmp_path, max_concurrent_recordings=20 if is_hourly else 2) as archive:
        if is_hourly:
            archive.server._conductor._files._limits = StartLimits(2 * SOURCE_SHARE)
        client = archive.connected()
        started = client.send("StartRecordingRequest2", stream_id=1, source_location=0, auto_stop=0, channel=CHANNEL)
        assert client.response(started).code == ResponseCode.OK
        publications = [archive.aeron.add_exclusive_publication(CHANNEL, 1) for _ in range(4)]
        told = client.take(lambda each: each.values.get("code") == ResponseCode.ERROR)
        assert (told.correlation_id, told.relevant_id) == (started, ArchiveErrorCode.MAX_RECORDINGS)
        archive.until(lambda: archive.server.stats().refused.get("recordings") == 2, "the others are refused")
        assert archive.server.stats().recordings == 2
        assert caplog.text.count("waits to be recorded") == 1
        assert f"stream 1 session {publications[2].session_id} waits to be recorded" in caplog.text
        ends = {each.session_id: publish(archive, each, 10) for each in publications}
        assert {each.session_id for each in _listed(client)} == {each.session_id for each in publications[:2]}
        if is_hourly:
            archive.server._conductor._files._limits = StartLimits()
        else:
            publications[0].close()
            archive.until(lambda: len(_listed(client)) == 3, "a waiting image is recorded")
            publications[1].close()
        archive.until(lambda: len(_listed(client)) == 4, "all images are recorded")
        for each in _listed(client):
            fields = {"recording_id": each.recording_id}
            archive.until(lambda: client.ask("MaxRecordedPositionRequest", **fields) == ends[each.session_id])  # noqa: B023
            assert each.start_position == 0
        assert not any(each.values.get("code") == ResponseCode.ERROR for each in client.received)


def test_a_recording_without_data_leaves_no_file_and_can_be_extended(archive: RunningArchive) -> None:
    client = archive.connected()
    client.record(1)
    names = set(os.listdir(archive.directory))
    for _ in range(10):
        with archive.aeron.add_exclusive_publication(CHANNEL, 1):
            assert client.signal()[0] == RecordingSignal.START
        assert client.signal()[0] == RecordingSignal.STOP
    assert set(os.listdir(archive.directory)) == names
    assert len(client.listed("ListRecordingsRequest", from_recording_id=0, record_count=20)) == 10
    client.ask("StopRecordingRequest", stream_id=1, channel=CHANNEL)
    recording_id = 7
    client.ask(
        "ExtendRecordingRequest2",
        recording_id=recording_id,
        stream_id=1,
        source_location=0,
        auto_stop=1,
        channel=CHANNEL,
    )
    channel = extension_channel("aeron:ipc", read_catalog(archive.directory)[recording_id])
    with archive.aeron.add_exclusive_publication(channel, 1) as publication:
        end = publish(archive, publication, 10)
        assert client.signal() == (RecordingSignal.EXTEND, recording_id, 0)
    assert client.signal() == (RecordingSignal.STOP, recording_id, end)
    with open_recordings(archive.directory) as recordings:
        contents = {
            each.descriptor.recording_id: each.count_before(each.end_position()).messages for each in recordings
        }
    assert contents == {number: 10 * (number == recording_id) for number in range(10)}


def _listed(client: ControlClient) -> Any:
    return client.listed("ListRecordingsRequest", from_recording_id=0, record_count=9)


def test_recording_stops_when_storage_is_low(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, low_storage_space_threshold=1 << 60) as archive:
        client = archive.connected()
        fields = {"stream_id": 3, "source_location": 0, "channel": CHANNEL}
        code, text = client.error("StartRecordingRequest", **fields)
        assert code == ArchiveErrorCode.STORAGE_SPACE
        assert str(1 << 60) in text


def test_recording_events_tell_of_start_progress_and_stop(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, recording_events_channel=CONTROL) as archive:
        client = archive.connected()
        events = ControlClient(archive)
        subscription = archive.aeron.add_subscription(CONTROL, 30)
        archive.until(lambda: subscription.is_connected)
        events.responses.close()
        events.responses = subscription
        _, end = record(archive, client)
        started = events.take(lambda each: each.name == "RecordingStarted")
        assert (started.recording_id, started.channel, started.source_identity) == (0, CHANNEL, "aeron:ipc")
        assert events.take(lambda each: each.name == "RecordingStopped").stop_position == end
        positions = [each.position for each in events.received if each.name == "RecordingProgress"]
        assert positions == sorted(positions)
        assert positions[-1] == end


def test_progress_that_the_events_had_no_room_for_is_reported_later(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, recording_events_channel=CONTROL) as archive:
        client = archive.connected()
        client.record()
        subscription = archive.aeron.add_subscription(CONTROL, 30)
        archive.until(lambda: subscription.is_connected)
        with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
            end, sent = 0, 0
            while (status := archive.server._conductor._events._publication.offer(bytes(1000))) > 0:
                sent += 1  # nobody reads them, so the publication has no room for an event
            assert status == OfferStatus.BACK_PRESSURED
            end = publish(archive, publication)
            archive.until(lambda: archive.server._conductor._active.get(0).position == end)
            found: list[Any] = []

            def has_come() -> bool:
                found.extend(decode(data) for data in subscription.poll_bytes(100) if data != bytes(1000))
                return any(each.name == "RecordingProgress" and each.position == end for each in found)

            archive.until(has_come, "the progress that had no room")


# -- listings ------------------------------------------------------------------------------------------------------------


def test_a_listing_resumes_where_its_client_had_no_room(archive: RunningArchive) -> None:
    client = archive.connected()
    count = 20
    client.record(1001, channel=f"{CHANNEL}|alias={'a' * 3000}")
    for number in range(count):
        with archive.aeron.add_exclusive_publication(CHANNEL, 1001):
            assert client.signal()[:2] == (RecordingSignal.START, number)
        assert client.signal()[:2] == (RecordingSignal.STOP, number)
    listing = client.send("ListRecordingsRequest", from_recording_id=0, record_count=count + 1)
    second = client.send("ListRecordingRequest", recording_id=0)
    for _ in range(100):
        archive.work()
    found = [client.take(lambda each: each.values.get("correlation_id") == listing) for _ in range(count + 1)]
    assert [each.recording_id for each in found[:-1]] == list(range(count))
    assert (found[-1].code, found[-1].relevant_id) == (ResponseCode.RECORDING_UNKNOWN, count)
    assert client.response(second).relevant_id == ArchiveErrorCode.ACTIVE_LISTING
    assert client.listed("ListRecordingRequest", recording_id=4711) == []


def test_negative_and_empty_counts_end_a_listing_at_once(archive: RunningArchive) -> None:
    client = archive.connected()
    record(archive, client)
    for count in (-1, 0):
        assert client.listed("ListRecordingsRequest", from_recording_id=0, record_count=count) == []
        assert (
            client.listed(
                "ListRecordingSubscriptionsRequest",
                pseudo_index=0,
                subscription_count=count,
                apply_stream_id=0,
                stream_id=0,
            )
            == []
        )


# -- replays -------------------------------------------------------------------------------------------------------------


def test_replays_have_a_limit_and_end_without_a_subscriber(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, max_concurrent_replays=1, connect_timeout_ns=200 * NS_PER_MS) as archive:
        client = archive.connected()
        recording_id, _ = record(archive, client)
        fields = {
            "recording_id": recording_id,
            "position": -1,
            "length": -1,
            "replay_stream_id": 1002,
            "file_io_max_length": -1,
            "replay_token": -1,
            "replay_channel": "aeron:ipc",
        }
        first = client.send("ReplayRequest", **fields)
        assert client.response(first).code == ResponseCode.OK
        assert client.error("ReplayRequest", **fields) == (
            ArchiveErrorCode.MAX_REPLAYS,
            "max concurrent replays reached 1",
        )
        late = client.response(first)
        assert (late.code, late.relevant_id) == (ResponseCode.ERROR, ArchiveErrorCode.GENERIC)
        assert client.ask("ReplayRequest", **fields) == 2 << 32 | archive_session(client)


def archive_session(client: ControlClient) -> int:
    """Return the session of the active replay."""
    (replay,) = client.archive.server._conductor._replays
    return int(replay.session_id & 0xFFFFFFFF)


def test_a_replay_of_an_empty_recording_ends_at_once(archive: RunningArchive) -> None:
    client = archive.connected()
    client.record(auto_stop=True)
    publication = archive.aeron.add_exclusive_publication(CHANNEL, 1001)
    assert client.signal() == (RecordingSignal.START, 0, 0)
    publication.close()
    assert client.signal() == (RecordingSignal.STOP, 0, 0)
    fields = {"recording_id": 0, "replay_stream_id": 1002, "file_io_max_length": -1, "replay_token": -1}
    fields |= {"replay_channel": "aeron:ipc", "position": -1}
    assert client.error("ReplayRequest", length=-2, **fields)[0] == ArchiveErrorCode.EMPTY_RECORDING
    subscription = archive.aeron.add_subscription("aeron:ipc", 1002)
    client.ask("ReplayRequest", length=-1, **fields)
    archive.until(lambda: archive.server.stats().replays == 0, "the replay ends")
    assert subscription.poll_bytes(1) == []


def test_a_stopped_replay_is_gone_for_its_subscriber(archive: RunningArchive) -> None:
    client = archive.connected()
    client.record()
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        publish(archive, publication)
        client.signal()
        subscription = replay(archive, client, recording_id=0, position=0, length=-1)
        assert read(archive, subscription, COUNT) == [payload(number) for number in range(COUNT)]
        session = archive.server._conductor._replays._sessions[0].session_id
        assert client.ask("StopReplayRequest", replay_session_id=session) == 0
        archive.until(lambda: not subscription.images, "the image goes")
        assert client.ask("StopReplayRequest", replay_session_id=session) == 0


def test_refused_requests_have_the_words_of_javas_archive(archive: RunningArchive) -> None:
    client = archive.connected()
    recording_id = fill(archive, client, 3)
    replay_fields = {"recording_id": recording_id, "replay_stream_id": 1002, "replay_channel": "aeron:ipc"}
    replay_fields |= {"file_io_max_length": -1, "replay_token": -1}
    extension = {"recording_id": recording_id, "stream_id": 7, "source_location": 0, "auto_stop": 0}
    for name, fields, code, text in (
        ("PurgeRecordingRequest", {"recording_id": 99}, ArchiveErrorCode.UNKNOWN_RECORDING, "unknown recording id: 99"),
        (
            "ExtendRecordingRequest2",
            extension | {"channel": CHANNEL},
            ArchiveErrorCode.UNKNOWN_RECORDING,
            f"cannot extend recording {recording_id} with streamId=7 for existing streamId=1001",
        ),
        (
            "ReplayRequest",
            replay_fields | {"position": 33, "length": -1},
            ArchiveErrorCode.GENERIC,
            f"requested replay start position=33 is not a multiple of FRAME_ALIGNMENT (32) for recording {recording_id}",
        ),
        (
            "ReplayRequest",
            replay_fields | {"position": 3072, "length": -1},
            ArchiveErrorCode.INVALID_POSITION,
            (
                "requested replay start position=3072 must be less than the limit position=3072 "
                f"for recording {recording_id}"
            ),
        ),
        (
            "ReplayRequest",
            replay_fields | {"position": 1024, "length": -7},
            ArchiveErrorCode.GENERIC,
            (
                "replay length must be positive: replayLength=-7, length=-7, stopPosition=3072, replayPosition=1024 "
                f"for recording {recording_id}"
            ),
        ),
        (
            "StopReplicationRequest",
            {"replication_id": 77},
            ArchiveErrorCode.UNKNOWN_REPLICATION,
            "unknown replication id 77",
        ),
        (
            "TruncateRecordingRequest",
            {"recording_id": recording_id, "position": 17},
            ArchiveErrorCode.INVALID_POSITION,
            "invalid position 17: start=0 stop=3072 alignment=32",
        ),
    ):
        assert client.error(name, **fields) == (code, text)
    # A stream that does not continue the recording.
    client.ask("ExtendRecordingRequest2", **extension | {"stream_id": 1001, "channel": CHANNEL})
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001):
        failed = client.take(lambda each: each.name == "ControlResponse" and each.code == ResponseCode.ERROR)
    assert failed.relevant_id == ArchiveErrorCode.INVALID_EXTENSION
    assert (
        failed.error_message == f"cannot extend recording {recording_id} image.joinPosition=0 != rec.stopPosition=3072"
    )


# -- deletions -----------------------------------------------------------------------------------------------------------


def fill(archive: RunningArchive, client: ControlClient, frames: int, *, first: int = 0) -> int:
    """Record numbered frames of 1 KiB from position ``1024 * first`` on, and return the recording's id."""
    at = f"init-term-id=7|term-id={7 + first * 1024 // 65536}|term-offset={first * 1024 % 65536}"
    client.record(auto_stop=True)
    with archive.aeron.add_exclusive_publication(f"{CHANNEL}|{at}", 1001) as publication:
        for number in range(first, first + frames):
            message = number.to_bytes(8, "big") * 124
            archive.until(lambda: publication.offer(message) > 0, "a frame is published")  # noqa: B023
        recording_id = client.signal()[1]
    assert client.signal()[0] == RecordingSignal.STOP
    return recording_id


def numbers(archive: RunningArchive, client: ControlClient, recording_id: int, position: int, frames: int) -> list[int]:
    """Return the numbers of the frames in a replay."""
    subscription = replay(archive, client, recording_id=recording_id, position=position, length=frames * 1024)
    found = [int.from_bytes(data[:8], "big") for data in read(archive, subscription, frames)]
    subscription.close()
    archive.until(lambda: archive.server.stats().replays == 0, "the replay ends")
    return found


def segments(archive: RunningArchive, recording_id: int) -> list[int]:
    return segment_bases(archive.directory, recording_id)


def check_readable(archive: RunningArchive) -> None:
    """Check that other readers find no problems in any recording."""
    with open_recordings(archive.directory) as recordings:
        for reader in recordings:
            assert list(find_problems(reader, reader.start_position, reader.end_position())) == []


def test_subscriptions_whose_recordings_have_ended_do_not_count_as_recordings(tmp_path: Path) -> None:
    with RunningArchive(tmp_path / "limited", max_concurrent_recordings=2) as archive:
        client = archive.connected()
        for stream_id in range(1, 6):
            client.record(stream_id=stream_id)  # without auto_stop: the subscription waits for the next publication
            with archive.aeron.add_exclusive_publication(CHANNEL, stream_id) as publication:
                archive.until(lambda: publication.offer(b"x" * 64) > 0, "a frame is published")
                assert client.signal()[0] == RecordingSignal.START
            assert client.signal()[0] == RecordingSignal.STOP


def test_recording_subscriptions_have_a_limit_of_their_own(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, max_recording_subscriptions=2) as archive:
        client = archive.connected()
        for stream_id in (1, 2):
            client.record(stream_id=stream_id)
        fields = {"channel": CHANNEL, "source_location": 1, "auto_stop": 0}
        code, text = client.error("StartRecordingRequest2", stream_id=3, **fields)
        assert (code, text) == (ArchiveErrorCode.MAX_RECORDINGS, "max recording subscriptions reached 2")
        client.ask("StopRecordingRequest", channel=CHANNEL, stream_id=1)
        client.record(stream_id=3)


def test_truncating_checks_first_and_stops_replays(archive: RunningArchive) -> None:
    client = archive.connected()
    recording_id = fill(archive, client, 300)
    before = segments(archive, recording_id)
    for position in (17, 512, 301 * 1024, -32):
        code, _ = client.error("TruncateRecordingRequest", recording_id=recording_id, position=position)
        assert code == (ArchiveErrorCode.GENERIC if position == 512 else ArchiveErrorCode.INVALID_POSITION)
    assert segments(archive, recording_id) == before
    assert client.ask("StopPositionRequest", recording_id=recording_id) == 300 * 1024
    subscription = replay(archive, client, recording_id=recording_id, position=0, length=-1)
    assert client.ask("TruncateRecordingRequest", recording_id=recording_id, position=200 * 1024) == 1
    assert client.signal() == (RecordingSignal.DELETE, recording_id, -1)
    archive.until(lambda: not subscription.images, "the replay ends")
    assert numbers(archive, client, recording_id, 0, 200) == list(range(200))
    check_readable(archive)
    archive.stop()
    archive.start()
    client = archive.connected()
    assert client.ask("StopPositionRequest", recording_id=recording_id) == 200 * 1024
    assert numbers(archive, client, recording_id, 0, 200) == list(range(200))


def test_a_purged_recording_is_gone_and_its_id_is_not_used_again(archive: RunningArchive) -> None:
    client = archive.connected()
    recording_id = fill(archive, client, 300)
    subscription = replay(archive, client, recording_id=recording_id, position=0, length=-1)
    code, text = client.error("PurgeRecordingRequest", recording_id=recording_id)
    assert code == ArchiveErrorCode.ACTIVE_RECORDING
    assert text == f"cannot purge recording with active replay {recording_id}"
    subscription.close()
    archive.until(lambda: archive.server.stats().replays == 0, "the replay ends")
    assert client.ask("PurgeRecordingRequest", recording_id=recording_id) == 3
    assert client.signal() == (RecordingSignal.DELETE, recording_id, -1)
    assert not list(archive.directory.glob(f"{recording_id}*"))
    assert client.error("StopPositionRequest", recording_id=recording_id)[0] == ArchiveErrorCode.UNKNOWN_RECORDING
    archive.stop()
    archive.start()
    client = archive.connected()
    assert client.listed("ListRecordingsRequest", from_recording_id=0, record_count=9) == []
    assert fill(archive, client, 3) == recording_id + 1


def test_segments_are_detached_attached_and_purged_during_a_recording(archive: RunningArchive) -> None:
    client = archive.connected()
    client.record(auto_stop=True)
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        for number in range(500):
            message = number.to_bytes(8, "big") * 124
            archive.until(lambda: publication.offer(message) > 0, "a frame is published")  # noqa: B023
        recording_id = client.signal()[1]
        archive.until(lambda: client.ask("RecordingPositionRequest", recording_id=recording_id) == 500 * 1024)
        subscription = replay(archive, client, recording_id=recording_id, position=0, length=-1)
        request = {"recording_id": recording_id, "new_start_position": 2 * SEGMENT}
        code, text = client.error("DetachSegmentsRequest", **request)
        assert code == ArchiveErrorCode.GENERIC
        assert re.fullmatch(
            rf"invalid detach: replay in progress -  state=REPLAY newStartPosition={2 * SEGMENT} upperBound=\d+ "
            r"sessionId=-?\d+ streamId=1002 channel=aeron:ipc.*",
            text,
        )
        for start, words in (
            (64, "invalid segment start: newStartPosition=64"),
            (0, f"invalid detach: newStartPosition=0 lowerBound={SEGMENT}"),
            (4 * SEGMENT, f"invalid detach: in use, newStartPosition={4 * SEGMENT} upperBound={3 * SEGMENT}"),
        ):
            refused = client.error("DetachSegmentsRequest", recording_id=recording_id, new_start_position=start)
            assert refused == (ArchiveErrorCode.GENERIC, words)
        subscription.close()
        archive.until(lambda: archive.server.stats().replays == 0, "the replay ends")
        assert client.ask("DetachSegmentsRequest", **request) == 0
        assert client.ask("StartPositionRequest", recording_id=recording_id) == 2 * SEGMENT
        assert client.ask("AttachSegmentsRequest", recording_id=recording_id) == 2
        assert client.ask("PurgeSegmentsRequest", **request) == 2
        assert client.signal() == (RecordingSignal.DELETE, recording_id, -1)
        assert segments(archive, recording_id) == [2 * SEGMENT, 3 * SEGMENT]
    assert client.signal()[:2] == (RecordingSignal.STOP, recording_id)
    assert numbers(archive, client, recording_id, 2 * SEGMENT, 244) == list(range(256, 500))
    check_readable(archive)


@pytest.mark.parametrize("is_prepended", [True, False])
def test_migrating_moves_segments_and_both_ends_are_read(archive: RunningArchive, is_prepended: bool) -> None:
    client = archive.connected()
    first = fill(archive, client, 256)
    second = fill(archive, client, 128, first=256)
    source, target = (first, second) if is_prepended else (second, first)
    ids = {"src_recording_id": source, "dst_recording_id": target}
    assert client.error("MigrateSegmentsRequest", src_recording_id=source, dst_recording_id=source)[0] == 0
    if not is_prepended:  # the empty segment that follows the target
        existing = archive.directory / f"{target}-{2 * SEGMENT}.rec"
        refused = client.error("MigrateSegmentsRequest", **ids)
        assert refused == (ArchiveErrorCode.GENERIC, f"preexisting dst segment file {existing}")
        assert client.ask("TruncateRecordingRequest", recording_id=target, position=2 * SEGMENT) == 1
        assert client.signal() == (RecordingSignal.DELETE, target, -1)
    assert client.ask("MigrateSegmentsRequest", **ids) == (2 if is_prepended else 1)
    assert client.signal() == (RecordingSignal.DELETE, source, -1)
    assert segments(archive, source) == []
    assert segments(archive, target) == [0, SEGMENT, 2 * SEGMENT] + [3 * SEGMENT] * is_prepended
    assert numbers(archive, client, target, 0, 384) == list(range(384))
    start, stop = (0, 0) if is_prepended else (256 * 1024, 256 * 1024)
    assert client.ask("StartPositionRequest", recording_id=source) == start
    assert client.ask("StopPositionRequest", recording_id=source) == stop
    check_readable(archive)
    if is_prepended:
        assert client.ask("MigrateSegmentsRequest", **ids) == 0  # nothing is left to migrate
    else:
        assert "src and dst are not contiguous" in client.error("MigrateSegmentsRequest", **ids)[1]


@pytest.mark.parametrize("is_attached", [True, False])
def test_segments_are_put_before_an_active_recording_and_survive_a_crash(
    archive: RunningArchive, tmp_path: Path, is_attached: bool
) -> None:
    client = archive.connected()
    source = fill(archive, client, 256)
    client.record(auto_stop=True)
    with archive.aeron.add_exclusive_publication(f"{CHANNEL}|init-term-id=7|term-id=11|term-offset=0", 1001) as live:
        for number in range(256, 600):
            if number == 500:  # in the middle, as Java's archive allows
                target = client.signal()[1]
                where = {"recording_id": target}
                archive.until(lambda: client.ask("RecordingPositionRequest", **where) == 500 * 1024)  # noqa: B023
                if is_attached:
                    for base in (0, SEGMENT):
                        (archive.directory / f"{source}-{base}.rec").rename(archive.directory / f"{target}-{base}.rec")
                    assert client.ask("AttachSegmentsRequest", recording_id=target) == 2
                else:
                    ids = {"src_recording_id": source, "dst_recording_id": target}
                    assert client.ask("MigrateSegmentsRequest", **ids) == 2
                    assert client.signal() == (RecordingSignal.DELETE, source, -1)
            message = number.to_bytes(8, "big") * 124
            archive.until(lambda: live.offer(message) > 0, "a frame is published")  # noqa: B023
        archive.until(lambda: client.ask("RecordingPositionRequest", **where) == 600 * 1024)
        assert client.ask("StartPositionRequest", **where) == 0
        assert numbers(archive, client, target, 0, 600) == list(range(600))
        crashed = tmp_path / "crashed"
        shutil.copytree(archive.directory, crashed)
    assert client.signal()[:2] == (RecordingSignal.STOP, target)
    with open_recordings(archive.directory) as recordings:
        reader = next(each for each in recordings if each.descriptor.recording_id == target)
        assert list(find_problems(reader, 0, reader.end_position())) == []
    with RunningArchive(crashed) as restarted:
        client = restarted.connected()
        assert client.ask("StartPositionRequest", recording_id=target) == 0
        assert client.ask("StopPositionRequest", recording_id=target) == 600 * 1024
        assert numbers(restarted, client, target, 0, 600) == list(range(600))


def test_refused_migrations_have_the_words_of_javas_archive(archive: RunningArchive) -> None:
    client = archive.connected()
    first = fill(archive, client, 256)
    second = fill(archive, client, 128, first=256)
    far = fill(archive, client, 3, first=512)
    short = fill(archive, client, 64)
    inside = fill(archive, client, 3, first=64)
    client.record(1001, auto_stop=True)
    client.record(1002, auto_stop=True)
    client.record(1003, channel=f"{CHANNEL}|alias=other", auto_stop=True)

    def refused(source: int, target: int) -> str:
        code, text = client.error("MigrateSegmentsRequest", src_recording_id=source, dst_recording_id=target)
        assert code == ArchiveErrorCode.GENERIC
        return text.replace(str(archive.directory), "DIRECTORY")

    at = "init-term-id=7|term-id=7|term-offset=0"
    made = {}
    for name, stream_id, channel in (
        ("active", 1001, f"{CHANNEL}|{at}"),
        ("stream", 1002, f"{CHANNEL}|{at}"),
        ("term id", 1003, f"{CHANNEL}|alias=other|init-term-id=8|term-id=8|term-offset=0"),
    ):
        publication = archive.aeron.add_exclusive_publication(channel, stream_id)
        made[name] = client.signal()[1]
        if name != "active":
            publication.close()
            client.signal()
    assert refused(made["active"], first) == f"recording {made['active']} is still active"
    assert refused(first, made["stream"]) == "invalid migrate: srcStreamId=1001 dstStreamId=1002"
    assert refused(first, made["term id"]) == "invalid migrate: srcInitialTermId=7 dstInitialTermId=8"
    assert refused(first, far) == (
        f"invalid migrate: src and dst are not contiguous srcStartPosition=0 srcStopPosition={2 * SEGMENT}"
        f" dstStartPosition={4 * SEGMENT} dstStopPosition={4 * SEGMENT + 3 * 1024}"
    )
    assert refused(far, made["active"]).endswith(" dstStartPosition=0 dstStopPosition=-1")
    assert refused(short, inside) == (
        f"invalid migrate: join position is not on segment boundary of src recording seamPosition={64 << 10}"
        f" startPosition=0 stopPosition={64 << 10} termBufferLength={64 << 10} segmentFileLength={SEGMENT}"
    )
    lost = archive.directory / f"{first}-{SEGMENT}.rec"
    kept = lost.rename(archive.directory / "kept")
    assert refused(first, second) == f"missing src segment file DIRECTORY/{lost.name}"
    kept.rename(lost)
    own = archive.directory / f"{second}-{SEGMENT}.rec"
    own.write_bytes(b"")
    assert refused(first, second) == f"preexisting dst segment file DIRECTORY/{own.name}"
    own.unlink()
    assert client.ask("MigrateSegmentsRequest", src_recording_id=first, dst_recording_id=second) == 2


def test_segments_that_were_renamed_to_be_deleted_go_with_the_others_and_at_the_next_start(
    archive: RunningArchive,
) -> None:
    client = archive.connected()

    def rename(recording_id: int, base: int) -> None:
        path = archive.directory / f"{recording_id}-{base}.rec"
        path.rename(path.with_name(f"{path.name}.del"))

    def renamed() -> list[str]:
        return sorted(path.name for path in archive.directory.glob("*.del"))

    first, second = fill(archive, client, 256), fill(archive, client, 3, first=256)
    rename(first, 2 * SEGMENT)
    client.ask("MigrateSegmentsRequest", src_recording_id=first, dst_recording_id=second)
    assert client.signal() == (RecordingSignal.DELETE, first, -1)
    assert renamed() == []
    rename(second, 0)
    client.ask("PurgeSegmentsRequest", recording_id=second, new_start_position=SEGMENT)
    assert client.signal() == (RecordingSignal.DELETE, second, -1)
    assert renamed() == []
    rename(second, 2 * SEGMENT)
    assert client.ask("TruncateRecordingRequest", recording_id=second, position=SEGMENT) == 2
    assert client.signal() == (RecordingSignal.DELETE, second, -1)
    assert (renamed(), segments(archive, second)) == ([], [])
    third = fill(archive, client, 300)
    others = [f"{third}-{SEGMENT}.rec.del.txt", "notes.rec.del"]
    for name in others:
        (archive.directory / name).touch()
    archive.stop()
    for name in (f"{third}-{4 * SEGMENT}.rec.del", "77-0.rec.del"):
        (archive.directory / name).touch()
    archive.start()
    assert renamed() == ["notes.rec.del"]
    assert (archive.directory / others[0]).exists()
    assert segments(archive, third) == [0, SEGMENT, 2 * SEGMENT]


# -- channels ------------------------------------------------------------------------------------------------------------


def test_a_channel_is_replaced_also_while_recordings_behind_it_are_active(archive: RunningArchive) -> None:
    client = archive.connected()
    first = fill(archive, client, 3)
    client.record(1001, auto_stop=True)
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        second = client.signal()[1]
        for channel in (f"{CHANNEL}|alias={'a' * 1000}", "aeron:ipc?alias=b", f"{CHANNEL}|alias={'c' * 3000}"):
            assert client.ask("UpdateChannelRequest", recording_id=first, channel=channel) == 0
            (found, _) = client.listed("ListRecordingsRequest", from_recording_id=0, record_count=9)
            assert found.original_channel == channel
        end = publish(archive, publication)
    assert client.signal() == (RecordingSignal.STOP, second, end)
    third = fill(archive, client, 3)
    archive.stop()
    archive.start()
    client = archive.connected()
    listed = client.listed("ListRecordingsRequest", from_recording_id=0, record_count=9)
    assert [each.recording_id for each in listed] == [first, second, third]
    assert [each.stop_position for each in listed] == [3 * 1024, end, 3 * 1024]
    response = client.response(client.send("UpdateChannelRequest", recording_id=99, channel=CHANNEL))
    assert (response.code, response.relevant_id) == (ResponseCode.RECORDING_UNKNOWN, 99)
    assert (
        client.error("UpdateChannelRequest", recording_id=first, channel="aeron:nonsense")[0]
        == ArchiveErrorCode.GENERIC
    )


# -- replay tokens -------------------------------------------------------------------------------------------------------


def test_a_replay_token_is_valid_for_its_recording_until_it_expires(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, connect_timeout_ns=300 * NS_PER_MS) as archive:
        client, other = archive.connected(), archive.connected()
        recording_id, _ = record(archive, client)
        token = client.ask("ReplayTokenRequest", recording_id=recording_id)
        fields = {
            "session_id": 0,
            "recording_id": recording_id,
            "position": 0,
            "length": -1,
            "replay_stream_id": 1002,
            "file_io_max_length": -1,
            "replay_channel": "aeron:ipc?control-mode=response",
        }
        other.send("ReplayRequest", **{**fields, "replay_token": token ^ 1})
        other.send("ReplayRequest", **{**fields, "replay_token": token, "recording_id": recording_id + 1})
        archive.until(lambda: archive.server.stats().refused == {"replay token": 2})
        # The token determines which session gets the response.
        response = client.response(other.send("ReplayRequest", **{**fields, "replay_token": token}))
        assert response.code == ResponseCode.OK
        assert client.error("ReplayRequest", **{**fields, "replay_token": -1, "session_id": client.session_id})[0] == 0
        end = time.monotonic() + 0.4
        archive.until(lambda: time.monotonic() > end)
        other.send("ReplayRequest", **{**fields, "replay_token": token})
        archive.until(lambda: archive.server.stats().refused == {"replay token": 3})


# -- the directory -------------------------------------------------------------------------------------------------------


def test_one_archive_or_recorder_has_the_directory(archive: RunningArchive) -> None:
    with pytest.raises(RecordingError, match="already running"):
        archive.start()


def test_the_mark_names_the_archive_and_does_not_delay_the_next_one(archive: RunningArchive) -> None:
    data = (archive.directory / MARK_FILE).read_bytes()
    assert Mark.decode(data).is_recorder
    assert str(archive.driver.directory).encode() in data
    assert struct.pack("<q", archive.server.settings.id) in data[64:80]


def test_two_archives_of_one_driver_have_different_ids(archive: RunningArchive, tmp_path: Path) -> None:
    for _ in range(20):
        archive.work()
    with pytest.raises(ConfigurationError, match="another archive of this driver"):
        ArchiveServer.launch(
            tmp_path / "other",
            archive.driver.directory,
            id=archive.server.settings.id,
            threading_mode="INVOKER",
            driver_invoker=archive.driver.do_work,
        )


@pytest.mark.parametrize("name", ["environ", "toml", "options", "control_chanel"])
def test_launch_takes_no_keyword_that_is_not_a_setting(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{name}'"):
        ArchiveServer.launch(tmp_path, **{name: {}})


def test_an_error_for_dedicated_threads_says_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"threading_mode='DEDICATED'.*use SHARED"):
        ArchiveServer.launch(tmp_path, threading_mode="DEDICATED")


@pytest.mark.parametrize("mode", ["SHARED", "INVOKER"])
def test_an_archive_runs_in_its_own_thread_or_is_run_by_its_caller(tmp_path: Path, mode: str) -> None:
    with (
        MediaDriver.launch(threads=True) as driver,
        ArchiveServer.launch(tmp_path, driver.directory, control_channel="", threading_mode=mode) as server,
    ):
        names = [thread.name for thread in threading.enumerate()]
        assert ("archive-conductor" in names) is (mode == "SHARED")
        assert (server.invoke() == 0) or mode == "INVOKER"
        assert not server.closed


# -- counters ------------------------------------------------------------------------------------------------------------


def counters_of(archive: RunningArchive) -> dict[str, int]:
    """Return the values of the archive's own counters, keyed by the beginning of their labels."""
    counters = archive.aeron.counters
    found = [counter_id for counter_id in counters if 101 <= counters.type_id(counter_id) <= 112]
    return {counters.label(each).partition(" - archiveId=")[0]: counters.value(each) for each in found}


def test_counters_show_bytes_and_times_of_writes_reads_and_cycles(archive: RunningArchive) -> None:
    client = archive.connected()
    recording_id, end = record(archive, client)
    subscription = replay(archive, client, recording_id=recording_id, position=-1, length=-1)
    read(archive, subscription, COUNT)
    subscription.close()
    archive.until(lambda: counters_of(archive)["Archive Replay Sessions"] == 0)
    values = counters_of(archive)
    assert values["archive-recorder total write bytes"] == end
    # A read that meets a full window is repeated.
    assert values["archive-replayer total read bytes"] >= end
    for agent, what in (("recorder", "write"), ("replayer", "read")):
        longest, total = (values[f"archive-{agent} {kind} {what} time in ns"] for kind in ("max", "total"))
        assert 0 < longest < total
    longest, exceeded = (
        "archive-conductor max cycle time in ns: INVOKER",
        "archive-conductor work cycle time exceeded count: threshold=100ms INVOKER",
    )
    before = values[exceeded]
    time.sleep(0.11)
    archive.work()
    archive.work()
    values = counters_of(archive)
    assert values[longest] > 110 * NS_PER_MS
    assert values[exceeded] > before
    assert len(values) == 12
