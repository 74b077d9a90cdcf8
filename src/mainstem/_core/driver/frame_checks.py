"""Whether the fields of a control frame from the network make sense together (docs/protocols/aeron.md, 14.4 and 15.1)."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *


def sound_setup(base: cython.p_const_uchar, at: cython.longlong) -> cython.bint:
    """Whether an image can be made of a SETUP frame of 40 bytes."""
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
    """Whether a term lies before its stream's first: ids wrap at 32 bits, and there is no such position."""
    terms: cython.longlong = term_id
    terms -= initial_term_id
    return ((terms >> 31) & 1) != 0
