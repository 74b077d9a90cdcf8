"""An archive that receives hostile requests refuses them, stays bounded, and keeps serving its other clients."""

from __future__ import annotations

import logging
import random
import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.archive_messages import sample
from tests.support.archive_server import CHANNEL, CONTROL, RunningArchive
from tests.support.many_recordings import make_recordings

from mainstem.archive.messages import TYPES, ResponseCode, encode
from mainstem.archive.server import Accept, Challenge, Reject
from mainstem.archive.server.control_session import MAX_TEXT_LENGTH
from mainstem.archive.server.request_errors import unexpected
from mainstem.archive.server.sessions import MAX_SESSIONS_OF_IMAGE
from mainstem.errors import ArchiveErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.archive_server import ControlClient

    from mainstem.archive.messages import MessageType

NS_PER_MS = 1_000_000
OPEN_REQUESTS = ("AuthConnectRequest", "CloseSessionRequest")  # that need no authentication
HEADER = struct.Struct("<4H")
NUMBERS = (0, 1, -1, -2, 7, 31, 32, 64, 1 << 20, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), -(1 << 62))
TEXTS = (
    "", "aeron:ipc", "aeron:udp", "aeron:udp?endpoint=localhost:0", "aeron:ipc?term-length=1g|mtu=65504", "aeron", "\x7f\0",
    "aeron-spy:aeron:udp?endpoint=localhost:1", "aeron:ipc?control-mode=response", "aeron:udp?control-mode=response|control=a:1",
    "aeron:udp?session-id=tag:x|tags=1,2,3", "aeron:ipc?session-id=99999999999", "aeron:ipc?linger=-1|linger=5x", "x" * 3000,
)  # fmt: skip


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[RunningArchive]:
    limits = {"max_concurrent_recordings": 4, "max_concurrent_replays": 4, "max_control_sessions": 8}
    with RunningArchive(tmp_path / "archive", **limits) as running:
        yield running


def is_served(client: ControlClient) -> bool:
    """Return whether the archive still carries out a request, whatever preceded it."""
    return client.ask("StopReplayRequest", replay_session_id=-5) == 0


