"""Recovery after a power failure: zeroed files, missing pages, torn entries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record
from typer.testing import CliRunner

from mainstem.cli.recordings import app
from mainstem.errors import RecordingError
from mainstem.recording import Recorder, find_problems, messages, open_recording, open_recordings, read_catalog
from mainstem.recording.catalog import CATALOG_FILE
from mainstem.recording.directory import LOCK_FILE
from mainstem.recording.index import ENTRY_LENGTH, HEADER_LENGTH, index_file
from mainstem.recording.verify_recordings import find_directory_problems
from mainstem.store.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TERM, PAGE = 65536, 4096
STREAM = {"session_id": 77, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}
PAYLOADS = [index.to_bytes(4, "little") + bytes([1 + index % 255]) * (37 * index % 1_300) for index in range(400)]


class HostDisk(Disk):
    """The disk of a host that has booted `starts` times."""

    def __init__(self, starts: int) -> None:
        self._starts = starts

    def boot(self) -> bytes:
        return b"start %d" % self._starts


def killed(directory: Path, *, recordings: int = 3, stopped: tuple[int, ...] = ()) -> None:
    """Leave a directory as a recorder killed during the host's first boot does."""
    recorder = Recorder(directory, segment_length=2 * TERM, disk=HostDisk(1))
    for number in range(recordings):
        writer = recorder.start(**(STREAM | {"session_id": number}), join_position=0)
        record(writer, Stream(session_id=number, term_length=TERM), PAYLOADS)
        if number in stopped:
            recorder.stop(writer)
    os.close(recorder._directory._lock)


def payloads(directory: Path, recording_id: int) -> list[bytes]:
    with open_recording(directory, recording_id) as reader:
        end = reader.end_position()
        assert list(find_problems(reader, 0, end)) == []
        found = [payload for _, payload in messages(reader, 0, end)]
        assert reader.count_before(end).messages == len(found)
        return found


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("damage", [b"", bytes(HEADER_LENGTH), bytes(1 << 14), b"x" * PAGE])
def test_an_invalid_index_file_costs_its_recording_only_the_index(tmp_path: Path, damage: bytes) -> None:
    killed(tmp_path)
    index_file(tmp_path, 1).write_bytes(damage)
    # Until a recorder reopens the directory, every recording is readable and the damage is reported.
    with open_recordings(tmp_path) as recordings:
        assert [reader.index is None for reader in recordings] == [False, True, False]
    assert [(problem.recording_id, problem.kind) for problem in find_directory_problems(tmp_path)] == [(1, "index")]
    shown = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert shown.exit_code == 1
    assert "recording 1 at 0: index: " in shown.output
    Recorder(tmp_path, segment_length=2 * TERM, disk=HostDisk(2)).close()
    assert [payloads(tmp_path, number) for number in range(3)] == [PAYLOADS] * 3
    assert not index_file(tmp_path, 1).exists()
    assert list(find_directory_problems(tmp_path)) == []


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("page", [0, 1, 15, 16, 20, 31, 32, 33, 40, 50])
def test_a_page_that_was_lost_ends_its_recording_before_it(tmp_path: Path, page: int, stopped: bool) -> None:
    killed(tmp_path, recordings=2, stopped=(1,) if stopped else ())
    path = tmp_path / f"1-{page * PAGE // (2 * TERM) * 2 * TERM}.rec"
    overwrite(path, page * PAGE % (2 * TERM), bytes(PAGE))
    Recorder(tmp_path, segment_length=2 * TERM, disk=HostDisk(2)).close()
    found = payloads(tmp_path, 1)
    assert found == PAYLOADS[: len(found)]
    assert (page - 1) * PAGE - 1408 <= read_catalog(tmp_path)[1].stop_position <= page * PAGE
    assert payloads(tmp_path, 0) == PAYLOADS


def test_stopped_recordings_are_checked_only_after_a_power_failure(tmp_path: Path) -> None:
    killed(tmp_path, recordings=1, stopped=(0,))
    end = read_catalog(tmp_path)[0].stop_position
    overwrite(tmp_path / "0-0.rec", PAGE, bytes(PAGE))
    Recorder(tmp_path, disk=HostDisk(1)).close()
    assert read_catalog(tmp_path)[0].stop_position == end
    # With an empty lock file, the recorder cannot tell in which boot the last one wrote.
    (tmp_path / LOCK_FILE).write_bytes(b"")
    Recorder(tmp_path, disk=HostDisk(1)).close()
    assert 0 < read_catalog(tmp_path)[0].stop_position <= PAGE


