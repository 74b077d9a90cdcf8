"""IPC publications: limit, cleaning, positions."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import pytest
from tests.unit._core.network import (
    INITIAL_TERM_ID,
    PUBLISHER_LIMIT,
    PUBLISHER_POSITION,
    SPY,
    SUBSCRIBER,
    TERM_LENGTH,
    Modules,
    Writer,
    modules,
    new_log,
)

from mainstem._core import layout
from mainstem.aeron.files import MappedFiles

WINDOW = TERM_LENGTH // 2
MADV_POPULATE_WRITE = 23  # missing from Python's mmap module


class Ipc:
    """One publication in memory."""

    def __init__(self, core: Modules) -> None:
        self.counters = core.AtomicBuffer(bytearray(128 * 64))
        self.log = new_log(core)
        self.path = core.ipc_path.IpcPath(
            self.log, self.counters, INITIAL_TERM_ID, TERM_LENGTH, WINDOW, PUBLISHER_LIMIT, PUBLISHER_POSITION
        )
        self.cycle = core.ipc_path.IpcCycle()
        self.cycle.add(self.path)
        self.writer = Writer(self.log)

    def value(self, counter_id: int) -> int:
        return int(self.counters.get_i64(128 * counter_id))

    def consume(self, position: int, counter_id: int = SUBSCRIBER) -> None:
        self.counters.put_i64(128 * counter_id, position)


@pytest.fixture(params=[True, False], ids=["compiled", "uncompiled"])
def ipc(request: pytest.FixtureRequest) -> Ipc:
    return Ipc(modules(compiled=request.param))


def test_publishing_requires_a_subscriber(ipc: Ipc) -> None:
    ipc.cycle.do_work(0)
    assert ipc.value(PUBLISHER_LIMIT) == 0
    ipc.path.subscribers.add(SUBSCRIBER)
    ipc.cycle.do_work(0)
    assert ipc.value(PUBLISHER_LIMIT) == WINDOW


def test_the_limit_follows_the_slowest_subscriber_in_steps_of_an_eighth_of_the_window(ipc: Ipc) -> None:
    ipc.path.subscribers.add(SUBSCRIBER)
    ipc.path.subscribers.add(SPY)
    ipc.cycle.do_work(0)
    ipc.consume(WINDOW // 2)
    ipc.consume(WINDOW // 8, SPY)
    ipc.cycle.do_work(0)
    assert ipc.value(PUBLISHER_LIMIT) == WINDOW
    ipc.consume(WINDOW // 8 + 32, SPY)
    ipc.cycle.do_work(0)
    assert ipc.value(PUBLISHER_LIMIT) == WINDOW + WINDOW // 8 + 32


def test_the_limit_stays_when_the_last_subscriber_leaves(ipc: Ipc) -> None:
    ipc.path.subscribers.add(SUBSCRIBER)
    ipc.consume(4096)
    ipc.cycle.do_work(0)
    assert ipc.path.subscribers.remove(SUBSCRIBER)
    assert not ipc.path.subscribers.remove(SUBSCRIBER)
    ipc.cycle.do_work(0)
    assert ipc.value(PUBLISHER_LIMIT) == ipc.path.consumer_position == 4096


def test_data_read_a_term_ago_is_zeroed(ipc: Ipc) -> None:
    ipc.path.subscribers.add(SUBSCRIBER)
    while ipc.writer.position < 4 * TERM_LENGTH:
        ipc.cycle.do_work(0)
        ipc.writer.limit = ipc.value(PUBLISHER_LIMIT)
        while ipc.writer.append(bytes(1000)):
            assert (
                ipc.log.get_i64(
                    (ipc.writer.position // TERM_LENGTH % 3) * TERM_LENGTH + ipc.writer.position % TERM_LENGTH
                )
                == 0
            )
        ipc.consume(ipc.writer.position)
    assert ipc.path.clean_position >= 2 * TERM_LENGTH


def test_positions_and_connection_are_shown(ipc: Ipc) -> None:
    ipc.writer.append(bytes(100))
    ipc.cycle.do_work(0)
    assert ipc.value(PUBLISHER_POSITION) == ipc.path.producer_position() == 160
    ipc.path.subscribers.add(SUBSCRIBER)
    assert ipc.value(PUBLISHER_LIMIT) == 0
    ipc.path.connected = True
    assert ipc.value(PUBLISHER_LIMIT) > 0, "who sees that it is connected can write"
    assert ipc.log.get_i32(3 * TERM_LENGTH + layout.LOG_IS_CONNECTED_OFFSET) == 1
    ipc.path.connected = False
    assert ipc.log.get_i32(3 * TERM_LENGTH + layout.LOG_IS_CONNECTED_OFFSET) == 0


def test_a_draining_publication_accepts_no_more_offers(ipc: Ipc) -> None:
    ipc.path.subscribers.add(SUBSCRIBER)
    ipc.path.draining = True
    ipc.cycle.do_work(0)
    assert ipc.value(PUBLISHER_LIMIT) == 0


def test_a_position_set_grows_and_answers_its_extremes() -> None:
    for compiled in (True, False):
        core = modules(compiled=compiled)
        counters = core.AtomicBuffer(bytearray(128 * 64))
        positions = core.positions.PositionSet(counters)
        assert (positions.minimum(), positions.maximum()) == (-1, -1)
        for counter_id in range(40):
            counters.put_i64(128 * counter_id, 1000 + counter_id)
            positions.add(counter_id)
        assert (positions.minimum(), positions.maximum(), len(positions)) == (1000, 1039, 40)
        positions.remove(0)
        positions.remove(39)
        assert (positions.minimum(), positions.maximum()) == (1001, 1038)
        with pytest.raises(IndexError):
            positions.add(64)


def populates_pages() -> bool:
    """Return whether pages can be allocated before they are touched. An emulator may accept the call and do nothing."""
    with TemporaryFile(dir="/dev/shm") as file:
        file.truncate(mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as memory, suppress(OSError):
            memory.madvise(MADV_POPULATE_WRITE)
        return os.fstat(file.fileno()).st_blocks > 0


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no file system in memory")
def test_pages_are_made_ahead_of_a_producer_and_no_more_than_it_has_filled() -> None:
    if not populates_pages():
        pytest.skip("MADV_POPULATE_WRITE does nothing here")
    term_length, step = 16 * 1024 * 1024, 256 * 1024
    core, files = modules(compiled=True), MappedFiles()
    with TemporaryDirectory(dir="/dev/shm") as directory:
        path = Path(directory) / "log"
        log = files.create(str(path), 3 * term_length + layout.LOG_METADATA_LENGTH, sparse_length=3 * term_length)
        counters = core.AtomicBuffer(bytearray(128 * 64))
        log.put_i64(3 * term_length, INITIAL_TERM_ID << 32)
        publication = core.ipc_path.IpcPath(
            log, counters, INITIAL_TERM_ID, term_length, term_length // 2, PUBLISHER_LIMIT, PUBLISHER_POSITION
        )

        def made(produced: int) -> int:
            log.put_i64(3 * term_length, (INITIAL_TERM_ID << 32) | produced)
            for _ in range(200):
                publication.do_work()
            return path.stat().st_blocks * 512 - page

        page = path.stat().st_blocks * 512
        assert made(0) == 0
        assert made(32) == step
        assert made(step) == 2 * step
        assert made(2 * 1024 * 1024) == 4 * 1024 * 1024
        assert made(2 * 1024 * 1024 + 2 * step) == 4 * 1024 * 1024, "less than half of what was ahead is used up"
        assert made(3 * 1024 * 1024) == 6 * 1024 * 1024
        assert made(term_length) == 2 * term_length
        files.unmap(log)
