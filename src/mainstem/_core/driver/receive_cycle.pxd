# Written from receive_cycle.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.events cimport EventBuffer
from mainstem._core.driver.loop cimport Cycle
from mainstem._core.driver.receive_path cimport ReceiveEndpointCore, ReceivePath
from mainstem._core.driver.table cimport PathTable
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class ReceiverCycle(Cycle):
    cdef readonly EventBuffer events
    cdef AtomicBuffer counters
    cdef unsigned char *cells
    cdef int first
    cdef PathTable path_table
    cdef PathTable endpoint_table

    cdef long long next_due_ns(self) noexcept nogil
    cdef int cycle(self, long long now_ns) noexcept nogil
