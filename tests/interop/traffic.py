"""The messages that both ends of an interoperability test know: each one can be recomputed from its index.

Standard library only, because the other end may run under another Python.
"""

from __future__ import annotations

import random

SEED = 20_260
TABLE = 4096  # lengths and offsets repeat after this many messages, shifted so that no two rounds are alike
POOL = 1 << 20


class Traffic:
    """``message(i)`` for any i: lengths vary from 0 to ``largest``, and most are small."""

    def __init__(self, largest: int, *, fragment: int = 1376) -> None:
        rng = random.Random(SEED)
        self._pool = rng.randbytes(POOL + largest)
        self._lengths = [self._length(rng, largest, fragment) for _ in range(TABLE)]
        self._lengths[7] = 0
        self._lengths[11] = fragment
        self._lengths[13] = fragment + 1
        self._lengths[17] = largest
        self._offsets = [rng.randrange(POOL) for _ in range(TABLE)]

    @staticmethod
    def _length(rng: random.Random, largest: int, fragment: int) -> int:
        kind = rng.random()
        if kind < 0.9:
            return rng.randrange(0, 300)
        if kind < 0.998:
            return rng.randrange(0, min(largest, 3 * fragment))
        return rng.randrange(0, min(largest, 32 * fragment))

    def message(self, index: int) -> bytes:
        slot = index % TABLE
        offset = (self._offsets[slot] + index // TABLE) % POOL
        return self._pool[offset : offset + self._lengths[slot]]


class Expected:
    """A checker that compares a stream of messages with ``Traffic``, in order, from index 0."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.count = 0
        self.fault = ""

    def begin(self) -> int:
        """Restart at index 0, and return how many messages there were."""
        count, self.count = self.count, 0
        return count

    def take(self, message: bytes) -> None:
        if not self.fault and message != self._traffic.message(self.count):
            self.fault = f"message {self.count} differs ({len(message)} bytes)"
        self.count += 1
