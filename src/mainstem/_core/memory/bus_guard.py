"""Reading a mapped file that another process may cut short: zeros and a flag, where the kernel would end this process.

Theory of operation. A page of a mapping that lies beyond the end of its file has no memory: an access to it is a bus error
(SIGBUS), whose default is the end of the process. Whoever may write a file may cut it short at any moment, also while it is
read, so no check before the access helps; and reading by copies instead costs the speed for which files are mapped.

A ``BusGuard`` enters a mapping's range of addresses in a table. The handler of SIGBUS, set with the first guard, looks up the
address of the access in it. Within a guarded range it maps zeros from that page to the end of the range, sets the range's
flag, and returns: the access is repeated and reads zero, in whatever thread or compiled loop it was. Zeros are what a walk
makes an end of, or a named error. Who reads asks ``was_cut`` afterwards, before it believes anything that it has read.

Invariants:

- A range is in the table only while it is mapped: the guard of a mapping closes before the address can be another one's.
- The handler takes no lock and allocates nothing: it reads a table to which blocks are only added, and calls mmap, which is
  one system call. It may run in any thread at any instruction, and any number of threads may run it at once.
- An access elsewhere goes to the handler that was there before, such as faulthandler's, or ends the process as it would have.
- A store to a guarded range that was cut is lost, so what is written must not be guarded without asking ``was_cut``.

A handler that the program sets later takes the place of this one, and what is cut then ends the process as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

if cython.compiled:
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.mainstem._core.memory.bus_errors import ms_guard, ms_unguard, ms_was_cut


@cython.no_gc
@cython.cclass
class BusGuard:
    """Guards the pages of one mapping until ``close``, which must come before the mapping ends. Uncompiled it guards nothing."""

    place: cython.p_void
    cut: cython.bint

    def __init__(self, mapping: Buffer) -> None:
        self.cut = False
        if cython.compiled:
            raw = cython.declare(Py_buffer)
            PyObject_GetBuffer(mapping, cython.address(raw), PyBUF_SIMPLE)
            self.place = ms_guard(cython.cast(cython.size_t, raw.buf), raw.len)
            PyBuffer_Release(cython.address(raw))
            if self.place == cython.NULL:
                raise MemoryError("a mapping could not be guarded")

    @property
    def was_cut(self) -> bool:
        """Whether pages were read that the file no longer had."""
        if cython.compiled and self.place != cython.NULL:
            self.cut = ms_was_cut(self.place)
        return self.cut

    def close(self) -> None:
        """Guards the range no longer. May be called twice."""
        if cython.compiled and self.place != cython.NULL:
            self.cut = ms_was_cut(self.place)
            ms_unguard(self.place)
            self.place = cython.NULL

    if cython.compiled:

        def __dealloc__(self):
            if self.place != cython.NULL:
                ms_unguard(self.place)
