# Written from broadcast.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Callable

from typing_extensions import Buffer

from mainstem._core.memory.buffer import AtomicBuffer

OVERRUN: int

class BroadcastTransmitter:
    """The single sender of the to-clients buffer (docs/protocols/aeron.md, 4); it waits for no receiver.

    The capacity is the buffer's length less 128 bytes and must be a power of two; payloads are at most an eighth of it.
    """

    buffer: AtomicBuffer
    capacity: int
    max_message_length: int
    def __init__(self, buffer: AtomicBuffer) -> None: ...
    def transmit(self, type_id: int, payload: Buffer) -> None:
        """Writes one record over the oldest ones. ``type_id`` is positive. Raises ValueError on a payload too long."""

class BroadcastReceiver:
    """One receiver among many; it starts at the latest record that was there when it attached."""

    buffer: AtomicBuffer
    capacity: int
    def __init__(self, buffer: AtomicBuffer) -> None: ...
    def receive(self, handler: Callable[[int, bytes], object], limit: int = 1) -> int:
        """Hands up to ``limit`` records to ``handler(type_id, payload)`` and returns how many.

        OVERRUN (-1) means that the transmitter was a whole buffer ahead, before a record was read or while it was: responses
        are lost, and a client must treat that as fatal. The receiver itself could go on with the latest record. When the
        handler raises, its record counts as received.
        """
