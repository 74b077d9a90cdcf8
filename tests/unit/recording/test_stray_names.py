"""Files that no recorder made: whatever lies in a directory of recordings, it is recorded, recovered, listed and read."""

from __future__ import annotations

import os
import struct
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record
from tests.unit.recording.test_recorder_starts import TERM, Image, Subscription, recorder_of

from mainstem.errors import ConnectionLost, RecordingError, StoreError
from mainstem.recording import Recorder, messages, open_recording, open_recordings, read_catalog
from mainstem.recording.catalog import MAX_ENTRIES, MAX_RECORDING_ID
from mainstem.recording.offline_maintenance import Maintenance, find_orphans, segment_files
from mainstem.recording.segments import all_segment_bases, parse_segment_name, segment_bases, segment_name
from mainstem.recording.verify_recordings import find_directory_problems
from mainstem.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SENT = [b"tide %d" % number for number in range(50)]
# Names like those of segments that no segment has.
NAMES = [
    f"{(1 << 63) - 1}-0.rec", f"{1 << 63}-0.rec", f"{10**30}-0.rec", f"{'9' * 200}-0.rec", f"0-{(1 << 63) - 1}.rec",
    f"0-{10**30}.rec", "-1-0.rec", "0--1.rec", "00-0.rec", "0-00.rec", "+0-0.rec", " 0-0.rec", "0-0.rec ", "0-0.REC", "0-.rec",
    "-0.rec", "-.rec", ".rec", "0.rec", "0-0-0.rec", "0x1-0.rec", "1_0-0.rec", "1e3-0.rec", "\u0665-\u0660.rec", "\u00b2-0.rec",
    "\uff11-0.rec", "0-0.rec\n",
]  # fmt: skip
# Names that a segment can have, of recordings that are not in the catalog.
POSSIBLE = [
    f"{MAX_RECORDING_ID}-0.rec",
    f"{MAX_RECORDING_ID - 1}-0.rec",
    f"{MAX_ENTRIES + 7}-65536.rec",
    f"{1 << 62}-7.rec",
]


def as_file(path: Path) -> None:
    path.write_bytes(b"not a frame")


