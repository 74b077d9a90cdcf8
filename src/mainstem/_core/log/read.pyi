# Written from read.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Callable, Iterable

from mainstem._core.log.fragment import Fragment, Message
from mainstem._core.memory.buffer import AtomicBuffer

class ImageReader:
    """One publication's stream seen by one subscriber (docs/protocols/aeron.md, 12).

    ``log`` is the memory of the whole log file, ``positions`` the counters' values and ``position_counter_id`` the
    subscriber position's counter. Raises ValueError when either is not what it should be. A closed image polls nothing.
    One thread polls; a second one, or a handler, that polls the same image meanwhile gets RuntimeError.
    """

    log: AtomicBuffer
    term_length: int
    position_bits: int
    initial_term_id: int
    session_id: int
    stream_id: int
    mtu: int
    correlation_id: int
    join_position: int
    is_closed: bool
    def __init__(self, log: AtomicBuffer, positions: AtomicBuffer, position_counter_id: int) -> None: ...
    def detach(self) -> None:
        """Releases the memory; afterwards properties return what was true at this moment."""
    @property
    def position(self) -> int:
        """How far this subscriber has read."""
    @property
    def end_of_stream_position(self) -> int:
        """Where the stream ends; 2**63 - 1 while that is not known."""
    @property
    def is_end_of_stream(self) -> bool:
        """Whether the publisher ended the stream and everything was read."""
    @property
    def is_publication_revoked(self) -> bool:
        """Whether the publisher withdrew the stream without draining it."""
    @property
    def active_transport_count(self) -> int:
        """How many connections feed this image (more than one for a multi-destination subscription)."""
    def poll(self, handler: Callable[[Fragment], object], fragment_limit: int = 10) -> int:
        """Hands up to ``fragment_limit`` fragments to ``handler`` and returns how many; stops at the end of a term.

        The position moves once, at the end, also when the handler raises: what it raised on counts as read.
        """
    def bounded_poll(
        self, handler: Callable[[Fragment], object], limit_position: int, *, fragment_limit: int = 10
    ) -> int:
        """As ``poll``, only fragments that start before ``limit_position``."""
    def poll_messages(self, handler: Callable[[Fragment], object], message_limit: int = 10) -> int:
        """As ``poll``, with whole messages: split ones are put together first."""
    def controlled_poll(self, handler: Callable[[Fragment], int | None], fragment_limit: int = 10) -> int:
        """As ``poll``; what the handler returns decides how to go on (``layout.ACTION_...``; None is CONTINUE)."""
    def block_poll(self, handler: Callable[[Fragment], object], block_length_limit: int) -> int:
        """Hands over whole frames, headers included, as one block of at most so many bytes; returns how many.

        Padding ends a block; a padding frame at the start is handed over alone.
        """
    def poll_bytes(self, limit: int = 1000) -> list[bytes]:
        """Up to ``limit`` whole messages."""
    def poll_with_metadata(self, limit: int = 1000) -> list[Message]:
        """Up to ``limit`` whole messages, each with its position, session, stream, reserved value and image."""
    def scan(self, offsets: AtomicBuffer, lengths: AtomicBuffer, limit: int = -1) -> tuple[int, int]:
        """Writes int64 payload offsets (into ``log``) and int32 lengths of fragments; returns (count, position).

        Nothing is copied and nothing moves: the payloads stay until ``release(position)``.
        """
    def release(self, position: int) -> None:
        """Moves the position forward to what ``scan`` returned. ValueError for any place that cannot be."""
    def readable(self) -> tuple[int, int]:
        """(offset in the log of the next frame, end of its term), for code that walks the log itself.

        Raises as the polls do when the next frame's length is not possible.
        """
    def corrupt_position(self, position: int) -> Exception:
        """Returns the error for a subscriber position at which no frame begins; a subclass may name the log's file.

        Args:
            position: What the counter holds.

        Returns:
            The error to raise.

        Example:
            >>> raise image.corrupt_position(-32)
        """
    def corrupt_frame(self, position: int, length: int) -> Exception:
        """Returns the error for a frame whose length is not possible; a subclass may name the log's file.

        Args:
            position: The frame's position in the stream.
            length: Its length, in bytes.

        Returns:
            The error to raise.

        Example:
            >>> raise image.corrupt_frame(4096, 5)
        """

class SubscriptionReader:
    """All images of one subscription, polled in turn by one call; each call starts with the next image."""

    images: tuple[ImageReader, ...]
    def __init__(self) -> None: ...
    def set_images(self, images: Iterable[ImageReader]) -> None:
        """Replaces the images; a poll that runs goes on with the old ones."""
    def poll(self, handler: Callable[[Fragment], object], fragment_limit: int = 10) -> int:
        """Hands up to ``fragment_limit`` fragments of all images to ``handler`` and returns how many."""
    def poll_messages(self, handler: Callable[[Fragment], object], message_limit: int = 10) -> int:
        """As ``poll``, with whole messages: split ones are put together first."""
    def controlled_poll(self, handler: Callable[[Fragment], int | None], fragment_limit: int = 10) -> int:
        """As ``poll``; what the handler returns decides how to go on (``layout.ACTION_...``; None is CONTINUE)."""
    def block_poll(self, handler: Callable[[Fragment], object], block_length_limit: int) -> int:
        """One block of every image, each at most so many bytes; returns how many bytes that was."""
    def poll_bytes(self, limit: int = 1000) -> list[bytes]:
        """Up to ``limit`` whole messages of all images."""
    def poll_with_metadata(self, limit: int = 1000) -> list[Message]:
        """Up to ``limit`` whole messages of all images, each with its position, session, stream, reserved value and image."""
    def has_data(self) -> bool:
        """Whether a poll would find something now."""
    def wait_for_data(self, timeout_ns: int) -> bool:
        """Waits without the GIL until a poll would find something; true when it would.

        It returns after ``timeout_ns`` or 10 ms, whichever is shorter, so that new images and signals are noticed.
        """
