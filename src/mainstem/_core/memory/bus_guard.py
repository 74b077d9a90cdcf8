"""Reading a mapped file that another process may truncate: returns zeros and sets a flag instead of killing this process.

Theory of operation. A page of a mapping beyond the end of its file has no memory: an access to it is a bus error (SIGBUS),
which by default kills the process. Anybody who can write a file can truncate it at any moment, even while it is read, so no
check before the access helps; and reading copies instead would lose the speed for which files are mapped.

A ``BusGuard`` enters a mapping's address range in a table. The SIGBUS handler, installed with the first guard, looks up the
address of the access in the table. If it is inside a guarded range, the handler maps zeros from that page to the end of the
range, sets the range's flag, and returns: the access is repeated and reads zero, in whatever thread or compiled loop it was.
A walk over zeros finds an end of the data, or raises a named error. The reader must ask ``was_cut`` afterward, before it
trusts anything that it has read.

Invariants:

- A range is in the table only while it is mapped: the guard of a mapping closes before another mapping can get the address.
- The handler takes no lock and allocates nothing: it reads a table to which blocks are only added, and calls mmap, which is
  one system call. It may run in any thread at any instruction, and any number of threads may run it at once.
- An access elsewhere goes to the previously installed handler, such as faulthandler's, or kills the process as before.
- A store to a truncated part of a guarded range is lost, so code that writes to a guarded range must ask ``was_cut``.

If the program installs another handler later, it replaces this one, and truncation then kills the process as before.
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
    """A guard of one mapping's pages until ``close``, which must come before the mapping ends. Uncompiled it guards nothing."""

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
        """Whether a page was accessed that the file no longer had."""
        if cython.compiled and self.place != cython.NULL:
            self.cut = ms_was_cut(self.place)
        return self.cut

    def close(self) -> None:
        """Stop guarding the range. May be called twice."""
        if cython.compiled and self.place != cython.NULL:
            self.cut = ms_was_cut(self.place)
            ms_unguard(self.place)
            self.place = cython.NULL

    if cython.compiled:

        def __dealloc__(self):
            if self.place != cython.NULL:
                ms_unguard(self.place)
