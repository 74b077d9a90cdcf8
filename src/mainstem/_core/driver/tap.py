"""A transport that wraps another one and reports every datagram to a listener, for the event log."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.driver.datagram import ADDRESS_ROOM
    from mainstem._core.memory.plain import readonly

from typing import Protocol

from mainstem._core.driver.datagram import Address, Transport


class DatagramListener(Protocol):
    """Is notified of each datagram. Both methods are called in the thread that uses the transport, and must not raise."""

    def on_receive(self, source: bytes, datagram: bytes) -> None: ...

    def on_send(self, destination: bytes, datagram: bytes) -> None: ...


@cython.cclass
class TappedTransport(Transport):
    """Another transport, whose datagrams are all reported to ``listener``; slow, for logging only.

    Incoming datagrams that are dropped on purpose are not reported; outgoing ones are.
    """

    inner: readonly[Transport]
    listener: object

    def __init__(self, inner: Transport, listener: DatagramListener) -> None:
        Transport.__init__(self, 1)
        self.fd = inner.fd
        self.inner = inner
        self.listener = listener
        # The current datagram stays in the inner transport's memory.
        self.memory = inner.memory
        self.base = inner.base
        self.stride = inner.stride
        self.source_memory = inner.source_memory
        self.sources = inner.sources
        self.follow()

    def close(self) -> None:
        self.closed = True
        self.inner.close()

    @property
    def dropped_data(self) -> int:
        return self.inner.dropped_data

    @property
    def dropped_control(self) -> int:
        return self.inner.dropped_control

    @property
    def arrived_ns(self) -> int:
        return self.inner.arrived_ns

    def follow(self) -> cython.void:
        self.max_segments = self.inner.max_segments
        self.error_count = self.inner.error_count
        self.last_error = self.inner.last_error

    def epoch_ns(self, now_ns: cython.longlong) -> cython.longlong:
        return self.inner.epoch_ns(now_ns)

    def arrival_ns(self, now_ns: cython.longlong) -> cython.longlong:
        return self.inner.arrival_ns(now_ns)

    def receive(self) -> cython.int:
        self.received = self.inner.receive()
        self.follow()
        return self.received

    def next_datagram(self) -> cython.bint:
        if not self.inner.next_datagram():
            return False
        self.at = self.inner.at
        self.length = self.inner.length
        self.source = self.inner.source
        self.source_length[self.source // ADDRESS_ROOM] = self.inner.source_length[self.source // ADDRESS_ROOM]
        with cython.gil:
            self.tell_in()
        return True

    def send_runs(
        self,
        to: Address,
        base: cython.p_const_uchar,
        offset: cython.p_longlong,
        length: cython.p_int,
        segment: cython.p_int,
        count: cython.int,
    ) -> cython.int:
        i: cython.int
        at: cython.int
        size: cython.int
        left: cython.int = self.inner.send_runs(to, base, offset, length, segment, count)
        self.follow()
        with cython.gil:
            for i in range(left):
                at = 0
                while at < length[i]:
                    size = segment[i] if segment[i] < length[i] - at else length[i] - at
                    self.tell_out(to, base, offset[i] + at, size)
                    at += size
        return left

    def send_one(
        self, to: Address, base: cython.p_const_uchar, offset: cython.longlong, length: cython.int
    ) -> cython.bint:
        left: cython.bint = self.inner.send_one(to, base, offset, length)
        self.follow()
        if left:
            with cython.gil:
                self.tell_out(to, base, offset, length)
        return left

    @cython.exceptval(-1)
    def tell_in(self) -> cython.int:
        self.listener.on_receive(
            self.source_memory.get_bytes(self.source, self.source_length[self.source // ADDRESS_ROOM]),
            self.memory.get_bytes(self.at, self.length),
        )
        return 0

    @cython.exceptval(-1)
    def tell_out(
        self, to: Address, base: cython.p_const_uchar, offset: cython.longlong, length: cython.int
    ) -> cython.int:
        if cython.compiled:
            datagram = base[offset : offset + length]
        else:
            datagram = bytes(base.u8[offset : offset + length])
        self.listener.on_send(b"" if to is None else bytes(to), datagram)
        return 0