def as_directory(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def as_dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def as_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def write(directory: Path, sent: list[bytes] = SENT, session_id: int = 77) -> int:
    with Recorder(directory, segment_length=TERM) as recorder:
        stream = Stream(session_id=session_id)
        writer = stream.start(recorder)
        record(writer, stream, sent)
        return writer.descriptor.recording_id


def read(directory: Path, recording_id: int) -> list[bytes]:
    with open_recording(directory, recording_id) as reader:
        return [payload for _, payload in messages(reader, reader.start_position, reader.end_position())]


@pytest.mark.parametrize("kind", [as_file, as_directory, as_dangling_link, as_link_to_itself])
def test_stray_names_affect_nothing(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    for name in NAMES + POSSIBLE:
        kind(tmp_path / name)
    before = sorted(os.listdir(tmp_path))
    assert write(tmp_path) == 0
    assert write(tmp_path, session_id=78) == 1
    for recording_id in (0, 1):
        assert read(tmp_path, recording_id) == SENT
        assert segment_bases(tmp_path, recording_id) == [0]
    with open_recordings(tmp_path) as recordings:
        assert [each.descriptor.recording_id for each in recordings] == [0, 1]
    strays = {parse_segment_name(name)[0] for name in POSSIBLE}  # type: ignore[index]
    assert set(all_segment_bases(tmp_path)) == {0, 1} | strays
    # Possible segments are reported as files without a catalog entry.
    assert len(list(find_directory_problems(tmp_path))) == len(strays)
    assert {each.recording_id for each in segment_files(tmp_path)} == {0, 1} | strays
    assert find_orphans(tmp_path) == []
    with Maintenance(tmp_path):
        pass
    assert set(before) <= set(os.listdir(tmp_path))


def test_names_of_segments_are_read_back() -> None:
    for recording_id, base in ((0, 0), (7, 1 << 40), (MAX_RECORDING_ID, 65536)):
        assert parse_segment_name(segment_name(recording_id, base)) == (recording_id, base)
    assert [name for name in NAMES if parse_segment_name(name) is not None] == []


def test_ids_of_segments_whose_entries_were_lost_are_not_used_again(tmp_path: Path) -> None:
    as_file(tmp_path / "3-0.rec")
    as_file(tmp_path / "5-0.rec")
    assert write(tmp_path) == 6
    assert (tmp_path / "3-0.rec").read_bytes() == b"not a frame"


def test_a_stray_id_that_the_catalog_reaches_is_skipped(tmp_path: Path) -> None:
    write(tmp_path)
    stray = MAX_ENTRIES + 10
    as_file(tmp_path / f"{stray}-0.rec")
    with Recorder(tmp_path, segment_length=TERM) as recorder:
        with open(tmp_path / "archive.catalog", "r+b") as file:
            os.pwrite(file.fileno(), struct.pack("<q", stray), 8)
        recorder._directory.catalog._next = None
        recorder._directory.catalog.find_place()
        writer = Stream(session_id=78).start(recorder)
        assert writer.descriptor.recording_id == stray + 1
    assert (tmp_path / f"{stray}-0.rec").read_bytes() == b"not a frame"


@pytest.mark.parametrize("next_id", [MAX_RECORDING_ID + 1, -1, -(1 << 63)])
def test_a_catalog_with_an_impossible_next_id_is_refused_by_name_or_corrected(tmp_path: Path, next_id: int) -> None:
    write(tmp_path)
    with open(tmp_path / "archive.catalog", "r+b") as file:
        os.pwrite(file.fileno(), struct.pack("<q", next_id), 8)
    if next_id < 0:
        assert write(tmp_path, session_id=78) == 1
        return
    with pytest.raises(RecordingError, match=r"archive\.catalog has no id left"):
        write(tmp_path, session_id=78)
    # `mainstem record` waits, as for any full catalog.
    subscription = Subscription(Image(5))
    with recorder_of(tmp_path, subscription) as recorder:
        recorder.do_work()
        assert recorder.unrecorded == 1
    assert [each.recording_id for each in read_catalog(tmp_path)] == [0]
    assert read(tmp_path, 0) == SENT


# The last one is an OSError too, but no failed write.
@pytest.mark.parametrize("failure", [ZeroDivisionError("boom"), ConnectionLost("the session ended")])
def test_an_image_that_cannot_be_recorded_ends_only_its_own_recording(tmp_path: Path, failure: Exception) -> None:
    """A step that fails in any way is raised once, after the other images have been recorded."""

    class Broken(Image):
        error: Exception | None = None

        def readable(self) -> tuple[int, int]:
            if self.error is not None:
                raise self.error
            return super().readable()

    broken, good = Broken(1), Image(2)
    with recorder_of(tmp_path, Subscription(broken, good)) as recorder:
        recorder.do_work()
        good.offer(3)
        for error in (failure, None):
            broken.error = error
            if error is not None:
                with pytest.raises(type(failure)):
                    recorder.do_work()
            else:
                recorder.do_work()
            assert recorder.has_failed(broken)
            assert not recorder.has_failed(good)
            assert recorder.active == {1: good.position}
            assert good.position == good.end
        assert recorder.failures == 1
    assert [each.stop_position for each in read_catalog(tmp_path)] == [broken.position, good.end]


def test_a_failed_write_is_raised_after_the_others_and_tried_again(tmp_path: Path) -> None:
    class Device(Image):
        is_failing = False

        def readable(self) -> tuple[int, int]:
            if self.is_failing:
                raise OSError(5, "Input/output error")
            return super().readable()

    failing, good = Device(1), Image(2)
    with recorder_of(tmp_path, Subscription(failing, good)) as recorder:
        failing.is_failing = True
        with pytest.raises(OSError, match="Input/output"):
            recorder.do_work()
        assert recorder.active == {0: good.end}
        failing.is_failing = False
        recorder.do_work()
        assert recorder.active == {0: good.end, 1: failing.end}
        assert recorder.failures == 0


@pytest.mark.parametrize("name", ["archive.catalog", "0-0.rec", "0.mainstem-positions", "archive-mark.dat"])
def test_a_named_pipe_in_place_of_a_file_blocks_no_reader(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    if name in ("archive.catalog", "0-0.rec"):
        with pytest.raises(RecordingError, match=f"{name}: not a regular file"), open_recording(tmp_path, 0) as reader:
            list(messages(reader, reader.start_position, reader.end_position()))
        return
    with open_recording(tmp_path, 0) as reader:
        found = [payload for _, payload in messages(reader, reader.start_position, reader.end_position())]
    assert found == SENT
    assert not list(find_orphans(tmp_path))


def test_a_named_pipe_in_a_local_store_blocks_no_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with closing(open_store(str(tmp_path))) as store, pytest.raises(StoreError, match="not a regular file"):
        store.read("a", 0, 1)
