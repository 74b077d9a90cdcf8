# Written from send_cycle.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.events cimport EventBuffer
from mainstem._core.driver.loop cimport Cycle
from mainstem._core.driver.send_path cimport SendEndpointCore, SendPath
from mainstem._core.driver.table cimport PathTable
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class SenderCycle(Cycle):
    cdef readonly EventBuffer events
    cdef AtomicBuffer counters
    cdef unsigned char *cells
    cdef PathTable path_table
    cdef PathTable endpoint_table
    cdef int first
    cdef int rounds
    cdef long long poll_due_ns
    cdef readonly int status_poll_ratio
    cdef readonly long long status_poll_interval_ns

    cdef long long next_due_ns(self) noexcept nogil
    cdef long long path_due_ns(self, SendPath path) noexcept nogil
    cdef int cycle(self, long long now_ns) noexcept nogil
