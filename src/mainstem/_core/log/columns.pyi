# Written from columns.py by tools/write_core_stubs.py: edit that file, then run the tool.
from typing_extensions import Buffer

from mainstem._core.memory.buffer import AtomicBuffer

NAMES: tuple[str, ...]
WIDTHS: tuple[str, ...]

class Region:
    """Readable memory: an AtomicBuffer, or anything with the buffer protocol, held for the length of a call."""
    def __init__(self, source: Buffer | AtomicBuffer) -> None: ...

class FrameWalk:
    """Walks frames without copying anything: counts them, and finds where the last whole message ends.

    After ``run``: ``offset`` is where the walk ended, ``boundary`` the end of the last whole message (padding after
    it included), ``frames`` and ``messages`` how many DATA frames and ends of messages were passed, ``others`` how
    many frames of other types (padding), ``last`` where the last frame of all starts, ``stopped`` why the walk ended
    (``layout.WALK_...``).

    With ``term_mask`` (a term's length less one; 0: unchecked) a frame whose header has another offset in its term
    than it lies at counts as corrupt. The memory must begin where a term does.
    """

    offset: int
    boundary: int
    frames: int
    messages: int
    others: int
    last: int
    stopped: int
    term_mask: int
    def __init__(self) -> None: ...
    def run(self, source: Buffer | AtomicBuffer, offset: int, limit: int, max_messages: int = -1) -> int:
        """Walks ``[offset, limit)`` of ``source``, at most until ``max_messages`` have ended; returns ``stopped``.

        Raises IndexError when the range lies outside the memory.
        """

class Fragments:
    """The message of one stream whose last fragment has not come yet.

    ``length`` bytes are held and the next fragment must start at position ``expected`` (-1: no message is open).
    ``dropped`` counts the messages that were left without their end.
    """

    length: int
    expected: int
    dropped: int
    def __init__(self) -> None: ...
    def reset(self) -> None:
        """Forgets the open message."""

class Columns:
    """Rows gathered from runs of frames, as the buffers under Arrow columns.

    ``column_bits`` is an OR of column bits (``layout.COLUMN_...``). Widths: position, reserved_value and offset
    int64; session_id, stream_id, term_id, term_offset and length int32; flags and type int16; payload as int32 offsets
    and bytes. ``position`` is the stream's position at the *end* of the frame or message, as ``offer`` returned it;
    ``length`` counts payload only; ``offset`` is where the payload starts in the memory that was read (frames only:
    nothing is copied then).

    Runs may be added until ``take``. ``stopped`` says why the last run ended (``layout.WALK_...``). ``term_mask`` as in
    ``FrameWalk``.
    """

    column_bits: int
    rows: int
    payload_length: int
    stopped: int
    term_mask: int
    def __init__(self, column_bits: int = ..., rows: int = 4096, payload_bytes: int = 65536) -> None: ...
    def add_frames(
        self,
        source: Buffer | AtomicBuffer,
        offset: int,
        limit: int,
        position: int,
        max_rows: int = -1,
        padding: bool = False,
    ) -> int:
        """Appends a row for each DATA frame in ``[offset, limit)``; its first byte is at stream position ``position``.

        With ``padding`` padding frames are rows too (of empty payload). Stops at a frame that is not committed, not
        whole or not possible; returns the bytes that were passed. Raises IndexError when the range lies outside.
        """
    def add_messages(
        self,
        source: Buffer | AtomicBuffer,
        offset: int,
        limit: int,
        position: int,
        fragments: Fragments,
        max_rows: int = -1,
    ) -> int:
        """As ``add_frames``, a row for each whole message. ``fragments`` carries an open message from call to call.

        A joined row has the first fragment's header, the flags of both ends, and the position of the last.
        """
    def take(self) -> dict[str, bytearray]:
        """The buffers by column name (the payload is ``payload_offsets`` and ``payload``); the caller owns them now."""
