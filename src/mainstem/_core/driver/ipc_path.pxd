# Written from ipc_path.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.backing cimport Backing
from mainstem._core.driver.loop cimport Cycle
from mainstem._core.driver.positions cimport PositionSet
from mainstem._core.driver.table cimport PathTable
from mainstem._core.layout cimport *
from mainstem._core.log.term cimport bits_of, check_stream, clean_to, tail_position
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class IpcPath:
    cdef readonly AtomicBuffer log
    cdef readonly PositionSet subscribers
    cdef public Backing backing
    cdef readonly int initial_term_id
    cdef readonly long long term_length
    cdef readonly long long window_length
    cdef readonly long long publisher_limit
    cdef readonly long long consumer_position
    cdef readonly long long clean_position
    cdef public int key
    cdef public bint draining
    cdef bint is_connected
    cdef AtomicBuffer counters
    cdef unsigned char *base
    cdef unsigned char *cells
    cdef long long meta
    cdef int bits
    cdef long long limit_at
    cdef long long produced_at
    cdef long long trip_limit
    cdef long long first_position
    cdef long long populated_position
    cdef bint is_populating

    cdef int work(self, long long now_ns) noexcept nogil
    cdef bint populate_ahead(self, long long produced) noexcept nogil


cdef class IpcCycle(Cycle):
    cdef PathTable path_table
    cdef int next_key

    cdef int cycle(self, long long now_ns) noexcept nogil
