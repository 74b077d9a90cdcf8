"""One compiled duty cycle for all sockets and images of a receiver agent (docs/protocols/aeron.md, 15)."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *
    from mainstem._core.system_counter import *

from mainstem._core.driver.events import EventBuffer
from mainstem._core.driver.loop import Cycle
from mainstem._core.driver.receive_path import ReceiveEndpointCore, ReceivePath
from mainstem._core.driver.table import PathTable
from mainstem._core.memory.buffer import AtomicBuffer

# Status messages per cycle, after which those due only by time wait for the next cycle; like ``MAX_HEARTBEATS`` in the sender.
MAX_REMINDERS = cython.declare(cython.longlong, 64)


@cython.cclass
class ReceiverCycle(Cycle):
    """All sockets and images of one receiver agent."""

    events: readonly[EventBuffer]
    counters: AtomicBuffer
    cells: cython.p_uchar
    first: cython.int
    path_table: PathTable
    endpoint_table: PathTable

    def __init__(self, counters: AtomicBuffer) -> None:
        Cycle.__init__(self)
        self.counters = counters
        self.cells = counters.base
        self.first = 0
        self.events = EventBuffer()
        self.path_table = PathTable()
        self.endpoint_table = PathTable()

    def add_endpoint(self, endpoint: ReceiveEndpointCore) -> None:
        endpoint.events = self.events
        self.endpoint_table.put(endpoint.key, 0, endpoint)

    def remove_endpoint(self, endpoint: ReceiveEndpointCore) -> None:
        self.endpoint_table.remove(endpoint.key, 0)

    def add_path(self, path: ReceivePath, endpoint: ReceiveEndpointCore) -> None:
        path.attach(endpoint, self.events)
        endpoint.paths.put(path.session_id, path.stream_id, path)
        self.path_table.put(path.key, 0, path)

    def remove_from_dispatch(self, path: ReceivePath, endpoint: ReceiveEndpointCore) -> None:
        """Stop passing datagrams to the image; it continues to send status messages."""
        endpoint.paths.remove(path.session_id, path.stream_id)

    def remove_path(self, path: ReceivePath) -> None:
        self.path_table.remove(path.key, 0)

    def next_due_ns(self) -> cython.longlong:
        i: cython.int
        result: cython.longlong = self.next_python_ns
        for i in range(self.path_table.count):
            result = min(result, cython.cast(ReceivePath, self.path_table.entries[i]).next_due_ns())
        return result

    def cycle(self, now_ns: cython.longlong) -> cython.int:
        i: cython.int
        which: cython.int
        n: cython.int = self.path_table.count
        work: cython.int = 0
        nearest: cython.longlong = self.timer_ns
        sent: cython.longlong = counter_value(self.cells, SYSTEM_STATUS_MESSAGES_SENT)
        max_sent: cython.longlong = sent + MAX_REMINDERS
        for i in range(self.endpoint_table.count):
            work += cython.cast(ReceiveEndpointCore, self.endpoint_table.entries[i]).poll(now_ns)
        self.first += 1
        if self.first >= n:
            self.first = 0
        for i in range(n):
            which = (self.first + i) % n
            work += cython.cast(ReceivePath, self.path_table.entries[which]).work(now_ns, sent < max_sent)
            sent = counter_value(self.cells, SYSTEM_STATUS_MESSAGES_SENT)
            if cython.cast(ReceivePath, self.path_table.entries[which]).next_python_ns < nearest:
                nearest = cython.cast(ReceivePath, self.path_table.entries[which]).next_python_ns
        self.next_python_ns = nearest
        self.attention = self.events.count
        return work
