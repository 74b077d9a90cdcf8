"""Every call of a recorder to the operating system fails once, or every n-th time, and the recorder tries again."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Stream

from mainstem.recording import Recorder, messages, open_recording
from mainstem.recording.verify_recordings import find_problems
from mainstem.store.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TERM = 65536
STREAM: dict[str, Any] = {
    "session_id": 77, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408,
}  # fmt: skip
PAYLOADS = [index.to_bytes(4, "little") + bytes(index * 61 % 1_300) for index in range(400)]
CALLS = ("open", "write_some", "resize", "sync", "sync_directory", "close")
MOST_ATTEMPTS = 60


class FailingDisk(Disk):
    """A disk on which one kind of call fails: the ``first`` one and, with ``every``, each n-th one after it."""

    def __init__(self, call: str, first: int, every: int = 0) -> None:
        self.call, self.next, self.every = call, first, every
        self.is_armed = False
        self.failures = 0
        self.names_at_risk: set[Path] = set()

    def _count(self, call: str) -> None:
        if not self.is_armed or call != self.call or not self.next:
            return
        self.next -= 1
        if not self.next:
            self.next = self.every
            self.failures += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def open(self, path: Path) -> int:
        self._count("open")
        if not path.exists():
            self.names_at_risk.add(path)
        return super().open(path)

    def write_some(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._count("write_some")
        return super().write_some(fd, data, offset)

    def resize(self, fd: int, length: int) -> None:
        self._count("resize")
        super().resize(fd, length)

    def sync(self, fd: int) -> None:
        self._count("sync")
        super().sync(fd)

    def sync_directory(self, path: Path) -> None:
        self._count("sync_directory")
        super().sync_directory(path)
        self.names_at_risk.clear()

    def close(self, fd: int) -> None:
        # As on Linux, the descriptor is closed even if the call fails.
        super().close(fd)
        self._count("close")


def attempt(call: Callable[[], object]) -> None:
    for _ in range(MOST_ATTEMPTS):
        try:
            call()
        except OSError:
            continue
        return
    raise AssertionError("every attempt failed")


def runs() -> list[bytes]:
    """Return the frames of the payloads as runs of several messages, each within one term."""
    whole: list[bytes] = []
    for position, frames in Stream(term_length=TERM).runs(PAYLOADS):
        is_first = position % TERM == 0 or len(whole[-1]) > 20_000
        if is_first:
            whole.append(frames)
        else:
            whole[-1] += frames
    return whole


def record_with(directory: Path, disk: FailingDisk, *, durable: bool) -> None:
    # A durable recorder flushes for each run, so it gets fewer of them.
    with Recorder(directory, segment_length=2 * TERM, durable=durable, disk=disk) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        disk.names_at_risk.clear()
        disk.is_armed = True
        for number, run in enumerate(runs()):
            attempt(lambda run=run, number=number: writer.write(memoryview(run), number * 50_000_000))
            if durable:
                assert not disk.names_at_risk, "a write has returned, and a power failure could lose its segment's name"
        attempt(lambda: recorder.stop(writer))
        disk.is_armed = False


def assert_recorded_once(directory: Path) -> None:
    with open_recording(directory, 0) as reader:
        end = reader.end_position()
        assert [payload for _, payload in messages(reader, 0, end)] == PAYLOADS
        assert list(find_problems(reader, 0, end)) == []
        assert reader.count_before(end).messages == len(PAYLOADS)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_after_one_failed_call_every_message_is_recorded_once(tmp_path: Path, call: str, durable: bool) -> None:
    failed = 0
    for first in (1, 2, 3, 4, 5, 7, 11, 17, 26, 41):
        disk = FailingDisk(call, first)
        record_with(tmp_path / str(first), disk, durable=durable)
        assert_recorded_once(tmp_path / str(first))
        failed += disk.failures
    assert failed or (call, durable) in {("sync", False), ("sync_directory", False)}


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_although_calls_fail_again_and_again_every_message_is_recorded_once(
    tmp_path: Path, call: str, durable: bool
) -> None:
    for every in (3, 4, 7):
        record_with(tmp_path / str(every), FailingDisk(call, every, every), durable=durable)
        assert_recorded_once(tmp_path / str(every))
