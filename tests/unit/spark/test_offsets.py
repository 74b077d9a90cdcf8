"""An offset belongs to specific recordings: if one was replaced or is shorter, the query does not continue silently."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
import struct
import zlib
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType
from tests.support import captures as make
from tests.support.extended_recordings import ExtendedRecording
from tests.support.streams import Stream, record
from tests.support.waiting import wait_for

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.errors import CaptureError, ConfigurationError, RecordingError
from mainstem.recording import Recorder
from mainstem.recording.rows.schema import MESSAGE_COLUMNS
from mainstem.spark.lags import _offsets
from mainstem.spark.sources.capture import CapturedRows, CaptureStreamReader
from mainstem.spark.sources.capture_options import parse_options as capture_options
from mainstem.spark.sources.features import ReadAllAvailable
from mainstem.spark.sources.offsets import CaptureOffset, parse_capture_offset, parse_offset
from mainstem.spark.sources.options import parse_options
from mainstem.spark.sources.recording import RecordingStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STORED: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "recording_offset.json").read_text())
TERM = 65536
STREAM = {"session_id": 7, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}


def recorded(path: Path, messages: int, **stream: Any) -> None:
    values = STREAM | stream
    with Recorder(path, segment_length=TERM) as recorder:
        writer = recorder.start(**values, join_position=0)
        record(writer, Stream(session_id=values["session_id"]), [bytes(96)] * messages)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    recorded(tmp_path / "recordings", 100)
    return tmp_path / "recordings"


@pytest.fixture
def reader() -> Iterator[Callable[..., RecordingStreamReader]]:
    readers = []

    def make(path: Path, **options: str) -> RecordingStreamReader:
        names = dict.fromkeys(MESSAGE_COLUMNS, False)
        readers.append(RecordingStreamReader(parse_options({"path": str(path), **options}), names))
        return readers[-1]

    yield make
    for each in readers:
        each.stop()


def spans(stream: RecordingStreamReader, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[int, int]]:
    return ((part.start, part.end) for part in stream.partitions(start, end))


def latest(stream: RecordingStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return stream.latestOffset(json.loads(json.dumps(start)), ReadAllAvailable())


def at(positions: dict[str, int], begin: dict[str, Any]) -> dict[str, Any]:
    """Return an offset at these positions with the identities of another offset."""
    ((key, archive),) = begin["archives"].items()
    return begin | {"archives": {key: archive | {"positions": positions}}}


def test_stored_offsets_are_read() -> None:
    offset = parse_offset(STORED)
    assert offset.positions == {0: 4096, 3: 1280000, 5: 96, 7: 64}
    assert _offsets(json.dumps(STORED)) == offset
    assert parse_offset(offset.as_json()) == offset


@pytest.mark.parametrize("offset", [{"version": 2, "archives": {}}, {"0": 4096}, {}])
def test_offsets_of_another_version_are_refused(offset: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="cannot read the checkpoint: its offsets have version"):
        parse_offset(offset)


def test_a_query_continues_from_its_checkpoint(path: Path, reader: Any) -> None:
    stream = reader(path)
    begin = stream.initialOffset()
    end = latest(stream, begin)
    assert latest(reader(path), end) == end
    positions = parse_offset(end).positions
    assert positions == {0: 100 * 128}
    start = at({"0": 1280}, begin)
    assert list(spans(reader(path), start, latest(reader(path), start))) == [(1280, 12800)]


def test_a_replaced_recording_fails_or_is_read_from_the_start(path: Path, reader: Any, caplog: Any) -> None:
    end = latest(reader(path), reader(path).initialOffset())
    shutil.rmtree(path)
    recorded(path, 200, session_id=8)
    with pytest.raises(RecordingError, match=r"is not the one of the checkpoint: .*set failOnDataLoss to false"):
        latest(reader(path), end)
    stream = reader(path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        after = latest(stream, end)
    assert list(spans(stream, end, after)) == [(0, 200 * 128)]
    assert "is not the one of the checkpoint" in caplog.text
    assert latest(stream, after) == after


def test_a_directory_recreated_while_a_query_runs_is_noticed(path: Path, reader: Any) -> None:
    stream = reader(path, failOnDataLoss="false")
    end = latest(stream, stream.initialOffset())
    shutil.rmtree(path)
    recorded(path, 50, session_id=9)
    assert parse_offset(latest(stream, end)).positions == {0: 50 * 128}


def test_a_recording_shorter_than_its_checkpoint_fails_or_is_read_from_the_start(path: Path, reader: Any) -> None:
    start = at({"0": 1_280_000}, reader(path).initialOffset())
    with pytest.raises(RecordingError, match=r"ends at 12800, before position 1280000 of the checkpoint"):
        latest(reader(path), start)
    stream = reader(path, failOnDataLoss="false")
    assert list(spans(stream, start, latest(stream, start))) == [(0, 12800)]


# -- recordings that an archive extends --------------------------------------------------------------------------------


both = pytest.mark.parametrize("is_aeron", [False, True], ids=["mainstem", "aeron"])


def rows_of(stream: RecordingStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, bytes]]:
    """Return the session and the payload of a micro-batch's rows."""
    return [
        (row["session_id"], row["payload"])
        for part in stream.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
        for batch in stream.read(part)
        for row in batch.to_pylist()
    ]


