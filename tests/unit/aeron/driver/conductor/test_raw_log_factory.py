"""The free space that a new log needs, and the space reserved for existing logs."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import pytest

from mainstem._core import layout
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.counters import CountersManager
from mainstem.aeron.driver.conductor.raw_log_factory import RawLogFactory
from mainstem.aeron.driver.counters import SystemCounters
from mainstem.aeron.files import MemoryFiles
from mainstem.aeron.logbuffer import LogParameters, LogType
from mainstem.errors import StorageSpaceError

if TYPE_CHECKING:
    from collections.abc import Callable

TERM = 1 << 16
LOG = 3 * TERM + layout.LOG_METADATA_LENGTH


class SparseFiles(MemoryFiles):
    """A file system of ``space`` bytes whose sparse files allocate space when a test says so."""

    is_sparse = True

    def __init__(self, space: int) -> None:
        super().__init__()
        self.space = space
        self.taken: dict[str, int] = {}

    def create(self, path: str, length: int, *, sparse_length: int = 0, prefault: bool = True) -> AtomicBuffer:
        del prefault
        self.taken[path] = length - sparse_length
        return AtomicBuffer(mmap.mmap(-1, length))

    def allocate(self, path: str, offset: int, length: int) -> None:
        del offset
        if length > self.free_space(path):
            raise StorageSpaceError("full", needed=length, available=self.free_space(path))
        self.taken[path] += length

    def delete(self, path: str) -> None:
        self.taken.pop(path, None)

    def allocated_length(self, path: str) -> int:
        if path not in self.taken:
            raise FileNotFoundError(path)
        return self.taken[path]

    def free_space(self, path: str) -> int:
        del path
        return self.space - sum(self.taken.values())


@pytest.fixture
def make() -> Callable[..., tuple[RawLogFactory, SparseFiles]]:
    def make(space: int, *, check_storage: bool = True) -> tuple[RawLogFactory, SparseFiles]:
        files = SparseFiles(space)
        manager = CountersManager(AtomicBuffer(bytearray(512 * 256)), AtomicBuffer(bytearray(128 * 256)), 0)
        counters = SystemCounters(manager, now_ms=0)
        return RawLogFactory(
            files, "/d", counters, lambda _kind, _text: None, check_storage=check_storage, low_storage_warning=0
        ), files

    return make


def log(number: int, *, sparse: bool = True) -> LogParameters:
    return LogParameters(
        correlation_id=number,
        session_id=1,
        stream_id=2,
        initial_term_id=3,
        term_length=TERM,
        mtu=1408,
        log_type=LogType.CONCURRENT_PUBLICATION,
        page_size=4096,
        sparse=sparse,
    )


def test_a_log_whose_blocks_cannot_be_taken_ahead_reserves_all_that_it_has_not_written(
    make: Callable[..., tuple[RawLogFactory, SparseFiles]],
) -> None:
    logs, files = make(2 * LOG + 100)
    _, path = logs.create_publication(log(1))
    logs.create_image(log(2))
    free = files.free_space("/d")
    assert free > LOG
    with pytest.raises(StorageSpaceError, match=f"{free} bytes are free, {free - 100} of them are reserved") as caught:
        logs.create_publication(log(3))
    assert (caught.value.needed, caught.value.available) == (LOG, 100)
    files.delete(path)  # another process deletes it; the log's pages are written as before
    with pytest.raises(StorageSpaceError):
        logs.create_publication(log(3))


def test_a_log_that_has_begun_reserves_nothing_more(make: Callable[..., tuple[RawLogFactory, SparseFiles]]) -> None:
    logs, files = make(3 * LOG)
    for number in range(5):
        buffers, path = logs.create_publication(log(number))
        allocator = logs.allocate(buffers, path, 0, margin=4096, ahead=TERM // 2)
        assert allocator is not None
        if allocator.is_complete:
            pytest.skip("the kernel cannot take blocks ahead")
        assert TERM // 2 + 4096 <= files.taken[path] - layout.LOG_METADATA_LENGTH <= TERM // 2 + 16384
    files.space = LOG + sum(files.taken.values())
    logs.create_image(log(5))
    with pytest.raises(StorageSpaceError):
        logs.create_image(log(6))


def test_a_log_without_initial_space_is_refused(make: Callable[..., tuple[RawLogFactory, SparseFiles]]) -> None:
    logs, files = make(3 * LOG)
    buffers, path = logs.create_publication(log(1))
    files.space = sum(files.taken.values()) + TERM // 4
    with pytest.raises(StorageSpaceError):
        logs.allocate(buffers, path, 0, margin=TERM, ahead=TERM)


def test_a_log_takes_a_share_of_little_free_space_before_it_begins(
    make: Callable[..., tuple[RawLogFactory, SparseFiles]],
) -> None:
    logs, files = make(1 << 30)
    buffers, path = logs.create_publication(log(1))
    files.space = 1 << 20
    ahead = 1 << 20
    allocator = logs.allocate(buffers, path, 0, margin=4096, ahead=ahead)
    assert allocator is not None
    assert 128 << 10 <= allocator.ahead <= ahead // 4


def test_deleted_logs_reserve_nothing(make: Callable[..., tuple[RawLogFactory, SparseFiles]]) -> None:
    logs, files = make(2 * LOG + 100)
    first, path = logs.create_publication(log(1))
    files.taken[path] = LOG
    logs.create_publication(log(2))
    logs.delete(first, path)
    with pytest.raises(StorageSpaceError):
        logs.create_publication(log(3))
    assert logs.free_some(1) == 1
    logs.create_publication(log(3, sparse=False))


def test_without_storage_checks_nothing_is_reserved(make: Callable[..., tuple[RawLogFactory, SparseFiles]]) -> None:
    logs, _ = make(LOG, check_storage=False)
    for number in range(4):
        logs.create_publication(log(number))
