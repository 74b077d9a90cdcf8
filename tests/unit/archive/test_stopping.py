"""Stopping recordings: as long as anything records, a request can stop it, whatever was requested before."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.archive_server import CHANNEL, RunningArchive
from tests.support.case_selection import long_after

from mainstem.archive.channels import extension_channel
from mainstem.archive.messages import NULL, RecordingSignal, ResponseCode
from mainstem.errors import ArchiveErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.archive_server import ControlClient

    from mainstem.archive.messages import Message

STREAM, OTHER_STREAM = 1001, 1002
ALL = {"from_recording_id": 0, "record_count": 1000}


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[RunningArchive]:
    with RunningArchive(tmp_path / "archive") as running:
        yield running


def publication(archive: RunningArchive, stream_id: int = STREAM, channel: str = CHANNEL) -> Any:
    """Return a publication with a message in it."""
    made = archive.aeron.add_exclusive_publication(channel, stream_id)
    made.offer(b"x" * 100)
    return made


def active(client: ControlClient) -> list[int]:
    return [each.recording_id for each in client.listed("ListRecordingsRequest", **ALL) if each.stop_position == NULL]


def subscriptions(client: ControlClient) -> list[Message]:
    fields = {"pseudo_index": 0, "subscription_count": 100, "apply_stream_id": 0, "stream_id": 0, "channel": ""}
    return client.listed("ListRecordingSubscriptionsRequest", **fields)


def extend(client: ControlClient, descriptor: Message, *, auto_stop: bool) -> int:
    return client.ask(
        "ExtendRecordingRequest2",
        recording_id=descriptor.recording_id,
        stream_id=descriptor.stream_id,
        source_location=0,
        auto_stop=int(auto_stop),
        channel="aeron:ipc",
    )


def test_a_recording_can_be_stopped_after_another_of_its_subscription_was(archive: RunningArchive) -> None:
    client = archive.connected()
    subscription_id = client.record(STREAM)
    for number in range(2):
        publication(archive)
        archive.until(lambda: len(active(client)) == number + 1)  # noqa: B023
    assert client.ask("StopRecordingByIdentityRequest", recording_id=0) == 1
    # The subscription is still open, so it records images that come later.
    publication(archive)
    archive.until(lambda: active(client) == [1, 2])
    assert [each.subscription_id for each in subscriptions(client)] == [subscription_id]
    for recording_id in (1, 2):
        assert client.ask("StopRecordingByIdentityRequest", recording_id=recording_id) == 1
        assert client.ask("StopRecordingByIdentityRequest", recording_id=recording_id) == 0
    assert active(client) == []
    # The last recording has taken the subscription with it.
    assert subscriptions(client) == []
    assert client.error("StopRecordingRequest", stream_id=STREAM, channel=CHANNEL)[0] == (
        ArchiveErrorCode.UNKNOWN_SUBSCRIPTION
    )


@pytest.mark.parametrize("name", ["StopRecordingRequest", "StopRecordingSubscriptionRequest"])
def test_stopping_a_subscription_stops_the_recordings_that_are_left(archive: RunningArchive, name: str) -> None:
    client = archive.connected()
    subscription_id = client.record(STREAM)
    for number in range(3):
        publication(archive)
        archive.until(lambda: len(active(client)) == number + 1)  # noqa: B023
    assert client.ask("StopRecordingByIdentityRequest", recording_id=1) == 1
    all_fields = {"stream_id": STREAM, "channel": CHANNEL, "subscription_id": subscription_id}
    wanted = ("subscription_id",) if "Subscription" in name else ("stream_id", "channel")
    correlation_id = client.send(name, **{key: all_fields[key] for key in wanted})
    # The response comes before the STOP signals.
    archive.until(lambda: active(client) == [])
    names = [each.name for each in client.received if each.values.get("correlation_id") == correlation_id]
    assert names == ["ControlResponse"]
    assert client.response(correlation_id).code == ResponseCode.OK
    stops = [each.recording_id for each in client.received if each.values.get("signal") == RecordingSignal.STOP]
    assert stops == [1, 0, 2]


def test_a_foreign_image_does_not_make_an_extended_recording_unstoppable(archive: RunningArchive) -> None:
    client = archive.connected()
    client.record(STREAM, auto_stop=True)
    publication(archive).close()
    archive.until(
        lambda: [each.stop_position for each in client.listed("ListRecordingsRequest", **ALL)] not in ([], [-1])
    )
    (descriptor,) = client.listed("ListRecordingsRequest", **ALL)
    extend(client, descriptor, auto_stop=True)
    publication(archive, channel=extension_channel("aeron:ipc", descriptor))
    archive.until(lambda: active(client) == [0])
    publication(archive)
    # As in Aeron Archive, the error ends a subscription with auto_stop, and its recording with it.
    error = client.take(lambda each: each.values.get("code") == ResponseCode.ERROR)
    assert "cannot extend active recording 0" in error.error_message
    assert active(client) == []
    assert subscriptions(client) == []


def test_a_foreign_image_leaves_a_subscription_without_auto_stop_open(archive: RunningArchive) -> None:
    client = archive.connected()
    client.record(STREAM, auto_stop=True)
    publication(archive).close()
    archive.until(
        lambda: [each.stop_position for each in client.listed("ListRecordingsRequest", **ALL)] not in ([], [-1])
    )
    (descriptor,) = client.listed("ListRecordingsRequest", **ALL)
    subscription_id = extend(client, descriptor, auto_stop=False)
    publication(archive, channel=extension_channel("aeron:ipc", descriptor))
    archive.until(lambda: active(client) == [0])
    publication(archive)
    client.take(lambda each: each.values.get("code") == ResponseCode.ERROR)
    assert active(client) == [0]
    assert client.ask("StopRecordingSubscriptionRequest", subscription_id=subscription_id) == 0
    assert active(client) == []


def test_refused_subscriptions_do_not_count_toward_the_limit_of_recordings(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, max_concurrent_recordings=2) as archive:
        client = archive.connected()
        fields = {"stream_id": STREAM, "source_location": 1, "auto_stop": 0}
        for _ in range(4):
            text = client.error("StartRecordingRequest2", channel="aeron:udp?endpoint=host.invalid:0", **fields)[1]
            assert "max concurrent" not in text
        client.record(STREAM)
        client.record(OTHER_STREAM)


class _Life:
    """A random order of requests and publications, and then requests that stop everything."""

    def __init__(self, archive: RunningArchive, rng: random.Random) -> None:
        self.archive, self.rng = archive, rng
        self.client = archive.connected()
        self.publications: list[Any] = []

    def step(self) -> None:
        act = self.rng.choice((self.start, self.publish, self.publish, self.end, self.extend, *self.stops))
        act()
        for _ in range(self.rng.randrange(4)):
            self.archive.work()

    def request(self, name: str, **fields: Any) -> None:
        """Send a request without waiting for its response, so that several are in one duty cycle."""
        self.client.send(name, **fields)
        self.client.poll()

    def start(self) -> None:
        fields = {"source_location": 0, "auto_stop": self.rng.randrange(2), "channel": CHANNEL}
        self.request("StartRecordingRequest2", stream_id=self.stream, **fields)

    @property
    def stream(self) -> int:
        return self.rng.choice((STREAM, OTHER_STREAM))

    def publish(self) -> None:
        if len(self.publications) < 6:
            self.publications.append(publication(self.archive, self.stream))

    def end(self) -> None:
        if self.publications:
            self.publications.pop(self.rng.randrange(len(self.publications))).close()

    def extend(self) -> None:
        stopped = [each for each in self.client.listed("ListRecordingsRequest", **ALL) if each.stop_position != NULL]
        if stopped:
            descriptor = self.rng.choice(stopped)
            fields = {"source_location": 0, "auto_stop": self.rng.randrange(2), "channel": CHANNEL}
            stream_id, recording_id = descriptor.stream_id, descriptor.recording_id
            self.request("ExtendRecordingRequest2", recording_id=recording_id, stream_id=stream_id, **fields)
            channel = self.rng.choice((CHANNEL, extension_channel("aeron:ipc", descriptor)))
            self.publications.append(publication(self.archive, stream_id, channel))

    @property
    def stops(self) -> tuple[Any, ...]:
        return (self.stop_channel, self.stop_subscription, self.stop_identity, self.stop_identity)

    def stop_channel(self) -> None:
        for stream_id in (STREAM, OTHER_STREAM):
            self.request("StopRecordingRequest", stream_id=stream_id, channel=CHANNEL)

    def stop_subscription(self) -> None:
        for each in self.rng.sample(found := subscriptions(self.client), min(2, len(found))):
            self.request("StopRecordingSubscriptionRequest", subscription_id=each.subscription_id)

    def stop_identity(self) -> None:
        for recording_id in self.rng.sample(found := active(self.client), min(2, len(found))):
            self.request("StopRecordingByIdentityRequest", recording_id=recording_id)

    def finish(self) -> None:
        """Stop everything by one kind of request. Nothing may record afterwards, nor begin to."""
        client = self.client
        for _ in range(20):
            self.archive.work()
        kind = self.rng.randrange(3)
        if kind == 0:
            for stream_id in (STREAM, OTHER_STREAM):
                client.response(client.send("StopRecordingRequest", stream_id=stream_id, channel=CHANNEL))
        elif kind == 1:
            for each in subscriptions(client):
                assert client.ask("StopRecordingSubscriptionRequest", subscription_id=each.subscription_id) == 0
        else:
            for recording_id in active(client):
                client.ask("StopRecordingByIdentityRequest", recording_id=recording_id)
        assert active(client) == [], f"still recording after stops of kind {kind}"
        if kind < 2:
            assert subscriptions(client) == []
            before = len(client.listed("ListRecordingsRequest", **ALL))
            self.publications += [publication(self.archive, each) for each in (STREAM, OTHER_STREAM)]
            for _ in range(20):
                self.archive.work()
            assert len(client.listed("ListRecordingsRequest", **ALL)) == before
        assert self.archive.server.stats().recordings == 0


@pytest.mark.parametrize("seed", long_after(4, range(24)))
def test_nothing_is_left_recording_that_no_request_can_stop(archive: RunningArchive, seed: int) -> None:
    life = _Life(archive, random.Random(seed))
    for _ in range(60):
        life.step()
    life.finish()