def numbered(letter: str, count: int) -> list[bytes]:
    return [b"%s%04d" % (letter.encode(), number) * (1 + number % 50) for number in range(count)]


@both
@pytest.mark.parametrize("restarts", [False, True])
def test_a_query_goes_on_in_a_recording_that_other_sessions_extend(
    tmp_path: Path, reader: Any, is_aeron: bool, restarts: bool
) -> None:
    recording = ExtendedRecording(tmp_path / "archive", is_aeron=is_aeron)
    stream, offset, seen = None, None, []
    for session_id, stops in ((77, True), (-8, False), (9, True), (10, True)):
        if not stops:
            recording.record(session_id, numbered("x", 200), stops=False)
        else:
            recording.record(session_id, numbered("y", 100))
        if stream is None or restarts:
            stream = reader(recording.directory)
        begin = offset or stream.initialOffset()
        offset = latest(stream, begin)
        seen += rows_of(stream, begin, offset)
        if not stops:
            # The archive was killed. It starts again, and ends the recording where its frames end.
            recording.recover()
        assert seen == recording.sent
    assert latest(stream, offset) == offset


@both
@pytest.mark.parametrize("is_finished", [False, True])
def test_a_checkpoint_of_an_earlier_release_goes_on_in_an_extended_recording(
    tmp_path: Path, reader: Any, is_aeron: bool, is_finished: bool
) -> None:
    recording = ExtendedRecording(tmp_path / "archive", is_aeron=is_aeron)
    recording.record(77, numbered("x", 100))
    d = recording.descriptor
    ((key, archive),) = latest(reader(recording.directory), reader(recording.directory).initialOffset())[
        "archives"
    ].items()
    identity = f"{d.start_timestamp}/77/aeron:ipc"
    stored = {"url": archive["url"], "positions": {}, "recordings": {}}
    if is_finished:
        columns = (
            struct.pack("<q", 0),
            struct.pack("<q", d.stop_position),
            struct.pack("<I", zlib.crc32(identity.encode())),
        )
        stored["finished"] = b64encode(zlib.compress(b"".join(columns))).decode()
    else:
        stored |= {"positions": {"0": d.stop_position}, "recordings": {"0": identity}}
    offset = {"version": 1, "archives": {key: stored}}
    recording.record(-8, numbered("y", 50))
    stream = reader(recording.directory)
    end = latest(stream, offset)
    assert rows_of(stream, offset, end) == recording.sent[100:]


