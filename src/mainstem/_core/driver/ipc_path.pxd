from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *
from mainstem._core.driver.loop cimport Cycle
from mainstem._core.driver.positions cimport PositionSet
from mainstem._core.driver.table cimport PathTable
from mainstem._core.log.term cimport bits_of, clean_to, tail_position

cdef extern from *:
    """
    #include <sys/mman.h>
    #ifndef MADV_POPULATE_WRITE
    #define MADV_POPULATE_WRITE 23
    #endif
    MS_INLINE int populate(uint8_t *b, int64_t o, int64_t n) { return madvise(b + o, (size_t)n, MADV_POPULATE_WRITE) == 0; }
    """
    bint populate(uint8_t *b, int64_t o, int64_t n) noexcept nogil


cdef class IpcPath:
    cdef readonly AtomicBuffer log
    cdef readonly PositionSet subscribers
    cdef readonly int32_t initial_term_id
    cdef readonly int64_t term_length
    cdef readonly int64_t window_length
    cdef readonly int64_t publisher_limit
    cdef readonly int64_t consumer_position
    cdef readonly int64_t clean_position
    cdef public int32_t key
    cdef public bint draining
    cdef bint is_connected
    cdef AtomicBuffer counters
    cdef uint8_t *base
    cdef uint8_t *cells
    cdef int64_t meta
    cdef int32_t bits
    cdef int64_t limit_at
    cdef int64_t produced_at
    cdef int64_t trip_limit
    cdef int64_t first_position
    cdef int64_t populated_position

    cdef int32_t work(self) noexcept nogil
    cdef bint populate_ahead(self, int64_t produced) noexcept nogil


cdef class IpcCycle(Cycle):
    cdef PathTable path_table
    cdef int32_t next_key
