"""``memcpy`` only: one process copies batches into a ring in shared memory, another copies them out. This is IPC's upper limit.

The ring is as large as the three terms of a log, and the writer can be no further ahead than a publication.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from common import Options, ready, report, run, send_for

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 1_000  # messages per copy
TERM = 64 << 20
RING = 3 * TERM
WINDOW = TERM // 2
HEADER = 4096
WRITTEN, READ, ENDED = 0, 128, 256  # offsets of the numbers, each in its own cache line


@contextmanager
def shared(options: Options) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield the numbers, and the ring as whole batches."""
    directory = "/dev/shm" if os.path.isdir("/dev/shm") else "/tmp"
    path = f"{directory}/mainstem-bench-{options.port}.ring"
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        os.truncate(file.fileno(), HEADER + RING)
        mapped = mmap.mmap(file.fileno(), HEADER + RING)
    try:
        whole = memoryview(mapped)
        yield whole[:HEADER], whole[HEADER : HEADER + RING // (BATCH * options.size) * BATCH * options.size]
    finally:
        if os.path.exists(path):
            os.unlink(path)


def get(numbers: memoryview, offset: int) -> int:
    return int(struct.unpack_from("q", numbers, offset)[0])


def put(numbers: memoryview, offset: int, value: int) -> None:
    struct.pack_into("q", numbers, offset, value)


def sub(options: Options) -> None:
    with shared(options) as (numbers, ring):
        ready()
        taken = bytearray(BATCH * options.size)
        length, size, position, first = len(taken), len(ring), 0, 0
        while not (ended := get(numbers, ENDED)) or position < ended:
            if get(numbers, WRITTEN) == position:
                os.sched_yield()
                continue
            at = position % size
            taken[:] = ring[at : at + length]
            position += length
            put(numbers, READ, position)
            first = first or time.monotonic_ns()
        last = time.monotonic_ns()
        report(rate=(position - length) / options.size * 1e9 / max(1, last - first))


def pub(options: Options) -> None:
    with shared(options) as (numbers, ring):
        batch = bytes(BATCH * options.size)
        length, size, position = len(batch), len(ring), 0

        def send() -> None:
            nonlocal position
            while position + length - get(numbers, READ) > WINDOW:
                os.sched_yield()
            at = position % size
            ring[at : at + length] = batch
            position += length
            put(numbers, WRITTEN, position)

        send_for(options.seconds, send)
        put(numbers, ENDED, position)
        report(sent=position // options.size)


if __name__ == "__main__":
    run({"sub": sub, "pub": pub})
