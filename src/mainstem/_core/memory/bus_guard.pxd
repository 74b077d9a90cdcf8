# Written from bus_guard.py by tools/write_core_stubs.py: edit that file, then run the tool.
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from mainstem._core.memory.bus_errors cimport ms_guard, ms_unguard, ms_was_cut


cdef class BusGuard:
    cdef void *place
    cdef bint cut
