"""Several processes write to one mapped ring buffer at once; nothing is lost or torn, and each producer's order is kept."""

from __future__ import annotations

import mmap
import struct
import subprocess
import sys
import time

from tests.support.waiting import StallTimeout

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.ring_buffer import ManyToOneRingBuffer

CAPACITY = 4096
PRODUCERS = 3
MESSAGES = 20_000

PRODUCER = """
import mmap, os, struct, sys
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.ring_buffer import ManyToOneRingBuffer
path, producer, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path, "r+b") as file:
    ring = ManyToOneRingBuffer(AtomicBuffer(mmap.mmap(file.fileno(), 0)))
for n in range(count):
    correlation = ring.next_correlation_id()
    body = struct.pack("<iqi", producer, correlation, n) + bytes([n & 255]) * (n % 97)
    if n % 5 == 0:
        while (offset := ring.try_claim(2, len(body))) < 0:
            os.sched_yield()
        if n % 10 == 0:
            ring.abort(offset)
            continue
        ring.buffer.put_bytes(offset, body)
        ring.commit(offset)
    else:
        while not ring.write(1, body):
            os.sched_yield()
"""


def test_three_processes_lose_and_tear_nothing(tmp_path):
    path = tmp_path / "ring"
    path.write_bytes(bytes(CAPACITY + 768))
    expected = [n for n in range(MESSAGES) if n % 10]
    seen: list[list[int]] = [[] for _ in range(PRODUCERS)]
    correlations: set[int] = set()

    def take(type_id: int, payload: bytes) -> None:
        producer, correlation, n = struct.unpack_from("<iqi", payload)
        assert type_id == (2 if n % 5 == 0 else 1)
        assert payload[16:] == bytes([n & 255]) * (n % 97)
        assert correlation not in correlations
        correlations.add(correlation)
        seen[producer].append(n)

    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    ring = ManyToOneRingBuffer(AtomicBuffer(mapped))
    arguments = [sys.executable, "-c", PRODUCER, str(path)]
    producers = [subprocess.Popen([*arguments, str(n), str(MESSAGES)]) for n in range(PRODUCERS)]
    stall = StallTimeout("every message of every producer")
    try:
        while True:
            stall.check(len(correlations))
            done = all(producer.poll() is not None for producer in producers)
            if ring.read(take, 64) == 0:
                if done and ring.size == 0:
                    break
                time.sleep(0)
    finally:
        for producer in producers:
            producer.kill()
            producer.wait()
    assert [producer.returncode for producer in producers] == [0] * PRODUCERS
    assert seen == [expected] * PRODUCERS
    assert ring.next_correlation_id() == PRODUCERS * MESSAGES
    ring.buffer.close()
    mapped.close()