def lose_header(path: Path) -> None:
    overwrite(path, 16, bytes(8))


def lose_entry(path: Path) -> None:
    overwrite(path, HEADER_LENGTH + ENTRY_LENGTH, bytes(ENTRY_LENGTH))


def lose_all_entries(path: Path) -> None:
    overwrite(path, HEADER_LENGTH, bytes(path.stat().st_size - HEADER_LENGTH))


def lose_length(path: Path) -> None:
    os.truncate(path, HEADER_LENGTH + ENTRY_LENGTH + 1)


@pytest.mark.parametrize("lose", [lose_header, lose_entry, lose_all_entries, lose_length])
def test_an_index_that_was_lost_in_part_is_cut(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    killed(tmp_path, recordings=1, stopped=(0,))
    end = read_catalog(tmp_path)[0].stop_position
    lose(index_file(tmp_path, 0))
    Recorder(tmp_path, disk=HostDisk(2)).close()
    assert read_catalog(tmp_path)[0].stop_position == end
    assert payloads(tmp_path, 0) == PAYLOADS
    with open_recording(tmp_path, 0) as reader:
        assert reader.index is not None
        assert reader.index.recorded_position == end


def test_a_segment_that_was_lost_ends_its_recording(tmp_path: Path) -> None:
    killed(tmp_path, recordings=1)
    (tmp_path / f"0-{2 * TERM}.rec").unlink()
    Recorder(tmp_path, disk=HostDisk(2)).close()
    found = payloads(tmp_path, 0)
    assert found == PAYLOADS[: len(found)]
    assert read_catalog(tmp_path)[0].stop_position == 2 * TERM


def test_an_unrecoverable_recording_does_not_affect_others(tmp_path: Path) -> None:
    killed(tmp_path)
    index_file(tmp_path, 1).unlink()
    index_file(tmp_path, 1).mkdir()
    with Recorder(tmp_path, segment_length=2 * TERM, disk=HostDisk(2)) as recorder:
        record(recorder.start(**(STREAM | {"session_id": 9}), join_position=0), Stream(session_id=9), PAYLOADS[:5])
    assert [payloads(tmp_path, number) for number in (0, 2, 3)] == [PAYLOADS, PAYLOADS, PAYLOADS[:5]]
    with pytest.raises(RecordingError, match=r"1\.mainstem-positions"):
        payloads(tmp_path, 1)


def test_an_entry_that_was_lost_costs_its_recording_and_is_named(tmp_path: Path) -> None:
    killed(tmp_path)
    offset = read_catalog(tmp_path)[1].entry_offset
    overwrite(tmp_path / CATALOG_FILE, offset, bytes(read_catalog(tmp_path)[2].entry_offset - offset))
    assert [(problem.recording_id, problem.kind) for problem in find_directory_problems(tmp_path)] == [
        (-1, "catalog"), (1, "catalog"),
    ]  # fmt: skip
    with Recorder(tmp_path, segment_length=2 * TERM, disk=HostDisk(2)) as recorder:
        # The next recording must not reuse its files.
        writer = recorder.start(**(STREAM | {"session_id": 9}), join_position=0)
        assert writer.descriptor.recording_id == 3
    assert [payloads(tmp_path, number) for number in (0, 2)] == [PAYLOADS] * 2
    assert [(problem.recording_id, problem.kind) for problem in find_directory_problems(tmp_path)] == [(1, "catalog")]


def test_the_index_of_a_lost_recording_is_not_reused_by_the_next(tmp_path: Path) -> None:
    killed(tmp_path, recordings=1)
    (tmp_path / CATALOG_FILE).unlink()
    for base in (0, 2 * TERM, 4 * TERM):
        (tmp_path / f"0-{base}.rec").unlink(missing_ok=True)
    at = 3 * TERM
    with Recorder(tmp_path, segment_length=2 * TERM, disk=HostDisk(2)) as recorder:
        writer = recorder.start(**STREAM, join_position=at)
        record(writer, Stream(position=at, term_length=TERM), PAYLOADS[:9])
    with open_recording(tmp_path, 0) as reader:
        assert reader.index is not None
        assert reader.index.at(0).position == at
