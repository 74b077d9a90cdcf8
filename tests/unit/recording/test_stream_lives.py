"""Lives of a stream that share the same ids: each has its own recordings, whatever the recorder and images do meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Stream

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.recording import Recorder, RecorderSlot, messages, open_recordings, read_catalog
from mainstem.recording.index import open_index
from mainstem.recording.life import ENDED, NO_LIFE
from mainstem.recording.message_server import MessageLog

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65536
DRIVER, OTHER_DRIVER = 1_700_000_000_000, 1_700_000_100_000
NETWORK, IPC = ("aeron:udp?endpoint=localhost:1", "10.0.0.1:4000"), ("aeron:ipc", "aeron:ipc")


def payloads(count: int) -> list[bytes]:
    return [b"tide %03d" % number for number in range(count)]


class Image:
    """An image that contains all frames of its term."""

    session_id, stream_id, initial_term_id, term_length, mtu = 500, 1001, 3, TERM, 1408

    def __init__(
        self, sent: list[bytes], *, number: int, driver: int = DRIVER, join: int = 0, source: str = NETWORK[1]
    ) -> None:
        stream = Stream(session_id=500, initial_term_id=3)
        frames = b"".join(run for _, run in stream.runs(sent))
        self.end = len(frames)
        self.log = AtomicBuffer(bytearray(frames.ljust(TERM, b"\0")))
        self.correlation_id, self.driver_start_ms = number, driver
        self.position, self.source_identity = join, source
        self.closed = self.is_end_of_stream = False

    def readable(self) -> tuple[int, int]:
        return self.position, TERM

    def release(self, position: int) -> None:
        self.position = position


class Subscription:
    def __init__(self, channel: str = NETWORK[0]) -> None:
        self.channel = channel
        self.images: list[Any] = []


def run(directory: Path, image: Image, *, ends: bool = False, channel: str = NETWORK[0]) -> None:
    """Record all of an image; then either the publisher ends or the recorder closes."""
    with Recorder(directory) as recorder:
        subscription = Subscription(channel)
        recorder.add_subscription(subscription)
        subscription.images.append(image)
        recorder.do_work()
        assert image.position == image.end
        if ends:
            image.closed = image.is_end_of_stream = True
            recorder.do_work()


def found(directory: Path) -> list[list[bytes]]:
    with open_recordings(directory) as recordings:
        return [[data for _, data in messages(r, r.start_position, r.end_position())] for r in recordings]


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("kind", [NETWORK, IPC])
def test_two_lives_are_two_recordings(tmp_path: Path, kind: tuple[str, str], ends: bool) -> None:
    # The second life sends the same messages as the first, and then more.
    run(tmp_path, Image(payloads(50), number=1, source=kind[1]), ends=ends, channel=kind[0])
    run(tmp_path, Image(payloads(100), number=2, source=kind[1]), channel=kind[0])
    assert found(tmp_path) == [payloads(50), payloads(100)]


def test_a_life_after_a_restart_of_the_driver_is_another_though_its_number_is_the_same(tmp_path: Path) -> None:
    run(tmp_path, Image(payloads(50), number=1, source=IPC[1]), channel=IPC[0])
    run(tmp_path, Image(payloads(100), number=1, driver=OTHER_DRIVER, source=IPC[1]), channel=IPC[0])
    assert found(tmp_path) == [payloads(50), payloads(100)]


def test_two_lives_under_one_recorder_are_two_recordings(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        subscription = Subscription()
        recorder.add_subscription(subscription)
        for number, count in ((1, 50), (2, 50), (3, 100)):
            image = Image(payloads(count), number=number)
            subscription.images = [image]
            recorder.do_work()
            image.closed = image.is_end_of_stream = True
            recorder.do_work()
    assert found(tmp_path) == [payloads(50), payloads(50), payloads(100)]


@pytest.mark.parametrize("kind", [NETWORK, IPC])
def test_a_recorder_that_rejoins_an_image_continues_its_recording(tmp_path: Path, kind: tuple[str, str]) -> None:
    first = Image(payloads(50), number=1, source=kind[1])
    run(tmp_path, first, channel=kind[0])
    run(tmp_path, Image(payloads(100), number=1, join=first.end // 2, source=kind[1]), channel=kind[0])
    assert found(tmp_path) == [payloads(100)]


@pytest.mark.parametrize("driver", [DRIVER, OTHER_DRIVER])
def test_a_new_image_that_joins_where_a_recording_ends_continues_it(tmp_path: Path, driver: int) -> None:
    first = Image(payloads(50), number=1)
    run(tmp_path, first)
    run(tmp_path, Image(payloads(100), number=9, driver=driver, join=first.end))
    # A recorder that rejoins this image also continues the recording.
    run(tmp_path, Image(payloads(120), number=9, driver=driver, join=first.end))
    assert found(tmp_path) == [payloads(120)]


@pytest.mark.parametrize("why", ["the stream ended", "another source", "ipc", "past the end", "before the end"])
def test_a_possible_second_life_is_another_recording(
    tmp_path: Path, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    channel, source = IPC if why == "ipc" else NETWORK
    first = Image(payloads(50), number=1, source=source)
    run(tmp_path, first, ends=why == "the stream ended", channel=channel)
    step = first.end // 50
    join = first.end + {"past the end": step, "before the end": -step}.get(why, 0)
    source = "10.0.0.1:4001" if why == "another source" else source
    run(tmp_path, Image(payloads(100), number=9, join=join, source=source), channel=channel)
    assert found(tmp_path) == [payloads(50), payloads(100)[join // step :]]
    assert ("a new recording starts" in caplog.text) == (why == "past the end")


def test_streams_with_equal_ids_on_two_channels_resume_their_own_recordings(tmp_path: Path) -> None:
    channels = (NETWORK[0], "aeron:udp?endpoint=localhost:2")
    for count in (50, 100):
        for number, channel in enumerate(channels):
            run(tmp_path, Image(payloads(count), number=number), channel=channel)
    assert found(tmp_path) == [payloads(100), payloads(100)]


def test_a_log_of_another_channel_is_another_recording(tmp_path: Path) -> None:
    for channel in ("bymux://:1", "jmux://:2", "bymux://:1"):
        with Recorder(tmp_path) as recorder:
            MessageLog(recorder, stream_id=1, channel=channel).write([(0, channel.encode())])
    assert found(tmp_path) == [[b"bymux://:1"] * 2, [b"jmux://:2"]]


def test_a_recording_names_its_life(tmp_path: Path) -> None:
    run(tmp_path, Image(payloads(5), number=4))
    run(tmp_path, Image(payloads(5), number=5), ends=True)
    with Recorder(tmp_path) as recorder:
        recorder.start(
            session_id=1, stream_id=1, initial_term_id=0, term_buffer_length=TERM, mtu_length=1408, join_position=0
        )
    lives = []
    for descriptor in read_catalog(tmp_path):
        positions = open_index(tmp_path, descriptor)
        assert positions is not None
        lives.append((descriptor.origin, positions.life))
        positions.close()
    assert lives == [((DRIVER, 4), (DRIVER, 4)), ((DRIVER, 5), ENDED), (NO_LIFE, NO_LIFE)]


def test_a_recording_that_an_archive_extended_is_read_without_its_old_index(tmp_path: Path) -> None:
    run(tmp_path, Image(payloads(50), number=1))
    (descriptor,) = read_catalog(tmp_path)
    catalog = tmp_path / "archive.catalog"
    data = bytearray(catalog.read_bytes())
    at = descriptor.entry_offset + 32
    more = Image(payloads(100), number=1)
    # Set the archive's control session and correlation id. It was killed, so there is no stop position.
    data[at : at + 16] = (17).to_bytes(8, "little") + (3).to_bytes(8, "little")
    data[at + 48 : at + 56] = bytes([255] * 8)
    catalog.write_bytes(data)
    segment = tmp_path / "0-0.rec"
    with segment.open("r+b") as file:
        file.write(bytes(more.log.view(0, more.end)))
    assert found(tmp_path) == [payloads(100)]
    # A recorder neither truncates what the archive wrote nor continues it.
    run(tmp_path, Image(payloads(120), number=1))
    assert found(tmp_path) == [payloads(100), payloads(120)]


def test_a_hold_does_not_let_a_second_life_pass_by_the_recording_of_the_first(tmp_path: Path) -> None:
    run(tmp_path, Image(payloads(50), number=1))
    image = Image(payloads(100), number=2)
    subscription = Subscription()
    subscription.images.append(image)
    with RecorderSlot(tmp_path) as hold:
        hold.add_subscription(subscription)
        hold.do_work(0)
        assert image.position == 0
        with Recorder(tmp_path) as recorder:
            other = Subscription()
            other.images.append(Image(payloads(100), number=2))
            recorder.add_subscription(other)
            recorder.do_work()
            hold.do_work(1_000_000_000)
            assert image.position == image.end
