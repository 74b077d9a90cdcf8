"""How recordings start: only once there is data, without scanning other streams' recordings, and within rate limits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.many_recordings import make_recordings
from tests.support.streams import Stream

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.recording import Recorder, catalog, messages, open_recordings, read_catalog, segments, start_limits
from mainstem.recording.directory import RecordingDirectory
from mainstem.recording.start_limits import HOUR_S, StartLimits, max_written
from mainstem.sim.clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65536
SECOND_NS = 1_000_000_000


class Image:
    """An image with ``count`` messages in its term."""

    stream_id, initial_term_id, term_length, mtu, driver_start_ms = 1001, 3, TERM, 1408, 1_700_000_000_000

    def __init__(self, session_id: int, count: int = 3, *, source: str = "10.0.0.1:4000", position: int = 0) -> None:
        self.session_id = self.correlation_id = session_id
        self.log = AtomicBuffer(bytearray(TERM))
        self._stream = Stream(session_id=session_id, initial_term_id=3)
        self.position, self.source_identity = position, source
        self.closed = self.is_end_of_stream = False
        self.offer(count)

    def offer(self, count: int) -> None:
        for position, run in self._stream.runs([b"tide %d" % number for number in range(count)]):
            self.log.put_bytes(position, run)

    @property
    def end(self) -> int:
        return self._stream.position

    def readable(self) -> tuple[int, int]:
        return self.position, TERM

    def release(self, position: int) -> None:
        self.position = position


class Subscription:
    channel = "aeron:udp?endpoint=localhost:1"

    def __init__(self, *images: Any) -> None:
        self.images = list(images)


def recorder_of(path: Path, subscription: Subscription, clock: ManualClock | None = None, **options: Any) -> Recorder:
    recorder = Recorder(path, segment_length=TERM, clock=clock or ManualClock(), **options)
    recorder.add_subscription(subscription)
    return recorder


def sessions(path: Path) -> list[int]:
    return [each.session_id for each in read_catalog(path)]


def test_a_stream_without_frames_leaves_nothing_behind(tmp_path: Path) -> None:
    silent, busy = Image(1, 0), Image(2)
    with recorder_of(tmp_path, subscription := Subscription(silent, busy)) as recorder:
        before = set(os.listdir(tmp_path))
        recorder.do_work()
        assert sessions(tmp_path) == [2]
        assert set(os.listdir(tmp_path)) - before == {"0-0.rec", "0.mainstem-positions"}
        silent.offer(5)
        recorder.do_work()
        assert sessions(tmp_path) == [2, 1]
        assert recorder.written == {0: 3, 1: 5}
        subscription.images = [Image(3, 0)]
        recorder.do_work()
        subscription.images = []
        recorder.do_work()
    assert sessions(tmp_path) == [2, 1]


def test_an_idle_stream_continues_its_recording_when_joined(tmp_path: Path) -> None:
    image = Image(1)
    with recorder_of(tmp_path, Subscription(image)) as recorder:
        recorder.do_work()
    with recorder_of(tmp_path, Subscription(image)) as recorder:
        recorder.do_work()
        assert recorder.active == {0: image.end}
        assert read_catalog(tmp_path)[0].stop_position == -1


def test_starting_a_recording_does_not_depend_on_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_recordings(tmp_path, 50)
    first = Image(10**6)
    with recorder_of(tmp_path, Subscription(first)) as recorder:
        recorder.do_work()
    subscription = Subscription()
    with recorder_of(tmp_path, subscription) as recorder:

        def walk(*_: object) -> Any:
            raise AssertionError("the recordings of other streams are read")

        for module, name in (
            (os, "listdir"),
            (catalog, "_entries"),
            (catalog, "read_catalog"),
            (segments, "segments_of"),
        ):
            monkeypatch.setattr(module, name, walk)
        subscription.images = [first, *(Image(2 * 10**6 + number) for number in range(5))]
        recorder.do_work()
        assert sorted(recorder.active) == [50, 51, 52, 53, 54, 55]
        monkeypatch.undo()
    assert sessions(tmp_path)[50:] == [10**6, *range(2 * 10**6, 2 * 10**6 + 5)]


@pytest.mark.parametrize("has_lost_power", [False, True])
def test_recovery_of_many_recordings_lists_their_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_lost_power: bool
) -> None:
    Recorder(tmp_path).close()
    for growing in make_recordings(tmp_path, 40, growing=40):
        growing.close()
    listed = []
    for name in ("listdir", "scandir"):
        listing = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, listing=listing: listed.append(args) or listing(*args))
    monkeypatch.setattr(RecordingDirectory, "_has_lost_power", lambda _: has_lost_power)
    files = len(os.listdir("/proc/self/fd"))
    listed.clear()
    with Recorder(tmp_path):
        assert len(listed) <= 3
        # The lock, the catalog and the mark file.
        assert len(os.listdir("/proc/self/fd")) <= files + 4
    assert {each.stop_position for each in read_catalog(tmp_path)} == {1280}


def test_segments_after_a_gap_are_deleted_when_a_recording_resumes(tmp_path: Path) -> None:
    image = Image(1)
    with recorder_of(tmp_path, Subscription(image)) as recorder:
        recorder.do_work()
    # A power failure can keep a later segment and lose earlier ones.
    (tmp_path / f"0-{3 * TERM}.rec").write_bytes(b"\x11" * TERM)
    with recorder_of(tmp_path, Subscription(image)) as recorder:
        recorder.do_work()
        assert not (tmp_path / f"0-{3 * TERM}.rec").exists()


def test_streams_beyond_the_limit_of_their_source_wait_and_are_recorded_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    flood = [Image(number, source=f"10.0.0.1:{4000 + number}") for number in range(6)]
    other = Image(100, source="10.0.0.2:4000")
    with recorder_of(tmp_path, Subscription(*flood, other), clock, max_new_recordings=8) as recorder:
        for _ in range(20):
            recorder.do_work()
        assert sessions(tmp_path) == [0, 1, 100]
        assert (recorder.delayed, recorder.unrecorded) == (4, 4)
        assert [image.position for image in flood[2:]] == [0, 0, 0, 0]
        assert caplog.text.count("waits to be recorded") == 1
        assert "its source has begun 2 recordings in an hour" in caplog.text
        flood[5].closed = True
        clock.advance_ns(HOUR_S // 2 * SECOND_NS)
        recorder.do_work()
        clock.advance_ns(HOUR_S // 2 * SECOND_NS)
        recorder.do_work()
        assert sessions(tmp_path) == [0, 1, 100, 2, 3]
        clock.advance_ns(HOUR_S * SECOND_NS)
        recorder.do_work()
        assert (recorder.delayed, recorder.unrecorded) == (4, 1)
    with open_recordings(tmp_path) as recordings:
        assert [len(list(messages(r, r.start_position, r.end_position()))) for r in recordings] == [3] * 6


def test_sources_together_have_a_limit_and_one_beyond_its_own_uses_up_nothing_of_it() -> None:
    limits = StartLimits(8)
    begun = 0
    for number in range(3):
        for _ in range(5):
            begun += not limits.refusal(f"10.0.0.{number}:1", 0, 0)
    assert begun == 6
    assert not limits.refusal("10.0.1.1:1", 0, 0)
    assert not limits.refusal("[2001:db8::1]:1", 0, 0)
    # While the global limit is exhausted, refused sources do not use up their own limit.
    for _ in range(100):
        assert limits.refusal("10.0.2.1:1", 0, 0) == "8 recordings have begun in an hour"
    later = HOUR_S * SECOND_NS
    assert [bool(limits.refusal("10.0.2.1:1", 0, later)) for _ in range(3)] == [False, False, True]


def test_recordings_that_are_written_are_limited_by_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert max_written() >= 1
    before = len(os.listdir("/proc/self/fd"))
    with recorder_of(tmp_path / "each", Subscription(*(Image(number) for number in range(50)))) as recorder:
        recorder.do_work()
        # Each image also maps its log.
        assert len(os.listdir("/proc/self/fd")) - before <= 50 * (start_limits.FILES_OF_RECORDING - 1) + 4
    monkeypatch.setattr(start_limits, "max_written", lambda: 2)
    images = [Image(number) for number in range(3)]
    clock = ManualClock()
    with recorder_of(tmp_path, Subscription(*images), clock) as recorder:
        recorder.do_work()
        assert recorder.unrecorded == 1
        assert "ulimit -n" in caplog.text
        images[0].closed = True
        clock.advance_ns(SECOND_NS)
        recorder.do_work()
        clock.advance_ns(SECOND_NS)
        recorder.do_work()
        assert sessions(tmp_path) == [0, 1, 2]
        assert recorder.unrecorded == 0


def test_a_full_catalog_ends_no_other_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(catalog, "MAX_CATALOG_LENGTH", catalog.USUAL_ENTRY_LENGTH + 500)
    images = [Image(number) for number in range(9)]
    with recorder_of(tmp_path, Subscription(*images)) as recorder:
        recorder.do_work()
        count = len(recorder.active)
        assert 0 < count < 9
        images[0].offer(4)
        assert recorder.do_work() > 0
        assert recorder.unrecorded == 9 - count
    assert "the catalog is full" in caplog.text
