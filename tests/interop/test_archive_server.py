"""A Java client of Aeron Archive gets from ``mainstem archive`` what it gets from Java's own archive, word for word."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support import java
from tests.support.patience import STALL_S
from tests.support.ports import free_port

from mainstem.recording import find_problems, messages, open_recordings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 300
EXTENSION = 100


@contextmanager
def mainstem_archive(directory: Path, driver: Path, control: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-m", "mainstem", "archive", "--dir", str(directory), "--aeron-dir", str(driver)]
    line += ["--control", control, "--set", "segment_file_length=128k", *words]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "requests on" in process.stderr.readline()
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(STALL_S) == 0
    finally:
        process.kill()
        process.communicate()


def transcript(*arguments: object) -> list[str]:
    done = java.run("UseArchive", *arguments)
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
