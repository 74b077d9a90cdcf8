"""A Java client of Aeron Archive gets the same responses from ``mainstem archive`` as from Java's archive, word for word."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.interop.java_archive import JavaArchive
from tests.interop.mainstem_archive import mainstem_archive
from tests.support import java
from tests.support.ports import free_port
from tests.support.recorded import recorded_position
from tests.support.waiting import STALL_S, wait_for

import mainstem
from mainstem import archive
from mainstem.archive import RecordingSignal, extension_channel
from mainstem.recording import find_problems, messages, open_recordings
from mainstem.recording.mark_file import MARK_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 300
EXTENSION = 100


def transcript(*arguments: object, program: str = "UseArchive") -> list[str]:
    done = java.run(program, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("response", ["aeron:udp?endpoint=localhost:0", "aeron:ipc?term-length=64k"])
def test_a_java_client_sees_no_difference(start_driver: DriverFactory, tmp_path: Path, response: str) -> None:
    java.require_java()
    driver = start_driver("mainstem").directory
    control = f"aeron:udp?endpoint=localhost:{free_port()}" if "udp" in response else "aeron:ipc?term-length=64k"
    reference = f"aeron:udp?endpoint=localhost:{free_port()}" if "udp" in response else control
    expected = transcript(driver, reference, response, COUNT, tmp_path / "reference")
    ours = tmp_path / "ours"
    with mainstem_archive(ours, driver, control if "udp" in control else f"aeron:udp?endpoint=localhost:{free_port()}"):
        assert transcript(driver, control, response, COUNT) == expected
    for directory in (ours, tmp_path / "reference"):
        with open_recordings(directory) as recordings:
            (reader,) = recordings
            end = reader.end_position()
            assert list(find_problems(reader, reader.start_position, end)) == []
            assert sum(1 for _ in messages(reader, reader.start_position, end)) == 2 * COUNT + EXTENSION
        copy = shutil.copytree(directory, directory.with_suffix(".copy"))
        done = java.run(java.ARCHIVE_TOOL, copy, "verify", "-a")
        assert done.stdout.split() == ["(recordingId=0)", "OK"], done.stdout + done.stderr


def test_a_java_client_deletes_migrates_and_replays_over_response_channels(
    start_driver: DriverFactory, tmp_path: Path
) -> None:
    java.require_java()
    driver = start_driver("mainstem").directory
    control = [f"aeron:udp?endpoint=localhost:{free_port()}" for _ in range(2)]
    expected = transcript(driver, control[0], free_port(), tmp_path / "reference", program="ManageArchive")
    ours = tmp_path / "ours"
    with mainstem_archive(ours, driver, control[1]):
        assert transcript(driver, control[1], free_port(), program="ManageArchive") == expected
    assert names_of_segments(ours) == names_of_segments(tmp_path / "reference")
    with open_recordings(ours) as recordings:
        for reader in recordings:
            assert list(find_problems(reader, reader.start_position, reader.end_position())) == []
    done = java.run(java.ARCHIVE_TOOL, ours, "verify", "-a")
    assert "Exception" not in done.stdout + done.stderr
    assert "(ERR)" not in done.stdout, done.stdout


def names_of_segments(directory: Path) -> set[str]:
    """Return the names of the nonempty segments, because the reference creates the next segment as soon as one is full."""
    return {path.name for path in directory.glob("*.rec") if path.read_bytes().strip(b"\0")}


def test_javas_archive_replicates_from_ours(start_driver: DriverFactory, tmp_path: Path) -> None:
    java.require_java()
    driver = start_driver("mainstem").directory
    control = f"aeron:udp?endpoint=localhost:{free_port()}"
    sent = [number.to_bytes(4, "big") * (1 + number % 600) for number in range(COUNT)]
    with (
        mainstem_archive(tmp_path / "ours", driver, control),
        JavaArchive(tmp_path / "java", driver, has_driver=False) as replica,
        archive.connect(control, directory=driver) as source,
        archive.connect(replica.control, directory=driver) as client,
        mainstem.connect(driver) as aeron,
    ):
        source.start_recording("aeron:ipc", 1001, auto_stop=True)
        with aeron.add_exclusive_publication("aeron:ipc?term-length=64k", 1001) as publication:
            for message in sent:
                publication.send(message, timeout=STALL_S)
            wait_for(lambda: recorded_position(source, 0) == publication.position)
        wait_for(lambda: source.stop_position(0) is not None)
        client.replicate(0, control)
        events = client.events(timeout=STALL_S)
        assert RecordingSignal.SYNC in [next(events).signal for _ in range(4)]
        with client.replay(0, "aeron:ipc", 1002) as replay:
            assert [bytes(each) for each in replay.messages(timeout=STALL_S)] == sent


def record_one(control: str, driver: Path, recording_id: int, sent: list[bytes]) -> None:
    """Record a stream under that id and compare its replay; a recording that exists is extended by the same number of messages."""
    with archive.connect(control, directory=driver) as client, mainstem.connect(driver) as aeron:
        client.start_recording("aeron:ipc", 1001, auto_stop=True)
        with aeron.add_exclusive_publication("aeron:ipc?term-length=64k", 1001) as publication:
            for message in sent:
                publication.send(message, timeout=STALL_S)
            wait_for(lambda: recorded_position(client, recording_id) == publication.position)
        wait_for(lambda: client.stop_position(recording_id) is not None)
        descriptor = client.list_recording(recording_id - 1) if recording_id else None
        if descriptor is not None:
            client.extend_recording(descriptor.recording_id, "aeron:ipc", 1001, auto_stop=True)
            with aeron.add_exclusive_publication(
                extension_channel("aeron:ipc?term-length=64k", descriptor), 1001
            ) as publication:
                for message in sent:
                    publication.send(message, timeout=STALL_S)
                wait_for(lambda: client.recording_position(recording_id - 1) == publication.position)
            wait_for(lambda: client.stop_position(recording_id - 1) is not None)
        for each in range(recording_id + 1):
            with client.replay(each, "aeron:ipc", 1002) as replay:
                found = [bytes(data) for data in replay.messages(timeout=STALL_S)]
            assert found == sent * (1 if each == recording_id else 2)


def test_each_archive_continues_in_a_directory_of_the_other(start_driver: DriverFactory, tmp_path: Path) -> None:
    java.require_java()
    driver = start_driver("mainstem").directory
    directory = tmp_path / "archive"
    sent = [number.to_bytes(4, "big") * (1 + number % 600) for number in range(COUNT)]
    control = f"aeron:udp?endpoint=localhost:{free_port()}"
    with mainstem_archive(directory, driver, control):
        record_one(control, driver, 0, sent)
    with JavaArchive(directory, driver, has_driver=False) as reference:
        record_one(reference.control, driver, 1, sent)
        reference.process.kill()  # its recordings have ended, but its mark is still active
        reference.process.wait()
    (directory / MARK_FILE).unlink()  # as if ten seconds had passed
    with mainstem_archive(directory, driver, control):
        record_one(control, driver, 2, sent)
    with open_recordings(directory) as recordings:
        for reader in recordings:
            assert list(find_problems(reader, reader.start_position, reader.end_position())) == []
