"""One directory of recordings used in turn by Mainstem's recorder and Aeron Archive for Java, and never by both at once."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import java
from tests.support.streams import Stream, record
from tests.support.waiting import STALL_S, wait_for

from mainstem.errors import RecordingError
from mainstem.recording import Recorder, find_problems, messages, open_recordings, read_catalog
from mainstem.recording.mark_file import MARK_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]
TERM = 65536
STREAM = {"stream_id": 1001, "initial_term_id": 7, "term_buffer_length": TERM, "mtu_length": 1408}
COUNT = 300


def payloads(seed: int, count: int = COUNT) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(rng.randrange(2_500)) for _ in range(count)]


def make(directory: Path, sessions: tuple[int, ...], *, count: int = COUNT) -> None:
    """Record a stream of each session across several segments, with padding at the ends of terms."""
    with Recorder(directory, segment_length=2 * TERM) as recorder:
        for session_id in sessions:
            writer = recorder.start(
                **STREAM, session_id=session_id, join_position=0, channel="aeron:udp?endpoint=127.0.0.1:20121"
            )
            stream = Stream(session_id=session_id, stream_id=1001, initial_term_id=7, term_length=TERM)
            record(writer, stream, payloads(session_id, count))


def contents(directory: Path) -> dict[int, tuple[int, int]]:
    """Return each recording's message count and the CRC-32 of all its payloads, as Mainstem reads it."""
    out = {}
    with open_recordings(directory) as recordings:
        for reader in recordings:
            assert list(find_problems(reader, reader.start_position, reader.end_position())) == []
            found = [payload for _, payload in messages(reader, reader.start_position, reader.end_position())]
            out[reader.descriptor.recording_id] = len(found), zlib.crc32(b"".join(found))
    return out


class JavaArchive:
    """An Aeron Archive on a directory."""

    def __init__(self, directory: Path, driver: Path) -> None:
        self.process = java.start("ServeArchive", directory, driver, random.randrange(20_000, 30_000))
        self.lines: list[str] = []

    def line(self) -> str:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, f"the archive ended: {''.join(self.lines)}"
        self.lines.append(text)
        return text.strip()

    def until(self, word: str) -> list[str]:
        found = []
        while (line := self.line()) != word:
            found.append(line)
        return found

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def contents(self) -> dict[int, tuple[int, int]]:
        """Return the same as the function ``contents``, as the archive replays it."""
        self.ask("replay")
        rows = [list(map(int, line.split())) for line in self.until("replayed")]
        return {recording_id: (count, crc) for recording_id, count, crc in rows}

    def number(self, line: str) -> int:
        self.ask(line)
        return int(self.line())

    def stop(self) -> None:
        self.ask("stop")
        self.until("stopped")
        assert self.process.wait(STALL_S) == 0


@contextmanager
def archive_on(directory: Path) -> Iterator[JavaArchive]:
    java.require_java()
    driver = Path("/dev/shm") / f"mainstem-reference-{os.getpid()}-{random.randrange(1 << 30)}"
    archive = JavaArchive(directory, driver)
    with archive.process:
        try:
            archive.until("started")
            yield archive
        finally:
            archive.process.kill()
            shutil.rmtree(driver, ignore_errors=True)


