"""Private: log buffers (three terms and a metadata section) that a publisher, the driver and its subscribers share."""

from __future__ import annotations

from mainstem._core.log.fragment import Header
from mainstem.aeron.logbuffer.descriptor import (
    align,
    align_frame,
    framed_length,
    log_length,
    max_message_length,
    max_position,
    partition_index,
    position_bits,
    position_of,
    raw_tail,
    tail_offset,
    tail_term_id,
    term_id_at,
    term_offset_at,
    wrap_i32,
)
from mainstem.aeron.logbuffer.log_buffers import LogBuffers, LogParameters, LogType

__all__ = [
    "Header",
    "LogBuffers",
    "LogParameters",
    "LogType",
    "align",
    "align_frame",
    "framed_length",
    "log_length",
    "max_message_length",
    "max_position",
    "partition_index",
    "position_bits",
    "position_of",
    "raw_tail",
    "tail_offset",
    "tail_term_id",
    "term_id_at",
    "term_offset_at",
    "wrap_i32",
]
