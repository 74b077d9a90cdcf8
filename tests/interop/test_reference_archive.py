"""Reading recordings that the reference's Aeron Archive wrote: one that was stopped, and one whose archive was killed."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import java
from tests.support.recording_server import RunningServer
from tests.support.shipping import ManualClock, shipped, shipper

from mainstem import open_recordings
from mainstem.cli import main
from mainstem.recording import Recorder, messages
from mainstem.recording.mark_file import MARK_FILE
from mainstem.store import open_store

if TYPE_CHECKING:
    from mainstem.recording import Recordings

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 500


def payload(number: int) -> bytes:
    length = 8 + number * 37 % 3000
    return number.to_bytes(8, "big") + bytes((number + i) % 256 for i in range(8, length))


def write(directory: Path, **properties: object) -> Path:
    """Have the reference write an archive, and return its directory as the archive leaves it."""
    java.require_java()
    driver = Path("/dev/shm") / f"mainstem-reference-{os.getpid()}"
    arguments = (directory / "archive", COUNT, driver, random.randrange(20_000, 30_000))
    try:
        done = java.run("RecordStreams", *arguments, properties=properties)
    finally:
        shutil.rmtree(driver, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    return directory / "archive"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("reference"))


@pytest.fixture
def archive(written: Path, tmp_path: Path) -> Path:
    """Return a copy that the test may change."""
    return Path(shutil.copytree(written, tmp_path / "archive"))


def check(recordings: Recordings) -> None:
    sent = [payload(number) for number in range(COUNT)]
    assert [reader.descriptor.stream_id for reader in recordings] == [1001, 1002]
    assert [reader.descriptor.stop_position >= 0 for reader in recordings] == [True, False]
    for reader in recordings:
        assert [data for _, data in messages(reader, reader.start_position, reader.end_position())] == sent
    assert [bytes(value.as_py()) for value in recordings.scan().to_arrow()["payload"]] == sent * 2


def test_a_reference_archive_is_read(archive: Path) -> None:
    with open_recordings(archive) as recordings:
        check(recordings)


def test_a_reference_archive_is_read_over_a_server(archive: Path) -> None:
    pytest.importorskip("aiohttp")
    with RunningServer(archive) as server, open_recordings(server.url) as recordings:
        check(recordings)


def test_a_reference_archive_is_shipped(archive: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ship = shipper(archive, open_store(store), ManualClock())
    ship.drain()
    ship.close()
    sent = [payload(number) for number in range(COUNT)]
    assert [shipped(open_store(store), number) for number in (0, 1)] == [sent, sent]


def exit_code(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code or 0


@pytest.mark.parametrize("checksum", ["Crc32", "Crc32c"])
def test_verify_finds_the_changed_byte_that_the_archive_tool_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], checksum: str
) -> None:
    name = f"org.agrona.checksum.{checksum}"
    directory = write(tmp_path, **{"aeron.archive.record.checksum": name})
    assert exit_code("recordings", "verify", str(directory)) == 0
    with open_recordings(directory) as recordings:
        check(recordings)
    catalog = directory / "archive.catalog"
    sound = catalog.read_bytes()
    at = sound.index(b"aeron:ipc")
    catalog.write_bytes(sound[:at] + b"A" + sound[at + 1 :])
    assert exit_code("recordings", "verify", str(directory)) == 1
    assert "does not have the checksum that the archive stored" in capsys.readouterr().out
    catalog.write_bytes(sound)
    # A recorder ends the recording that the archive did not stop, and its catalog entry still has its checksum.
    (directory / MARK_FILE).unlink()  # as if ten seconds had passed
    Recorder(directory).close()
    assert catalog.read_bytes() != sound
    assert exit_code("recordings", "verify", str(directory)) == 0
    segment = directory / "0-131072.rec"
    data = bytearray(segment.read_bytes())
    data[40] ^= 1
    segment.write_bytes(data)
    capsys.readouterr()
    assert exit_code("recordings", "verify", str(directory), "--json") == 1
    (problem,) = json.loads(capsys.readouterr().out)
    assert (problem["recording_id"], problem["position"], problem["kind"]) == (0, 131072, "checksum")
    told = java.run(java.ARCHIVE_TOOL, directory, "verify", "0", "-a", "-checksum", name)
    assert "checksum failed" in (told.stdout + told.stderr).lower()
