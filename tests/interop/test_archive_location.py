"""Java's archive as a location: a reader gets through the protocol exactly what the archive's directory holds."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from tests.interop.java_archive import JavaArchive
from tests.support import java
from tests.support.case_selection import long_after
from tests.support.waiting import STALL_S, wait_for

import mainstem
from mainstem import archive
from mainstem.archive import extension_channel
from mainstem.errors import RecordingError
from mainstem.recording import messages, open_recordings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.recording import RecordingReader

pytestmark = [pytest.mark.interop]

IPC = "aeron:ipc?term-length=64k"


def payload(number: int) -> bytes:
    return number.to_bytes(4, "big") * (1 + number % 1500)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaArchive]:
    """Run an archive that has two recordings: the first was extended, and the second is growing."""
    java.require_java()
    with (
        tempfile.TemporaryDirectory(prefix="mainstem-interop-", dir="/dev/shm") as directory,
        JavaArchive(tmp_path_factory.mktemp("archive"), Path(directory) / "aeron", has_driver=True) as made,
        mainstem.connect(made.directory) as aeron,
        archive.connect(made.control, aeron=aeron) as client,
    ):
        client.start_recording(IPC, 1001, auto_stop=True)
        with aeron.add_exclusive_publication(IPC, 1001) as publication:
            for number in range(500):
                publication.send(payload(number), timeout=STALL_S)
            wait_for(lambda: client.find_last_matching_recording("", 1001, publication.session_id) is not None)
            wait_for(lambda: client.recording_position(0) == publication.position)
        wait_for(lambda: client.stop_position(0) is not None)
        client.extend_recording(0, IPC, 1001, auto_stop=True)
        descriptor = client.list_recording(0)
        assert descriptor is not None
        with aeron.add_exclusive_publication(extension_channel(IPC, descriptor), 1001) as publication:
            for number in range(500, 700):
                publication.send(payload(number), timeout=STALL_S)
            wait_for(lambda: client.recording_position(0) == publication.position)
        wait_for(lambda: client.stop_position(0) is not None)
        client.start_recording(IPC, 1002)
        with aeron.add_exclusive_publication(IPC, 1002) as publication:
            for number in range(100):
                publication.send(payload(number), timeout=STALL_S)
            wait_for(lambda: client.find_last_matching_recording("", 1002, publication.session_id) == 1)
            wait_for(lambda: client.recording_position(1) == publication.position)
            yield made


def frames_of(reader: RecordingReader, start: int, end: int) -> bytes:
    """Return a recording's bytes with its own session id in each frame, since frames from before an extension have another one."""
    frames = bytearray()
    for run in reader.ranges(start, end):
        frames += run.memory[run.offset : run.limit]
    at = 0
    while at < len(frames):
        struct.pack_into("<i", frames, at + 12, reader.descriptor.session_id)
        at += int.from_bytes(frames[at : at + 4], "little") + 31 & ~31
    return bytes(frames)


@pytest.mark.parametrize("has_driver", long_after(1, [True, False]))
def test_the_bytes_are_those_of_its_directory(
    served: JavaArchive, has_driver: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AERON_DIR", str(tmp_path / "none"))
    options = {"aeron_dir": served.directory} if has_driver else {}
    url = f"aeron-archive://{served.control.partition('endpoint=')[2]}"
    with open_recordings(url, options) as there, open_recordings(served.archive) as here:
        for remote, local in zip(there, here, strict=True):
            start, end = local.start_position, remote.end_position()
            assert frames_of(remote, start, end) == frames_of(local, start, end)
            assert list(messages(remote, start, end)) == list(messages(local, start, end))
        assert [data for _, data in messages(there[0], 0, there[0].end_position())] == [
            payload(number) for number in range(700)
        ]
        where = [("position", ">", 100_000), ("position", "<", 400_000), ("stream_id", "=", 1001)]
        for frames in (False, True):
            columns = ["position", "term_id", "term_offset", "flags", "reserved_value", "length", "payload"]
            tables = [each.scan(columns, where, frames=frames).to_arrow() for each in (there, here)]
            assert tables[0].num_rows > 0
            assert tables[0].equals(tables[1])
        for _ in range(25):  # more than the archive's limit of replays
            assert next(messages(there[0], 0, there[0].end_position()))[1] == payload(0)
        with pytest.raises(RecordingError):
            there[0].checksum(1 << 20 << 20, (1 << 40) + 32)