def variants(message_type: MessageType, session_id: int, choose: random.Random) -> Iterator[bytes]:
    """Yield a valid message and every way to make it invalid."""
    values = sample(message_type)
    if "control_session_id" in values:
        values["control_session_id"] = session_id
    whole = message_type.encode(**values)
    block, template, schema, version = HEADER.unpack_from(whole)
    for length in (0, 1, block - 1, block + 1, 65535):
        yield HEADER.pack(length, template, schema, version) + whole[HEADER.size :]
    for length in {HEADER.size, len(whole) // 2, len(whole) - 1}:
        yield whole[:length]
    for other in (0, 1, 2, 13, 15, 65535):
        yield HEADER.pack(block, template, schema, other) + whole[HEADER.size :]
    yield whole + bytes(1000)
    if message_type.data:
        for length in (1 << 30, (1 << 32) - 1, 1 << 31, len(whole)):
            at = HEADER.size + block
            yield whole[:at] + struct.pack("<I", length) + whole[at + 4 :]
    for _ in range(8):
        given: dict[str, Any] = {}
        for field in message_type.fields:
            bits = 8 * field.length
            fitting = [number for number in NUMBERS if -(1 << (bits - 1)) <= number < 1 << (bits - 1)]
            given[field.name] = choose.choice(fitting)
        for name, is_text in message_type.data.items():
            text = choose.choice(TEXTS)
            given[name] = text if is_text else text.encode()
        if "control_session_id" in given:
            given["control_session_id"] = session_id
        yield message_type.encode(**given)


@pytest.mark.long
@pytest.mark.parametrize("message_type", TYPES, ids=lambda each: each.name)
def test_no_message_fails_a_duty_cycle_or_hinders_another_client(
    archive: RunningArchive, message_type: MessageType, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "mainstem.aeron")
    before = unexpected.copy()
    other, hostile = archive.connected(), archive.connected()
    for data in variants(message_type, hostile.session_id, random.Random(message_type.name)):
        if archive.server.stats().control_sessions < 2:
            hostile.close()
            hostile = archive.connected()
        hostile.send_bytes(data)
        archive.work()
        hostile.poll()
        hostile.received.clear()
    assert is_served(other)
    assert [record.message for record in caplog.records] == []
    assert not unexpected - before


@pytest.mark.parametrize("state", ["REJECTED", "CHALLENGED"])
def test_no_request_is_carried_out_before_authentication(tmp_path: Path, state: str) -> None:
    class Guard:
        def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept | Challenge | Reject:
            if credentials == b"right":
                return Accept()
            return Challenge(b"?") if state == "CHALLENGED" and challenge is None else Reject()

    with RunningArchive(tmp_path, authenticator=Guard()) as archive:
        served, hostile = archive.connected(credentials=b"right"), archive.client(credentials=b"wrong")
        hostile.session_id = hostile.response().control_session_id
        requests = 0
        for message_type in TYPES:
            values = sample(message_type)
            if message_type.name.endswith(("Request", "Request2")) and message_type.name not in OPEN_REQUESTS:
                values |= {"control_session_id": hostile.session_id, "correlation_id": -77}
                hostile.send_bytes(message_type.encode(**{key: values[key] for key in sample(message_type)}))
                requests += 1
        # All of them are counted, except replays with a token, which name no session.
        archive.until(
            lambda: archive.server.stats().refused.get("session state", 0) >= requests - 2, "the requests are refused"
        )
        assert is_served(served)
        hostile.poll()
        assert -77 not in {each.values.get("correlation_id") for each in hostile.received}
        stats = archive.server.stats()
        assert (stats.recordings, stats.replays, stats.replications) == (0, 0, 0)
        subscriptions = served.listed(
            "ListRecordingSubscriptionsRequest",
            pseudo_index=0, subscription_count=5, apply_stream_id=0, stream_id=0, channel="",
        )  # fmt: skip
        assert subscriptions == []


def test_a_client_cannot_change_the_session_of_another(archive: RunningArchive) -> None:
    owner, hostile = archive.connected(), archive.connected()
    subscription_id = owner.record(5001)
    for message_type in TYPES:
        values = sample(message_type)
        if "control_session_id" in values:
            # The request names the owner's recording subscription.
            values |= {key: subscription_id for key in values if key == "subscription_id"}
            values |= {"control_session_id": owner.session_id}
            hostile.send_bytes(message_type.encode(**values))
    assert is_served(hostile)
    assert is_served(owner)
    assert archive.server.stats().recordings == 0
    refused = archive.server.stats().refused
    assert refused["foreign session"] > 20
    (entry,) = owner.listed(
        "ListRecordingSubscriptionsRequest",
        pseudo_index=0, subscription_count=5, apply_stream_id=0, stream_id=0, channel="",
    )  # fmt: skip
    assert entry.subscription_id == subscription_id


def test_a_flood_of_connects_holds_no_more_than_its_limit_and_is_gone_after_the_time_out(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, max_control_sessions=20, connect_timeout_ns=300 * NS_PER_MS) as archive:
        served, hostile = archive.connected(), archive.connected()
        for number in range(100):
            hostile.stream_id = 90_000 + number  # nobody subscribes there
            hostile.connect()
            assert archive.server.stats().control_sessions <= 1 + MAX_SESSIONS_OF_IMAGE
        archive.until(lambda: archive.server.stats().refused.get("sessions of a client", 0) > 20)
        assert is_served(served)
        # The flood does not use up other clients' sessions.
        other = archive.connected()
        assert is_served(other)
        # Sessions that never connected end, together with the image they arrived on.
        archive.until(lambda: archive.server.stats().control_sessions == 2, "the sessions end")
        assert is_served(archive.connected())


def test_floods_by_many_publications_hold_no_more_than_the_limit(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, max_control_sessions=20) as archive:
        served = archive.connected()
        for hostile in [archive.connected() for _ in range(4)]:
            for number in range(MAX_SESSIONS_OF_IMAGE):
                hostile.stream_id = 90_000 + number
                hostile.connect()
                assert archive.server.stats().control_sessions <= 20
        archive.until(lambda: archive.server.stats().refused.get("dropped", 0) > 0)
        assert is_served(served)


def test_errors_that_quote_a_long_channel_are_cut_to_fit_into_a_response(
    archive: RunningArchive, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "mainstem.aeron")
    client = archive.connected()
    longest = 4000
    for channel in ("aeron:ipc?alias=" + longest * "x", "aeron:ipc?alias=" + longest * "\x01", longest * "\x01"):
        _, text = client.error("StopRecordingRequest", stream_id=1, channel=channel)
        assert len(text) <= MAX_TEXT_LENGTH
        assert is_served(client)
    assert [record.message for record in caplog.records] == []


def test_a_flood_of_requests_starts_no_more_than_the_limits(archive: RunningArchive) -> None:
    client = archive.connected()
    codes = []
    for stream_id in range(6000, 6040):
        fields = {"stream_id": stream_id, "source_location": 0, "channel": CHANNEL}
        codes.append(client.response(client.send("StartRecordingRequest", **fields)).relevant_id)
    assert codes.count(ArchiveErrorCode.MAX_RECORDINGS) == 36
    for _ in range(40):
        client.send("ReplayTokenRequest", recording_id=0)
    assert is_served(client)
    publications = [archive.aeron.add_exclusive_publication(CHANNEL, 6000 + number) for number in range(4)]
    for publication in publications:
        archive.until(lambda: publication.offer(b"x" * 100) > 0)  # noqa: B023
    archive.until(lambda: archive.server.stats().recordings == 4)
    codes = []
    for _ in range(40):
        fields = {"file_io_max_length": -1, "replay_token": -1, "replay_stream_id": 7000, "replay_channel": CHANNEL}
        response = client.response(client.send("ReplayRequest", recording_id=0, position=0, length=-1, **fields))
        codes.append((response.code, response.relevant_id))
        assert archive.server.stats().replays <= 4
    assert codes.count((ResponseCode.ERROR, ArchiveErrorCode.MAX_REPLAYS)) == 36
    assert is_served(client)


@pytest.mark.long
def test_sessions_that_list_and_do_not_read_use_no_memory_and_delay_no_other(
    tmp_path: Path,
) -> None:
    make_recordings(tmp_path / "archive", 500)
    with RunningArchive(tmp_path / "archive", max_control_sessions=101) as archive:
        served = archive.connected()
        greedy = [archive.connected() for _ in range(100)]
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for client in greedy:
            everything = {"from_recording_id": 0, "record_count": (1 << 31) - 1}
            client.send("ListRecordingsRequest", **everything)
            client.send("ListRecordingsRequest", **everything)  # refused: the first is not done
        for _ in range(20):
            archive.work()
        assert is_served(served)
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert held < 100 * (64 << 10)
        assert len(served.listed("ListRecordingsRequest", from_recording_id=0, record_count=1000)) == 500


def test_an_endless_request_is_dropped_and_its_sender_rejected(archive: RunningArchive) -> None:
    client = archive.connected()
    with archive.aeron.add_exclusive_publication("aeron:ipc?term-length=16m", 10) as publication:
        request = encode(
            "AuthConnectRequest", correlation_id=1, response_stream_id=1, version=1 << 16, response_channel=CONTROL,
            encoded_credentials=bytes(1 << 20), client_info="",
        )  # fmt: skip
        for _ in range(5):
            archive.until(lambda: publication.offer(request) > 0)
        archive.until(lambda: archive.server.stats().refused == {"length": 5})
    assert is_served(client)


def test_a_message_only_archives_send_does_not_affect_later_requests(archive: RunningArchive) -> None:
    client, hostile = archive.connected(), archive.connected()
    hostile.requests.offer(encode("Ping", control_session_id=hostile.session_id))
    correlation_id = client.send("StopReplayRequest", replay_session_id=1)  # read in the same duty cycle
    assert client.response(correlation_id).code == ResponseCode.OK
    assert archive.server.stats().refused == {"not a request": 1}


def test_a_failing_authorizer_rejects(tmp_path: Path) -> None:
    def broken(request: str, principal: bytes) -> bool:
        raise ZeroDivisionError

    with RunningArchive(tmp_path, authorizer=broken) as archive:
        client = archive.client()
        client.session_id = client.response().control_session_id
        assert client.error("ArchiveIdRequest")[0] == ArchiveErrorCode.UNAUTHORISED_ACTION