def tool(directory: Path, *words: str) -> str:
    """Return the output of the reference's ArchiveTool."""
    done = java.run(java.ARCHIVE_TOOL, directory, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stdout


def test_java_and_mainstem_write_into_one_directory_in_turn(tmp_path: Path) -> None:
    make(tmp_path, (500, 501))
    before = contents(tmp_path)
    assert {count for count, _ in before.values()} == {COUNT}
    with archive_on(tmp_path) as archive:
        assert archive.contents() == before
        assert archive.number("record 1003 120") == 2
        assert archive.number("extend 1 60") == 1
        replayed = archive.contents()
        archive.stop()
    assert [count for count, _ in replayed.values()] == [COUNT, COUNT + 60, 120]
    assert contents(tmp_path) == replayed
    make(tmp_path, (502,))
    assert [d.recording_id for d in read_catalog(tmp_path)] == [0, 1, 2, 3]
    assert (tmp_path / "archive.catalog").stat().st_size >= 1 << 20
    with archive_on(tmp_path) as archive:
        assert archive.contents() == contents(tmp_path)
        archive.stop()
    assert contents(tmp_path).keys() == {0, 1, 2, 3}


def test_an_archive_finds_the_end_of_what_a_killed_recorder_left(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, segment_length=2 * TERM)
    writer = recorder.start(**STREAM, session_id=500, join_position=0)
    stream = Stream(session_id=500, stream_id=1001, initial_term_id=7, term_length=TERM)
    sent = [bytes(100)] * COUNT
    record(writer, stream, sent)
    os.close(recorder._directory._lock)  # like a kill: the lock is free, and nothing is closed
    (tmp_path / MARK_FILE).unlink()  # as if ten seconds had passed
    with archive_on(tmp_path) as archive:
        assert archive.contents() == {0: (COUNT, zlib.crc32(b"".join(sent)))}
        archive.stop()
    assert contents(tmp_path) == {0: (COUNT, zlib.crc32(b"".join(sent)))}


def test_a_recorder_refuses_the_directory_of_a_running_archive(tmp_path: Path, start_driver: DriverFactory) -> None:
    driver = start_driver("mainstem").directory
    with archive_on(tmp_path) as archive:
        assert archive.number("record 1003 120") == 0
        wait_for(lambda: read_catalog(tmp_path)[0].stop_position != -1)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != MARK_FILE}
        line = [sys.executable, "-m", "mainstem", "record", "aeron:ipc", "--stream", "1", "--out", str(tmp_path)]
        done = subprocess.run([*line, "--dir", str(driver)], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        assert f"pid {archive.process.pid}" in " ".join(done.stderr.split())
        after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name in before}
        assert after == before
        assert archive.number("record 1004 120") == 1
        assert [count for count, _ in archive.contents().values()] == [120, 120]
        # A killed archive's mark stays active for ten seconds.
        archive.process.kill()
        archive.process.wait()
        with pytest.raises(RecordingError, match="is in use"):
            Recorder(tmp_path)


def test_an_archive_refuses_the_directory_of_a_running_recorder(tmp_path: Path) -> None:
    java.require_java()
    with Recorder(tmp_path, segment_length=2 * TERM) as recorder:
        writer = recorder.start(**STREAM, session_id=500, join_position=0)
        stream = Stream(session_id=500, stream_id=1001, initial_term_id=7, term_length=TERM)
        record(writer, stream, payloads(1))
        done = java.run("ServeArchive", tmp_path, tmp_path / "aeron", random.randrange(20_000, 30_000))
        assert done.returncode != 0
        assert "active mark file detected" in done.stderr, done.stderr
        assert read_catalog(tmp_path)[0].stop_position == -1
        assert str(os.getpid()) in tool(tmp_path, "pid").split()
    assert contents(tmp_path)[0][0] == COUNT


def test_the_archive_tool_works_on_a_directory_of_the_recorder(tmp_path: Path) -> None:
    java.require_java()
    make(tmp_path, (500, 501))
    assert str(os.getpid()) in tool(tmp_path, "pid").split()
    for verb in ("describe", "describe-all"):
        described = tool(tmp_path, verb)
        assert described.count("streamId=1001") == 2
        assert "sessionId=500" in described
        assert "aeron:udp?endpoint=127.0.0.1:20121" in described
    assert "sessionId=501" in tool(tmp_path, "describe", "1")
    assert tool(tmp_path, "count-entries").split()[-1] == "2"
    before = contents(tmp_path)
    assert tool(tmp_path, "verify", "-a").count("OK") == 2
    assert contents(tmp_path) == before
    small = tmp_path / "small"
    make(small, (502,), count=20)
    # ArchiveTool asks whether to continue if there is more.
    frames = sum(-(-max(len(payload), 1) // (1408 - 32)) for payload in payloads(502, 20))
    assert tool(small, "dump", "1000").count("Frame at position") == frames
    summed = Path(shutil.copytree(tmp_path, tmp_path.with_name("summed")))
    tool(summed, "checksum", "org.agrona.checksum.Crc32c", "-a")
    assert tool(summed, "verify", "-a", "-checksum", "org.agrona.checksum.Crc32c").count("OK") == 2
    with open_recordings(summed) as recordings:
        for reader, seed in zip(recordings, (500, 501), strict=True):
            found = [payload for _, payload in messages(reader, reader.start_position, reader.end_position())]
            assert found == payloads(seed)
