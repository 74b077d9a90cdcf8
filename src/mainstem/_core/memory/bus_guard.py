"""Reading a mapped file that another process may truncate: returns zeros and sets a flag instead of killing this process.

Theory of operation. A page of a mapping beyond the end of its file has no memory: an access to it is a bus error (SIGBUS),
which by default kills the process. Anybody who can write a file can truncate it at any moment, even while it is read, so no
check before the access helps; and reading copies instead would lose the speed for which files are mapped.

A ``BusGuard`` enters a mapping's address range in a table. The SIGBUS handler, installed with the first guard, looks up the
address of the access in the table. If it is inside a guarded range, the handler maps zeros from that page to the end of the
range, sets the range's flag, and returns: the access is repeated and reads zero, in whatever thread or compiled loop it was.
A walk over zeros finds an end of the data, or raises a named error. The reader must ask ``was_cut`` afterward, before it
trusts anything that it has read.

A place in the table is published and withdrawn by one store: that of its generation, which is odd while the place guards its
range. The handler reads the generation before and after the range, and ignores a place that has changed in between. So it never
combines the begin of one range with the end of another, although it looks at every place while other threads reuse them.

Invariants:

- The range that is accessed is in the table during the access, because its mapping is open.
- A range leaves the table right after its mapping is closed. Until then, another mapping may get the same addresses. So the
  handler sets the flags of all places that contain the address, and maps zeros to the nearest of their ends: that does not
  exceed the range that is accessed, and the rest causes another error.
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
    from cython.cimports.mainstem._core.memory.bus_errors import ms_guard, ms_use
else:
    from mainstem._core.memory.plain import *

    # A place: its generation, the first address, the address after the last, and whether a page was missing.
    BEGIN_OFFSET = 8
    END_OFFSET = 16
    CUT_OFFSET = 24
    PLACE_LENGTH = 32


def is_free(base: cython.p_uchar, place: cython.longlong) -> cython.bint:
    """Return whether a place guards nothing."""
    return ld64(base, place) & 1 == 0


def publish(base: cython.p_uchar, place: cython.longlong, begin: cython.longlong, end: cython.longlong) -> cython.void:
    """Let a free place guard a range. The caller has locked the table."""
    generation: cython.longlong = ld64(base, place)
    st64(base, place + CUT_OFFSET, 0)
    st64(base, place + BEGIN_OFFSET, begin)
    st64(base, place + END_OFFSET, end)
    st64(base, place, generation + 1)


def withdraw(base: cython.p_uchar, place: cython.longlong) -> cython.void:
    """Free a place. Any thread may do this, because nobody else changes a place that guards a range."""
    st64(base, place, ld64(base, place) + 1)


def end_around(base: cython.p_uchar, place: cython.longlong, address: cython.longlong) -> cython.longlong:
    """Return the end of a place's range if the address is in that range, else 0."""
    generation: cython.longlong = ld64(base, place)
    if generation & 1 == 0:
        return 0
    begin: cython.longlong = ld64(base, place + BEGIN_OFFSET)
    end: cython.longlong = ld64(base, place + END_OFFSET)
    if ld64(base, place) != generation or address < begin or address >= end:
        return 0
    return end


def cover(base: cython.p_uchar, places: cython.longlong, address: cython.longlong) -> cython.longlong:
    """Set the flag of each place whose range contains the address. Return the lowest of their ends, 0 if there is none."""
    lowest: cython.longlong = 0
    index: cython.longlong = 0
    end: cython.longlong
    while index < places:
        end = end_around(base, index * PLACE_LENGTH, address)
        if end != 0:
            st64(base, index * PLACE_LENGTH + CUT_OFFSET, 1)
            if lowest == 0 or end < lowest:
                lowest = end
        index += 1
    return lowest


@cython.no_gc
@cython.cclass
class BusGuard:
    """A guard of one mapping's pages until ``close``, right after the mapping ends. Uncompiled it guards nothing."""

    place: cython.p_uchar
    cut: cython.bint

    def __init__(self, mapping: Buffer) -> None:
        self.cut = False
        if cython.compiled:
            ms_use(is_free, publish, cover)
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
            self.cut = ld64(self.place, CUT_OFFSET) != 0
        return self.cut

    def close(self) -> None:
        """Stop guarding the range. May be called twice."""
        if cython.compiled and self.place != cython.NULL:
            self.cut = ld64(self.place, CUT_OFFSET) != 0
            withdraw(self.place, 0)
            self.place = cython.NULL

    if cython.compiled:

        def __dealloc__(self):
            if self.place != cython.NULL:
                withdraw(self.place, 0)
