"""Whatever happens to recordings while a query plans and reads them: all of the rows, or an error."""

from __future__ import annotations

import shutil
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.support.changing_recordings import MODES, MOMENTS, NAMES, Changes, read
from tests.support.streams import Stream, record

from mainstem.errors import MainstemError, RecordingError
from mainstem.recording import Recorder, read_catalog
from mainstem.recording.catalog import Catalog
from mainstem.recording.index import index_file
from mainstem.recording.segments import segment_name
from mainstem.recording.writer import RecordingWriter
from mainstem.spark.sources.features import ReadAllAvailable
from mainstem.spark.sources.options import parse_options
from mainstem.spark.sources.recording import RecordingStreamReader

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65536
SENT = [number.to_bytes(4, "big") * 300 for number in range(200)]  # a frame of 1,248 bytes each; 52 to a segment


def recorded(directory: Path, *, initial_term_id: int = -5, sent: list[bytes] = SENT) -> None:
    with Recorder(directory, segment_length=TERM) as recorder:
        stream = Stream(initial_term_id=initial_term_id)
        record(stream.start(recorder), stream, sent, time_ns=10**18)


def truncated_to(directory: Path, position: int) -> None:
    (descriptor,) = read_catalog(directory)
    with closing(Catalog(directory)) as catalog:
        catalog.stop(descriptor, position, 1)
    RecordingWriter(directory, descriptor, position).close()


def purged(directory: Path) -> None:
    (descriptor,) = read_catalog(directory)
    with closing(Catalog(directory)) as catalog:
        catalog.set_start(descriptor, 3 * TERM)
    for base in range(0, 3 * TERM, TERM):
        (directory / segment_name(0, base)).unlink()


def deleted(directory: Path) -> None:
    (descriptor,) = read_catalog(directory)
    with closing(Catalog(directory)) as catalog:
        catalog.delete(descriptor)
    for base in range(0, 4 * TERM, TERM):
        (directory / segment_name(0, base)).unlink(missing_ok=True)
    index_file(directory, 0).unlink()


def replaced(directory: Path) -> None:
    shutil.rmtree(directory)
    recorded(directory, initial_term_id=7, sent=[payload[::-1] for payload in SENT])


def extended(directory: Path) -> None:
    (descriptor,) = read_catalog(directory)
    with Recorder(directory, segment_length=TERM) as recorder:
        stream = Stream(position=descriptor.stop_position)
        record(stream.start(recorder), stream, [b"more"] * 3, time_ns=10**18)


CHANGES = {
    "truncated before what was read": lambda directory: truncated_to(directory, 1248),
    "truncated after what was read": lambda directory: truncated_to(directory, 3 * TERM + 1248),
    "purged": purged,
    "deleted": deleted,
    "replaced": replaced,
    "extended": extended,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_read_returns_every_row_or_raises(tmp_path: Path, mode: str, change: str) -> None:
    for moment in MOMENTS:
        directory = tmp_path / moment
        recorded(directory)
        changes = Changes(moment, lambda directory=directory: CHANGES[change](directory))
        try:
            rows = read(str(directory), {"minPartitions": "2"}, mode, changes)
        except MainstemError:
            assert changes.has_happened, moment
            continue
        assert changes.has_happened, moment
        # A batch that begins after the change reads what is there then.
        has_begun = mode != "batch" or moment != "offset"
        if change == "extended":
            assert rows[:200] == SENT, moment
            assert set(rows[200:]) <= {b"more"}, moment
        elif has_begun:
            assert rows == SENT, moment


def opened(directory: Path, **options: str) -> RecordingStreamReader:
    return RecordingStreamReader(parse_options({"path": str(directory)} | options), NAMES)


def test_a_recording_that_ended_where_it_was_read_may_be_deleted(tmp_path: Path) -> None:
    with Recorder(tmp_path, segment_length=TERM) as recorder:
        stream = Stream()
        record(stream.start(recorder), stream, SENT[:5], time_ns=10**18)
        reader = opened(tmp_path)
        read_to = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert reader.latestOffset(read_to, ReadAllAvailable()) == read_to
    # The recording has ended, without new data; the offset says so once.
    end = reader.latestOffset(read_to, ReadAllAvailable())
    assert end != read_to
    assert [row for task in reader.partitions(read_to, end) for row in reader.read(task)] == []
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    deleted(tmp_path)
    for again in (reader, opened(tmp_path)):
        assert again.latestOffset(end, ReadAllAvailable()) == end
        with pytest.raises(
            RecordingError, match=r"recording 0 is missing in .*: it was read up to position 6240, and had"
        ):
            again.latestOffset(read_to, ReadAllAvailable())
        again.stop()
    skipping = opened(tmp_path, failOnDataLoss="false")
    after = skipping.latestOffset(read_to, ReadAllAvailable())
    assert skipping.partitions(read_to, after) == []
    assert skipping.latestOffset(after, ReadAllAvailable()) == after
    skipping.stop()
