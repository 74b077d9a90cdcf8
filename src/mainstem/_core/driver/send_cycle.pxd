from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.driver.events cimport EventBuffer
from mainstem._core.layout cimport *
from mainstem._core.driver.loop cimport Cycle
from mainstem._core.driver.send_path cimport SendEndpoint, SendPath
from mainstem._core.driver.table cimport PathTable


cdef class SenderCycle(Cycle):
    cdef readonly EventBuffer events
    cdef AtomicBuffer counters
    cdef uint8_t *cells
    cdef PathTable path_table
    cdef PathTable endpoint_table
    cdef int32_t first
    cdef int32_t rounds
    cdef int64_t poll_due_ns
    cdef readonly int32_t status_poll_ratio
    cdef readonly int64_t status_poll_interval_ns
