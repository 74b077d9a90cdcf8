"""Mappings of files that are truncated: a guarded mapping reads zeros and sets a flag; without a guard the process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from mmap import MAP_PRIVATE, PAGESIZE, PROT_READ, PROT_WRITE
from typing import TYPE_CHECKING

import pytest

from mainstem._internal.guarded_map import GuardedMap

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = 8
LENGTH = PAGES * PAGESIZE


@pytest.fixture
def file(tmp_path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, b"x" * LENGTH, 0)
    yield descriptor
    os.close(descriptor)


def test_a_truncated_file_reads_as_zeros_past_its_end(file: int):
    memory = GuardedMap(file, LENGTH)
    assert memory[:] == b"x" * LENGTH
    os.ftruncate(file, 3 * PAGESIZE)
    assert not memory.was_cut
    assert memory[5 * PAGESIZE] == 0
    assert memory.was_cut
    assert memory[:] == b"x" * (3 * PAGESIZE) + bytes(LENGTH - 3 * PAGESIZE)
    memory.close()
    assert memory.was_cut


def test_a_read_in_one_call_continues_after_the_fault(file: int):
    memory = GuardedMap(file, LENGTH)
    os.ftruncate(file, PAGESIZE + 1)
    assert memory.find(b"y") == -1
    assert memory.was_cut


def test_a_private_mapping_is_guarded_too(file: int):
    memory = GuardedMap(file, LENGTH, flags=MAP_PRIVATE, prot=PROT_READ | PROT_WRITE)
    os.ftruncate(file, 0)
    memory[LENGTH - 1] = 1
    assert memory.was_cut
    assert memory[LENGTH - 1] == 1


def test_each_of_many_mappings_has_its_own_flag(file: int):
    memories = [GuardedMap(file, LENGTH) for _ in range(1500)]
    os.ftruncate(file, PAGESIZE)
    for memory in memories[::2]:
        assert memory[-1] == 0
    assert [memory.was_cut for memory in memories] == [True, False] * 750


def test_threads_that_fault_at_once_all_continue(file: int):
    memory = GuardedMap(file, LENGTH)
    os.ftruncate(file, 0)
    barrier = threading.Barrier(8)
    sums: list[int] = []

    def read() -> None:
        barrier.wait()
        sums.append(sum(memory[page * PAGESIZE] for page in range(PAGES)))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [0] * 8


def test_a_view_keeps_a_mapping_open_and_guarded(file: int):
    memory = GuardedMap(file, LENGTH)
    view = memoryview(memory)
    with pytest.raises(BufferError):
        memory.close()
    os.ftruncate(file, 0)
    assert view[0] == 0
    view.release()
    memory.close()


def test_a_shorter_file_is_refused(file: int):
    with pytest.raises(ValueError, match="mmap"):
        GuardedMap(file, LENGTH + PAGESIZE)


UNGUARDED = """
import faulthandler, mmap, os, sys
{first}
from mainstem._internal.guarded_map import GuardedMap
file = os.open(sys.argv[1], os.O_RDWR)
guarded = GuardedMap(file, {length})
{last}
"""


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("", "other = mmap.mmap(file, 0); os.ftruncate(file, 0); other[0]", ""),
        ("faulthandler.enable()", "other = mmap.mmap(file, 0); os.ftruncate(file, 0); other[0]", "Bus error"),
        ("", "guarded.close(); other = mmap.mmap(file, 0); os.ftruncate(file, 0); other[0]", ""),
        ("", "import signal; os.kill(os.getpid(), signal.SIGBUS); signal.pause()", ""),
    ],
    ids=["another mapping", "with faulthandler", "a guard that was closed", "a signal that was sent"],
)
def test_other_bus_errors_still_end_the_process(file: int, tmp_path, first: str, last: str, said: str):
    program = UNGUARDED.format(first=first, last=last, length=LENGTH)
    command = [sys.executable, "-c", program, str(tmp_path / "file")]
    # AddressSanitizer would report the signal, which is intended here.
    environment = os.environ | {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:handle_sigbus=0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == -signal.SIGBUS
    assert said in done.stderr
