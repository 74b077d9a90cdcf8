# Written from append.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Callable, Iterable
from types import TracebackType

from typing_extensions import Buffer

from mainstem._core.memory.buffer import AtomicBuffer

class BufferClaim:
    """Space claimed in a term: write through ``view``, then ``commit`` or ``abort``. It serves one claim after another.

    As a context manager it commits at the end, and aborts when the block raised. An open claim holds up every later
    message of the stream. ``len(claim)`` is the payload's length in bytes, 0 while no claim is open; ``position`` is the
    stream's position after the message, as ``try_claim`` returned it; ``is_open`` is true from ``try_claim`` to ``commit`` or
    ``abort``. Use of a claim that is not open raises ValueError. The protocol: docs/protocols/aeron.md, 11.

    Example:
        >>> claim = BufferClaim()
        >>> if publication.try_claim(8, claim) > 0:
        ...     with claim:
        ...         claim.view[:] = (42).to_bytes(8, "little")
    """

    position: int
    is_open: bool
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def view(self) -> memoryview:
        """The payload's place in the term, writable; released by commit and abort.

        Raises:
            ValueError: The claim is not open.
        """
    @property
    def reserved_value(self) -> int:
        """The int64 in the frame's header that belongs to the application; 0 unless it is set before the commit.

        Raises:
            ValueError: The claim is not open, or the publication was closed meanwhile.
        """
    @reserved_value.setter
    def reserved_value(self, value: int) -> None: ...
    def commit(self) -> None:
        """Makes the message readable.

        Raises:
            ValueError: The claim is not open, or the publication was closed meanwhile.

        Example:
            >>> if publication.try_claim(5, claim) > 0:
            ...     claim.view[:] = b"hello"
            ...     claim.commit()
        """
    def abort(self) -> None:
        """Turns the claim into padding, which readers skip.

        Raises:
            ValueError: The claim is not open, or the publication was closed meanwhile.

        Example:
            >>> if publication.try_claim(5, claim) > 0:
            ...     claim.abort()
        """
    def __enter__(self) -> BufferClaim: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Appender:
    """What concurrent and exclusive publications share (docs/protocols/aeron.md, 11).

    ``log`` is the memory of the whole log file, ``limits`` the counters' values and ``limit_counter_id`` the publisher
    limit's counter. Raises ValueError when either is not what it should be.

    Positions are returned as ints; a negative one is a status (``layout.OFFER_...``): -1 not connected, -2 back pressured,
    -3 the log rotated, offer again, -4 closed, -5 the stream has used up its positions.
    """

    term_length: int
    max_possible_position: int
    max_payload_length: int
    max_message_length: int
    initial_term_id: int
    session_id: int
    stream_id: int
    is_closed: bool
    mtu: int
    def __init__(self, log: AtomicBuffer, limits: AtomicBuffer, limit_counter_id: int) -> None: ...
    def detach(self) -> None:
        """Lets go of the memory: every later offer returns CLOSED."""
    def offer(self, data: Buffer, *, reserved_value: int | Callable[[memoryview], int] | None = None) -> int:
        """Appends one message and returns the position after it, or a negative status; never blocks.

        A message longer than one frame is split. ``reserved_value`` is an int64 for every frame, or is called for each with
        the frame (header and payload) before it is committed; when it raises, the message becomes padding. Raises
        ValueError for a message longer than ``max_message_length``.
        """
    def offer_parts(
        self, parts: Iterable[Buffer], *, reserved_value: int | Callable[[memoryview], int] | None = None
    ) -> int:
        """Appends the parts, one after the other, as one message."""
    def try_claim(self, length: int, claim: BufferClaim) -> int:
        """Claims a frame for ``length`` payload bytes, to be written in place; returns what ``offer`` does.

        Raises ValueError for more than ``max_payload_length``, or when the claim is still open.
        """
    def offer_many(self, messages: Iterable[Buffer]) -> tuple[int, int]:
        """Appends as many whole messages as there is room for: (how many, the position after them).

        When none were taken the position is the negative status. Space is claimed for many messages at once; a batch that
        meets the end of a term goes on in the next. Raises ValueError, before any is taken, when one is too long.
        """
    def offer_columns(
        self, data: Buffer, offsets: Buffer, *, first: int = 0, count: int = -1, wide: bool = False
    ) -> tuple[int, int]:
        """As ``offer_many``, for rows of an Arrow binary column: its data and its int32 (``wide``: int64) offsets."""
    def append_padding(self, length: int) -> int:
        """Appends padding of ``length`` bytes and a header, which readers skip; returns what ``offer`` does."""
    @property
    def position(self) -> int:
        """Where the next message will be appended, or CLOSED."""
    @property
    def position_limit(self) -> int:
        """How far messages may be appended now, or CLOSED."""
    @property
    def available_window(self) -> int:
        """Bytes up to the limit, or CLOSED."""
    @property
    def is_connected(self) -> bool:
        """Whether the stream has a consumer."""

class ConcurrentAppender(Appender):
    """Any number of these may append to one log, in any number of threads and processes."""

class ExclusiveAppender(Appender):
    """The only writer of its log: it keeps the tail itself and only publishes it."""
    def __init__(self, log: AtomicBuffer, limits: AtomicBuffer, limit_counter_id: int) -> None: ...
    def offer_block(self, block: Buffer) -> int:
        """Appends whole frames that are laid out already; returns what ``offer`` does.

        The first frame must name this session, stream, term and offset, and the block must fit into the term. Raises
        ValueError when it does not.
        """
