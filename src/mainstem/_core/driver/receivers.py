"""The receivers of one publication: which are alive, and up to which position each allows sending.

See docs/protocols/aeron.md, 14.3 and 17.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.memory.plain import readonly

    # Anyone can send status messages with invented receiver ids, and each status message searches this table.
    MAX_RECEIVERS = 4096

from mainstem._core.memory.buffer import AtomicBuffer

FIRST_RECEIVERS = 8
COLUMNS = 5


@cython.cclass
class ReceiverTable:
    """The receivers that one publication knows, at most MAX_RECEIVERS. ``SendPath`` keeps one; use its methods.

    ``sources`` holds the source of each receiver's last status message (Transport.source_key), 0 before the first.
    """

    count: readonly[cython.int]
    room: cython.longlong
    memory: AtomicBuffer
    ids: cython.p_longlong
    heard_ns: cython.p_longlong
    edges: cython.p_longlong
    counts: cython.p_longlong
    sources: cython.p_longlong

    def __init__(self) -> None:
        self.count = 0
        self._resize(FIRST_RECEIVERS)

    def _resize(self, room: cython.longlong) -> None:
        i: cython.int
        rows: list = [
            (self.ids[i], self.heard_ns[i], self.edges[i], self.counts[i], self.sources[i]) for i in range(self.count)
        ]
        memory: AtomicBuffer = AtomicBuffer(bytearray(8 * COLUMNS * room))
        if cython.compiled:
            self.ids = cython.cast(cython.p_longlong, memory.base)
            self.heard_ns = cython.cast(cython.p_longlong, memory.base + 8 * room)
            self.edges = cython.cast(cython.p_longlong, memory.base + 16 * room)
            self.counts = cython.cast(cython.p_longlong, memory.base + 24 * room)
            self.sources = cython.cast(cython.p_longlong, memory.base + 32 * room)
        else:
            self.ids, self.heard_ns, self.edges, self.counts, self.sources = ([0] * room for _ in range(COLUMNS))
        self.memory = memory
        self.room = room
        for i in range(self.count):
            self.ids[i], self.heard_ns[i], self.edges[i], self.counts[i], self.sources[i] = rows[i]

    def find(self, receiver_id: cython.longlong) -> cython.int:
        i: cython.int
        for i in range(self.count):
            if self.ids[i] == receiver_id:
                return i
        return -1

    def knows_source(self, source: cython.longlong) -> cython.bint:
        i: cython.int
        for i in range(self.count):
            if self.sources[i] == source:
                return True
        return False

    def refresh(
        self, row: cython.int, edge: cython.longlong, source: cython.longlong, now_ns: cython.longlong
    ) -> cython.void:
        self.heard_ns[row] = now_ns
        self.sources[row] = source
        if self.counts[row]:
            self.edges[row] = edge

    def lowest_edge(self, otherwise: cython.longlong) -> cython.longlong:
        i: cython.int
        any_counts: cython.bint = False
        result: cython.longlong = otherwise
        for i in range(self.count):
            if self.counts[i] and (not any_counts or self.edges[i] < result):
                any_counts = True
                result = self.edges[i]
        return result

    def put(self, receiver_id: cython.longlong, edge: cython.longlong, counts: cython.bint) -> int:
        row: cython.int = self.find(receiver_id)
        if row < 0:
            if self.count == MAX_RECEIVERS:
                return -1
            if self.count == self.room:
                self._resize(2 * self.room)
            row = self.count
            self.count = row + 1
            self.ids[row] = receiver_id
            self.sources[row] = 0
        self.counts[row] = counts
        self.edges[row] = edge
        return row

    def remove(self, receiver_id: cython.longlong) -> bool:
        row: cython.int = self.find(receiver_id)
        last: cython.int = self.count - 1
        if row < 0:
            return False
        self.ids[row] = self.ids[last]
        self.heard_ns[row] = self.heard_ns[last]
        self.edges[row] = self.edges[last]
        self.counts[row] = self.counts[last]
        self.sources[row] = self.sources[last]
        self.count = last
        return True

    def discount(self, receiver_id: cython.longlong) -> bool:
        row: cython.int = self.find(receiver_id)
        if row >= 0:
            self.counts[row] = False
        return row >= 0

    def rows(self) -> list[tuple[int, int, int, bool]]:
        return [(self.ids[i], self.edges[i], self.heard_ns[i], bool(self.counts[i])) for i in range(self.count)]
