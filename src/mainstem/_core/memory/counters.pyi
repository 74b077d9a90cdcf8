# Written from counters.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Iterator

from typing_extensions import Buffer

from mainstem._core.memory.buffer import AtomicBuffer

NULL_COUNTER_ID: int
NEVER_MS: int

class CounterCell:
    """One counter's 64-bit value in shared memory; positions are such cells.

    Each access names its ordering: ``get``/``set`` are plain, ``_acquire``/``_release`` ordered. ``add`` is atomic;
    ``add_release`` and ``propose_max_release`` are for a cell with one writer. Any use after the buffer was closed
    raises IndexError.
    """

    buffer: AtomicBuffer
    offset: int
    counter_id: int
    def __init__(self, values: AtomicBuffer, counter_id: int) -> None: ...
    def get(self) -> int: ...
    def get_acquire(self) -> int: ...
    def set(self, value: int) -> None: ...
    def set_release(self, value: int) -> None: ...
    def add(self, delta: int) -> int:
        """Adds atomically and returns the value from before."""
    def add_release(self, delta: int) -> None:
        """Adds, where this is the only writer."""
    def compare_and_set(self, expected: int, value: int) -> bool: ...
    def propose_max_release(self, value: int) -> bool:
        """Raises the value to ``value``; false when it was not below. Where this is the only writer."""

class CountersReader:
    """The counters that a driver allocated, read from any process. Iterating gives the allocated ids.

    ``capacity`` is how many counters there may be. An id outside it raises IndexError.
    """

    metadata: AtomicBuffer
    values: AtomicBuffer
    capacity: int
    def __init__(self, metadata: AtomicBuffer, values: AtomicBuffer) -> None: ...
    def __iter__(self) -> Iterator[int]: ...
    def state(self, counter_id: int) -> int:
        """0 never used, 1 allocated, -1 freed."""
    def type_id(self, counter_id: int) -> int: ...
    def free_for_reuse_ms(self, counter_id: int) -> int:
        """Epoch milliseconds from which a freed counter may be used again; NEVER_MS while it is in use."""
    def key(self, counter_id: int) -> bytes:
        """The 112 bytes of the key."""
    def label_bytes(self, counter_id: int) -> bytes: ...
    def label(self, counter_id: int) -> str: ...
    def set_label(self, counter_id: int, label: str | bytes) -> None:
        """Replaces the label, cut to 380 bytes. For the counter's owner."""
    def append_to_label(self, counter_id: int, text: str) -> None:
        """Makes the label longer, up to 380 bytes. For the counter's owner."""
    def value(self, counter_id: int) -> int: ...
    def registration_id(self, counter_id: int) -> int: ...
    def owner_id(self, counter_id: int) -> int: ...
    def reference_id(self, counter_id: int) -> int: ...
    def cell(self, counter_id: int) -> CounterCell: ...
    def find(self, type_id: int, registration_id: int) -> int:
        """The id of the allocated counter of that type and registration, or NULL_COUNTER_ID."""

class CountersManager(CountersReader):
    """Allocates, frees and reuses counters; one thread of one process (the driver's conductor).

    A freed id rests for ``reuse_delay_ms``, so that clients which still read it do not read another counter.
    """

    reuse_delay_ms: int
    def __init__(self, metadata: AtomicBuffer, values: AtomicBuffer, reuse_delay_ms: int = 1000) -> None: ...
    def allocate(
        self,
        type_id: int,
        key: Buffer,
        label: str | bytes,
        *,
        now_ms: int = 0,
        registration_id: int = 0,
        owner_id: int = -1,
        reference_id: int = 0,
        value: int = 0,
    ) -> int:
        """The id of a new counter. The key is at most 112 bytes (ValueError), the label is cut to 380.

        ``now_ms`` is epoch time and decides which freed ids may be used again; owner -1 is the driver.
        Raises BufferError when all are in use.
        """
    def free(self, counter_id: int, now_ms: int) -> None: ...
