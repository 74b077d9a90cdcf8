"""Reassembly of messages from fragments.

A fragment is accepted only if it starts exactly where the one before it ended. So after joining in the middle of a message,
or if the stream is unreliable, a subscriber loses that message, but never delivers a wrong one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Callable

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.log.fragment import Fragment
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem._core.memory.plain import *

# Most split messages fit into this length; a builder doubles from there.
INITIAL_LENGTH = 4096
MAX_LENGTH = 1 << 30  # more than any message has


@cython.cclass
class MessageBuilder:
    """A message of one session during reassembly: the first fragment's header, then payload.

    Bytes of a message beyond ``limit``, which counts the header, are not kept.
    """

    data: AtomicBuffer
    length: readonly[cython.longlong]
    limit: cython.longlong
    expected_offset: cython.longlong
    expected_term_id: cython.int
    message: Fragment

    def __init__(self) -> None:
        self.data = AtomicBuffer(bytearray(INITIAL_LENGTH))
        self.message = Fragment()
        self.length = 0
        self.limit = MAX_LENGTH

    def reset(self) -> None:
        self.length = 0

    @cython.exceptval(-1)
    def reserve(self, capacity: cython.longlong) -> cython.int:
        if capacity <= self.data.capacity:
            return 0
        size: cython.longlong = self.data.capacity
        while size < capacity:
            size *= 2
        larger: AtomicBuffer = AtomicBuffer(bytearray(size))
        copy_bytes(larger.base, 0, self.data.base, 0, self.length)
        self.data = larger
        return 0

    @cython.exceptval(-1)
    def add(self, fragment: Fragment) -> cython.bint:
        """Add one fragment; return True if it completed the message, which is then ``message``."""
        base = fragment.base
        p: cython.longlong = fragment.p
        flags: cython.int = get8(base, p + FRAME_FLAGS_OFFSET)
        # Do not use the length in the frame, which another process may have changed since it was checked.
        frame_length: cython.longlong = DATA_HEADER_LENGTH + fragment.length
        offset: cython.longlong = get32(base, p + FRAME_TERM_OFFSET_OFFSET)
        term_id: cython.int = get32(base, p + FRAME_TERM_ID_OFFSET)
        kept: cython.longlong
        if flags & FLAG_BEGIN:
            self.length = 0
            kept = min(frame_length, self.limit)
            self.reserve(kept)
            copy_bytes(self.data.base, 0, base, p, kept)
            self.length = kept
            self.expected_term_id = term_id
        elif self.length and offset == self.expected_offset and term_id == self.expected_term_id:
            kept = min(frame_length - DATA_HEADER_LENGTH, self.limit - self.length)
            self.reserve(self.length + kept)
            copy_bytes(self.data.base, self.length, base, p + DATA_HEADER_LENGTH, kept)
            self.length += kept
        else:
            self.length = 0
            return False
        self.expected_offset = offset + align_frame(frame_length)
        if not flags & FLAG_END:
            return False
        message: Fragment = self.message
        put32(self.data.base, 0, cython.cast(cython.int, self.length))
        put8(self.data.base, FRAME_FLAGS_OFFSET, get8(self.data.base, FRAME_FLAGS_OFFSET) | flags)
        message.log = self.data
        message.base = self.data.base
        message.p = 0
        message.start = DATA_HEADER_LENGTH
        message.length = self.length - DATA_HEADER_LENGTH
        message.initial_term_id = fragment.initial_term_id
        message.position_bits = fragment.position_bits
        message.end_position = fragment.position
        return True

    @cython.exceptval(-1)
    def take_back(self, fragment: Fragment) -> cython.int:
        """Undo the last ``add``, so that the same fragment can be delivered again."""
        self.length -= fragment.length
        self.expected_offset = get32(fragment.base, fragment.p + FRAME_TERM_OFFSET_OFFSET)
        return 0


@cython.cclass
class FragmentAssembler:
    """A handler for ``poll`` and ``controlled_poll`` that passes whole messages to ``handler``.

    A message in one frame is passed through; a split one is gathered by session id. Its header is the first fragment's, with the
    whole length and the position at the end of the last. A fragment that does not follow the previous one drops the message.

    Args:
        handler: Called with each whole message, as a ``Fragment``; for ``controlled_poll`` it returns an action or None.

    Example:
        >>> assembler = FragmentAssembler(lambda message: print(bytes(message)))
        >>> subscription.poll(assembler, 10)
    """

    handler: readonly[Callable[[Fragment], object]]
    builders: dict

    def __init__(self, handler: Callable[[Fragment], object]) -> None:
        self.handler = handler
        self.builders = {}

    def __call__(self, fragment: Fragment) -> object:
        fragment.check()
        return assemble(self, fragment)

    def free_session(self, session_id: cython.longlong) -> bool:
        """Discard the incomplete message of a session whose image is gone.

        Args:
            session_id: The session of the image.

        Returns:
            Whether there was one.
        """
        return self.builders.pop(session_id, None) is not None

    def clear(self) -> None:
        """Discard every incomplete message."""
        self.builders.clear()


@cython.cfunc
def builder_of(assembler: FragmentAssembler, fragment: Fragment) -> MessageBuilder:
    """Return the builder of the fragment's session."""
    session_id = get32(fragment.base, fragment.p + FRAME_SESSION_ID_OFFSET)
    builder = assembler.builders.get(session_id)
    if builder is None:
        builder = assembler.builders[session_id] = MessageBuilder()
    return builder


@cython.cfunc
def assemble(assembler: FragmentAssembler, fragment: Fragment) -> object:
    """Add a fragment, and pass on the message that it completes."""
    if (get8(fragment.base, fragment.p + FRAME_FLAGS_OFFSET) & FLAG_UNFRAGMENTED) == FLAG_UNFRAGMENTED:
        return assembler.handler(fragment)
    builder: MessageBuilder = builder_of(assembler, fragment)
    if not builder.add(fragment):
        return None
    try:
        return assembler.handler(builder.message)
    finally:
        # Like every fragment, the message is valid only inside the call: its memory is reused for the next one.
        builder.message.base = cython.NULL if cython.compiled else None
        builder.length = 0


@cython.cfunc
def assemble_controlled(assembler: FragmentAssembler, fragment: Fragment) -> object:
    """Add a fragment like ``assemble``; if the handler aborts a message, its last fragment is delivered again."""
    if (get8(fragment.base, fragment.p + FRAME_FLAGS_OFFSET) & FLAG_UNFRAGMENTED) == FLAG_UNFRAGMENTED:
        return assembler.handler(fragment)
    builder: MessageBuilder = builder_of(assembler, fragment)
    if not builder.add(fragment):
        return None
    try:
        action = assembler.handler(builder.message)
    except BaseException:
        builder.length = 0
        raise
    finally:
        builder.message.base = cython.NULL if cython.compiled else None
    if action is not None and action == ACTION_ABORT:
        builder.take_back(fragment)
    else:
        builder.length = 0
    return action
