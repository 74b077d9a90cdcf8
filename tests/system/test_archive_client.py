"""Tests of the archive client against a scripted archive: sessions, timeouts, late errors, and cancelled calls."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.scripted_archive import SESSION, ScriptedArchive, error, nothing, ok
from tests.support.waiting import until, wait_for

import mainstem
from mainstem import MediaDriver, archive
from mainstem.archive import RecordingSignal, Signal
from mainstem.errors import (
    ArchiveError,
    ArchiveErrorCode,
    ClosedError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    Delivery,
    LocalProtocolError,
    Timeout,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.scripted_archive import Answer

    from mainstem.archive.messages import Message

pytestmark = pytest.mark.system
SIGNAL = {"recording_id": 5, "subscription_id": 9, "position": 4096}
LIMITS = {"relevant_id": 11, "code": 1, "version": 0, "error_message": "disk full"}


@pytest.fixture(scope="module")
def directory() -> Iterator[str]:
    with MediaDriver.launch(threading_mode="SHARED", ipc_term_buffer_length=1 << 16) as driver:
        yield driver.directory


@pytest.fixture
def aeron(directory: str) -> Iterator[mainstem.Aeron]:
    with mainstem.connect(directory) as client:
        yield client
        # No test leaves anything of its sessions behind in the driver, which may not have answered the last command yet.
        wait_for(lambda: leftovers(client) == ((), (), 0))


def leftovers(client: mainstem.Aeron) -> tuple[object, object, int]:
    stats = client.stats()
    return stats.publications, stats.subscriptions, stats.pending


@contextmanager
def session(aeron: mainstem.Aeron, **answers: Answer) -> Iterator[tuple[ScriptedArchive, archive.Client]]:
    with (
        ScriptedArchive(aeron.directory, **answers) as served,
        archive.connect("aeron:ipc", stream_id=served.stream_id, aeron=aeron, client_name="tides") as client,
    ):
        yield served, client


def descriptor(number: int) -> tuple[str, dict[str, Any]]:
    values = dict.fromkeys(("start_timestamp", "stop_timestamp", "start_position", "stop_position"), number)
    values |= {"initial_term_id": 0, "segment_file_length": 1 << 27, "term_buffer_length": 1 << 16, "mtu_length": 1408}
    texts = {"stripped_channel": "aeron:ipc", "original_channel": "aeron:ipc?alias=x", "source_identity": "aeron:ipc"}
    return "RecordingDescriptor", {"recording_id": number, "session_id": 1, "stream_id": 2} | values | texts


def listing(total: int) -> Answer:
    """Return an answer that lists recordings 0, 2, 4, ... like an archive with `total` recordings."""

    def answer(message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        ids = [number for number in range(0, 2 * total, 2) if number >= message.from_recording_id]
        yield from map(descriptor, ids[: message.record_count])
        if len(ids) < message.record_count:
            yield from ok(2 * total, code=2)(message)

    return answer


def test_connecting_identifies_the_client_and_activates_the_session(aeron: mainstem.Aeron) -> None:
    with session(aeron) as (served, client):
        assert (client.control_session_id, client.archive_id, client.protocol_version) == (SESSION, 42, (1, 12, 0))
        wait_for(lambda: len(served.received) == 3)
        assert served.names == ["AuthConnectRequest", "ArchiveIdRequest", "KeepAliveRequest"]
        assert served.received[0].client_info.startswith("name=tides version=")
        assert served.received[2].correlation_id == -1
        assert repr(client) == f"<archive.Client of aeron:ipc session {SESSION}>"
        client.close()
        client.close()
        wait_for(lambda: served.names[-1] == "CloseSessionRequest")
        assert (client.closed, client.error) == (True, None)
        with pytest.raises(ClosedError, match="the archive client is closed"):
            client.stop_position(1)


def test_an_archive_before_1_44_is_not_asked_for_its_id(aeron: mainstem.Aeron) -> None:
    old = {"relevant_id": SESSION, "code": 0, "version": 0x010A00, "error_message": ""}
    with session(aeron, AuthConnectRequest=lambda _: [("ControlResponse", dict(old))]) as (served, client):
        wait_for(lambda: len(served.received) == 2)
        assert served.names == ["AuthConnectRequest", "KeepAliveRequest"]
        assert (client.archive_id, client.protocol_version) == (-1, (1, 10, 0))


def test_an_older_archive_is_asked_in_older_ways(aeron: mainstem.Aeron) -> None:
    old = {"relevant_id": SESSION, "code": 0, "version": 0x010500, "error_message": ""}
    answers: dict[str, Answer] = {
        "AuthConnectRequest": lambda _: [("ControlResponse", dict(old))],
        "RecordingPositionRequest": ok(-1),
        "StopPositionRequest": ok(96),
        "TaggedReplicateRequest": ok(77),
    }
    with session(aeron, **answers) as (served, client):
        assert client.max_recorded_position(1) == 96
        assert client.replicate(5, "aeron:udp?endpoint=tides:8010", channel_tag_id=4) == 77
        request = served.received[-1]
        assert (request.src_recording_id, request.dst_recording_id, request.channel_tag_id) == (5, -1, 4)
        with pytest.raises(LocalProtocolError, match=r"the archive is too old; it needs Aeron 1\.33 or later"):
            client.replicate(5, "aeron:udp?endpoint=tides:8010", stop_position=64)
        with pytest.raises(
            LocalProtocolError, match=r"purge_recording 5: the archive is too old; it needs Aeron 1\.32"
        ):
            client.purge_recording(5)
        assert served.received[-1] is request


def test_what_a_replication_asks_for(aeron: mainstem.Aeron) -> None:
    with session(aeron, ReplicateRequest2=ok(77)) as (served, client):
        source = "aeron:udp?endpoint=tides:8010"
        assert client.replicate(5, source, dst_recording_id=6, live_destination="aeron:ipc", credentials=b"x") == 77
        request = served.received[-1]
        expected = dict.fromkeys(("stop_position", "channel_tag_id", "subscription_tag_id", "file_io_max_length"), -1)
        expected |= {"control_session_id": SESSION, "src_recording_id": 5, "dst_recording_id": 6}
        expected |= {"replication_session_id": -1, "src_control_stream_id": 10}
        texts = {"src_control_channel": source, "live_destination": "aeron:ipc", "encoded_credentials": b"x"}
        texts |= {"replication_channel": "", "src_response_channel": ""}
        assert request.values == expected | texts | {"correlation_id": request.correlation_id}
        with pytest.raises(ConfigurationError, match="live_destination"):
            client.replicate(5, source, live_destination="aeron:ipc", replication_session_id=9)


def test_a_time_out_says_what_older_archives_ignore(aeron: mainstem.Aeron) -> None:
    with session(aeron, ReplayTokenRequest=nothing, UpdateChannelRequest=nothing) as (_, client):
        channel = "aeron:udp?control-mode=response|control=localhost:1"
        with pytest.raises(Timeout, match=r"an archive before 1\.45 ignores this request"):
            client.replay(1, channel, 1002, timeout=0.4)
        with pytest.raises(Timeout, match=r"an archive before 1\.49 ignores this request"):
            client.update_channel(1, "aeron:ipc", timeout=0.05)
        with pytest.raises(ConfigurationError, match="a response channel needs its subscription; use replay"):
            client.start_replay(1, channel, 1002)


def test_a_challenge_is_answered(aeron: mainstem.Aeron) -> None:
    challenge = {"version": 0x010C00, "encoded_challenge": b"challenge!"}
    answers = {"AuthConnectRequest": lambda _: [("Challenge", dict(challenge))], "ChallengeResponse": ok(SESSION)}
    asked = []

    def answer(data: bytes) -> bytes:
        asked.append(data)
        return b"admin:CSadmin"

    with ScriptedArchive(aeron.directory, **answers) as served:
        options: dict[str, Any] = {"stream_id": served.stream_id, "aeron": aeron, "credentials": b"admin:adminC"}
        with archive.connect("aeron:ipc", **options, on_challenge=answer) as client:
            assert client.archive_id == 42
        assert asked == [b"challenge!"]
        assert served.received[0].encoded_credentials == b"admin:adminC"
        assert served.received[1].encoded_credentials == b"admin:CSadmin"
        with pytest.raises(LocalProtocolError, match="connect with on_challenge"):
            archive.connect("aeron:ipc", **options)
        wait_for(lambda: served.names[-1] == "CloseSessionRequest")


def test_rejected_credentials_raise_the_archives_error_and_end_the_session(aeron: mainstem.Aeron) -> None:
    with ScriptedArchive(aeron.directory, AuthConnectRequest=error(10, "authentication rejected")) as served:
        with pytest.raises(ArchiveError, match="connect to the archive: authentication rejected") as caught:
            archive.connect("aeron:ipc", stream_id=served.stream_id, aeron=aeron, credentials=b"guess")
        assert caught.value.code is ArchiveErrorCode.AUTHENTICATION_REJECTED
        wait_for(lambda: served.names[-1] == "CloseSessionRequest")


@pytest.mark.parametrize(
    ("answers", "step"),
    [(None, "a connection to the archive at aeron:ipc"), (nothing, "the response to the connect request")],
)
def test_connecting_that_takes_too_long_names_the_step(
    aeron: mainstem.Aeron, answers: Answer | None, step: str
) -> None:
    with ScriptedArchive(aeron.directory, AuthConnectRequest=answers or nothing) as served:
        stream_id = 1 if answers is None else served.stream_id
        with pytest.raises(ConnectTimeout) as caught:
            archive.connect("aeron:ipc", stream_id=stream_id, aeron=aeron, timeout=0.3)
        assert (caught.value.step, caught.value.timeout) == (step, 0.3)


def test_the_response_channel_of_an_archive_elsewhere_must_be_given(aeron: mainstem.Aeron) -> None:
    with pytest.raises(ConfigurationError, match="response_channel: must be given"):
        archive.connect("aeron:udp?endpoint=192.0.2.1:8010", aeron=aeron)


def test_a_client_that_makes_no_calls_stays_connected(aeron: mainstem.Aeron) -> None:
    """The archive sends more pings than the response stream can hold, and ends a session whose client leaves that stream full."""
    with session(aeron, StopPositionRequest=ok(96)) as (served, client):
        before = served.sent
        for _ in range(2_000):
            served.say("Ping", correlation_id=-1)
        wait_for(lambda: served.sent == before + 2_000, progress=lambda: served.sent)
        assert client.stop_position(1) == 96


def test_an_error_of_the_archive_has_its_code(aeron: mainstem.Aeron) -> None:
    with session(aeron, StopRecordingRequest=error(4, "no recording found"), StopPositionRequest=error(99, "")) as (
        served,
        client,
    ):
        with pytest.raises(ArchiveError, match="stop_recording of aeron:ipc stream 9: no recording found") as caught:
            client.stop_recording("aeron:ipc", 9)
        assert caught.value.code is ArchiveErrorCode.UNKNOWN_SUBSCRIPTION
        assert caught.value.correlation_id == served.received[-1].correlation_id
        with pytest.raises(ArchiveError, match="stop_position of recording 1: GENERIC"):
            client.stop_position(1)


def test_late_responses_do_not_disturb_later_calls(aeron: mainstem.Aeron) -> None:
    with session(aeron, StopPositionRequest=nothing, StartPositionRequest=ok(32)) as (served, client):
        with pytest.raises(Timeout, match="stop_position of recording 1: the archive did not respond within"):
            client.stop_position(1, timeout=0.05)
        late = {"relevant_id": 7, "code": 0, "version": 0, "error_message": ""}
        served.say("ControlResponse", correlation_id=served.received[-1].correlation_id, **late)
        assert client.start_position(1) == 32
        assert (client.stats().pending, client.stats().events) == (0, 0)


def test_signals_and_late_errors_are_events(aeron: mainstem.Aeron) -> None:
    def start(message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "RecordingSignalEvent", SIGNAL | {"signal": 0}
        yield from ok(9)(message)
        # Send the response immediately, so that both messages arrive together.
        yield "ControlResponse", dict(LIMITS)

    with session(aeron, StartRecordingRequest2=start) as (served, client):
        assert client.start_recording("aeron:ipc", 1001, auto_stop=True) == 9
        events = client.events(timeout=5.0)
        correlation_id = served.received[-1].correlation_id
        assert next(events) == Signal(
            signal=RecordingSignal.START,
            recording_id=5,
            subscription_id=9,
            position=4096,
            correlation_id=correlation_id,
        )
        late = next(events)
        assert isinstance(late, ArchiveError)
        assert (late.code, str(late)) == (ArchiveErrorCode.STORAGE_SPACE, "the archive reports: disk full")
        served.say("RecordingSignalEvent", correlation_id=1, **SIGNAL, signal=99)  # a signal from a newer archive
        served.say("RecordingSignalEvent", correlation_id=1, **SIGNAL, signal=1)
        event = next(events)
        assert isinstance(event, Signal)
        assert event.signal is RecordingSignal.STOP
        with pytest.raises(Timeout, match="no event of the archive at aeron:ipc within"):
            next(client.events(timeout=0.05))
        client.close()
        assert list(client.events()) == []


def test_unread_events_are_dropped_and_counted(aeron: mainstem.Aeron) -> None:
    with session(aeron, StopPositionRequest=ok(96)) as (served, client):
        for _ in range(1_030):
            served.say("RecordingSignalEvent", correlation_id=1, **SIGNAL, signal=1)
        assert client.stop_position(1) == 96
        assert (client.stats().events, client.stats().dropped_events) == (1_024, 6)


def test_messages_of_other_sessions_and_malformed_ones_are_skipped(aeron: mainstem.Aeron) -> None:
    with session(aeron, StopPositionRequest=ok(96)) as (served, client):
        served._outgoing.append(b"\xff" * 16)
        assert client.stop_position(1) == 96
        assert client.stats().refused == {"schema id": 1}


@pytest.mark.parametrize("total", [0, 1, 255, 256, 257, 700])
def test_listings_come_in_pages_and_end(aeron: mainstem.Aeron, total: int) -> None:
    with session(aeron, ListRecordingsRequest=listing(total)) as (served, client):
        found = list(client.list_recordings())
        assert [each.recording_id for each in found] == list(range(0, 2 * total, 2))
        assert [each.recording_id for each in client.list_recordings(3, count=2)] == [4, 6][: max(0, total - 2)]
        assert list(client.list_recordings(count=0)) == []
        if total:
            assert (found[0].original_channel, found[0].mtu_length) == ("aeron:ipc?alias=x", 1408)
            assert served.received[-1].record_count == 2


def test_several_threads_can_list_recordings(aeron: mainstem.Aeron) -> None:
    with session(aeron, ListRecordingsRequest=listing(300)) as (_, client):
        results: list[int] = []
        threads = [
            threading.Thread(target=lambda: results.append(len(list(client.list_recordings())))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [300] * 4


def test_a_listing_of_subscriptions_and_of_one_recording(aeron: mainstem.Aeron) -> None:
    found = (
        "RecordingSubscriptionDescriptor",
        {"subscription_id": 9, "stream_id": 1001, "stripped_channel": "aeron:ipc"},
    )

    def subscriptions(message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        assert (message.apply_stream_id, message.stream_id, message.channel) == (1, 1001, "ipc")
        yield found
        yield from ok(0, code=3)(message)

    answers: dict[str, Answer] = {
        "ListRecordingSubscriptionsRequest": subscriptions,
        "ListRecordingRequest": lambda m: [descriptor(7)] if m.recording_id == 7 else ok(m.recording_id, code=2)(m),
        "ListRecordingsForUriRequest": error(1, "active listing already in progress"),
        "FindLastMatchingRecordingRequest": ok(-1),
    }
    with session(aeron, **answers) as (_, client):
        (one,) = client.list_recording_subscriptions("ipc", 1001)
        assert (one.subscription_id, one.stream_id, one.channel) == (9, 1001, "aeron:ipc")
        described = client.list_recording(7)
        assert described is not None
        assert described.recording_id == 7
        assert client.list_recording(8) is None
        assert client.find_last_matching_recording("", 1001, 5) is None
        with pytest.raises(ArchiveError, match="active listing already in progress"):
            next(client.list_recordings_for_uri("", 1001))


def test_a_call_in_flight_fails_when_the_session_is_lost_and_the_next_one_connects_again(
    aeron: mainstem.Aeron,
) -> None:
    with session(aeron, StopPositionRequest=nothing, StartPositionRequest=ok(32)) as (served, client):
        timer = threading.Timer(0.1, served.hang_up)
        timer.start()
        lost = "ended: its response stream is gone; the next call connects again"
        with pytest.raises(ConnectionLost, match=lost) as caught:
            client.stop_position(1)
        timer.join()
        assert (caught.value.delivery, caught.value.may_retry) == (Delivery.UNKNOWN, False)
        assert (client.connected, client.closed) == (False, False)
        assert isinstance(client.error, ConnectionLost)
        assert repr(client).endswith(", lost>")
        assert client.start_position(1) == 32
        assert (client.connected, client.error) == (True, None)
        assert served.names.count("AuthConnectRequest") == 2
        assert client.archive_id == 42


def test_a_client_that_makes_no_calls_notices_the_end_of_its_session(aeron: mainstem.Aeron) -> None:
    with session(aeron) as (served, client):
        served.hang_up()
        wait_for(lambda: not client.connected)
        assert isinstance(client.error, ConnectionLost)


def test_a_call_can_be_retried_while_the_archive_is_down(aeron: mainstem.Aeron) -> None:
    with session(aeron, StopPositionRequest=ok(96)) as (served, client):
        served.hang_up()
        wait_for(lambda: not client.connected)
        served.answers = dict(served.answers) | {"AuthConnectRequest": nothing}
        for _ in range(2):
            with pytest.raises(ConnectTimeout, match="the response to the connect request") as caught:
                client.stop_position(1, timeout=0.1)
            assert caught.value.may_retry
            assert isinstance(client.error, ConnectionLost)
        served.answers = dict(served.answers) | {"AuthConnectRequest": error(10, "authentication rejected")}
        with pytest.raises(ArchiveError, match="authentication rejected"):
            client.stop_position(1)
        served.answers = dict(served.answers) | {"AuthConnectRequest": ok(SESSION)}
        assert client.stop_position(1) == 96


def test_a_request_that_did_not_reach_the_archive_is_sent_again_by_the_same_call(aeron: mainstem.Aeron) -> None:
    with session(aeron, StopPositionRequest=ok(96)) as (served, client):
        served.go_away()
        requests = client._calls._requests
        wait_for(lambda: not requests.is_connected)
        timer = threading.Timer(0.1, served.come_back)
        timer.start()
        assert client.stop_position(1) == 96
        timer.join()
        assert served.names.count("AuthConnectRequest") == 2
        assert served.names.count("StopPositionRequest") == 1


def test_an_iterator_of_events_ends_with_its_session(aeron: mainstem.Aeron) -> None:
    with session(aeron, StopPositionRequest=ok(96)) as (served, client):
        served.say("RecordingSignalEvent", correlation_id=1, **SIGNAL, signal=1)
        events = client.events(timeout=5.0)
        assert isinstance(next(events), Signal)
        served.say("RecordingSignalEvent", correlation_id=2, **SIGNAL, signal=1)
        wait_for(lambda: client.stats().events == 1)
        served.hang_up()
        wait_for(lambda: not client.connected)
        assert client.stop_position(1) == 96
        # Events from before the disconnection are still delivered. Events during it may be lost, so the iterator then raises.
        assert isinstance(next(events), Signal)
        with pytest.raises(ConnectionLost):
            next(events)
        served.say("RecordingSignalEvent", correlation_id=3, **SIGNAL, signal=1)
        assert isinstance(next(client.events(timeout=5.0)), Signal)
        served.hang_up()
        with pytest.raises(ConnectionLost):
            next(client.events(timeout=5.0))
        timer = threading.Timer(0.1, lambda: served.say("RecordingSignalEvent", correlation_id=4, **SIGNAL, signal=1))
        timer.start()
        assert isinstance(next(client.events(timeout=5.0)), Signal)
        timer.join()


def test_many_threads_connect_again_once(aeron: mainstem.Aeron) -> None:
    with session(aeron, StopPositionRequest=ok(96)) as (served, client):
        served.hang_up()
        wait_for(lambda: not client.connected)
        results: list[int | None] = []
        threads = [threading.Thread(target=lambda: results.append(client.stop_position(1))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [96] * 8
        assert served.names.count("AuthConnectRequest") == 2


def test_a_listing_continues_in_the_next_session(aeron: mainstem.Aeron) -> None:
    with session(aeron, ListRecordingsRequest=listing(600)) as (served, client):
        found = []
        for each in client.list_recordings():
            found.append(each.recording_id)
            if len(found) == 256:  # the first page
                served.hang_up()
                wait_for(lambda: not client.connected)
        assert found == list(range(0, 1200, 2))


def test_a_merge_does_not_outlive_its_session(aeron: mainstem.Aeron) -> None:
    answers: dict[str, Answer] = {
        "ListRecordingRequest": lambda _: [descriptor(7)],
        "MaxRecordedPositionRequest": nothing,
    }
    with (
        session(aeron, **answers) as (served, client),
        aeron.add_subscription("aeron:udp?control-mode=manual", 1001) as subscription,
    ):
        merge = client.replay_merge(
            subscription, 7, "aeron:udp?endpoint=localhost:0", "aeron:udp?endpoint=localhost:0|control=localhost:1"
        )
        wait_for(lambda: merge.poll_bytes() == [] and served.names[-1] == "MaxRecordedPositionRequest")
        served.hang_up()
        with pytest.raises(ConnectionLost):
            wait_for(lambda: merge.poll_bytes())
        assert isinstance(merge.error, ConnectionLost)


class Replay:
    """A replay that the test publishes itself, as 64-byte messages with headers, each replay with its own session."""

    session_ids = itertools.count(77)
    session_id = 0

    @classmethod
    def accept(cls, message: Message) -> Any:
        cls.session_id = next(cls.session_ids)
        return ok(1 << 32 | cls.session_id)(message)

    def __init__(self, aeron: mainstem.Aeron, count: int) -> None:
        channel = f"aeron:ipc?session-id={self.session_id}|term-length=64k"
        self.publication = aeron.add_exclusive_publication(channel, 1002)
        self.end = 64 * count
        wait_for(lambda: self.publication.is_connected)
        for number in range(count):
            self.publication.send(b"%d" % number)


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({}, {"StopPositionRequest": ok(5 * 64)}),
        ({"position": 0, "length": 5 * 64}, {}),
        ({"length": 9 * 64}, {"StopPositionRequest": ok(5 * 64)}),
        ({"follow": False}, {"MaxRecordedPositionRequest": ok(5 * 64)}),
    ],
    ids=["stopped recording", "length", "length of a shorter recording", "without following"],
)
def test_a_complete_replay_ends_even_if_its_archive_dies(aeron: mainstem.Aeron, options: Any, known: Any) -> None:
    for count in (5, 4):
        with (
            session(aeron, ReplayRequest=Replay.accept, **known) as (served, client),
            client.replay(1, "aeron:ipc", 1002, **options) as subscription,
        ):
            replay = Replay(aeron, count)
            served.hang_up()
            wait_for(lambda: not client.connected)
            replay.publication.close()
            messages = subscription.messages(timeout=30.0)
            assert [next(messages) for _ in range(count)] == [b"%d" % number for number in range(count)]
            if count == 5:
                assert list(messages) == []
            else:
                with pytest.raises(ConnectionLost, match=r"; replay again from position=256$") as caught:
                    next(messages)
                assert caught.value.position == replay.end


def test_a_replay_keeps_its_client_open(aeron: mainstem.Aeron) -> None:
    with ScriptedArchive(aeron.directory, ReplayRequest=Replay.accept) as served:
        client = archive.connect("aeron:ipc", stream_id=served.stream_id, aeron=aeron)
        subscription = client.replay(1, "aeron:ipc", 1002)
        kept = weakref.ref(client)
        del client
        gc.collect()
        assert kept() is not None
        replay = Replay(aeron, 3)
        messages = subscription.messages(timeout=30.0)
        assert [next(messages) for _ in range(3)] == [b"0", b"1", b"2"]
        replay.publication.close()
        del messages
        kept().close()
        subscription.close()


def test_a_replay_ends_in_order_where_its_archive_says_that_the_recording_stopped(aeron: mainstem.Aeron) -> None:
    with session(aeron, ReplayRequest=Replay.accept) as (served, client):
        for end, stop in (("close", 192), ("close", 256), ("revoke", 192)):
            served.answers = dict(served.answers) | {"StopPositionRequest": ok(-1)}
            with client.replay(1, "aeron:ipc", 1002) as subscription:
                replay = Replay(aeron, 3)
                messages = subscription.messages(timeout=30.0)
                assert [next(messages) for _ in range(3)] == [b"0", b"1", b"2"]
                served.answers = dict(served.answers) | {"StopPositionRequest": ok(stop)}
                getattr(replay.publication, end)()
                if (end, stop) == ("close", 192):
                    assert list(messages) == []
                    assert served.names[-2:] == ["StartPositionRequest", "StopPositionRequest"]
                    assert list(subscription.messages(timeout=30.0)) == []
                    continue
                for _ in range(2):
                    with pytest.raises(ConnectionLost) as caught:
                        list(subscription.messages(timeout=30.0))
                    assert caught.value.position == 192
                    assert caught.value.end == (256 if end == "close" else None)


def test_a_replay_whose_recording_is_gone_at_its_end_is_an_error(aeron: mainstem.Aeron) -> None:
    with (
        session(aeron, ReplayRequest=Replay.accept) as (served, client),
        client.replay(1, "aeron:ipc", 1002) as subscription,
    ):
        replay = Replay(aeron, 3)
        served.answers = dict(served.answers) | {"StopPositionRequest": error(5, "unknown recording id: 1")}
        replay.publication.close()
        with pytest.raises(
            ConnectionLost, match=r"at position 192, before its end: .*unknown recording id: 1"
        ) as caught:
            list(subscription.messages(timeout=30.0))
        assert caught.value.position == 192


@pytest.mark.parametrize("name", ["stop_replay", "stop_all_replays", "stop_all_replays of the recording"])
def test_a_replay_that_its_own_client_stops_ends_in_order(aeron: mainstem.Aeron, name: str) -> None:
    answers = {"StopReplayRequest": ok(), "StopAllReplaysRequest": ok()}
    with (
        session(aeron, ReplayRequest=Replay.accept, **answers) as (served, client),
        client.replay(1, "aeron:ipc", 1002) as subscription,
    ):
        replay = Replay(aeron, 3)
        client.stop_replay((1 << 32 | replay.session_id) + 1)
        client.stop_all_replays(2)
        served.answers = dict(served.answers) | dict.fromkeys(answers, error(13, "not authorized"))
        with pytest.raises(ArchiveError):
            client.stop_all_replays()
        messages = subscription.messages(timeout=30.0)
        assert [next(messages) for _ in range(3)] == [b"0", b"1", b"2"]
        replay.publication.revoke()
        with pytest.raises(ConnectionLost):
            next(messages)
        served.answers = dict(served.answers) | answers
        if name == "stop_replay":
            client.stop_replay(1 << 32 | replay.session_id)
        else:
            client.stop_all_replays(*([1] if "recording" in name else []))
        assert list(subscription.messages(timeout=30.0)) == []


def test_a_late_error_ends_a_replay_that_never_came_even_if_somebody_else_reads_the_events(
    aeron: mainstem.Aeron,
) -> None:
    with (
        session(aeron, ReplayRequest=Replay.accept) as (served, client),
        client.replay(1, "aeron:ipc", 1002) as subscription,
    ):
        request = served.received[-1]
        values = {"relevant_id": 0, "code": 1, "version": 0, "error_message": "no subscriber connected within 5 s"}
        served.say("ControlResponse", correlation_id=request.correlation_id, **values)
        assert "no subscriber" in str(next(client.events(timeout=30.0)))
        with pytest.raises(ArchiveError, match=r"^replay of recording 1 ended before it began: the archive"):
            list(subscription)


def test_the_late_error_of_a_replay_ends_its_iterator(aeron: mainstem.Aeron) -> None:
    with (
        session(aeron, ReplayRequest=Replay.accept) as (served, client),
        client.replay(1, "aeron:ipc", 1002) as subscription,
    ):
        replay = Replay(aeron, 3)
        request = served.received[-1]
        assert request.name == "ReplayRequest"
        values = {"relevant_id": 0, "code": 1, "version": 0, "error_message": "CRC checksum mismatch"}
        served.say("ControlResponse", correlation_id=request.correlation_id + 1000, **values)
        served.say("ControlResponse", correlation_id=request.correlation_id, **values)
        messages = subscription.messages(timeout=30.0)
        assert [next(messages) for _ in range(3)] == [b"0", b"1", b"2"]
        replay.publication.revoke()
        expected = r"^replay of recording 1 ended at position 192: the archive reports: CRC checksum mismatch$"
        with pytest.raises(ArchiveError, match=expected) as caught:
            next(messages)
        assert caught.value.correlation_id == request.correlation_id
        assert client.stats().events == 2


def test_a_replay_that_never_came_ends_with_its_session(aeron: mainstem.Aeron) -> None:
    with (
        session(aeron, ReplayRequest=Replay.accept) as (served, client),
        client.replay(1, "aeron:ipc", 1002) as subscription,
    ):
        timer = threading.Timer(0.1, served.hang_up)
        timer.start()
        with pytest.raises(ConnectionLost, match=r"^replay of recording 1 ended before it began, before") as caught:
            next(iter(subscription))
        assert caught.value.position is None
        timer.join()


def test_a_replay_after_its_client_was_closed_ends_only_where_the_recording_did(aeron: mainstem.Aeron) -> None:
    for stop in (128, -1):
        with (
            session(aeron, ReplayRequest=Replay.accept, StopPositionRequest=ok(stop)) as (_, client),
            client.replay(1, "aeron:ipc", 1002) as subscription,
        ):
            replay = Replay(aeron, 2)
            client.close()
            replay.publication.close()
            if stop == 128:
                assert list(subscription) == [b"0", b"1"]
            else:
                with pytest.raises(ConnectionLost, match="the archive client was closed"):
                    list(subscription)


def test_an_archive_that_refuses_positions_replays(aeron: mainstem.Aeron) -> None:
    denied = error(13, "StopPositionRequest is not authorized")
    with (
        session(aeron, ReplayRequest=Replay.accept, StopPositionRequest=denied) as (_, client),
        client.replay(1, "aeron:ipc", 1002, follow=False) as subscription,
    ):
        replay = Replay(aeron, 2)
        replay.publication.close()
        assert list(subscription.messages(timeout=30.0)) == [b"0", b"1"]


async def test_the_end_of_a_replay_for_asyncio(directory: str) -> None:
    with ScriptedArchive(directory, ReplayRequest=Replay.accept) as served, mainstem.connect(directory) as near:
        async with (
            mainstem.aio.connect(directory) as aeron,
            archive.aio.connect("aeron:ipc", stream_id=served.stream_id, aeron=aeron) as client,
        ):
            for is_lost in (False, True):
                async with await client.replay(1, "aeron:ipc", 1002) as subscription:
                    replay = await asyncio.to_thread(Replay, near, 3)
                    messages = subscription.messages(timeout=30.0)
                    assert [await anext(messages) for _ in range(3)] == [b"0", b"1", b"2"]
                    if not is_lost:
                        replay.publication.revoke()
                        with pytest.raises(ConnectionLost, match="the archive stopped it; replay again") as caught:
                            await anext(messages)
                        continue
                    served.hang_up()
                    replay.publication.close()
                    with pytest.raises(ConnectionLost, match=r"; replay again from position=192$") as caught:
                        await anext(messages)
                    assert caught.value.position == 192


def test_a_replay_to_a_refused_channel_is_stopped(aeron: mainstem.Aeron) -> None:
    with session(aeron, ReplayRequest=ok(3 << 32 | 0xFFFFFFFE), StopReplayRequest=ok()) as (served, client):
        with pytest.raises(mainstem.RegistrationError):
            client.replay(1, "aeron:udp?endpoint=no.such.host.invalid:1", 1002)
        wait_for(lambda: served.names[-1] == "StopReplayRequest")
        assert served.received[-1].replay_session_id == 3 << 32 | 0xFFFFFFFE
        with client.replay(1, "aeron:ipc", 1002, position=64, length=128) as subscription:
            assert subscription.channel == "aeron:ipc?session-id=-2"
        request = served.received[-1]
        assert (request.position, request.length, request.file_io_max_length) == (64, 128, -1)


@pytest.mark.parametrize(
    ("options", "name", "values"),
    [
        ({}, "ReplayRequest", (-1, -1, -1)),
        ({"follow": False}, "ReplayRequest", (-1, -2, -1)),
        ({"position": 32, "limit_counter_id": 12, "file_io_max_length": 4096}, "BoundedReplayRequest", (32, -1, 4096)),
    ],
)
def test_what_a_replay_asks_for(aeron: mainstem.Aeron, options: Any, name: str, values: tuple[int, int, int]) -> None:
    with session(aeron, ReplayRequest=ok(1 << 32), BoundedReplayRequest=ok(1 << 32)) as (served, client):
        assert client.start_replay(1, "aeron:ipc", 1002, **options) == 1 << 32
        request = served.received[-1]
        assert request.name == name
        assert (request.position, request.length, request.file_io_max_length) == values
        with pytest.raises(ConfigurationError, match="follow=False"):
            client.start_replay(1, "aeron:ipc", 1002, length=32, follow=False)


def test_a_client_that_is_dropped_open_warns_and_ends_its_session(directory: str) -> None:
    with ScriptedArchive(directory) as served:
        client: Any = archive.connect("aeron:ipc", stream_id=served.stream_id, directory=directory)
        threads = {thread.name for thread in threading.enumerate()}
        assert "mainstem-archive-client" in threads
        with pytest.warns(ResourceWarning, match="was not closed"):  # noqa: PT031 - the collector has to run
            del client
            gc.collect()
        wait_for(lambda: served.names[-1] == "CloseSessionRequest")
        wait_for(lambda: "mainstem-archive-client" not in {thread.name for thread in threading.enumerate()})


def test_a_replay_that_is_dropped_with_its_client_warns_and_ends_both(aeron: mainstem.Aeron) -> None:
    with ScriptedArchive(aeron.directory, ReplayRequest=Replay.accept) as served:
        client: Any = archive.connect("aeron:ipc", stream_id=served.stream_id, aeron=aeron)
        subscription: Any = client.replay(1, "aeron:ipc", 1002)
        replay = Replay(aeron, 3)
        messages: Any = subscription.messages(timeout=30.0)
        assert next(messages) == b"0"
        with pytest.warns(ResourceWarning) as caught:  # noqa: PT031 - the collector has to run
            del messages, subscription, client
            gc.collect()
        texts = sorted(str(each.message) for each in caught)
        assert ["Subscription" in texts[0], "archive.Client" in texts[1]] == [True, True], texts
        wait_for(lambda: served.names[-1] == "CloseSessionRequest")
        wait_for(lambda: not replay.publication.is_connected)
        wait_for(lambda: aeron.stats().subscriptions == ())
        replay.publication.close()


@pytest.mark.parametrize("owns_aeron", [True, False])
async def test_a_replay_that_is_dropped_with_its_client_for_asyncio(directory: str, owns_aeron: bool) -> None:
    with ScriptedArchive(directory, ReplayRequest=Replay.accept) as served, mainstem.connect(directory) as near:
        async with mainstem.aio.connect(directory) as aeron:
            where: Any = {"directory": directory} if owns_aeron else {"aeron": aeron}
            client: Any = await archive.aio.connect("aeron:ipc", stream_id=served.stream_id, **where)
            subscription: Any = await client.replay(1, "aeron:ipc", 1002)
            replay = await asyncio.to_thread(Replay, near, 3)
            messages: Any = subscription.messages(timeout=30.0)
            assert await anext(messages) == b"0"
            await messages.aclose()
            with pytest.warns(ResourceWarning) as caught:  # noqa: PT031 - the collector has to run
                del messages, subscription, client
                gc.collect()
            assert sorted("archive.Client" in str(each.message) for each in caught) == [False, True]
            await until(lambda: served.names[-1] == "CloseSessionRequest")
            await until(lambda: not replay.publication.is_connected)
            await until(lambda: aeron.stats().subscriptions == ())


def test_a_merge_that_is_dropped_warns_and_stops_its_replay(aeron: mainstem.Aeron) -> None:
    answers: dict[str, Answer] = {
        "ListRecordingRequest": lambda _: [descriptor(7)],
        "ReplayRequest": ok(5 << 32 | 1),
        "StopReplayRequest": ok(),
    }
    with (
        session(aeron, **answers) as (served, client),
        aeron.add_subscription("aeron:udp?control-mode=manual", 1001) as subscription,
    ):
        where = "aeron:udp?endpoint=localhost:0", "aeron:udp?endpoint=localhost:0|control=localhost:1"
        unread: Any = client.replay_merge(subscription, 7, *where)
        merge: Any = client.replay_merge(subscription, 7, *where)
        while merge._replay_id is None:
            assert merge.poll_bytes() == []
        with pytest.warns(ResourceWarning, match="ReplayMerge of recording 7") as caught:  # noqa: PT031 - as above
            del merge, unread
            gc.collect()
        assert len(caught) == 1
        wait_for(lambda: served.names[-1] == "StopReplayRequest")
        assert served.received[-1].replay_session_id == 5 << 32 | 1


async def test_the_same_client_for_asyncio(directory: str) -> None:
    answers: dict[str, Answer] = {"ListRecordingsRequest": listing(300), "StopPositionRequest": ok(96)}
    with ScriptedArchive(directory, **answers) as served:
        async with archive.aio.connect("aeron:ipc", stream_id=served.stream_id, directory=directory) as client:
            assert client.archive_id == 42
            assert len([each async for each in client.list_recordings()]) == 300
            before = served.sent
            for _ in range(2_000):
                served.say("Ping", correlation_id=-1)
            while served.sent < before + 2_000:
                await asyncio.sleep(0.01)
            assert await client.stop_position(1) == 96
            served.say("RecordingSignalEvent", correlation_id=1, **SIGNAL, signal=1)
            async for event in client.events(timeout=5.0):
                assert isinstance(event, Signal)
                break
            worker = client._worker
        assert client.closed
        assert worker is not None
        assert worker.done()


async def test_cancelled_calls_disturb_no_later_one(directory: str) -> None:
    answers: dict[str, Answer] = {"StopPositionRequest": nothing, "ListRecordingsRequest": nothing}
    with ScriptedArchive(directory, **answers) as served:
        async with archive.aio.connect("aeron:ipc", stream_id=served.stream_id, directory=directory) as client:
            for call in (client.stop_position(1), anext(client.list_recordings())):
                before = len(served.received)
                task = asyncio.ensure_future(call)
                while len(served.received) == before:
                    await asyncio.sleep(0.001)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            # The page of the cancelled listing arrives now. The archive runs one listing at a time, so the next one waits for it.
            first = served.received[-1]
            served.answers = dict(served.answers) | {"ListRecordingsRequest": listing(2)}
            listed = asyncio.ensure_future(anext(client.list_recordings()))
            await asyncio.sleep(0.05)
            assert served.received[-1] is first
            for name, values in listing(3)(first):
                served.say(name, correlation_id=first.correlation_id, **values)
            assert (await listed).recording_id == 0
            assert served.received[-1] is not first
            assert client.stats().pending == 0


async def test_the_next_call_connects_again_for_asyncio(directory: str) -> None:
    answers: dict[str, Answer] = {"StopPositionRequest": nothing, "StartPositionRequest": ok(32)}
    with ScriptedArchive(directory, **answers) as served:
        stream_id = served.stream_id
        async with (
            mainstem.aio.connect(directory) as aeron,
            archive.aio.connect("aeron:ipc", stream_id=stream_id, aeron=aeron) as client,
        ):
            asyncio.get_running_loop().call_later(0.05, served.hang_up)
            with pytest.raises(ConnectionLost) as caught:
                await client.stop_position(1)
            assert not caught.value.may_retry
            served.answers = dict(served.answers) | {"AuthConnectRequest": nothing}
            before = len(served.received)
            task = asyncio.ensure_future(client.start_position(1))
            while len(served.received) == before:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (client.connected, client.closed) == (False, False)
            assert aeron.stats().subscriptions == aeron.stats().publications == ()
            served.answers = dict(served.answers) | {"AuthConnectRequest": ok(SESSION)}
            assert await asyncio.gather(*(client.start_position(1) for _ in range(4))) == [32] * 4
            assert served.names.count("AuthConnectRequest") == 3


async def test_a_cancelled_replay_leaves_nothing(directory: str) -> None:
    with ScriptedArchive(directory, ReplayRequest=nothing) as served:
        async with mainstem.aio.connect(directory) as aeron:
            async with archive.aio.connect("aeron:ipc", stream_id=served.stream_id, aeron=aeron) as client:
                task = asyncio.ensure_future(client.replay(1, "aeron:udp?endpoint=localhost:0", 1002))
                while served.names[-1] != "ReplayRequest":
                    await asyncio.sleep(0.001)
                assert len(aeron.stats().subscriptions) == 2
                assert not served.received[-1].replay_channel.endswith(":0")
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert len(aeron.stats().subscriptions) == 1
            assert not aeron.closed
            assert aeron.stats().subscriptions == ()
