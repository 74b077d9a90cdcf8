"""Run threads on data structures that processes share, under ThreadSanitizer: ``tools/sanitize.py thread`` runs it.

It runs the generated C of ``_core``: the appenders of several publications (single messages and runs of them), the driver's scan,
cleaning and limit after them, the ring buffer's producers together with its consumer, and the table of guarded mappings, which
threads reuse while others look up addresses.

Two structures are left out, because they race by design and are correct through fences, which ThreadSanitizer does not follow: the
broadcast buffer, whose receivers copy first and validate afterward, and the set of subscribers' positions. ``tests/models``
explores both.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem._core import layout
from mainstem._core.log.append import ConcurrentAppender
from mainstem._core.log.batch import MessageList
from mainstem._core.log.term import RunBatch, producer_position
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.ring_buffer import ManyToOneRingBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))
import race_loops as loops  # compiled from race.pyx by the tool

TERM_LENGTH, MTU, INITIAL_TERM_ID = 65536, 1408, -2
LIMIT, STOP = 0, 1
MESSAGES, RECORDS, GUARDS = 4000, 4000, 100_000


def new_log() -> AtomicBuffer:
    meta = layout.PARTITION_COUNT * TERM_LENGTH
    log = AtomicBuffer(bytearray(meta + layout.LOG_METADATA_LENGTH))
    for i, term_id in enumerate((INITIAL_TERM_ID, INITIAL_TERM_ID - 2, INITIAL_TERM_ID - 1)):
        log.put_i64(meta + 8 * i, term_id << 32)
    for offset, value in (
        (layout.LOG_TERM_LENGTH_OFFSET, TERM_LENGTH),
        (layout.LOG_INITIAL_TERM_ID_OFFSET, INITIAL_TERM_ID),
        (layout.LOG_MTU_LENGTH_OFFSET, MTU),
        (layout.LOG_IS_CONNECTED_OFFSET, 1),
    ):
        log.put_i32(meta + offset, value)
    return log


def run(*calls: Callable[[], Any]) -> None:
    """Run each call in its own thread, until all have returned."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def appenders() -> None:
    log = new_log()
    counters = AtomicBuffer(bytearray(8 * layout.COUNTER_VALUE_LENGTH))
    counters.put_i64_release(LIMIT * layout.COUNTER_VALUE_LENGTH, TERM_LENGTH // 2)
    counters.put_i64_release(STOP * layout.COUNTER_VALUE_LENGTH, -1)
    results: list[tuple[int, int]] = []
    batch = MessageList([bytes([3]) * (n * 11 % 700) for n in range(200)])

    def read() -> None:
        results.append(loops.scan(log, counters, LIMIT, STOP, TERM_LENGTH, RunBatch()))

    reader = threading.Thread(target=read)
    reader.start()
    run(
        lambda: loops.publish(ConcurrentAppender(log, counters, LIMIT), MESSAGES, 1),
        lambda: loops.publish(ConcurrentAppender(log, counters, LIMIT), MESSAGES, 2),
        lambda: loops.publish_batches(ConcurrentAppender(log, counters, LIMIT), batch, MESSAGES),
    )
    end = producer_position(log, TERM_LENGTH, INITIAL_TERM_ID)
    counters.put_i64_release(STOP * layout.COUNTER_VALUE_LENGTH, end)
    reader.join()
    [(wrong, frames)] = results
    assert wrong == 0, f"{wrong} bytes of {frames} frames were not those of one publisher"
    print(f"race: appenders: {3 * MESSAGES} messages, {frames} frames, {end // TERM_LENGTH} terms")


def ring_buffer() -> None:
    ring = ManyToOneRingBuffer(AtomicBuffer(bytearray(4096 + layout.RING_TRAILER_LENGTH)))
    counts = {1: 0, 2: 0}

    def take(type_id: int, payload: bytes) -> None:
        assert payload == bytes([type_id]) * len(payload), "a record of two producers"
        counts[type_id] += 1

    def consume() -> None:
        while sum(counts.values()) < 2 * RECORDS:
            ring.read(take)

    run(lambda: loops.command(ring, RECORDS, 1), lambda: loops.command(ring, RECORDS, 2), consume)
    assert counts == {1: RECORDS, 2: RECORDS}
    print(f"race: ring buffer: {2 * RECORDS} records")


def guards() -> None:
    table = AtomicBuffer(bytearray(64))
    flag = loops.guard_own(table)
    wrong: list[int] = []
    run(
        lambda: loops.reuse_place(table, GUARDS),
        lambda: wrong.append(loops.look_up(table, GUARDS)),
        lambda: wrong.append(loops.look_up(table, GUARDS)),
    )
    assert wrong == [0, 0], f"{wrong} of {GUARDS} accesses found another range"
    assert not table.get_i64_acquire(flag), "the flag of another mapping is set"
    print(f"race: guarded mappings: {2 * GUARDS} accesses")


def planted(*, ordered: bool) -> None:
    """Run two threads that count in the same word."""
    memory = AtomicBuffer(bytearray(64))
    run(lambda: loops.race(memory, ordered), lambda: loops.race(memory, ordered))


if __name__ == "__main__":
    if sys.argv[1:] == ["planted"]:
        planted(ordered=False)
    else:
        planted(ordered=True)
        appenders()
        ring_buffer()
        guards()
