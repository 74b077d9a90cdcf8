"""Maintenance of an idle directory: checksums, entry states, compaction, orphans, capacity."""

from __future__ import annotations

import json
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Stream, record
from typer.testing import CliRunner

from mainstem._core.log.checksums import CRC32, CRC32C, FrameChecksum
from mainstem.archive.server.files import ArchiveFiles
from mainstem.cli.recordings import app
from mainstem.errors import RecordingError
from mainstem.recording import Recorder, find_problems, messages, open_recording, read_catalog
from mainstem.recording.catalog import CATALOG_FILE, Catalog, find_changed_entries, read_entries
from mainstem.recording.crash_recovery import SETTLED_NS
from mainstem.recording.earlier_frames import at_once
from mainstem.recording.index import index_file
from mainstem.recording.mark_file import RECORDER
from mainstem.recording.offline_maintenance import Maintenance, find_orphans
from mainstem.recording.segments import segment_name

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65536
SEGMENT = 2 * TERM
STREAM = {"stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}
PAYLOADS = [b"%05d" % number * 200 for number in range(400)]


def make(directory: Path, sessions: tuple[int, ...] = (77,)) -> Path:
    """Write recordings of three and a half segments, with an index."""
    with Recorder(directory, segment_length=SEGMENT) as recorder:
        for session_id in sessions:
            writer = recorder.start(**STREAM, session_id=session_id, join_position=0)
            record(writer, Stream(term_length=TERM, session_id=session_id), PAYLOADS)
    return directory


def found(directory: Path, recording_id: int = 0) -> list[str]:
    with open_recording(directory, recording_id) as reader:
        problems = find_problems(reader, reader.start_position, reader.end_position())
        return [each.kind for each in problems]


def payloads(directory: Path, recording_id: int = 0) -> list[bytes]:
    with open_recording(directory, recording_id) as reader:
        return [payload for _, payload in messages(reader, reader.start_position, reader.end_position())]


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def store_checksums(directory: Path, polynomial: int = CRC32C, *, everywhere: bool = True) -> int:
    with Maintenance(directory) as maintenance:
        (descriptor,) = read_catalog(directory)
        return maintenance.store_checksums(descriptor, FrameChecksum(polynomial), everywhere=everywhere)


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(each) for each in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


@pytest.mark.parametrize("polynomial", [CRC32, CRC32C])
@pytest.mark.parametrize("everywhere", [True, False])
def test_checksums_leave_messages_and_the_sums_of_the_index(tmp_path: Path, polynomial: int, everywhere: bool) -> None:
    make(tmp_path)
    assert (index_file(tmp_path, 0).stat().st_size - 64) // 32 > 3
    stored = store_checksums(tmp_path, polynomial, everywhere=everywhere)
    assert stored == 400 if everywhere else 0 < stored < 400
    assert payloads(tmp_path) == PAYLOADS
    assert found(tmp_path) == []
    assert find_changed_entries(tmp_path) == []
    (entry,) = read_entries(tmp_path)
    assert (tmp_path / CATALOG_FILE).read_bytes()[entry.offset + 8 : entry.offset + 12] != bytes(4)


def test_other_checksums_may_replace_checksums(tmp_path: Path) -> None:
    make(tmp_path)
    store_checksums(tmp_path, CRC32)
    before = (tmp_path / segment_name(0, 0)).read_bytes()
    store_checksums(tmp_path, CRC32C)
    assert (tmp_path / segment_name(0, 0)).read_bytes() != before
    assert found(tmp_path) == []


@pytest.mark.parametrize("offset", [16, 24, 40])
def test_a_byte_that_changed_after_the_checksums_is_found(tmp_path: Path, offset: int) -> None:
    """This includes bytes of a header, which the frame's checksum does not cover but the index's checksum does."""
    make(tmp_path)
    store_checksums(tmp_path)
    flip(tmp_path / segment_name(0, 0), offset)
    assert "checksum" in found(tmp_path)


def test_a_loss_of_power_costs_nothing_that_has_checksums(tmp_path: Path) -> None:
    assert SETTLED_NS > 60e9, "what was just recorded is checked"
    make(tmp_path)
    store_checksums(tmp_path)
    (tmp_path / "mainstem-recorder.lock").write_bytes(b"another boot of the host")
    Recorder(tmp_path).close()
    assert payloads(tmp_path) == PAYLOADS


def image(session_id: int, position: int) -> Any:
    return SimpleNamespace(
        session_id=session_id,
        stream_id=1001,
        join_position=position,
        position=position,
        initial_term_id=-5,
        term_length=TERM,
        mtu=1408,
        source_identity="aeron:ipc",
        driver_start_ms=1,
        correlation_id=session_id,
    )


def make_extended(directory: Path, *, is_split: bool, is_summed: bool) -> list[bytes]:
    """Write a recording that a second session extends, as an archive does, and return its payloads.

    If ``is_split``, the sessions meet inside a message. If ``is_summed``, the first session's frames already have checksums.
    """
    stream = Stream(term_length=TERM, session_id=77)
    with ArchiveFiles(directory, RECORDER, segment_length=SEGMENT) as files:
        writer = files.begin(image(77, 0), stripped="aeron:ipc", original="aeron:ipc")
        record(writer, stream, PAYLOADS[:150])
        if is_split:
            writer.write(memoryview(stream.frame(b"a" * 1376, 0x80)), 0)
        files.stop(writer)
    if is_summed:
        store_checksums(directory)
    with ArchiveFiles(directory, RECORDER, segment_length=SEGMENT) as files:
        (descriptor,) = read_catalog(directory)
        writer = files.extend(descriptor, image(78, stream.position), at_once(files.earlier_frames(descriptor)))
        stream.session_id = 78
        if is_split:
            writer.write(memoryview(stream.frame(b"b" * 40, 0x40)), 0)
        record(writer, stream, PAYLOADS[150:])
        files.stop(writer)
    return [*PAYLOADS[:150], *[b"a" * 1376 + b"b" * 40] * is_split, *PAYLOADS[150:]]


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("is_summed", [False, True])
def test_a_recording_of_two_sessions_may_get_checksums(tmp_path: Path, is_split: bool, is_summed: bool) -> None:
    expected = make_extended(tmp_path, is_split=is_split, is_summed=is_summed)
    assert found(tmp_path) == []
    store_checksums(tmp_path)
    assert payloads(tmp_path) == expected
    assert found(tmp_path) == []
    (tmp_path / "mainstem-recorder.lock").write_bytes(b"another boot of the host")
    Recorder(tmp_path).close()
    assert payloads(tmp_path) == expected, "a loss of power costs nothing"


@pytest.mark.parametrize("base", [0, SEGMENT, 2 * SEGMENT])
def test_a_header_that_changed_is_found_in_each_session_of_a_recording(tmp_path: Path, base: int) -> None:
    make_extended(tmp_path, is_split=False, is_summed=False)
    store_checksums(tmp_path)
    flip(tmp_path / segment_name(0, base), 24)
    assert found(tmp_path) == ["checksum"]


def test_checksums_do_not_hide_damage(tmp_path: Path) -> None:
    make(tmp_path, (77, 78))
    path = tmp_path / segment_name(0, SEGMENT)
    flip(path, 100)
    before = path.read_bytes()
    code, text = run("checksum", tmp_path, "--all-segments")
    assert code == 1
    assert "recording 1: 400 frames have a crc-32c checksum" in text
    assert "recording 0 is damaged at" in text
    assert path.read_bytes() == before
    assert found(tmp_path, 0) == ["checksum"]


def test_checksums_do_not_hide_a_damaged_entry(tmp_path: Path) -> None:
    make(tmp_path)
    store_checksums(tmp_path)
    (entry,) = read_entries(tmp_path)
    flip(tmp_path / CATALOG_FILE, entry.offset + entry.length + 30)
    with pytest.raises(RecordingError, match="does not have the checksum that the archive stored"):
        store_checksums(tmp_path)


def test_every_change_of_an_entry_keeps_its_checksum_right(tmp_path: Path) -> None:
    make(tmp_path)
    store_checksums(tmp_path)
    catalog = Catalog(tmp_path)
    (descriptor,) = catalog.recordings()
    for change in (
        lambda: catalog.extend(descriptor),
        lambda: catalog.stop(descriptor, SEGMENT, 5),
        lambda: catalog.set_start(descriptor, TERM),
        lambda: catalog.set_session(descriptor, 9),
        lambda: list(catalog.replace_entry(lambda: descriptor.entry_offset, lambda now: now, lambda *_: None)),
    ):
        change()
        assert find_changed_entries(tmp_path) == []
    catalog.close()


def test_a_recorder_at_work_keeps_maintenance_out(tmp_path: Path) -> None:
    make(tmp_path)
    with Recorder(tmp_path), pytest.raises(RecordingError, match="another recorder is already running"):
        Maintenance(tmp_path)
    with Maintenance(tmp_path), pytest.raises(RecordingError, match="another recorder is already running"):
        Recorder(tmp_path)
    Recorder(tmp_path).close()


def test_a_directory_without_a_catalog_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="holds no recordings"):
        Maintenance(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_invalid_recordings_are_left_out_until_they_are_valid_again(tmp_path: Path) -> None:
    make(tmp_path, (77, 78))
    assert run("mark-invalid", tmp_path, 0)[0] == 0
    assert [each.recording_id for each in read_catalog(tmp_path)] == [1]
    assert run("count", tmp_path)[1] == "1 valid, 1 invalid, 0 deleted\n"
    rows = json.loads(run("ls", tmp_path, "--all-states", "--json")[1])
    assert [(row["recording_id"], row["state"]) for row in rows] == [(1, "ended"), (0, "invalid")]
    assert run("delete-orphans", tmp_path)[0] == 0, "they keep their files"
    run("mark-valid", tmp_path, 0)
    assert payloads(tmp_path) == PAYLOADS
    with pytest.raises(RecordingError, match="has no recording 2"):
        run("mark-valid", tmp_path, 2)


def test_compacting_removes_invalid_entries_and_reuses_no_id(tmp_path: Path) -> None:
    make(tmp_path, (77, 78, 79))
    with Maintenance(tmp_path) as maintenance:
        maintenance.set_valid(0, valid=False)
        maintenance.catalog.delete(read_catalog(tmp_path)[-1])
    with pytest.raises(RecordingError, match="recording 2 is deleted"):
        run("mark-valid", tmp_path, 2)
    size = (tmp_path / CATALOG_FILE).stat().st_size
    before = sorted(tmp_path.iterdir())
    code, text = run("compact", tmp_path, "--dry-run")
    assert (code, text.count("would be removed"), sorted(tmp_path.iterdir())) == (0, 2, before)
    rows = json.loads(run("compact", tmp_path, "--json")[1])
    assert [(row["recording_id"], row["state"], row["files"] > 3) for row in rows] == [
        (0, "invalid", True),
        (2, "deleted", True),
    ]
    assert {each.name for each in before} - {each.name for each in tmp_path.iterdir()} == {
        each.name for each in before if each.name.startswith(("0-", "2-", "0.", "2."))
    }
    assert (tmp_path / CATALOG_FILE).stat().st_size == size
    assert payloads(tmp_path, 1) == PAYLOADS
    make(tmp_path, (80,))
    assert [each.recording_id for each in read_catalog(tmp_path)] == [1, 3]
    assert "nothing to remove" in run("compact", tmp_path)[1]


def test_orphans_are_the_files_outside_of_a_recording(tmp_path: Path) -> None:
    make(tmp_path, (77, 78))
    catalog = Catalog(tmp_path)
    first, second = catalog.recordings()
    catalog.set_start(first, SEGMENT)
    catalog.stop(first, 2 * SEGMENT, 5)
    catalog.delete(second)
    catalog.close()
    lost = tmp_path / segment_name(9, 0)
    lost.write_bytes(bytes(SEGMENT))
    leftover = tmp_path / f"{segment_name(0, SEGMENT)}.del"
    leftover.write_bytes(bytes(8))
    own = sorted(each.path.name for each in find_orphans(tmp_path) if each.recording_id == 0)
    assert own == ["0-0.rec", "0-131072.rec.del", "0-393216.rec"], "an empty segment follows an end at a segment's end"
    assert {each.recording_id for each in find_orphans(tmp_path)} == {0, 1}
    before = sorted(tmp_path.iterdir())
    assert run("delete-orphans", tmp_path, "--dry-run")[0] == 0
    assert sorted(tmp_path.iterdir()) == before
    code, text = run("delete-orphans", tmp_path, "--json")
    assert (code, len(json.loads(text))) == (0, 3 + 4)
    assert sorted(each.name for each in tmp_path.glob("*.rec*")) == ["0-131072.rec", "0-262144.rec", "9-0.rec"]
    run("delete-orphans", tmp_path, "--recording", 9)
    assert not lost.exists()


def test_an_active_recording_has_no_orphans_after_its_start(tmp_path: Path) -> None:
    make(tmp_path)
    catalog = Catalog(tmp_path)
    catalog.extend(catalog.recordings()[0])
    catalog.close()
    assert find_orphans(tmp_path) == []


def test_the_catalog_grows_ahead_and_never_shrinks(tmp_path: Path) -> None:
    make(tmp_path)
    assert run("capacity", tmp_path, "--grow-to", "1m")[1].startswith("1,048,576 bytes, ")
    with pytest.raises(RecordingError, match="the capacity must be from 1048576 to"):
        run("capacity", tmp_path, "--grow-to", "64k")
    row = json.loads(run("capacity", tmp_path, "--json")[1])
    assert (row["bytes"], row["entries"]) == (1 << 20, 1)
    assert payloads(tmp_path) == PAYLOADS


def test_dump_shows_frames_with_their_payloads(tmp_path: Path) -> None:
    make(tmp_path)
    (row,) = json.loads(run("dump", tmp_path, "--limit", 2, "--payload-bytes", 5, "--json")[1])
    first, second = row["frames"]
    assert (first["position"], first["type"], bytes.fromhex(first["payload"])) == (0, "DATA", b"00000")
    assert (second["position"], second["length"], second["session_id"]) == (1056, 1032, 77)
    text = run("dump", tmp_path, "--limit", 500)[1]
    assert text.count("DATA") == 400
    assert text.count("PAD") > 3


def test_dump_ends_where_a_frame_has_no_length(tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / segment_name(0, 0)
    data = bytearray(path.read_bytes())
    struct.pack_into("<i", data, 1056, -3)
    path.write_bytes(data)
    assert len(json.loads(run("dump", tmp_path, "--json")[1])[0]["frames"]) == 1
