"""Recordings, then the live stream: no message lost or duplicated, whatever the recorder, images and reader do meanwhile."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.case_selection import long_after
from tests.support.streams import Stream
from tests.support.waiting import until
from tests.unit.aeron.client.hand_driver import HandDriver

from mainstem import aio
from mainstem._core.log.columns import Fragments
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.aeron.client.persistent_subscription import PersistentSubscription
from mainstem.errors import ClosedError, ConfigurationError, RecordingError, Timeout
from mainstem.recording import Recorder
from mainstem.recording.life import NO_LIFE, StreamLife
from mainstem.recording.persistent import history
from mainstem.recording.persistent import stream as module
from mainstem.recording.persistent.stream import RECORDING_TIMEOUT_NS, PersistentStream

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem._core.log.columns import Columns
    from mainstem.recording.writer import RecordingWriter

TERM = 65536
DRIVER = 1_700_000_000_000
START_NS = 1_769_860_800_000_000_000


class Time:
    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += 20_000_000  # each call advances past the next refresh
        return self.now_ns

    def epoch_ns(self) -> int:
        return self.now_ns

    def epoch_ms(self) -> int:
        return self.now_ns // 1_000_000


class Publisher:
    """One session: its frames, and the position up to which a recorder has stored them."""

    def __init__(
        self, session_id: int, recorder: Recorder | None, *, recorded_from: int = 0, life: StreamLife = NO_LIFE
    ) -> None:
        self.life = life
        self.stream = Stream(session_id=session_id, mtu=288)
        self.session_id, self.initial_term_id = session_id, self.stream.initial_term_id
        self.frames, self.payloads, self.ends = bytearray(), [], []  # type: ignore[var-annotated]
        self.recorder, self.recorded, self.ended = recorder, recorded_from, False
        self.writer: RecordingWriter | None = None
        self.frame_starts: list[int] = []

    def publish(self, payload: bytes) -> None:
        for _, run in self.stream.runs([payload]):
            at = len(self.frames)
            self.frames += run
            while at < len(self.frames):
                self.frame_starts.append(at)
                at += (int.from_bytes(self.frames[at : at + 4], "little") + 31) & ~31
        self.payloads.append(payload)
        self.ends.append(len(self.frames))

    def record(self, position: int) -> None:
        """Record every message that ends at or before ``position``."""
        position = max((end for end in self.ends if end <= position), default=0)
        if self.recorder is None or position <= self.recorded:
            return
        if self.writer is None:
            self.writer = self.recorder.start(session_id=self.session_id, stream_id=1001, initial_term_id=-5,
                                              term_buffer_length=TERM, mtu_length=288, join_position=self.recorded,
                                              channel="aeron:ipc", life=self.life)  # fmt: skip
        at = self.recorded
        while at < position:
            end = min(position, (at // TERM + 1) * TERM)
            self.writer.write(memoryview(self.frames)[at:end], START_NS + at)
            at = end
        self.recorded = position

    def stop(self) -> None:
        if self.writer is not None and self.recorder is not None:
            if self.ended:
                self.writer.end_life()
            self.recorder.stop(self.writer)
            self.writer = None


class FakeImage:
    def __init__(self, publisher: Publisher, join_position: int) -> None:
        self.publisher, self.join_position, self.position = publisher, join_position, join_position
        self.session_id, self.initial_term_id = publisher.session_id, publisher.initial_term_id
        self.closed, self.arrived = False, join_position
        known = publisher.life if publisher.life != NO_LIFE else (DRIVER, id(publisher))
        self.driver_start_ms, self.correlation_id = known
        self._fragments = Fragments()

    @property
    def is_end_of_stream(self) -> bool:
        return self.publisher.ended and self.position >= len(self.publisher.frames)

    def _gather_columns(self, columns: Columns, limit: int) -> None:
        end = min(self.arrived, (self.position // TERM + 1) * TERM)
        self.position += columns.add_messages(
            memoryview(self.publisher.frames), self.position, end, self.position, self._fragments, limit
        )


class FakeLive:
    def __init__(self) -> None:
        self.images: list[FakeImage] = []
        self.had_image = self.closed = False

    @property
    def is_end_of_stream(self) -> bool:
        return self.had_image and all(image.is_end_of_stream for image in self.images)

    def join(self, publisher: Publisher, position: int) -> None:
        self.had_image = True
        self.images.append(FakeImage(publisher, position))

    error = None

    def wait_for_data(self, *, timeout: float) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class FakeClient:
    def __init__(self) -> None:
        self.live: FakeLive | None = None

    def add_subscription(self, channel: str, stream_id: int, /, *, timeout: float | None = None) -> Any:
        assert self.live is None, "the stream is subscribed to once"
        self.live = FakeLive()
        return self.live

    def invoke(self) -> int:
        return 0


def persistent(client: FakeClient, path: Path, **options: Any) -> PersistentSubscription:
    clock = Time()
    stream = PersistentStream(client, "aeron:ipc", 1001, recordings=path, clock=clock, **options)
    return PersistentSubscription(stream)


@pytest.mark.parametrize("seed", long_after(15, range(60)))
def test_every_message_arrives_once_and_in_order(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(module, "NEAR_BYTES", rng.choice([0, 500, 5_000, 1 << 20]))
    received: dict[int, list[bytes]] = {}
    client = FakeClient()
    with Recorder(tmp_path, segment_length=2 * TERM) as recorder:
        publishers = [Publisher(70 + i, recorder) for i in range(rng.randint(1, 3))]
        received = {publisher.session_id: [] for publisher in publishers}

        def publish(publisher: Publisher, count: int) -> None:
            for _ in range(count):
                head = b"%d:%d " % (publisher.session_id, len(publisher.payloads))
                publisher.publish(head + bytes(rng.choice([0, 50, 600, 3000])))

        for publisher in publishers:
            publish(publisher, rng.randrange(100))
            publisher.record(rng.randrange(len(publisher.frames) + 1))
        with persistent(client, tmp_path) as subscription:

            def read(limit: int) -> int:
                payloads = subscription.poll_bytes(limit)
                for payload in payloads:
                    received[int(payload.partition(b":")[0])].append(payload)
                return len(payloads)

            for _ in range(rng.randint(50, 250)):
                publisher = rng.choice(publishers)
                live = client.live
                images = [image for image in live.images if image.publisher is publisher] if live else []
                match rng.randrange(7):
                    case 0:
                        publish(publisher, rng.randrange(20))
                    case 1:
                        publisher.record(rng.randint(publisher.recorded, len(publisher.frames)))
                    case 2 if live is not None and not images:
                        starts = [at for at in publisher.frame_starts if at >= 0] or [0]
                        # A subscriber joins near the end, at any frame; the recorder may be ahead of it or behind it.
                        live.join(publisher, rng.choice([*starts[-30:], len(publisher.frames)]))
                    case 3 if images and rng.random() < 0.3:
                        images[0].closed = True
                        live.images.remove(images[0])  # type: ignore[union-attr]
                    case 4 | 5:
                        for image in images:
                            image.arrived = rng.choice(
                                [at for at in [*publisher.frame_starts, len(publisher.frames)] if at >= image.arrived]
                            )
                    case _:
                        read(rng.choice([1, 3, 100]))
            for publisher in publishers:
                publisher.record(len(publisher.frames))
                publisher.ended = True
                publisher.stop()
                for image in client.live.images if client.live else []:
                    image.arrived = len(image.publisher.frames)
            idle = 0
            while idle < 20:
                idle = 0 if read(50) else idle + 1
            for publisher in publishers:
                assert received[publisher.session_id] == publisher.payloads
            assert client.live is not None
            assert not client.live.had_image or subscription.is_end_of_stream
    assert client.live.closed


@pytest.fixture
def recorded(tmp_path: Path) -> Publisher:
    recorder = Recorder(tmp_path, segment_length=2 * TERM)
    publisher = Publisher(77, recorder)
    for number in range(200):
        publisher.publish(b"%d" % number)
    publisher.record(len(publisher.frames))
    publisher.stop()
    recorder.close()
    return publisher


def everything(subscription: PersistentSubscription) -> list[bytes]:
    out, idle = [], 0
    while idle < 5:
        payloads = subscription.poll_bytes(1000)
        out += payloads
        idle = 0 if payloads else idle + 1
    return out


@pytest.mark.parametrize("count", [0, 1, 50, 200])
def test_it_starts_at_a_position_a_time_or_where_another_ended(recorded: Publisher, tmp_path: Path, count: int) -> None:
    position = recorded.ends[count - 1] if count else 0
    for start in (position, {0: position}):
        with persistent(FakeClient(), tmp_path, start=start) as subscription:
            assert everything(subscription) == recorded.payloads[count:]
    with persistent(FakeClient(), tmp_path) as subscription:
        assert subscription.poll_bytes(count) == recorded.payloads[:count]
        resume = subscription.positions
    with persistent(FakeClient(), tmp_path, start=resume or 0) as subscription:
        assert everything(subscription) == recorded.payloads[count:]


def test_recordings_are_released_when_the_stream_is_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ROWS_PER_BATCH", 10)
    client = FakeClient()
    with Recorder(tmp_path) as recorder:
        publisher = Publisher(77, recorder)
        for number in range(200):
            publisher.publish(b"%d" % number)
        publisher.record(len(publisher.frames))
        with persistent(client, tmp_path) as subscription:
            received = subscription.poll_bytes(1)
            assert client.live is not None
            client.live.join(publisher, publisher.ends[50])
            client.live.images[0].arrived = publisher.ends[-1]
            received += subscription.poll_bytes(40)
            (session,) = subscription._stream._sessions.values()
            assert session.history._batches is not None  # the range being read extends to the end of the recording
            received += subscription.poll_bytes(40)
            assert session.is_live
            assert session.history._batches is None
            assert received + everything(subscription) == publisher.payloads
        publisher.stop()


def test_latest_starts_with_new_messages(recorded: Publisher, tmp_path: Path) -> None:
    client = FakeClient()
    with persistent(client, tmp_path, start="latest") as subscription:
        assert client.live is not None
        client.live.join(recorded, len(recorded.frames))
        recorded.publish(b"now")
        client.live.images[0].arrived = len(recorded.frames)
        assert everything(subscription) == [b"now"]
        assert subscription.is_live


def test_leaving_an_iterator_consumes_only_yielded_messages(recorded: Publisher, tmp_path: Path) -> None:
    with persistent(FakeClient(), tmp_path) as subscription:
        first = [message for message, _ in zip(subscription.messages(), range(7), strict=False)]
        rest = everything(subscription)
    # zip() consumes one item more than it yields.
    assert [*first, b"7", *rest] == recorded.payloads


def test_messages_are_received_one_by_one(recorded: Publisher, tmp_path: Path) -> None:
    with persistent(FakeClient(), tmp_path) as subscription:
        first = [subscription.receive() for _ in range(7)]
        assert [*first, *everything(subscription)] == recorded.payloads


def test_a_record_batch_has_the_same_messages(recorded: Publisher, tmp_path: Path) -> None:
    with persistent(FakeClient(), tmp_path) as subscription:
        assert subscription.poll_arrow(0 + 3)["payload"].to_pylist() == recorded.payloads[:3]
        assert subscription.poll_arrow(3)["position"].to_pylist() == recorded.ends[3:6]
        assert subscription.poll_bytes(1000) == recorded.payloads[6:]
        assert subscription.poll_arrow().num_rows == 0
        assert subscription.poll_arrow().schema.names == ["position", "session_id", "reserved_value", "payload"]


def test_a_gap_between_recordings_is_an_error_or_is_passed_over(tmp_path: Path) -> None:
    def run(**options: Any) -> list[bytes]:
        with persistent(FakeClient(), tmp_path, **options) as subscription:
            return everything(subscription)

    with Recorder(tmp_path, segment_length=2 * TERM) as recorder:
        publisher = Publisher(77, recorder)
        for number in range(30):
            publisher.publish(b"%d" % number)
        publisher.record(publisher.ends[9])
        publisher.stop()
        publisher.recorded = publisher.ends[19]
        publisher.record(len(publisher.frames))
        publisher.stop()
    with pytest.raises(RecordingError, match="are not recorded"):
        run()
    assert run(strict=False) == publisher.payloads[:10] + publisher.payloads[20:]
    assert run(start=publisher.ends[24]) == publisher.payloads[25:]


def test_an_unrecorded_live_stream_is_an_error_if_its_past_is_requested(tmp_path: Path) -> None:
    Recorder(tmp_path).close()
    for options in ({}, {"strict": False}):
        client = FakeClient()
        publisher = Publisher(77, None)
        publisher.publish(b"one")
        with persistent(client, tmp_path, **options) as subscription:
            assert client.live is not None
            client.live.join(publisher, 0)
            client.live.images[0].arrived = len(publisher.frames)
            assert subscription.poll_bytes() == []
            subscription._stream.clock.now_ns += 2 * RECORDING_TIMEOUT_NS  # type: ignore[attr-defined]
            if options:
                assert everything(subscription) == [b"one"]
            else:
                with pytest.raises(RecordingError, match="is a recorder running"):
                    everything(subscription)


def test_a_publisher_that_sends_nothing_is_live_without_a_recording(tmp_path: Path) -> None:
    Recorder(tmp_path).close()
    client = FakeClient()
    publisher = Publisher(77, None)
    with persistent(client, tmp_path) as subscription:
        assert client.live is not None
        client.live.join(publisher, 0)
        assert subscription.poll_bytes() == []
        assert subscription.is_live
        subscription._stream.clock.now_ns += 2 * RECORDING_TIMEOUT_NS  # type: ignore[attr-defined]
        assert subscription.poll_bytes() == []
        # After the first message, a recording is expected within the timeout.
        publisher.publish(b"one")
        client.live.images[0].arrived = len(publisher.frames)
        assert subscription.poll_bytes() == []
        assert not subscription.is_live
        subscription._stream.clock.now_ns += 2 * RECORDING_TIMEOUT_NS  # type: ignore[attr-defined]
        with pytest.raises(RecordingError, match="is a recorder running"):
            everything(subscription)


def test_streams_of_several_channels_are_not_mixed(tmp_path: Path) -> None:
    with Recorder(tmp_path, segment_length=2 * TERM) as recorder:
        for session_id, channel in ((1, "aeron:udp?endpoint=a:1"), (2, "aeron:udp?endpoint=b:1")):
            writer = recorder.start(session_id=session_id, stream_id=1001, initial_term_id=-5, term_buffer_length=TERM,
                                    mtu_length=1408, join_position=0, channel=channel)  # fmt: skip
            writer.write(memoryview(Stream(session_id=session_id).message(b"%d" % session_id)), START_NS)
    with pytest.raises(ConfigurationError, match="recorded_channel"):
        persistent(FakeClient(), tmp_path)
    with persistent(FakeClient(), tmp_path, recorded_channel="aeron:udp?endpoint=b:1") as subscription:
        assert everything(subscription) == [b"2"]


@pytest.mark.parametrize("start", ["noon", -1, True, 1.5, None])
def test_an_invalid_start_is_rejected(recorded: Publisher, tmp_path: Path, start: Any) -> None:
    with pytest.raises(ConfigurationError, match="start"):
        persistent(FakeClient(), tmp_path, start=start)


def test_waiting_times_out_and_raises_once_closed(recorded: Publisher, tmp_path: Path) -> None:
    with persistent(FakeClient(), tmp_path) as subscription, pytest.raises(Timeout):
        for _ in subscription.messages(timeout=NS_PER_SECOND / 1e9):
            pass
    for use in (subscription.poll_bytes, subscription.receive):
        with pytest.raises(ClosedError):
            use()
    subscription.close()


def second_life(recorder: Recorder) -> Publisher:
    publisher = Publisher(77, recorder, life=StreamLife(DRIVER, 2))
    for number in range(100):
        publisher.publish(b"second %d" % number)
    return publisher


def first_life(recorder: Recorder) -> Publisher:
    publisher = Publisher(77, recorder, life=StreamLife(DRIVER, 1))
    for number in range(50):
        publisher.publish(b"first %d" % number)
    publisher.record(len(publisher.frames))
    return publisher


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("other_driver", [False, True])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("first_seen", ["image", "recording"])
def test_a_restarted_publisher_is_received_completely(
    tmp_path: Path, first_seen: str, ends: bool, other_driver: bool, start: str
) -> None:
    client = FakeClient()
    with Recorder(tmp_path) as recorder, persistent(client, tmp_path, start=start) as subscription:
        first = first_life(recorder)
        found = everything(subscription)
        assert client.live is not None
        shift = 50_000 if other_driver else 0
        client.live.join(first, 0)
        client.live.images[0].arrived = len(first.frames)
        client.live.images[0].driver_start_ms += shift
        found += everything(subscription)
        assert found == first.payloads
        first.ended = ends
        client.live.images.pop().closed = True
        first.stop()
        second = second_life(recorder)
        steps = [lambda: second.record(len(second.frames)), lambda: client.live.join(second, 0)]
        for step in steps if first_seen == "recording" else reversed(steps):
            step()
            for image in client.live.images:
                image.arrived = len(second.frames)
                image.driver_start_ms = DRIVER + shift
            for _ in range(4):  # the archive is read again periodically
                found += everything(subscription)
        assert found == first.payloads + second.payloads
        assert subscription.is_live


@pytest.mark.parametrize("other_driver", [False, True])
@pytest.mark.parametrize("is_recorded", [False, True])
def test_recorded_lives_are_read_completely_before_the_live_one(
    tmp_path: Path, is_recorded: bool, other_driver: bool
) -> None:
    client = FakeClient()
    with Recorder(tmp_path) as recorder:
        first = first_life(recorder)
        first.ended = True
        first.stop()
        second = second_life(recorder)
        if is_recorded:
            second.record(second.ends[70])
        with persistent(client, tmp_path) as subscription:
            found = everything(subscription)
            assert client.live is not None
            client.live.join(second, 0)
            (image,) = client.live.images
            image.arrived, image.driver_start_ms = len(second.frames), DRIVER + (50_000 if other_driver else 0)
            second.record(len(second.frames))
            for _ in range(4):  # the archive is read again periodically
                found += everything(subscription)
            assert found == first.payloads + second.payloads


def test_opening_times_out_while_recordings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Recorder(tmp_path).close()
    closed: list[PersistentStream] = []
    close = PersistentStream.close
    monkeypatch.setattr(PersistentStream, "close", lambda self: (closed.append(self), close(self)))
    client = FakeClient()
    with pytest.raises(Timeout, match=r"was not read within 0\.01 s"):
        persistent(client, tmp_path, timeout=0.01)  # each call to the clock advances it by 0.02 s
    assert client.live is None
    assert len(closed) == 1


async def test_asyncio_opening_times_out_while_recordings_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Recorder(tmp_path).close()
    readable, closed = threading.Event(), threading.Event()
    refresh, close = PersistentStream._refresh, PersistentStream.close
    monkeypatch.setattr(PersistentStream, "_refresh", lambda self: (readable.wait(), refresh(self)))
    monkeypatch.setattr(PersistentStream, "close", lambda self: (close(self), closed.set()))
    driver = HandDriver()
    async with aio.connect("/driver", files=driver.files, clock=driver.clock) as aeron:
        try:
            with pytest.raises(Timeout, match="add_persistent_subscription: timed out"):
                await aeron.add_persistent_subscription("aeron:ipc", 1001, recordings=tmp_path, timeout=0.01)
            driver.clock.advance_ns(NS_PER_SECOND)
        finally:
            readable.set()
        await until(closed.is_set)
        assert not aeron.stats().subscriptions
