from __future__ import annotations

import itertools
import logging
import os
import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.streams import Stream, record

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.errors import RecordingError
from mainstem.recording import (
    Recorder,
    RecordingReader,
    SkippedRange,
    batches,
    find_problems,
    messages,
    open_recording,
    open_recordings,
    read_catalog,
)
from mainstem.recording.archive import local_archive
from mainstem.recording.index import INDEX_INTERVAL, recorded_position
from mainstem.recording.segments import SegmentWriter
from mainstem.recording.writer import STEP_LENGTH

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65536
STREAM = {"session_id": 77, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}


def payloads(count: int, seed: int = 1, most: int = 3000) -> list[bytes]:
    rng = random.Random(seed)
    return [struct.pack("<q", i) + rng.randbytes(rng.randrange(most)) for i in range(count)]


def recorded(directory: Path, recording_id: int = 0) -> list[bytes]:
    with open_recording(directory, recording_id) as reader:
        return [payload for _, payload in messages(reader, reader.start_position, reader.end_position())]


def make(directory: Path, sent: list[bytes], **options: Any) -> None:
    with Recorder(directory, segment_length=2 * TERM) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        record(writer, Stream(term_length=TERM), sent, **options)


def test_recordings_are_read_back_across_terms_and_segments(tmp_path: Path) -> None:
    sent = payloads(300)
    make(tmp_path, sent)
    assert recorded(tmp_path) == sent
    (descriptor,) = read_catalog(tmp_path)
    assert descriptor.stop_position > 4 * TERM
    assert descriptor.session_id == 77


def test_the_recorded_position_follows_each_write_while_recording(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, segment_length=2 * TERM)
    writer = recorder.start(**STREAM, join_position=0)
    stream, sent = Stream(), payloads(100)
    with open_recording(tmp_path, 0) as reader:
        assert reader.end_position() == 0
        for i, (start, run) in enumerate(stream.runs(sent)):
            assert reader.end_position() == start
            writer.write(memoryview(run), i)
            assert reader.end_position() == stream.position
        assert [p for _, p in messages(reader, 0, reader.end_position())] == sent
    recorder.close()


def killed(recorder: Recorder) -> None:
    """Imitate a kill: release the lock, but close and write nothing."""
    os.close(recorder._directory._lock)


@pytest.mark.parametrize("rest", [0, 1, 7, 31, 32, 33, 100])
def test_a_recording_continues_where_a_killed_recorder_left_off(tmp_path: Path, rest: int) -> None:
    sent = payloads(120)
    stream = Stream()
    runs = list(stream.runs(sent))
    recorder = Recorder(tmp_path, segment_length=2 * TERM)
    writer = recorder.start(**STREAM, join_position=0)
    half = len(runs) // 2
    for i, (_, run) in enumerate(runs[:half]):
        writer.write(memoryview(run), i)
    # Some bytes of a run were written, but its position was not published yet.
    torn = memoryview(runs[half][1])[:rest]
    if rest:
        os.pwrite(writer._segments._fd, torn, writer.position - writer._segments._base)
    killed(recorder)

    with Recorder(tmp_path, segment_length=2 * TERM) as again:
        assert read_catalog(tmp_path)[0].stop_position == runs[half][0]
        join = runs[half - 3][0]
        writer = again.start(**STREAM, join_position=join)
        assert (writer.descriptor.recording_id, writer.position) == (0, runs[half][0])
        for i, (start, run) in enumerate(runs[half - 3 :]):
            if start >= writer.position:
                writer.write(memoryview(run), half + i)
    assert recorded(tmp_path) == sent


def test_a_stream_joined_past_its_recording_starts_a_new_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path, payloads(10))
    stop = read_catalog(tmp_path)[0].stop_position
    with Recorder(tmp_path) as recorder, caplog.at_level(logging.WARNING):
        writer = recorder.start(**STREAM, join_position=stop + 64)
        assert (writer.descriptor.recording_id, writer.descriptor.start_position) == (1, stop + 64)
    assert "a new recording starts" in caplog.text


