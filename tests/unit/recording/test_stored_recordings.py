"""Recordings written by earlier versions stay readable locally, over a server and after shipping, and can be continued."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.recording_server import RunningServer
from tests.support.shipping import ManualClock, shipped, shipper
from tests.support.stored_recordings import COUNT, TERM, payload
from tests.support.streams import Stream, record

from mainstem import open_recordings
from mainstem.recording import Recorder, find_problems, messages
from mainstem.store import open_store

if TYPE_CHECKING:
    from mainstem.recording import Recordings

VECTORS = Path(__file__).parents[2] / "vectors"
COMMITS = sorted(
    path.name.removesuffix(".tar.xz").removeprefix("recordings_") for path in VECTORS.glob("recordings_*.tar.xz")
)
SENT = [payload(number) for number in range(COUNT)]


@pytest.fixture(params=[f"{commit}-{end}" for commit in COMMITS for end in ("closed", "killed")])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    commit, _, end = request.param.partition("-")
    with tarfile.open(VECTORS / f"recordings_{commit}.tar.xz") as vectors:
        # Debian's Python 3.11.2 has no extraction filters; 3.12 requires one.
        vectors.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        vectors.extractall(tmp_path)
    return tmp_path / end


def check(recordings: Recordings) -> None:
    full, empty = recordings
    assert [data for _, data in messages(full, 0, full.end_position())] == SENT
    assert (full.descriptor.stream_id, empty.descriptor.stream_id, empty.end_position()) == (1001, 1002, 0)
    rows = recordings.scan().to_arrow().to_pylist()
    assert [bytes(row["payload"]) for row in rows] == SENT
    assert {row["recorded_at"].timestamp() for row in rows} == {1_700_000_000.0}


def test_there_are_stored_recordings() -> None:
    assert COMMITS


def test_stored_recordings_are_read(archive: Path) -> None:
    with open_recordings(archive) as recordings:
        check(recordings)
        assert not [problem for reader in recordings for problem in find_problems(reader, 0, reader.end_position())]


def test_stored_recordings_are_read_over_a_server(archive: Path) -> None:
    pytest.importorskip("aiohttp")
    with RunningServer(archive) as server, open_recordings(server.url) as recordings:
        check(recordings)


def test_stored_recordings_are_shipped(archive: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    ship = shipper(archive, store, ManualClock())
    ship.drain()
    ship.close()
    assert shipped(store, 0) == SENT
    with open_recordings(tmp_path / "store") as recordings:
        check(recordings)


def test_a_recorder_continues_in_a_stored_directory(archive: Path) -> None:
    with Recorder(archive, segment_length=4 * TERM) as recorder:
        writer = recorder.start(
            session_id=79, stream_id=1003, initial_term_id=3, term_buffer_length=TERM, mtu_length=1408, join_position=0
        )
        record(writer, Stream(session_id=79, initial_term_id=3), [b"new"] * 3, time_ns=1_800_000_000 * 10**9)
    with open_recordings(archive) as recordings:
        assert [bytes(value.as_py()) for value in recordings.scan().to_arrow()["payload"]] == [*SENT, *[b"new"] * 3]
