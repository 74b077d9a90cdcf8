"""Check whether two recordings are equal byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.recording.segments import first_segment_base, segment_name

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.archive import RecordingDescriptor

SAME = (
    "start_position",
    "stop_position",
    "initial_term_id",
    "term_buffer_length",
    "mtu_length",
    "stream_id",
    "segment_file_length",
    "stripped_channel",
    "original_channel",
    "source_identity",
    "start_timestamp",
)


def check_equal(one: Path, first: RecordingDescriptor, other: Path, second: RecordingDescriptor) -> None:
    """Compare descriptors and segments of recordings in two directories, except for the session id, which a copy may choose."""
    for name in SAME:
        assert getattr(first, name) == getattr(second, name), name
    length = first.segment_file_length
    for base in range(first_segment_base(first), first.stop_position, length):
        size = min(first.stop_position - base, length)
        assert frames(one, first, base, size) == frames(other, second, base, size), base


def frames(directory: Path, recording: RecordingDescriptor, base: int, size: int) -> bytes:
    """Return a segment with each frame's session id set to zero."""
    data = bytearray((directory / segment_name(recording.recording_id, base)).read_bytes()[:size])
    at = max(recording.start_position - base, 0)
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        assert length > 0, f"no frame at {base + at}"
        assert int.from_bytes(data[at + 12 : at + 16], "little", signed=True) == recording.session_id
        data[at + 12 : at + 16] = bytes(4)
        at += (length + 31) // 32 * 32
    return bytes(data)
