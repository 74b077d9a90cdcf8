# Written from term.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef enum:
    MAX_RUNS = 64
    NO_TIMESTAMP = -1


cdef class RunBatch:
    cdef long long offset[MAX_RUNS]
    cdef int length[MAX_RUNS]
    cdef int segment[MAX_RUNS]
    cdef long long advance[MAX_RUNS]
    cdef int count
    cdef long long padding
    cdef int spoilt
    cdef bint blocked


cdef int wrap32(long long value) noexcept nogil
cdef long long aligned(long long length) noexcept nogil
cdef int bits_of(long long term_length) noexcept nogil
cdef int check_stream(long long term_length, long long mtu, long long window_length) except -1
cdef int scan_datagram(RunBatch batch, unsigned char *base, long long at, long long end, int most) noexcept nogil
cdef int scan_runs(RunBatch batch, unsigned char *base, long long term, long long offset, long long term_length, long long window, int mtu, int max_runs, int max_segments) noexcept nogil
cdef long long first_gap(unsigned char *base, long long term, long long offset, long long limit) noexcept nogil
cdef long long gap_end(unsigned char *base, long long term, long long offset, long long limit) noexcept nogil
cdef bint insert_frames(unsigned char *base, long long at, const unsigned char *source, long long start, long long length) noexcept nogil
cdef void stamp_frames(unsigned char *base, long long at, long long length, long long offset, long long moment) noexcept nogil
cdef void write_padding(unsigned char *base, long long meta, long long term, long long offset, long long length, int term_id) noexcept nogil
cdef bint fill_with_padding(unsigned char *base, long long meta, long long term, long long offset, long long length, int term_id) noexcept nogil
cdef void clean_bytes(unsigned char *base, long long at, long long length, bint is_far) noexcept nogil
cdef long long clean_to(unsigned char *base, long long term_length, long long clean, long long target) noexcept nogil
cdef long long tail_position(unsigned char *base, long long meta, long long term_length, int initial_term_id) noexcept nogil
cdef bint rotate(unsigned char *base, long long meta, int term_count, int term_id) noexcept nogil
cdef int unblock_term(unsigned char *base, long long meta, long long term, long long offset, long long tail, long long term_length, int term_id) noexcept nogil