@both
@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("extensions", [1, 2])
def test_a_recording_that_was_truncated_and_then_extended_is_not_mixed_with_what_was_read(
    tmp_path: Path, reader: Any, is_aeron: bool, is_finished: bool, extensions: int
) -> None:
    recording = ExtendedRecording(tmp_path / "archive", is_aeron=is_aeron)
    recording.record(77, numbered("x", 100))
    begin = reader(recording.directory).initialOffset()
    offset = latest(reader(recording.directory), begin)
    if not is_finished:
        (key,) = offset["archives"]
        offset["archives"][key] = begin["archives"][key] | {"positions": {"0": recording.descriptor.stop_position}}
    recording.truncate(10)
    recording.record(-8, numbered("y", 100))
    if extensions == 2:
        if not is_finished:
            pytest.skip("a query that has not reached the end knows only the last session")
        recording.record(9, numbered("z", 10))
    with pytest.raises(RecordingError, match=r"was truncated before position .* and extended by another session"):
        latest(reader(recording.directory), offset)
    again = reader(recording.directory, failOnDataLoss="false")
    assert rows_of(again, offset, latest(again, offset)) == recording.sent


@both
def test_another_recording_with_the_id_of_an_extended_one_is_not_continued(
    tmp_path: Path, reader: Any, is_aeron: bool
) -> None:
    recording = ExtendedRecording(tmp_path / "archive", is_aeron=is_aeron)
    recording.record(77, numbered("x", 100))
    offset = latest(reader(recording.directory), reader(recording.directory).initialOffset())
    started = recording.descriptor.start_timestamp
    shutil.rmtree(recording.directory)
    wait_for(lambda: SYSTEM_CLOCK.epoch_ms() > started, "a later start")
    other = ExtendedRecording(tmp_path / "archive", is_aeron=is_aeron)
    other.record(77, numbered("x", 100))
    other.record(-8, numbered("y", 100))
    with pytest.raises(RecordingError, match="is not the one of the checkpoint"):
        latest(reader(recording.directory), offset)


@both
def test_the_option_for_sessions_chooses_rows(tmp_path: Path, reader: Any, is_aeron: bool) -> None:
    recording = ExtendedRecording(tmp_path / "archive", is_aeron=is_aeron)
    recording.record(77, numbered("x", 100))
    recording.record(-8, numbered("y", 100))
    for chosen in ("77", "-8", "77,-8", "9"):
        stream = reader(recording.directory, sessionId=chosen)
        begin = stream.initialOffset()
        sessions = [int(each) for each in chosen.split(",")]
        assert rows_of(stream, begin, latest(stream, begin)) == [row for row in recording.sent if row[0] in sessions]


NOTHING = CaptureOffset().as_json()
PACKET = make.link(make.ip(make.udp(make.data_frame())), make.ETHERNET)


def following(path: Path | str, **options: str) -> CaptureStreamReader:
    parsed = capture_options({"path": str(path), **options})
    return CaptureStreamReader(parsed, CapturedRows(parsed.wanted(StructType([StructField("packet", LongType())]))))


