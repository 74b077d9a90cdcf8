"""A micro-batch has at most as many rows and bytes as its limits, and every recording has its turn."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType
from tests.support import captures as make
from tests.support.many_recordings import make_recordings
from tests.support.streams import Stream, record

from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder
from mainstem.recording.index import index_name
from mainstem.spark.sources.capture import CapturedRows, CaptureStreamReader
from mainstem.spark.sources.capture_options import parse_options as capture_options
from mainstem.spark.sources.features import ReadMaxBytes
from mainstem.spark.sources.options import parse_options
from mainstem.spark.sources.recording import RecordingStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS = ("recording_id", "position", "length")
Batch = list[dict[str, Any]]


class Query:
    """A streaming query that restarts from its checkpoint for each micro-batch."""

    def __init__(self, path: Path, **options: object) -> None:
        self._options = parse_options({"path": str(path)} | {name: str(value) for name, value in options.items()})
        reader = self._reader()
        self._offset = json.dumps(reader.initialOffset())
        reader.stop()

    def _reader(self) -> RecordingStreamReader:
        return RecordingStreamReader(self._options, dict.fromkeys(COLUMNS, True))

    def next_batch(self) -> Batch | None:
        """Return the rows of the next micro-batch, or None if there is no new data."""
        reader, start = self._reader(), json.loads(self._offset)
        try:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                return None
            self._offset = json.dumps(end)
            parts = reader.partitions(start, json.loads(self._offset))
            return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        finally:
            reader.stop()

    def batches(self) -> Iterator[Batch]:
        while (batch := self.next_batch()) is not None:
            yield batch


def recorded(path: Path, *messages: list[int]) -> None:
    """Make a recording for each list of lengths."""
    with Recorder(path, segment_length=65536) as recorder:
        for session, lengths in enumerate(messages):
            stream = Stream(session_id=session)
            record(stream.start(recorder), stream, [bytes(length) for length in lengths])


@pytest.mark.parametrize("is_indexed", [True, False], ids=["with an index", "without an index"])
@pytest.mark.parametrize("most", [3, 19, 100])
def test_a_micro_batch_has_at_most_its_rows(tmp_path: Path, most: int, is_indexed: bool) -> None:
    make_recordings(tmp_path, 20, messages=4)
    for number in range(0 if is_indexed else 20):
        (tmp_path / index_name(number)).unlink()
    found = list(Query(tmp_path, maxRowsPerTrigger=most).batches())
    assert max(map(len, found)) <= most
    assert len(found) == -(-80 // most)
    rows = [[(row["recording_id"], row["position"]) for row in batch] for batch in found]
    assert sorted(chain(*rows)) == [(number, 128 * n) for number in range(20) for n in range(1, 5)]
    # Each recording has its turn before one has a second.
    assert {number for number, _ in chain(*rows[: -(-20 // most)])} == set(range(20))


def test_the_limit_is_shared_by_unread_bytes(tmp_path: Path) -> None:
    recorded(tmp_path, [96] * 300, [96] * 100, [96] * 2)
    batches = Query(tmp_path, maxRowsPerTrigger=41).batches()
    numbers = [row["recording_id"] for row in next(batches)]
    assert [numbers.count(each) for each in range(3)] == [30, 10, 1]
    assert len(next(batches)) == 41


def test_no_recording_starves_beside_those_that_grow_faster_than_the_limit(tmp_path: Path) -> None:
    growing = make_recordings(tmp_path, 12, growing=12, messages=1)
    query, seen = Query(tmp_path, maxRowsPerTrigger=3), set()
    for _ in range(4):
        # The last recording gets no more messages.
        for each in growing[:-1]:
            each.grow(40)
        batch = query.next_batch() or []
        assert len(batch) == 3
        seen |= {row["recording_id"] for row in batch}
    assert seen == set(range(12))
    for each in growing:
        each.close()


@pytest.mark.parametrize("most", [1, 1000, 5000, 100_000])
def test_a_micro_batch_has_at_most_its_bytes_or_one_message(tmp_path: Path, most: int) -> None:
    lengths = [[96] * 30, [4000, 96, 4000], [96], [1000] * 9]
    recorded(tmp_path, *lengths)
    found = list(Query(tmp_path, maxBytesPerTrigger=most).batches())
    for batch in found:
        assert len(batch) == 1 or sum(128 if row["length"] == 96 else row["length"] for row in batch) <= most
    assert sorted((row["recording_id"], row["length"]) for batch in found for row in batch) == sorted(
        (number, length) for number, each in enumerate(lengths) for length in each
    )


def test_both_limits_hold_at_once(tmp_path: Path) -> None:
    recorded(tmp_path, [96] * 50, [1000] * 50)
    found = list(Query(tmp_path, maxRowsPerTrigger=10, maxBytesPerTrigger=4096).batches())
    assert max(map(len, found)) <= 10
    assert max(sum(row["length"] for row in batch) for batch in found) <= 4096
    assert sum(map(len, found)) == 100


@pytest.mark.parametrize("most", [3, 12])
def test_a_trigger_limit_counts_frames_if_rows_are_frames(tmp_path: Path, most: int) -> None:
    recorded(tmp_path, [5000] * 10, [96] * 30)
    found = list(Query(tmp_path, maxRowsPerTrigger=most, rows="frames").batches())
    # A message of four frames is not split.
    assert max(map(len, found)) == max(most, 4)
    assert sum(map(len, found)) == 10 * 4 + 30


def test_problems_have_no_limit_of_rows(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="maxRowsPerTrigger counts messages or frames, but rows=problems"):
        parse_options({"path": str(tmp_path), "rows": "problems", "maxRowsPerTrigger": "5"})


def test_captures_take_turns_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.capture.index.CHUNK_BYTES", 4096)
    packet = make.link(make.ip(make.udp(make.data_frame())), make.ETHERNET)

    def write(name: str, count: int) -> None:
        records = (make.pcap_record(packet, n) for n in range(count))
        (tmp_path / name).write_bytes(make.pcap([]) + b"".join(records))

    size = len(make.pcap_record(packet, 0))
    write("b.pcap", 3 * 4096 // size)
    options = capture_options({"path": str(tmp_path), "maxBytesPerTrigger": "4000"})
    selection = options.wanted(StructType([StructField("packet", LongType())]))
    start: dict[str, Any] = {}
    for growth in range(1, 9):
        # This capture grows between two micro-batches, and always leaves less room than the next chunk of the other one.
        write("a.pcap", 5 * growth)
        reader = CaptureStreamReader(options, CapturedRows(selection))
        start = start or reader.initialOffset()
        end = json.loads(json.dumps(reader.latestOffset(start, ReadMaxBytes(4000))))
        read = [end["ends"][file] - start["ends"].get(file, 0) for file in end["ends"]]
        assert sum(read) <= 4000 or sum(map(bool, read)) == 1
        start = end
    assert start["ends"][f"{tmp_path}/b.pcap"] == (tmp_path / "b.pcap").stat().st_size
