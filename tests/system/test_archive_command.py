"""``mainstem archive`` as a process: with its own driver, killed and restarted, and shut down cleanly."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.ports import free_port
from tests.support.recorded import recorded_position
from tests.support.waiting import STALL_S, wait_for

import mainstem
from mainstem import archive
from mainstem.archive import RecordingSignal
from mainstem.archive.server import ArchiveServer
from mainstem.recording import messages, open_recordings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUNDS = 2
CHANNEL = "aeron:ipc?term-length=64k"


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-m", "mainstem", "archive", *words, "--set", "segment_file_length=128k"]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        # A client of the previous process may cause a line about an unknown session first.
        assert any("requests on" in line for line in process.stderr)
        yield process
    finally:
        process.kill()
        process.communicate()


def chained(count: int) -> list[bytes]:
    """Return messages that each contain the digest of the previous one."""
    out = [b"\0" * 32]
    while len(out) < count:
        out.append(hashlib.sha256(out[-1]).digest() * (1 + len(out) % 90))
    return out


@pytest.mark.long
def test_archive_recordings_survive_kills(tmp_path: Path) -> None:
    directory, control = tmp_path / "archive", f"aeron:udp?endpoint=localhost:{free_port()}"
    sent = chained(400)
    with mainstem.MediaDriver.launch() as driver, mainstem.connect(driver.directory) as aeron:
        words = ["--archive-dir", str(directory), "--dir", driver.directory, "--control", control]
        for number in range(ROUNDS):
            with running(*words) as process, archive.connect(control, directory=driver.directory) as client:
                for each in range(number):
                    assert client.stop_position(each) is not None
                client.start_recording("aeron:ipc", 1001)
                with aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
                    for message in sent:
                        publication.send(message, timeout=STALL_S)
                    wait_for(lambda: recorded_position(client, number) == publication.position)  # noqa: B023
                    process.kill()
                    process.wait()
        with running(*words) as process, archive.connect(control, directory=driver.directory) as client:
            assert [each.recording_id for each in client.list_recordings()] == list(range(ROUNDS))
            for number in range(ROUNDS):
                with client.replay(number, "aeron:ipc", 1002) as replay:
                    assert [bytes(each) for each in replay.messages(timeout=STALL_S)] == sent
            process.send_signal(signal.SIGTERM)
            assert process.wait(STALL_S) == 0
    with open_recordings(directory) as recordings:
        for reader in recordings:
            assert [data for _, data in messages(reader, reader.start_position, reader.end_position())] == sent


@pytest.mark.parametrize("is_truncated", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_replay_that_is_cut_short_fails(tmp_path: Path, is_truncated: bool) -> None:
    control = f"aeron:udp?endpoint=localhost:{free_port()}"
    count = 3000
    with (
        mainstem.MediaDriver.launch() as driver,
        ArchiveServer.launch(tmp_path, driver.directory, control_channel=control, segment_file_length=1 << 17),
        mainstem.connect(driver.directory) as aeron,
        archive.connect(control, aeron=aeron) as client,
    ):
        client.start_recording("aeron:ipc", 1001, auto_stop=True)
        with aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
            for _ in range(count):
                publication.send(b"x" * 500, timeout=STALL_S)
        wait_for(lambda: [each for each in client.list_recordings() if each.stop_position > 0])
        line = [sys.executable, "-m", "mainstem", "archive", "replay", "0", "--control", control]
        line += ["--dir", driver.directory, "--replay-channel", "aeron:ipc"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as replay:
            assert replay.stdout is not None
            assert replay.stdout.readline() == "x" * 500 + "\n"
            read = 1
            # The command waits for this pipe, and the archive for the command.
            if is_truncated:
                client.truncate_recording(0, 10 << 17)
            read += sum(1 for _ in replay.stdout)
            _, said = replay.communicate()
        assert (read < count) == is_truncated
        assert replay.returncode == int(is_truncated)
        last = said.strip().splitlines()[-1]
        assert ("before position 1638144: the archive stopped it; replay again from position=" in last) == is_truncated


def test_an_archive_with_its_own_driver_ends_recordings_in_order(tmp_path: Path) -> None:
    control = f"aeron:udp?endpoint=localhost:{free_port()}"
    aeron_dir = str(tmp_path / "aeron")
    words = ["--archive-dir", str(tmp_path / "archive"), "--dir", aeron_dir, "--control", control, "--with-driver"]
    with (
        running(*words) as process,
        archive.connect(control, directory=aeron_dir) as client,
        mainstem.connect(aeron_dir) as aeron,
    ):
        client.start_recording("aeron:ipc", 1001)
        with aeron.add_publication(CHANNEL, 1001) as publication:
            publication.send(b"tick", timeout=STALL_S)
            events = client.events(timeout=STALL_S)
            assert next(events).signal == RecordingSignal.START
            wait_for(lambda: client.recording_position(0) == publication.position)
            process.send_signal(signal.SIGTERM)
            assert process.wait(STALL_S) == 0
    with open_recordings(tmp_path / "archive") as recordings:
        assert recordings[0].descriptor.stop_position == 64


def test_a_directory_in_use_by_another_archive_is_refused(tmp_path: Path) -> None:
    words = ["--archive-dir", str(tmp_path / "archive"), "--dir", str(tmp_path / "aeron")]
    with running(*words, "--control", f"aeron:udp?endpoint=localhost:{free_port()}", "--with-driver"):
        line = [sys.executable, "-m", "mainstem", "archive", *words]
        done = subprocess.run(
            [*line, "--control", f"aeron:udp?endpoint=localhost:{free_port()}"],
            stderr=subprocess.PIPE,
            text=True,
            timeout=STALL_S,
            check=False,
        )
    assert done.returncode == 1
    assert "already running" in " ".join(done.stderr.split())