def read_in(stream: CaptureStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Return the numbers of a micro-batch's packets."""
    rows = [
        row["packet"]
        for part in stream.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
        for batch in stream.read(part)
        for row in batch.to_pylist()
    ]
    return sorted(rows)


def captured(count: int, *, first: int = 0) -> bytes:
    """Return a capture whose first packet is ``first`` milliseconds late."""
    return make.pcap([]) + b"".join(make.pcap_record(PACKET, first + n) for n in range(count))


def test_stored_offsets_of_captures_are_read() -> None:
    offset = {"version": 1, "ends": {"/a.pcap": 24}, "identities": {"/a.pcap": "24:0011223344556677"}}
    assert parse_capture_offset(offset).as_json() == offset
    for other in ({"version": 2, "ends": {}}, {"/a.pcap": 24}):
        with pytest.raises(ConfigurationError, match="cannot read the checkpoint: its offsets have version"):
            parse_capture_offset(other)


def test_a_query_over_captures_continues_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(captured(9))
    first = latest(following(path), following(path).initialOffset())
    assert latest(following(path), first) == first
    path.write_bytes(captured(20))
    stream = following(path)
    end = latest(stream, first)
    assert read_in(stream, first, end) == list(range(10, 21))
    assert read_in(following(path), first, end) == list(range(10, 21))
    assert parse_capture_offset(end).identities.keys() == {str(path)}


def test_a_capture_under_another_name_is_not_read_again(tmp_path: Path) -> None:
    (directory := tmp_path / "captures").mkdir()
    for name in ("a.pcap", "b.pcap"):
        (directory / name).write_bytes(captured(9))
    stream = following(directory)
    end = latest(stream, stream.initialOffset())
    (tmp_path / "link").symlink_to(directory)
    for name in (f"{directory}/", f"{tmp_path}/link/*", os.path.relpath(directory), f"{directory}/../captures/*.pcap"):
        assert latest(following(name), end) == end
    (directory / "b.pcap").write_bytes(captured(12))
    again = following(tmp_path / "link")
    assert read_in(again, end, latest(again, end)) == [10, 11, 12]


def test_a_repeated_micro_batch_of_a_capture_has_the_same_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.capture.index.CHUNK_BYTES", 4096)
    path = tmp_path / "a.pcap"
    path.write_bytes(captured(1000))
    stream = following(path, partitionBytes="8k")
    begin = stream.initialOffset()
    end = latest(stream, begin)
    planned = stream.partitions(begin, end)
    again = following(path, partitionBytes="1m")
    assert len(planned) > 3
    assert again.partitions(begin, end) == planned
    assert latest(again, end) == end
    assert len(again.partitions(begin, latest(again, begin))) == 1


@pytest.mark.parametrize("count", [9, 20, 5000])
@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "between two runs"])
def test_a_replaced_capture_fails_or_is_read_from_the_start(
    tmp_path: Path, caplog: Any, count: int, is_running: bool
) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(captured(9))
    stream = following(path, failOnDataLoss="false")
    end = latest(stream, stream.initialOffset())
    assert read_in(stream, NOTHING, end) == list(range(1, 10))
    path.write_bytes(captured(count, first=40))
    os.utime(path, ns=(1, 1))
    with pytest.raises(CaptureError, match=r"begins with other bytes than that of the checkpoint .*set failOnDataLoss"):
        latest(following(path), end)
    if not is_running:
        stream = following(path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        after = latest(stream, end)
    assert "begins with other bytes" in caplog.text
    assert read_in(stream, end, after) == list(range(1, count + 1))
    assert latest(stream, after) == after
    with pytest.raises(CaptureError, match="begins with other bytes"):
        following(path).partitions(end, end)


def test_a_capture_is_the_same_while_it_grows_from_its_first_byte(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.pcap", captured(200)
    stream = following(path)
    path.write_bytes(whole[:30])
    start, numbers = latest(stream, stream.initialOffset()), []
    for size in (50, 2000, 4090, 4100, 9000, len(whole)):
        path.write_bytes(whole[:size])
        end = latest(stream, start)
        numbers += read_in(stream, start, end)
        start = end
    assert numbers == list(range(1, 201))


def test_a_packed_capture_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap.gz"
    path.write_bytes(gzip.compress(captured(9)))
    end = latest(following(path), NOTHING)
    assert latest(following(path), end) == end
    path.write_bytes(gzip.compress(captured(90, first=3)))
    with pytest.raises(CaptureError, match="begins with other bytes"):
        latest(following(path), end)


def test_a_missing_capture_of_a_checkpoint_does_not_stop_the_query(tmp_path: Path) -> None:
    for name in ("a.pcap", "b.pcap"):
        (tmp_path / name).write_bytes(captured(9))
    end = latest(following(tmp_path), NOTHING)
    (tmp_path / "a.pcap").unlink()
    assert latest(following(tmp_path), end) == end


def test_a_capture_shorter_than_its_checkpoint_fails_or_is_read_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(captured(9))
    known = latest(following(path), NOTHING)
    path.write_bytes(captured(3))
    with pytest.raises(CaptureError, match=r"before byte \d+ of the checkpoint: the file was replaced"):
        latest(following(path), known)
    stream = following(path, failOnDataLoss="false")
    assert read_in(stream, known, latest(stream, known)) == [1, 2, 3]
