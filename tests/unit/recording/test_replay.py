"""Replaying a recording at its original pace, with a clock that only advances when the code sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.errors import ConfigurationError, Timeout
from mainstem.recording import Recorder, RecordingReader, open_recording
from mainstem.recording.index import index_file
from mainstem.recording.replayer import MAX_SLEEP_S, replay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TERM = 65536
START_NS = 1_769_860_800_000_000_000
STEP_NS = 200_000_000


class StillClock:
    def __init__(self) -> None:
        self.now_ns = 5

    def monotonic_ns(self) -> int:
        return self.now_ns

    def epoch_ns(self) -> int:
        return self.now_ns

    def epoch_ms(self) -> int:
        return self.now_ns // 1_000_000

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= MAX_SLEEP_S
        self.now_ns += round(seconds * NS_PER_SECOND)


class Publication:
    def __init__(self, clock: StillClock) -> None:
        self.clock = clock
        self.sent: list[tuple[int, bytes, int]] = []

    def send(self, payload: memoryview, *, timeout: float | None, reserved_value: int) -> int:
        self.sent.append((self.clock.now_ns, bytes(payload), reserved_value))
        return 0


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RecordingReader]:
    with Recorder(tmp_path, segment_length=2 * TERM) as recorder:
        writer = Stream().start(recorder)
        record(writer, Stream(), [b"%d" % number for number in range(100)], time_ns=START_NS, step_ns=STEP_NS)
    with open_recording(tmp_path, 0) as opened:
        yield opened


def run(reader: RecordingReader, speed: float, clock: StillClock | None = None) -> list[tuple[int, bytes, int]]:
    clock = clock or StillClock()
    publication = Publication(clock)
    played = replay(reader, publication, 0, reader.end_position(), clock=clock, sleep=clock.sleep, speed=speed)
    assert played.messages == 100
    assert [payload for _, payload, _ in publication.sent] == [b"%d" % number for number in range(100)]
    return publication.sent


@pytest.mark.parametrize("speed", [1.0, 4.0, 0.5])
def test_messages_come_at_the_pace_of_the_recording(reader: RecordingReader, speed: float) -> None:
    times = [at_ns for at_ns, _, _ in run(reader, speed)]
    # A message's time is known only to one index interval, which is one step here.
    for number, at_ns in enumerate(times):
        due_ns = (number - 1) * STEP_NS / speed
        assert abs(at_ns - times[0] - due_ns) <= 2 * STEP_NS / speed
    assert times == sorted(times)


def test_at_full_speed_nothing_waits(reader: RecordingReader) -> None:
    assert len({at_ns for at_ns, _, _ in run(reader, 0)}) == 1


def test_a_player_that_fell_behind_does_not_wait(reader: RecordingReader) -> None:
    clock = StillClock()

    class Slow(Publication):
        def send(self, payload: memoryview, *, timeout: float | None, reserved_value: int) -> int:
            clock.now_ns += 3 * STEP_NS
            return super().send(payload, timeout=timeout, reserved_value=reserved_value)

    slow = Slow(clock)
    replay(reader, slow, 0, reader.end_position(), clock=clock, sleep=clock.sleep)
    assert slow.sent[-1][0] - slow.sent[0][0] <= 3 * STEP_NS * 100 + STEP_NS


def test_a_replay_ends_when_asked_to(reader: RecordingReader) -> None:
    clock = StillClock()
    publication = Publication(clock)
    played = replay(reader, publication, 0, reader.end_position(), clock=clock, sleep=clock.sleep,
                  should_stop=lambda: len(publication.sent) == 3)  # fmt: skip
    assert played.messages == 3


def test_reserved_values_are_played_too(tmp_path: Path) -> None:
    stream = Stream()
    with Recorder(tmp_path, segment_length=2 * TERM) as recorder:
        writer = Stream().start(recorder)
        writer.write(memoryview(stream.message(b"one", reserved=-7)), START_NS)
    clock = StillClock()
    publication = Publication(clock)
    with open_recording(tmp_path, 0) as reader:
        replay(reader, publication, 0, reader.end_position(), clock=clock, sleep=clock.sleep)
    assert [(payload, reserved) for _, payload, reserved in publication.sent] == [(b"one", -7)]


def test_without_times_there_is_no_pace(reader: RecordingReader, tmp_path: Path) -> None:
    index_file(tmp_path, 0).unlink()
    clock = StillClock()
    with open_recording(tmp_path, 0) as unindexed:
        with pytest.raises(ConfigurationError, match="its pace is not known"):
            replay(unindexed, Publication(clock), 0, unindexed.end_position(), clock=clock, sleep=clock.sleep)
        run(unindexed, 0)


def test_an_unread_stream_ends_the_wait(reader: RecordingReader) -> None:
    class Full(Publication):
        def send(self, payload: memoryview, *, timeout: float | None, reserved_value: int) -> int:
            raise Timeout("full", timeout=timeout)

    clock = StillClock()
    with pytest.raises(Timeout):
        replay(reader, Full(clock), 0, reader.end_position(), clock=clock, sleep=clock.sleep)
