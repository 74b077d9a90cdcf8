"""The arithmetic of log buffers: positions, term ids, offsets, partitions, frames, raw tails.

A position is a number of bytes since the start of the stream: ``(term count << bits) + term offset``. A term id is an int32 with an
arbitrary initial value, and it wraps; the term count, its distance from the initial term id, does not. A stream ends after 2**31
terms.
"""

from __future__ import annotations

from mainstem._core import layout
from mainstem.errors import ConfigurationError


def wrap_i32(value: int) -> int:
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def align(value: int, alignment: int) -> int:
    """Round up to a multiple of ``alignment``, a power of two."""
    return (value + alignment - 1) & -alignment


def align_frame(length: int) -> int:
    return (length + layout.FRAME_ALIGNMENT - 1) & -layout.FRAME_ALIGNMENT


def framed_length(length: int, max_payload_length: int) -> int:
    """Return how many bytes of a term a message occupies, in frames with at most ``max_payload_length`` bytes each."""
    full, rest = divmod(length, max_payload_length)
    last = align_frame(rest + layout.DATA_HEADER_LENGTH) if rest or not full else 0
    return full * align_frame(max_payload_length + layout.DATA_HEADER_LENGTH) + last


def check_term_length(term_length: int) -> None:
    """Raise ConfigurationError unless ``term_length`` is a power of two from 64 KiB to 1 GiB."""
    if not layout.TERM_MIN_LENGTH <= term_length <= layout.TERM_MAX_LENGTH or term_length & (term_length - 1):
        raise ConfigurationError(
            f"term length {term_length} is not a power of two from {layout.TERM_MIN_LENGTH} to {layout.TERM_MAX_LENGTH}"
        )


def check_page_size(page_size: int) -> None:
    """Raise ConfigurationError unless ``page_size`` is a power of two from 4 KiB to 1 GiB."""
    if not layout.LOG_METADATA_LENGTH <= page_size <= layout.TERM_MAX_LENGTH or page_size & (page_size - 1):
        raise ConfigurationError(
            f"page size {page_size} is not a power of two from {layout.LOG_METADATA_LENGTH} to {layout.TERM_MAX_LENGTH}"
        )


def log_length(term_length: int, page_size: int = 4096) -> int:
    """Return the length of a log file: three terms and the metadata, in whole pages."""
    return align(layout.PARTITION_COUNT * term_length + layout.LOG_METADATA_LENGTH, page_size)


def max_message_length(term_length: int) -> int:
    """Return the length of the longest message: an eighth of a term, at most 16 MiB."""
    return min(term_length // 8, layout.MAX_MESSAGE_LENGTH)


def max_position(term_length: int) -> int:
    """Return the position at which a stream ends, after 2**31 terms."""
    return term_length << 31


def position_bits(term_length: int) -> int:
    """Return log2(term length), which is the shift between term count and position."""
    return term_length.bit_length() - 1


def term_count_of(term_id: int, initial_term_id: int) -> int:
    """Return how many terms ``term_id`` is after the initial one. Term ids wrap at 32 bits."""
    return wrap_i32(term_id - initial_term_id)


def position_of(term_id: int, term_offset: int, initial_term_id: int, bits: int) -> int:
    return (wrap_i32(term_id - initial_term_id) << bits) + term_offset


def term_id_at(position: int, initial_term_id: int, bits: int) -> int:
    return wrap_i32((position >> bits) + initial_term_id)


def term_offset_at(position: int, bits: int) -> int:
    return position & ((1 << bits) - 1)


def partition_index(position: int, bits: int) -> int:
    """Return the index of the term (of the log's three) that contains ``position``."""
    return (position >> bits) % layout.PARTITION_COUNT


def raw_tail(term_id: int, term_offset: int) -> int:
    """Return a tail counter: a signed int64 with the term id in the upper half and the offset in the lower half."""
    return (wrap_i32(term_id) << 32) | term_offset


def tail_term_id(raw: int) -> int:
    return wrap_i32(raw >> 32)


def tail_offset(raw: int, term_length: int) -> int:
    """Return the offset of a tail counter, limited to the term length, because claims at a term's end move the tail past it."""
    return min(raw & 0xFFFF_FFFF, term_length)
