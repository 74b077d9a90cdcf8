"""A program that writes to shared memory and is traced by its parent, which stops it after every instruction.

Usage: ``python stopped_writer.py FILE CASE``. The program asks to be traced, stops itself before each write, and signals its end
with SIGUSR1.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from mainstem._core.log.append import BufferClaim, ConcurrentAppender, ExclusiveAppender
from mainstem._core.memory.broadcast import BroadcastTransmitter
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.ring_buffer import ManyToOneRingBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = [bytes([65 + n]) * length for n, length in enumerate((5, 40, 64, 17, 0, 63))]
LONG = b"".join(bytes([97 + n]) * 32 for n in range(5)) + b"!"


def appender(memory: AtomicBuffer, *, exclusive: bool = False) -> Any:
    limits = AtomicBuffer(bytearray(128))
    limits.put_i64(0, 1 << 60)
    return (ExclusiveAppender if exclusive else ConcurrentAppender)(memory, limits, 0)


def offers(memory: AtomicBuffer, *, exclusive: bool = False) -> list[Callable[[], Any]]:
    publication = appender(memory, exclusive=exclusive)
    return [lambda m=m: publication.offer(m) for m in MESSAGES[:3]]  # type: ignore[misc]


def long_offer(memory: AtomicBuffer) -> list[Callable[[], Any]]:
    publication = appender(memory)
    return [lambda: publication.offer(LONG)]


def offers_over_the_end(memory: AtomicBuffer) -> list[Callable[[], Any]]:
    publication = appender(memory)
    return [lambda: publication.offer(MESSAGES[1])] * 2


def claims(memory: AtomicBuffer) -> list[Callable[[], Any]]:
    publication, claim = appender(memory), BufferClaim()

    def fill() -> None:
        claim.view[:] = MESSAGES[1]

    steps: list[Callable[[], Any]] = []
    for finish in (claim.commit, claim.abort, claim.commit):
        steps += [lambda: publication.try_claim(40, claim), fill, finish]
    return steps


def batch(memory: AtomicBuffer) -> list[Callable[[], Any]]:
    publication = appender(memory)
    return [lambda: publication.offer_many(MESSAGES)]


def ring(memory: AtomicBuffer) -> list[Callable[[], Any]]:
    producer = ManyToOneRingBuffer(memory)
    return [lambda n=n: producer.write(n + 1, MESSAGES[n]) for n in range(6)]  # type: ignore[misc]


def broadcast(memory: AtomicBuffer) -> list[Callable[[], Any]]:
    transmitter = BroadcastTransmitter(memory)
    return [lambda n=n: transmitter.transmit(n + 1, MESSAGES[n]) for n in range(6)]  # type: ignore[misc]


CASES: dict[str, Callable[[AtomicBuffer], list[Callable[[], Any]]]] = {
    "offers": offers,
    "offers of an exclusive publication": lambda memory: offers(memory, exclusive=True),
    "a message of several frames": long_offer,
    "offers over the end of a term": offers_over_the_end,
    "claims": claims,
    "a batch": batch,
    "the ring buffer": ring,
    "the broadcast buffer": broadcast,
}


def main() -> None:
    path, case = sys.argv[1:]
    with open(path, "r+b") as file:
        steps = CASES[case](AtomicBuffer(mmap.mmap(file.fileno(), 0)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes, libc.ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
    if libc.ptrace(0, 0, 0, 0) != 0:  # PTRACE_TRACEME
        sys.exit(77)
    pid, kill, stop = os.getpid(), os.kill, signal.SIGSTOP
    for step in steps:
        kill(pid, stop)
        step()
    kill(pid, signal.SIGUSR1)


if __name__ == "__main__":
    main()