def test_another_session_becomes_a_new_recording(tmp_path: Path) -> None:
    make(tmp_path, payloads(10))
    with Recorder(tmp_path) as recorder:
        assert recorder.start(**(STREAM | {"session_id": 78}), join_position=0).descriptor.recording_id == 1
        assert recorder.start(**(STREAM | {"initial_term_id": 0}), join_position=0).descriptor.recording_id == 2
        assert recorder.active == {1: 0, 2: 0}


def test_frames_lost_by_the_device_are_truncated_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent = payloads(40, most=900)
    recorder = Recorder(tmp_path, segment_length=2 * TERM)
    writer = recorder.start(**STREAM, join_position=0)
    stream = Stream()
    runs = list(stream.runs(sent))
    for i, (_, run) in enumerate(runs):
        writer.write(memoryview(run), i)
    killed(recorder)
    (path,) = tmp_path.glob("0-*.rec")
    os.truncate(path, runs[30][0] + 10)
    with caplog.at_level(logging.WARNING), Recorder(tmp_path):
        assert read_catalog(tmp_path)[0].stop_position == runs[30][0]
    assert "it is cut there" in caplog.text
    assert recorded(tmp_path) == sent[:30]


def test_a_second_recorder_of_a_directory_is_refused(tmp_path: Path) -> None:
    with Recorder(tmp_path), pytest.raises(RecordingError, match="another recorder"):
        Recorder(tmp_path)
    Recorder(tmp_path).close()


def test_a_run_with_partial_frames_is_rejected_without_effect(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        run = Stream().message(b"x" * 100)
        for bad in (run[:-32], run + bytes(32), b"\x10" + run[1:]):
            with pytest.raises(RecordingError, match="not whole frames"):
                writer.write(memoryview(bad), 0)
        huge = b"".join([struct.pack("<iBBH", 1 << 20, 0, 0xC0, 1), bytes((1 << 20) - 8)])
        with pytest.raises(RecordingError, match="not whole frames"):
            writer.write(memoryview(huge), 0)
        assert writer.position == 0


def test_padding_inside_a_run_is_written_as_headers_only(tmp_path: Path) -> None:
    stream = Stream()
    one, pad, two = (
        stream.message(b"one"),
        bytearray(stream.frame(b"", 0xC0, kind=0, length=256)),
        stream.message(b"two"),
    )
    pad[32:] = b"\xee" * 224
    with Recorder(tmp_path) as recorder:
        recorder.start(**STREAM, join_position=0).write(memoryview(one + pad + two), 0)
    assert recorded(tmp_path) == [b"one", b"two"]
    assert b"\xee" not in (tmp_path / "0-0.rec").read_bytes()


def test_a_recording_without_an_index_is_read_by_walking(tmp_path: Path) -> None:
    sent = payloads(300)
    recorder = Recorder(tmp_path, segment_length=2 * TERM)
    record(recorder.start(**STREAM, join_position=0), Stream(), sent)
    killed(recorder)
    (tmp_path / "0.mainstem-positions").unlink()
    found = recorded(tmp_path)
    # The last frame may cross a page, in which case nothing proves that it is complete.
    assert found in (sent, sent[:-1])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), parts=st.integers(1, 12), rows=st.integers(1, 50), indexed=st.booleans())
def test_parts_hold_each_message_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, seed: int, parts: int, rows: int, indexed: bool
) -> None:
    directory = tmp_path_factory.mktemp("recording")
    sent = payloads(150, seed, most=6000)
    make(directory, sent)
    if not indexed:
        (directory / "0.mainstem-positions").unlink()
    found: list[bytes] = []
    with open_recording(directory, 0) as reader:
        cuts = reader.cuts(0, reader.end_position(), parts)
        assert len(cuts) <= parts
        for start, end in cuts:
            for taken, count in batches(reader, start, end, rows=rows):
                assert 0 < count <= rows
                ends = memoryview(taken["payload_offsets"]).cast("i")
                found += [bytes(taken["payload"][a:b]) for a, b in itertools.pairwise(ends)]
    assert found == sent


