# Written from ring_buffer.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Callable

from typing_extensions import Buffer

from mainstem._core.memory.buffer import AtomicBuffer

INSUFFICIENT_CAPACITY: int
UNLIMITED: int

class ManyToOneRingBuffer:
    """Records of many producers for one consumer, in memory that several processes map (docs/protocols/aeron.md, 3).

    The capacity is the buffer's length less 768 bytes and must be a power of two. Payloads are at most an eighth of it
    (``max_message_length``). Wrong arguments raise ValueError; use after the buffer was closed raises IndexError.
    """

    buffer: AtomicBuffer
    capacity: int
    max_message_length: int
    def __init__(self, buffer: AtomicBuffer) -> None: ...
    def try_claim(self, type_id: int, length: int) -> int:
        """Claims a record of ``length`` payload bytes, to be filled through ``buffer`` and then committed or aborted.

        Returns the payload's offset, or INSUFFICIENT_CAPACITY (-1). An open claim holds up every later record.
        """
    def commit(self, payload_offset: int) -> None:
        """Makes the claimed record readable."""
    def abort(self, payload_offset: int) -> None:
        """Turns the claimed record into padding, which readers skip."""
    def write(self, type_id: int, payload: Buffer) -> bool:
        """Writes one record; false when the ring is full. ``type_id`` is positive. Any process, any thread."""
    def next_correlation_id(self) -> int:
        """A number that no other caller in any process gets."""
    def read(self, handler: Callable[[int, bytes], object], limit: int = ...) -> int:
        """Hands up to ``limit`` records to ``handler(type_id, payload)`` and returns how many. The consumer only.

        One call ends at the end of the ring. When the handler raises, its record counts as read. A record with an
        impossible length raises ValueError and is not passed.
        """
    def unblock(self) -> bool:
        """Turns the record of a dead producer at the head into padding; true when there was one. The consumer only.

        To be called only when the head stood still for longer than a living producer takes (the client liveness timeout).
        Raises ValueError for a claim, or a head, that is not possible.
        """
    @property
    def consumer_heartbeat_ms(self) -> int:
        """The consumer's last heartbeat in epoch milliseconds; 0 before the first, -1 after a shutdown."""
    @consumer_heartbeat_ms.setter
    def consumer_heartbeat_ms(self, value: int) -> None: ...
    @property
    def producer_position(self) -> int:
        """Bytes ever claimed."""
    @property
    def consumer_position(self) -> int:
        """Bytes ever consumed."""
    @property
    def size(self) -> int:
        """Bytes claimed and not yet consumed: the head is read first, so that it is never negative."""
