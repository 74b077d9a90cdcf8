"""Sparse logs are promised the room that they have not taken yet: what exists can be written to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainstem._core import layout
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.counters import CountersManager
from mainstem.aeron.driver.conductor.raw_log_factory import RawLogFactory
from mainstem.aeron.files import MemoryFiles
from mainstem.aeron.logbuffer import LogParameters, LogType
from mainstem.aeron.system_counter import SystemCounters
from mainstem.errors import StorageSpaceError

if TYPE_CHECKING:
    from collections.abc import Callable

TERM = 1 << 16
LOG = 3 * TERM + layout.LOG_METADATA_LENGTH


class SparseFiles(MemoryFiles):
    """A file system of ``space`` bytes, whose sparse files take space when a test says so."""

    def __init__(self, space: int) -> None:
        super().__init__()
        self.space = space
        self.taken: dict[str, int] = {}

    def create(self, path: str, length: int, *, sparse_length: int = 0, prefault: bool = True) -> AtomicBuffer:
        del prefault
        self.taken[path] = length - sparse_length
        return AtomicBuffer(bytearray(length))

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


def test_a_new_log_may_not_take_what_sparse_logs_have_not_written_yet(
    make: Callable[..., tuple[RawLogFactory, SparseFiles]],
) -> None:
    logs, files = make(2 * LOG + 100)
    logs.create_publication(log(1))
    logs.create_image(log(2))
    assert files.free_space("/d") > LOG
    with pytest.raises(StorageSpaceError, match="100 bytes left") as caught:
        logs.create_publication(log(3))
    assert (caught.value.needed, caught.value.available) == (LOG, 100)


def test_written_and_deleted_logs_are_promised_nothing(
    make: Callable[..., tuple[RawLogFactory, SparseFiles]],
) -> None:
    logs, files = make(2 * LOG + 100)
    first, path = logs.create_publication(log(1))
    files.taken[path] = LOG
    logs.create_publication(log(2))
    logs.delete(first, path)
    with pytest.raises(StorageSpaceError):
        logs.create_publication(log(3))
    assert logs.free_some(1) == 1
    logs.create_publication(log(3, sparse=False))


def test_a_sparse_log_whose_name_is_gone_keeps_its_promise(
    make: Callable[..., tuple[RawLogFactory, SparseFiles]],
) -> None:
    logs, files = make(2 * LOG - layout.LOG_METADATA_LENGTH - 100)
    _, path = logs.create_publication(log(1))
    files.delete(path)
    with pytest.raises(StorageSpaceError):
        logs.create_publication(log(2))


def test_without_storage_checks_nothing_is_promised(make: Callable[..., tuple[RawLogFactory, SparseFiles]]) -> None:
    logs, _ = make(LOG, check_storage=False)
    for number in range(4):
        logs.create_publication(log(number))