@settings(max_examples=40, deadline=None)
@given(data=st.data(), indexed=st.booleans())
def test_advancing_ends_at_messages_within_its_limits(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, indexed: bool
) -> None:
    directory = tmp_path_factory.mktemp("recording")
    sent = payloads(150, 5, most=6000)
    make(directory, sent)
    if not indexed:
        (directory / "0.mainstem-positions").unlink()
    with open_recording(directory, 0) as reader:
        end = reader.end_position()
        ends = [p for p, _ in messages(reader, 0, end)]
        position = count = 0
        while position < end:
            most_bytes = data.draw(st.none() | st.integers(1, 100_000))
            most_messages = data.draw(st.none() | st.integers(1, 60))
            reached = reader.advance(position, end, max_bytes=most_bytes, max_messages=most_messages)
            passed = sum(position < p <= reached for p in ends)
            assert passed >= 1 or reached == end
            if most_messages is not None:
                assert passed <= most_messages
            if most_bytes is not None:
                assert reached - position <= most_bytes or passed == 1
            assert reader.messages_before(reached) == count + passed
            position, count = reached, count + passed
        assert count == len(sent)


def test_times_lead_to_positions(tmp_path: Path) -> None:
    sent = payloads(200)
    make(tmp_path, sent, time_ns=1_000_000_000, step_ns=50_000_000)
    with open_recording(tmp_path, 0) as reader:
        assert reader.index is not None
        entries = reader.index.around(0, reader.end_position())
        assert entries[0].position == 0
        assert len(entries) > 20
        for at in (0, 10, len(entries) - 1):
            start = reader.position_at_time(entries[at].time_ns)
            assert start == (entries[at - 1].position if at else 0)
        assert reader.position_at_time(0) == 0
        gaps = [b.position - a.position for a, b in itertools.pairwise(entries)]
        assert max(gaps) <= INDEX_INTERVAL + 8192


