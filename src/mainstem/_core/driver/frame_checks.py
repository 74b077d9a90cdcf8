"""Whether the fields of a frame from the network are consistent (docs/protocols/aeron.md, 14.4, 15.1 and 15.3)."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *


def sound_setup(base: cython.p_const_uchar, at: cython.longlong) -> cython.bint:
    """Whether an image can be created from a SETUP frame of 40 bytes."""
    term_length: cython.longlong = get32(base, at + SETUP_TERM_LENGTH_OFFSET)
    offset: cython.longlong = get32(base, at + SETUP_TERM_OFFSET_OFFSET)
    mtu: cython.int = get32(base, at + SETUP_MTU_OFFSET)
    if term_length < TERM_MIN_LENGTH or term_length > TERM_MAX_LENGTH or (term_length & (term_length - 1)) != 0:
        return False
    if offset < 0 or offset >= term_length or (offset & (FRAME_ALIGNMENT - 1)) != 0:
        return False
    if mtu < DATA_HEADER_LENGTH or mtu > MTU_MAX_LENGTH or (mtu & (FRAME_ALIGNMENT - 1)) != 0:
        return False
    return not before_beginning(
        get32(base, at + SETUP_ACTIVE_TERM_ID_OFFSET), get32(base, at + SETUP_INITIAL_TERM_ID_OFFSET)
    )


def before_beginning(term_id: cython.int, initial_term_id: cython.int) -> cython.bint:
    """Whether a term lies before its stream's first. Ids wrap at 32 bits; no position corresponds to such a term."""
    terms: cython.longlong = term_id
    terms -= initial_term_id
    return ((terms >> 31) & 1) != 0


def frames_length(
    base: cython.p_const_uchar, at: cython.longlong, length: cython.int, term_length: cython.longlong
) -> cython.longlong:
    """Return how far a datagram's frames move the stream, -1 if one breaks a rule (docs/protocols/aeron.md, 15.3)."""
    first: cython.longlong = get32(base, at + FRAME_TERM_OFFSET_OFFSET)
    ids: cython.longlong = get64(base, at + FRAME_SESSION_ID_OFFSET)
    term_id: cython.int = get32(base, at + FRAME_TERM_ID_OFFSET)
    done: cython.longlong = 0
    frame: cython.int
    kind: cython.int = TYPE_DATA
    while length - done >= DATA_HEADER_LENGTH:
        frame = get32(base, at + done + FRAME_LENGTH_OFFSET)
        kind = get16(base, at + done + FRAME_TYPE_OFFSET)
        if (
            frame < DATA_HEADER_LENGTH
            or get8(base, at + done + FRAME_VERSION_OFFSET) != 0
            or get32(base, at + done + FRAME_TERM_OFFSET_OFFSET) != first + done
            or get64(base, at + done + FRAME_SESSION_ID_OFFSET) != ids
            or get32(base, at + done + FRAME_TERM_ID_OFFSET) != term_id
            or first + done + align_frame(frame) > term_length
            or (kind != TYPE_DATA and kind != TYPE_PAD)
        ):
            return -1
        done += align_frame(frame)
    # Only a PAD at the end may reach beyond the datagram: its header is sent without the bytes that it covers.
    return done if done == length or (done > length and kind == TYPE_PAD) else -1
