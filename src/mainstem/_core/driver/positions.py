"""The position counters of a stream's subscribers or spies: read every duty cycle, rarely changed.

Theory of operation. The set is a table of offsets into the counters' values. One thread adds and removes, with the GIL;
compiled cycles in other threads read without the GIL or a lock. Readers want the lowest or the highest position. If a
change happens at the same time, they may miss it, as long as the result is safe.

Who writes what: the changing thread writes ``slots``, ``slot_base``, ``room`` and ``count``. Subscribers write the values.

Invariants and memory ordering:

- The first ``count`` slots hold valid offsets at every moment. An added slot is written before the count rises; a removed
  one is overwritten by the last before the count falls. A release fence separates the two stores. Readers load the count
  before the slots, with an acquire fence in between.
- So a reader sees the counters of the set and, at worst, one that was just removed, or the last one twice. A removed
  counter holds the stream's limit back for one cycle. That is safe: the bytes before a position that still counts are never
  cleaned.
- A table that was outgrown stays in ``outgrown`` for the lifetime of the set, because a reader may have loaded its address.
- A counter must hold its position before it is added: the driver sets it to the position at which the subscriber joins.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *

from mainstem._core.memory.buffer import AtomicBuffer

# Size of the first table, which doubles when full. Few streams have more than a handful of subscribers.
FIRST_ROOM = 8
# Counters files hold at most 65,536 counters by default, so a larger table is never legitimate.
MAX_POSITIONS = 65_536


@cython.cclass
class PositionSet:
    """Ids of counters whose values are positions: a stream's subscribers or spies.

    One thread adds and removes; the compiled cycles of other threads may read at the same time. A counter must hold its
    position before it is added. Raises IndexError for an id outside ``counters`` (the counters' values buffer) and ValueError
    for a value that is not a position. Other processes may write the values, so a caller of ``lowest`` or ``highest`` must
    bound the result by what has been written.
    """

    counters: AtomicBuffer
    base: cython.p_uchar
    slots: AtomicBuffer
    slot_base: cython.p_uchar
    room: cython.int
    count: cython.volatile[cython.int]
    outgrown: list

    def __init__(self, counters: AtomicBuffer) -> None:
        self.counters = counters
        self.base = counters.base
        self.outgrown = []
        self.room = FIRST_ROOM
        self.slots = AtomicBuffer(bytearray(8 * FIRST_ROOM))
        self.slot_base = self.slots.base
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def add(self, counter_id: cython.longlong) -> None:
        if counter_id < 0 or counter_id >= self.counters.capacity // COUNTER_VALUE_LENGTH:
            raise IndexError(f"counter {counter_id} lies outside a buffer of {self.counters.capacity} bytes")
        position: cython.longlong = ld64(self.base, counter_id * COUNTER_VALUE_LENGTH)
        if position < 0:
            raise ValueError(f"counter {counter_id} holds no position: {position}")
        if self.count >= MAX_POSITIONS:
            raise OverflowError(f"a stream has {MAX_POSITIONS} positions at most")
        if self.count == self.room:
            # Readers may be using the old table, so copy it instead of resizing it.
            self.outgrown.append(self.slots)
            bigger = AtomicBuffer(bytearray(16 * self.room))
            bigger.put_bytes(0, self.slots.get_bytes(0, 8 * self.room))
            self.slots = bigger
            self.slot_base = bigger.base
            self.room = 2 * self.room
        put64(self.slot_base, 8 * self.count, counter_id * COUNTER_VALUE_LENGTH)
        fence_release()
        self.count = self.count + 1

    def remove(self, counter_id: cython.longlong) -> bool:
        i: cython.int
        last: cython.int = self.count - 1
        for i in range(last + 1):
            if get64(self.slot_base, 8 * i) == counter_id * COUNTER_VALUE_LENGTH:
                # Until the count falls, the last counter is there twice, which does not affect a minimum or maximum.
                put64(self.slot_base, 8 * i, get64(self.slot_base, 8 * last))
                fence_release()
                self.count = last
                return True
        return False

    def ids(self) -> list[int]:
        return [get64(self.slot_base, 8 * i) // COUNTER_VALUE_LENGTH for i in range(self.count)]

    def lowest(self, otherwise: cython.longlong) -> cython.longlong:
        i: cython.int
        n: cython.int = self.count
        value: cython.longlong
        result: cython.longlong = otherwise
        fence_acquire()
        for i in range(n):
            value = ld64(self.base, get64(self.slot_base, 8 * i))
            if i == 0 or value < result:
                result = value
        return result

    def highest(self, otherwise: cython.longlong) -> cython.longlong:
        i: cython.int
        n: cython.int = self.count
        value: cython.longlong
        result: cython.longlong = otherwise
        fence_acquire()
        for i in range(n):
            value = ld64(self.base, get64(self.slot_base, 8 * i))
            if i == 0 or value > result:
                result = value
        return result

    def minimum(self) -> int:
        return self.lowest(-1)

    def maximum(self) -> int:
        return self.highest(-1)
