# Written from fragment.py by tools/write_core_stubs.py: edit that file, then run the tool.
from typing import overload

from mainstem._core.memory.buffer import AtomicBuffer

class Header:
    """The header of a frame where it lies in memory (docs/protocols/aeron.md, 13.1); each field is read when it is used.

    Any use after the frame's memory is gone raises ValueError.

    Example:
        >>> image.poll(lambda fragment: print(fragment.header.session_id, fragment.header.position), 10)
    """

    initial_term_id: int
    position_bits: int
    def __init__(self) -> None: ...
    def wrap(self, log: AtomicBuffer, offset: int, initial_term_id: int, position_bits: int) -> Header:
        """Moves this flyweight onto another frame.

        Args:
            log: The memory of a log, or of a recording's segment.
            offset: Where the frame begins in ``log``, in bytes.
            initial_term_id: The stream's first term id, from which positions are counted.
            position_bits: Log2 of the term length in bytes.

        Returns:
            This header.

        Raises:
            IndexError: A header at ``offset`` would lie outside ``log``.

        Example:
            >>> header = Header().wrap(log, 0, initial_term_id=7, position_bits=16)
            >>> header.frame_length
            64
        """
    @property
    def frame_length(self) -> int:
        """Header and payload, in bytes; not aligned."""
    @property
    def version(self) -> int: ...
    @property
    def flags(self) -> int:
        """0x80 begins a message, 0x40 ends it."""
    @property
    def type(self) -> int: ...
    @property
    def term_offset(self) -> int: ...
    @property
    def session_id(self) -> int: ...
    @property
    def stream_id(self) -> int: ...
    @property
    def term_id(self) -> int: ...
    @property
    def reserved_value(self) -> int: ...
    @property
    def position(self) -> int:
        """The position of the stream at the end of this frame; of a message put together, at the end of its last."""

class Fragment(Header):
    """A frame and its payload, or a whole message put together from several frames.

    One object is moved from frame to frame: it is valid only inside the call that handed it out, and any use after that
    raises ValueError. ``bytes(fragment)`` copies the payload, ``len(fragment)`` is its length in bytes, ``fragment[i]`` and
    ``fragment[i:j]`` copy a part of it; it is read-only through the buffer protocol. The fields of its header
    (``session_id``, ``position``, ``reserved_value``, ...) are its own attributes too.

    Example:
        >>> image.poll(lambda fragment: print(fragment.position, bytes(fragment)), 10)
    """
    @property
    def header(self) -> Header:
        """The frame's header."""
    @property
    def view(self) -> memoryview:
        """The payload where it lies, read-only. Its content changes when the publisher comes round to it again."""
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> bytes: ...
    def __repr__(self) -> str: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Message:
    """A whole message and what is known of it: a copy, which stays valid. ``messages(metadata=True)`` yields these.

    ``bytes(message)`` is the payload, ``len(message)`` its length in bytes. No field can be set.

    Args:
        payload: The message.
        position: The position of the stream, in bytes, at the end of the message's last frame: where a reader goes on.
        session_id: The publisher's session id.
        stream_id: The stream id.
        reserved_value: The int64 that the publisher wrote into the frame header; of a message in several frames the first one's.
        image: The image that it came from.

    Attributes:
        payload: The message.
        position: The position of the stream, in bytes, at the end of the message's last frame: where a reader goes on.
        session_id: The publisher's session id.
        stream_id: The stream id.
        reserved_value: The int64 that the publisher wrote into the frame header; of a message in several frames the first one's.
        image: The image that it came from; closed where its publisher has gone in the meantime.

    Example:
        >>> for message in subscription.messages(metadata=True):
        ...     print(message.position, message.source_identity, message.payload)
    """

    payload: bytes
    position: int
    session_id: int
    stream_id: int
    reserved_value: int
    image: object
    def __init__(
        self,
        payload: bytes,
        position: int = 0,
        session_id: int = 0,
        stream_id: int = 0,
        reserved_value: int = 0,
        image: object = None,
    ) -> None: ...
    @property
    def source_identity(self) -> str:
        """Where the message came from: ``ip:port``, or ``aeron:ipc``; empty without an image."""
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __repr__(self) -> str: ...
