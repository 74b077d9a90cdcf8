# Written from frame_checks.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *


cdef bint sound_setup(const unsigned char *base, long long at) noexcept nogil
cdef bint before_beginning(int term_id, int initial_term_id) noexcept nogil
cdef long long frames_length(const unsigned char *base, long long at, int length, long long term_length) noexcept nogil
