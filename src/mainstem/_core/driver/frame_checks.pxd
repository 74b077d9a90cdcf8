from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.layout cimport *

cdef bint sound_setup(const uint8_t *base, int64_t at) noexcept nogil
cdef bint before_beginning(int32_t term_id, int32_t initial_term_id) noexcept nogil
