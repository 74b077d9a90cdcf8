"""Counters that the driver allocates and any process reads (docs/protocols/aeron.md, 5).

Theory of operation. Two arrays in the CnC file are indexed by the counter id: the values, 128 bytes per counter, and the
metadata, 512 bytes per counter. A value record holds the 64-bit value and three ids (registration, owner, reference); a
metadata record holds the state, the type, the time from which a freed id may be reused, a key and a label.

Who writes what:

- The conductor, one thread of the driver, allocates and frees: it writes all of the metadata, and the ids of the value
  record.
- The value has one owner, given by the type: the sender moves a sender position, a subscriber its own position, and
  so on. Only that owner may call ``set``, ``set_release``, ``add_release`` and ``propose_max_release``: they load, then
  store. ``add`` and ``compare_and_set`` are atomic, for counters that several threads write, as with most system counters.
- All other threads and processes read, at any time, without a lock.

The state goes from UNUSED to ALLOCATED, to RECLAIMED, to ALLOCATED again; never back to UNUSED. Ids are assigned in
order, so the first UNUSED one ends every search.

Memory ordering: ``allocate`` writes ids, value, type, key and label and then stores ALLOCATED with release; readers load
the state with acquire before anything else, so they see a counter whole or not at all. In a label the bytes come first and
the length follows with release, so a reader of a growing label sees the old one or the new one. ``free`` stores RECLAIMED
last; a reader that checked before may read the value of a counter that is gone. That is why a freed id is not reused for
``reuse_delay_ms``: such a reader sees an old value, and not another counter's. A reader that keeps an id for longer also
compares the registration id.

A position is such a counter. Its owner stores it with release when it is done with the bytes before it; a thread that
loads it with acquire may then overwrite, clean or send them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem._core.memory.plain import *

from collections import deque

NULL_COUNTER_ID = -1
NEVER_MS = 0x7FFFFFFFFFFFFFFF


@cython.cclass
class CounterCell:
    """One counter's 64-bit value in shared memory; positions are such cells.

    Each method's name gives the memory ordering: ``get``/``set`` are plain, ``_acquire``/``_release`` ordered. ``add`` is
    atomic; ``add_release`` and ``propose_max_release`` are for a cell with one writer. Any use after the buffer was closed
    raises IndexError.
    """

    buffer: readonly[AtomicBuffer]
    base: cython.p_uchar
    offset: readonly[cython.longlong]
    counter_id: readonly[cython.int]

    def __init__(self, values: AtomicBuffer, counter_id: cython.longlong) -> None:
        if counter_id < 0 or (counter_id + 1) * COUNTER_VALUE_LENGTH > values.capacity:
            raise IndexError(f"counter {counter_id} lies outside a buffer of {values.capacity} bytes")
        self.buffer = values
        self.base = values.base
        self.offset = counter_id * COUNTER_VALUE_LENGTH
        self.counter_id = counter_id

    @cython.exceptval(-1)
    def check_open(self) -> cython.int:
        if self.buffer.capacity == 0:
            raise IndexError("the memory of this counter has been closed")
        return 0

    def get(self) -> int:
        self.check_open()
        return get64(self.base, self.offset)

    def get_acquire(self) -> int:
        self.check_open()
        return ld64(self.base, self.offset)

    def set(self, value: cython.longlong) -> None:
        self.check_open()
        put64(self.base, self.offset, value)

    def set_release(self, value: cython.longlong) -> None:
        self.check_open()
        st64(self.base, self.offset, value)

    def add(self, delta: cython.longlong) -> int:
        """Add atomically and return the previous value."""
        self.check_open()
        return fadd64(self.base, self.offset, delta)

    def add_release(self, delta: cython.longlong) -> None:
        """Add to the value of a cell with one writer."""
        self.check_open()
        st64(self.base, self.offset, get64(self.base, self.offset) + delta)

    def compare_and_set(self, expected: cython.longlong, value: cython.longlong) -> bool:
        self.check_open()
        return bool(cas64(self.base, self.offset, expected, value))

    def propose_max_release(self, value: cython.longlong) -> bool:
        """Raise the value to ``value``; return False if it was not below. For a cell with one writer."""
        self.check_open()
        if get64(self.base, self.offset) >= value:
            return False
        st64(self.base, self.offset, value)
        return True


@cython.cclass
class CountersReader:
    """The counters that a driver allocated, readable from any process. Iterating yields the allocated ids.

    ``capacity`` is the maximum number of counters. An id outside it raises IndexError.
    """

    metadata: readonly[AtomicBuffer]
    values: readonly[AtomicBuffer]
    meta_base: cython.p_uchar
    value_base: cython.p_uchar
    capacity: readonly[cython.int]

    def __init__(self, metadata: AtomicBuffer, values: AtomicBuffer) -> None:
        by_values: cython.longlong = values.capacity // COUNTER_VALUE_LENGTH
        by_metadata: cython.longlong = metadata.capacity // COUNTER_METADATA_LENGTH
        if by_metadata < by_values:
            raise ValueError(f"metadata for {by_metadata} counters does not cover {by_values} values")
        metadata.check_alignment()
        values.check_alignment()
        self.metadata = metadata
        self.values = values
        self.meta_base = metadata.base
        self.value_base = values.base
        self.capacity = by_values

    @cython.exceptval(-1)
    def check_id(self, counter_id: cython.longlong) -> cython.int:
        if self.metadata.capacity == 0 or self.values.capacity == 0:
            raise IndexError("the memory of these counters has been closed")
        if counter_id < 0 or counter_id >= self.capacity:
            raise IndexError(f"counter {counter_id} is not one of 0 to {self.capacity - 1}")
        return 0

    def next_allocated(self, start: cython.longlong) -> cython.int:
        """Return the first allocated id from ``start`` on, or NULL_COUNTER_ID; ids after the first unused one are not in use."""
        counter_id: cython.longlong = start
        state: cython.int
        while counter_id < self.capacity:
            state = ld32(self.meta_base, counter_id * COUNTER_METADATA_LENGTH)
            if state == COUNTER_ALLOCATED:
                return cython.cast(cython.int, counter_id)
            if state == COUNTER_UNUSED:
                break  # ids are assigned in order, so no later id was ever used
            counter_id += 1
        return -1

    def __iter__(self) -> Iterator[int]:
        counter_id: cython.longlong = 0
        while counter_id < self.capacity:
            self.check_id(counter_id)
            counter_id = self.next_allocated(counter_id)
            if counter_id < 0:
                return
            yield counter_id
            counter_id += 1

    def state(self, counter_id: cython.longlong) -> int:
        """Return 0 for never used, 1 for allocated, -1 for freed."""
        self.check_id(counter_id)
        return ld32(self.meta_base, counter_id * COUNTER_METADATA_LENGTH)

    def type_id(self, counter_id: cython.longlong) -> int:
        self.check_id(counter_id)
        return get32(self.meta_base, counter_id * COUNTER_METADATA_LENGTH + COUNTER_TYPE_ID_OFFSET)

    def free_for_reuse_ms(self, counter_id: cython.longlong) -> int:
        """Return the epoch milliseconds from which a freed counter may be reused; NEVER_MS while it is in use."""
        self.check_id(counter_id)
        return ld64(self.meta_base, counter_id * COUNTER_METADATA_LENGTH + COUNTER_FREE_FOR_REUSE_OFFSET)

    def key(self, counter_id: cython.longlong) -> bytes:
        """Return the 112 bytes of the key."""
        self.check_id(counter_id)
        return self.metadata.get_bytes(
            counter_id * COUNTER_METADATA_LENGTH + COUNTER_KEY_OFFSET, COUNTER_KEY_MAX_LENGTH
        )

    def label_bytes(self, counter_id: cython.longlong) -> bytes:
        self.check_id(counter_id)
        at: cython.longlong = counter_id * COUNTER_METADATA_LENGTH
        length: cython.longlong = ld32(self.meta_base, at + COUNTER_LABEL_LENGTH_OFFSET)
        return self.metadata.get_bytes(at + COUNTER_LABEL_OFFSET, min(max(length, 0), COUNTER_LABEL_MAX_LENGTH))

    def label(self, counter_id: cython.longlong) -> str:
        return self.label_bytes(counter_id).decode("utf-8", "replace")

    def set_label(self, counter_id: cython.longlong, label: str | bytes) -> None:
        """Replace the label, truncated to 380 bytes. For the counter's owner."""
        data = label if isinstance(label, bytes) else label.encode("utf-8", "replace")
        data = data[:COUNTER_LABEL_MAX_LENGTH]
        self.check_id(counter_id)
        at: cython.longlong = counter_id * COUNTER_METADATA_LENGTH
        self.metadata.put_bytes(at + COUNTER_LABEL_OFFSET, data)
        # Store the length last, so that a reader copies no unwritten byte.
        st32(self.meta_base, at + COUNTER_LABEL_LENGTH_OFFSET, len(data))

    def append_to_label(self, counter_id: cython.longlong, text: str) -> None:
        """Extend the label, up to 380 bytes. For the counter's owner."""
        # The old bytes do not change, so a reader sees the old label or the longer one.
        self.set_label(counter_id, self.label_bytes(counter_id) + text.encode("utf-8", "replace"))

    def value(self, counter_id: cython.longlong) -> int:
        self.check_id(counter_id)
        return ld64(self.value_base, counter_id * COUNTER_VALUE_LENGTH)

    def registration_id(self, counter_id: cython.longlong) -> int:
        self.check_id(counter_id)
        return ld64(self.value_base, counter_id * COUNTER_VALUE_LENGTH + COUNTER_REGISTRATION_ID_OFFSET)

    def owner_id(self, counter_id: cython.longlong) -> int:
        self.check_id(counter_id)
        return ld64(self.value_base, counter_id * COUNTER_VALUE_LENGTH + COUNTER_OWNER_ID_OFFSET)

    def reference_id(self, counter_id: cython.longlong) -> int:
        self.check_id(counter_id)
        return ld64(self.value_base, counter_id * COUNTER_VALUE_LENGTH + COUNTER_REFERENCE_ID_OFFSET)

    def cell(self, counter_id: cython.longlong) -> CounterCell:
        self.check_id(counter_id)
        return CounterCell(self.values, counter_id)

    def find(self, type_id: cython.int, registration_id: cython.longlong) -> int:
        """Return the id of the allocated counter with that type and registration, or NULL_COUNTER_ID."""
        self.check_id(0)
        counter_id: cython.longlong = self.next_allocated(0)
        while counter_id >= 0:
            if (
                get32(self.meta_base, counter_id * COUNTER_METADATA_LENGTH + COUNTER_TYPE_ID_OFFSET) == type_id
                and ld64(self.value_base, counter_id * COUNTER_VALUE_LENGTH + COUNTER_REGISTRATION_ID_OFFSET)
                == registration_id
            ):
                return counter_id
            counter_id = self.next_allocated(counter_id + 1)
        return NULL_COUNTER_ID


