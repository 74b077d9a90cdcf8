"""A transport that shows every datagram to somebody: it stands before another one, and only where somebody looks."""

import cython

if not cython.compiled:
    from mainstem._core.driver.datagram import ADDRESS_ROOM

from mainstem._core.driver.datagram import Transport


@cython.cclass
class TappedTransport(Transport):
    """Sends and receives through ``inner``, and tells ``watcher`` of each datagram as it comes and goes."""

    def __init__(self, inner: Transport, watcher):
        Transport.__init__(self, 1)
        self.inner = inner
        self.watcher = watcher
        # What is at hand lies where the inner one put it.
        self.memory = inner.memory
        self.base = inner.base
        self.stride = inner.stride
        self.source_memory = inner.source_memory
        self.sources = inner.sources
        self.follow()

    def close(self):
        self.closed = True
        self.inner.close()

    @property
    def dropped_data(self):
        return self.inner.dropped_data

    @property
    def dropped_control(self):
        return self.inner.dropped_control

    @property
    def arrived_ns(self):
        return self.inner.arrived_ns

    def follow(self):
        """Takes over what callers read from the inner one."""
        self.max_segments = self.inner.max_segments
        self.error_count = self.inner.error_count
        self.last_error = self.inner.last_error

    def epoch_ns(self, now_ns):
        return self.inner.epoch_ns(now_ns)

    def arrival_ns(self, now_ns):
        return self.inner.arrival_ns(now_ns)

    def receive(self):
        self.received = self.inner.receive()
        self.follow()
        return self.received

    def next_datagram(self):
        if not self.inner.next_datagram():
            return False
        self.at = self.inner.at
        self.length = self.inner.length
        self.source = self.inner.source
        self.source_length[self.source // ADDRESS_ROOM] = self.inner.source_length[self.source // ADDRESS_ROOM]
        with cython.gil:
            self.tell_in()
        return True

    def send_runs(self, to, base, offset, length, segment, count):
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

    def send_one(self, to, base, offset, length):
        left: cython.bint = self.inner.send_one(to, base, offset, length)
        self.follow()
        if left:
            with cython.gil:
                self.tell_out(to, base, offset, length)
        return left

    def tell_in(self):
        self.watcher.came(
            self.source_memory.get_bytes(self.source, self.source_length[self.source // ADDRESS_ROOM]),
            self.memory.get_bytes(self.at, self.length),
        )
        return 0

    def tell_out(self, to, base, offset, length):
        if cython.compiled:
            datagram = base[offset : offset + length]
        else:
            datagram = bytes(base.u8[offset : offset + length])
        self.watcher.left(b"" if to is None else bytes(to), datagram)
        return 0
