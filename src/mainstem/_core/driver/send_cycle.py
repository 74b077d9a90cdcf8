"""One compiled duty cycle for all publications of a sender agent (docs/protocols/aeron.md, 14.1 and 14.2)."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *
    from mainstem._core.system_counter import *

from mainstem._core.driver.events import EventBuffer
from mainstem._core.driver.loop import Cycle
from mainstem._core.driver.send_path import SendEndpointCore, SendPath
from mainstem._core.driver.table import PathTable
from mainstem._core.memory.buffer import AtomicBuffer

# Heartbeats sent per cycle. A thousand idle streams that all send one at once overflow a socket's buffer of 128 KiB. If one
# thread both sends and receives, it reads none of them in between, so every time it would lose the same streams' heartbeats.
MAX_HEARTBEATS = cython.declare(cython.longlong, 64)


@cython.cclass
class SenderCycle(Cycle):
    """All publications and control sockets of one sender agent (docs/protocols/aeron.md, 14.1 and 14.2)."""

    events: readonly[EventBuffer]
    counters: AtomicBuffer
    cells: cython.p_uchar
    path_table: PathTable
    endpoint_table: PathTable
    first: cython.int
    rounds: cython.int
    poll_due_ns: cython.longlong
    status_poll_ratio: readonly[cython.int]
    status_poll_interval_ns: readonly[cython.longlong]

    def __init__(
        self,
        counters: AtomicBuffer,
        status_poll_ratio: cython.int = 6,
        status_poll_interval_ns: cython.longlong = 100000000,
    ) -> None:
        Cycle.__init__(self)
        self.counters = counters
        self.cells = counters.base
        self.events = EventBuffer()
        self.path_table = PathTable()
        self.endpoint_table = PathTable()
        self.first = 0
        self.rounds = 0
        self.poll_due_ns = 0
        self.status_poll_ratio = status_poll_ratio
        self.status_poll_interval_ns = status_poll_interval_ns

    def add_endpoint(self, endpoint: SendEndpointCore) -> None:
        endpoint.events = self.events
        self.endpoint_table.put(endpoint.key, 0, endpoint)

    def remove_endpoint(self, endpoint: SendEndpointCore) -> None:
        self.endpoint_table.remove(endpoint.key, 0)

    def add_path(self, path: SendPath, endpoint: SendEndpointCore) -> None:
        path.attach(endpoint, self.events)
        endpoint.paths.put(path.session_id, path.stream_id, path)
        self.path_table.put(path.key, 0, path)

    def remove_path(self, path: SendPath) -> None:
        path.endpoint.paths.remove(path.session_id, path.stream_id)
        self.path_table.remove(path.key, 0)

    def next_due_ns(self) -> cython.longlong:
        i: cython.int
        result: cython.longlong = self.next_python_ns
        for i in range(self.path_table.count):
            result = min(result, self.path_due_ns(cython.cast(SendPath, self.path_table.entries[i])))
        return result

    def path_due_ns(self, path: SendPath) -> cython.longlong:
        due_ns: cython.longlong = min(path.retransmit.deadline_ns, path.expiry_due_ns)
        if path.setup_elicited or not path.has_initial_connection:
            due_ns = min(due_ns, path.setup_due_ns)
        if path.has_initial_connection:
            due_ns = min(due_ns, path.heartbeat_due_ns)
            if path.batch.blocked:
                due_ns = min(due_ns, path.probe_due_ns)
        return due_ns

    def cycle(self, now_ns: cython.longlong) -> cython.int:
        i: cython.int
        which: cython.int
        n: cython.int = self.path_table.count
        work: cython.int = 0
        sent: cython.longlong = 0
        before: cython.longlong
        heartbeats: cython.longlong = counter_value(self.cells, SYSTEM_HEARTBEATS_SENT)
        max_heartbeats: cython.longlong = heartbeats + MAX_HEARTBEATS
        short: cython.bint = False
        nearest: cython.longlong = self.timer_ns
        self.first += 1
        if self.first >= n:
            self.first = 0
        before = counter_value(self.cells, SYSTEM_SHORT_SENDS)
        for i in range(n):
            which = (self.first + i) % n
            sent += cython.cast(SendPath, self.path_table.entries[which]).work(now_ns, heartbeats < max_heartbeats)
            heartbeats = counter_value(self.cells, SYSTEM_HEARTBEATS_SENT)
            if cython.cast(SendPath, self.path_table.entries[which]).next_python_ns < nearest:
                nearest = cython.cast(SendPath, self.path_table.entries[which]).next_python_ns
        self.next_python_ns = nearest
        short = counter_value(self.cells, SYSTEM_SHORT_SENDS) != before
        self.rounds += 1
        if sent == 0 or short or self.rounds >= self.status_poll_ratio or now_ns >= self.poll_due_ns:
            self.rounds = 0
            self.poll_due_ns = now_ns + self.status_poll_interval_ns
            for i in range(self.endpoint_table.count):
                work += cython.cast(SendEndpointCore, self.endpoint_table.entries[i]).poll(now_ns)
        self.attention = self.events.count
        if sent > 0 or heartbeats >= max_heartbeats:
            work += 1
        return work