@cython.cclass
class CountersManager(CountersReader):
    """The allocator of counters, for one thread of one process (the driver's conductor). It reuses freed ones.

    A freed id is not reused for ``reuse_delay_ms``, so that clients that still read it do not read another counter.
    """

    reuse_delay_ms: readonly[cython.longlong]
    high_water_mark: cython.int
    freed: object

    def __init__(self, metadata: AtomicBuffer, values: AtomicBuffer, reuse_delay_ms: cython.longlong = 1000) -> None:
        CountersReader.__init__(self, metadata, values)
        assert reuse_delay_ms >= 0, f"a freed counter cannot rest for {reuse_delay_ms} ms"
        self.reuse_delay_ms = reuse_delay_ms
        self.high_water_mark = 0
        self.freed = deque()

    @cython.exceptval(-1)
    def take_id(self, now_ms: cython.longlong) -> cython.int:
        i: cython.Py_ssize_t
        for i in range(len(self.freed)):
            if self.free_for_reuse_ms(self.freed[i]) <= now_ms:
                counter_id = self.freed[i]
                del self.freed[i]
                return counter_id
        if self.high_water_mark >= self.capacity:
            raise BufferError(
                f"all {self.capacity} counters are in use (AERON_COUNTERS_BUFFER_LENGTH sets how many there are)"
            )
        self.high_water_mark += 1
        return self.high_water_mark - 1

    def allocate(
        self,
        type_id: cython.int,
        key: Buffer,
        label: str | bytes,
        *,
        now_ms: cython.longlong = 0,
        registration_id: cython.longlong = 0,
        owner_id: cython.longlong = -1,
        reference_id: cython.longlong = 0,
        value: cython.longlong = 0,
    ) -> int:
        """Return the id of a new counter. The key has at most 112 bytes (ValueError); the label is truncated to 380.

        ``now_ms`` is epoch time and decides which freed ids can be reused; owner -1 is the driver. Raises BufferError if all
        ids are in use.
        """
        self.check_id(0)
        if len(key) > COUNTER_KEY_MAX_LENGTH:
            raise ValueError(f"counter key of {len(key)} bytes exceeds the maximum of {COUNTER_KEY_MAX_LENGTH}")
        counter_id: cython.longlong = self.take_id(now_ms)
        at: cython.longlong = counter_id * COUNTER_METADATA_LENGTH
        cell: cython.longlong = counter_id * COUNTER_VALUE_LENGTH
        # Write everything a reader may ask for before the state: storing ALLOCATED comes last, and releases the rest.
        put64(self.value_base, cell + COUNTER_REGISTRATION_ID_OFFSET, registration_id)
        put64(self.value_base, cell + COUNTER_OWNER_ID_OFFSET, owner_id)
        put64(self.value_base, cell + COUNTER_REFERENCE_ID_OFFSET, reference_id)
        st64(self.value_base, cell, value)
        put32(self.meta_base, at + COUNTER_TYPE_ID_OFFSET, type_id)
        put64(self.meta_base, at + COUNTER_FREE_FOR_REUSE_OFFSET, NEVER_MS)
        zero_out(self.meta_base, at + COUNTER_KEY_OFFSET, COUNTER_KEY_MAX_LENGTH)
        self.metadata.put_bytes(at + COUNTER_KEY_OFFSET, key)
        self.set_label(counter_id, label)
        st32(self.meta_base, at, COUNTER_ALLOCATED)
        return counter_id

    def free(self, counter_id: cython.longlong, now_ms: cython.longlong) -> None:
        if self.state(counter_id) != COUNTER_ALLOCATED:
            raise ValueError(f"counter {counter_id} is not allocated")
        at: cython.longlong = counter_id * COUNTER_METADATA_LENGTH
        zero_out(self.meta_base, at + COUNTER_KEY_OFFSET, COUNTER_KEY_MAX_LENGTH)
        put64(self.meta_base, at + COUNTER_FREE_FOR_REUSE_OFFSET, now_ms + self.reuse_delay_ms)
        st32(self.meta_base, at, COUNTER_RECLAIMED)
        self.freed.append(counter_id)