def test_a_long_run_has_entries_at_each_step(tmp_path: Path) -> None:
    term_length, payload = 16 << 20, bytes(range(256)) * 4
    stream = Stream(term_length=term_length)
    frames = bytearray(b"".join(frame for _, frame in stream.runs([payload] * 2500)).ljust(4 << 20, b"\0"))
    log = AtomicBuffer(frames)
    with Recorder(tmp_path) as recorder:
        writer = recorder.start(
            session_id=77,
            stream_id=1001,
            initial_term_id=-5,
            term_buffer_length=term_length,
            mtu_length=1408,
            join_position=0,
        )
        lengths = []
        while length := writer.take(log, writer.position, len(frames), 1):
            lengths.append(length)
        recorder.stop(writer)
    assert sum(lengths) == 2500 * 1056
    assert 1 << 20 <= lengths[0] < (1 << 20) + STEP_LENGTH
    with open_recording(tmp_path, 0) as reader:
        assert list(find_problems(reader, 0, reader.end_position())) == []
        assert b"".join(bytes(each) for _, each in messages(reader, 0, reader.end_position())) == payload * 2500
        entries = reader.index.around(0, reader.end_position())
        assert {b.position - a.position for a, b in itertools.pairwise(entries)} == {STEP_LENGTH // 1056 * 1056}
        assert [each.messages for each in entries] == [each.position // 1056 for each in entries]


def test_a_fault_in_the_middle_is_reported_with_its_place_or_ends_the_reading(tmp_path: Path) -> None:
    sent = payloads(100, most=500)
    make(tmp_path, sent)
    stream = Stream()
    (at, _), (after, _) = list(stream.runs(sent))[50:52]
    path = tmp_path / "0-0.rec"
    data = bytearray(path.read_bytes())
    for bad, reason in ((0, "nothing was written"), (17, "invalid"), (-64, "invalid"), (1 << 28, "truncated")):
        data[at : at + 4] = struct.pack("<i", bad)
        path.write_bytes(data)
        with open_recording(tmp_path, 0) as reader:
            with pytest.raises(RecordingError, match=rf"offset {at} .*{reason}"):
                list(batches(reader, 0, reader.end_position()))
            skipped: list[SkippedRange] = []
            kept = sum(
                rows for _, rows in batches(reader, 0, reader.end_position(), strict=False, on_skip=skipped.append)
            )
            assert kept == 99
            assert [(each.start, each.end) for each in skipped] == [(at, after)]


@pytest.mark.parametrize("index", [True, False])
def test_only_damaged_messages_are_skipped(tmp_path: Path, index: bool) -> None:
    sent = [number.to_bytes(4, "little") * 8 for number in range(1_000)]
    make(tmp_path, sent)
    places = [position for position, _ in Stream().runs(sent)]
    path = tmp_path / "0-0.rec"
    data = bytearray(path.read_bytes())
    bad = (3, 4, 500, 998)
    for number in bad:
        data[places[number] : places[number] + 32] = b"\xff" * 32
    path.write_bytes(data)
    if not index:
        (tmp_path / "0.mainstem-positions").unlink()
    skipped: list[SkippedRange] = []
    with open_recording(tmp_path, 0) as reader:
        rows = batches(reader, 0, reader.end_position(), strict=False, on_skip=skipped.append)
        assert sum(count for _, count in rows) == len(sent) - len(bad)
    assert [(each.start, each.end) for each in skipped] == [
        (places[first], places[after]) for first, after in ((3, 5), (500, 501), (998, 999))
    ]


def test_a_payload_that_looks_like_a_frame_is_not_a_message(tmp_path: Path) -> None:
    inner = Stream()
    inner.position = 32 * 500  # elsewhere than where it lies in the recording
    sent = [b"first", inner.message(b"not sent") * 4, b"last"]
    make(tmp_path, sent)
    places = [position for position, _ in Stream().runs(sent)]
    with (tmp_path / "0-0.rec").open("r+b") as file:
        file.seek(places[1])
        file.write(bytes(32))
    with open_recording(tmp_path, 0) as reader:
        assert rows_between(reader, 0, reader.end_position(), strict=False) == [places[1], reader.end_position()]


def test_missing_and_short_segments_are_named(tmp_path: Path) -> None:
    make(tmp_path, payloads(300))
    os.truncate(tmp_path / "0-131072.rec", 70_000)
    (reader,) = open_recordings(tmp_path)
    with reader, pytest.raises(RecordingError, match=r"0-131072\.rec at offset \d+ .*truncated"):
        list(batches(reader, 0, reader.end_position()))
    with RecordingReader(local_archive(tmp_path), reader.descriptor) as reader:
        # A range that starts past the truncation has no data in that segment.
        assert list(batches(reader, 131072 + 69_984, 262144, strict=False)) == []
    (tmp_path / "0-131072.rec").unlink()
    with (
        RecordingReader(local_archive(tmp_path), reader.descriptor) as reader,
        pytest.raises(RecordingError, match="is missing"),
    ):
        list(batches(reader, 0, reader.end_position()))
    with RecordingReader(local_archive(tmp_path), reader.descriptor) as reader:
        kept = sum(rows for _, rows in batches(reader, 0, 262144, strict=False))
        assert kept == reader.messages_before(131072) > 0
    (tmp_path / "0-0.rec").unlink()
    with RecordingReader(local_archive(tmp_path), reader.descriptor) as reader:
        assert reader.start_position == 4 * TERM


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("frames", [True, False])
def test_reading_continues_after_a_missing_segment(tmp_path: Path, index: bool, frames: bool) -> None:
    make(tmp_path, payloads(300))
    with open_recording(tmp_path, 0) as reader:
        end = reader.end_position()
        whole = rows_between(reader, 0, end, frames=frames)
    (tmp_path / "0-131072.rec").unlink()
    os.truncate(tmp_path / "0-262144.rec", 70_000)
    if not index:
        (tmp_path / "0.mainstem-positions").unlink()
    skipped: list[SkippedRange] = []
    with open_recording(tmp_path, 0) as reader:
        rows = rows_between(reader, 0, end, frames=frames, strict=False, on_skip=skipped.append)
        kinds = [(problem.kind, problem.position) for problem in find_problems(reader, 0, end, checksums=False)]
    assert rows == [at for at in whole if not any(each.start < at <= each.end for each in skipped)]
    assert [at for at in rows if at > 393216] == [at for at in whole if at > 393216] != []
    assert [(each.start, each.end) for each in skipped[:1]] == [(131072, 262144)]
    assert "is missing" in skipped[0].reason
    assert (skipped[-1].end, "262144.rec" in skipped[-1].reason) == (393216, True)
    assert kinds == [("missing", 131072), ("torn", skipped[1].start)]


def rows_between(reader: RecordingReader, start: int, end: int, **options: Any) -> list[int]:
    """Return the positions of the rows."""
    return [
        position
        for columns, rows in batches(reader, start, end, rows=17, **options)
        for position in memoryview(columns["position"]).cast("q")[:rows]
    ]


def test_a_message_is_not_joined_across_skipped_data(tmp_path: Path) -> None:
    make(tmp_path, payloads(300))
    with open_recording(tmp_path, 0) as reader:
        end = reader.end_position()
        whole = [payload for _, payload in messages(reader, 0, end)]
        spans = rows_between(reader, 0, end, frames=True)
        flags = [
            flag
            for columns, n in batches(reader, 0, end, frames=True)
            for flag in memoryview(columns["flags"]).cast("h")[:n]
        ]
    # The second fragment of a message starts where the previous frame ends.
    at = next(spans[i - 1] for i in range(50, len(flags)) if flags[i] == 0 or flags[i] == 0x40)
    with (tmp_path / "0-0.rec").open("r+b") as file:
        file.seek(at)
        file.write(bytes(32))
    with open_recording(tmp_path, 0) as reader:
        read = []
        for columns, rows in batches(reader, 0, end, strict=False):
            offsets = memoryview(columns["payload_offsets"]).cast("i")
            read += [bytes(columns["payload"][offsets[i] : offsets[i + 1]]) for i in range(rows)]
    assert len(whole) // 2 < len(read) < len(whole)
    assert set(read) < set(whole)


def test_a_recording_without_an_index_has_no_times(tmp_path: Path) -> None:
    make(tmp_path, payloads(50), time_ns=10**18, step_ns=10**9)
    with open_recording(tmp_path, 0) as reader:
        assert reader.has_times
        assert reader.recorded_time_ns(0) == 10**18
        assert reader.recorded_time_ns(reader.end_position()) > 10**18
        assert reader.recorded_time_ns(-32) is None
    (tmp_path / "0.mainstem-positions").unlink()
    with open_recording(tmp_path, 0) as reader:
        assert not reader.has_times
        assert reader.recorded_time_ns(0) is None
        with pytest.raises(RecordingError, match="its times are not known"):
            reader.position_at_time(10**18)


def test_a_segment_of_padding_longer_than_a_batch_is_passed(tmp_path: Path) -> None:
    stream = Stream(term_length=1 << 25)
    with Recorder(tmp_path, segment_length=1 << 25) as recorder:
        writer = recorder.start(**(STREAM | {"term_buffer_length": 1 << 25}), join_position=0)
        writer.write(memoryview(stream.message(b"before")), 0)
        pad = bytearray(stream.frame(b"", 0xC0, kind=0, length=(1 << 25) - 64))
        writer.write(memoryview(pad), 0)
        writer.write(memoryview(stream.message(b"after")), 0)
    assert recorded(tmp_path) == [b"before", b"after"]


def test_a_recorder_that_cannot_open_a_directory_leaves_it_unlocked(tmp_path: Path) -> None:
    make(tmp_path, payloads(10))
    catalog = tmp_path / "archive.catalog"
    whole = catalog.read_bytes()
    catalog.write_bytes(whole[:16] + struct.pack("<i", -64) + whole[20:])
    with pytest.raises(RecordingError, match="alignment of -64"):
        Recorder(tmp_path)
    catalog.write_bytes(whole)
    Recorder(tmp_path).close()


def test_nothing_is_published_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[tuple[int, int]] = []
    write = SegmentWriter.write

    def observed(self: SegmentWriter, frames: memoryview) -> None:
        published.append((recorded_position(tmp_path, 0) or 0, self.position))
        write(self, frames)

    monkeypatch.setattr(SegmentWriter, "write", observed)
    make(tmp_path, payloads(100))
    assert published
    assert all(position <= written for position, written in published)


def test_a_full_disk_leaves_everything_with_the_publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with Recorder(tmp_path) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        run = Stream().message(b"x" * 100)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", refuse)
            with pytest.raises(OSError, match="No space left"):
                writer.write(memoryview(run), 0)
        assert writer.position == 0
        assert recorded_position(tmp_path, 0) == 0
        writer.write(memoryview(run), 0)
        assert writer.position == len(run)
