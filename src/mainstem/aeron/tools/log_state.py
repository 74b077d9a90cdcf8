"""The metadata page of a log buffer file, read without mapping the file (docs/protocols/aeron.md, 10.1)."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass, replace

from mainstem._core import layout
from mainstem.aeron.logbuffer import LogType, descriptor

END_OF_STREAM_UNKNOWN = (1 << 63) - 1
# For statx(2), which Python's os module does not have.
AT_EMPTY_PATH = 0x1000
STATX_BTIME = 0x800
STATX_BTIME_OFFSET = 80
STATX_LENGTH = 256
BLOCK = 512  # the unit of st_blocks on every file system


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The state of one log buffer at one moment. Lengths are in bytes.

    ``allocated`` is the storage that the file uses. ``created_ms`` (epoch) is None if the file system doesn't record it.
    ``next_frame_length`` is the length word at the requested position: positive for a whole frame, 0 if there is nothing yet,
    negative for an unfinished claim. It is None if no position was requested or the position is no longer in the log.
    """

    path: str
    registration_id: int
    session_id: int
    stream_id: int
    log_type: LogType
    term_length: int
    mtu: int
    initial_term_id: int
    raw_tails: tuple[int, int, int]
    active_term_count: int
    is_connected: bool
    active_transports: int
    end_of_stream: int
    publication_window_length: int
    receiver_window_length: int
    spies_simulate_connection: bool
    is_revoked: bool
    length: int
    allocated: int
    created_ms: int | None
    next_frame_length: int | None = None

    @property
    def producer_position(self) -> int:
        raw = self.raw_tails[self.active_term_count % layout.PARTITION_COUNT]
        bits = descriptor.position_bits(self.term_length)
        offset = descriptor.tail_offset(raw, self.term_length)
        return descriptor.position_of(descriptor.tail_term_id(raw), offset, self.initial_term_id, bits)

    @property
    def is_ended(self) -> bool:
        return self.end_of_stream != END_OF_STREAM_UNKNOWN

    @property
    def unallocated(self) -> int:
        return max(0, self.length - self.allocated)


def read_log_state(path: str, *, next_position: int | None = None) -> LogState | None:
    """Read one file. Return None if it is gone, too short, or not a log buffer (yet)."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return None
    try:
        status = os.fstat(file)
        if status.st_size <= layout.LOG_METADATA_LENGTH:
            return None
        page = os.pread(file, layout.LOG_METADATA_LENGTH, status.st_size - layout.LOG_METADATA_LENGTH)
        if len(page) < layout.LOG_METADATA_LENGTH:
            return None
        state = parse_metadata(
            page,
            path=path,
            length=status.st_size,
            allocated=status.st_blocks * BLOCK,
            created_ms=birth_ms(file, status),
        )
        if state is None or next_position is None:
            return state
        length = _frame_length_at(file, state, next_position)
    finally:
        os.close(file)
    return replace(state, next_frame_length=length)


def birth_ms(file: int, status: os.stat_result) -> int | None:
    """Return when an open file was created (epoch milliseconds), or None. The mtime changes with every store."""
    if (birth := getattr(status, "st_birthtime", None)) is not None:
        return int(birth * 1000)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    found = ctypes.create_string_buffer(STATX_LENGTH)
    if statx is None or statx(file, b"", AT_EMPTY_PATH, STATX_BTIME, found) != 0:
        return None
    seconds, nanos = struct.unpack_from("=qI", found, STATX_BTIME_OFFSET)
    known = struct.unpack_from("=I", found)[0] & STATX_BTIME
    return int(seconds * 1000 + nanos // 1_000_000) if known else None


def parse_metadata(
    page: bytes, *, path: str = "", length: int = 0, allocated: int = 0, created_ms: int | None = None
) -> LogState | None:
    """Parse the 4096 bytes of a log's metadata. Return None if they don't describe a log."""

    def i32(offset: int) -> int:
        return int(struct.unpack_from("<i", page, offset)[0])

    def i64(offset: int) -> int:
        return int(struct.unpack_from("<q", page, offset)[0])

    term_length = i32(layout.LOG_TERM_LENGTH_OFFSET)
    if not layout.TERM_MIN_LENGTH <= term_length <= layout.TERM_MAX_LENGTH or term_length & (term_length - 1):
        return None
    kind = page[layout.LOG_TYPE_OFFSET]
    if kind > LogType.IMAGE:
        return None
    header = layout.LOG_DEFAULT_HEADER_OFFSET
    tails = layout.LOG_TAIL_COUNTERS_OFFSET
    return LogState(
        path=path,
        registration_id=i64(layout.LOG_CORRELATION_ID_OFFSET),
        session_id=i32(header + layout.FRAME_SESSION_ID_OFFSET),
        stream_id=i32(header + layout.FRAME_STREAM_ID_OFFSET),
        log_type=LogType(kind),
        term_length=term_length,
        mtu=i32(layout.LOG_MTU_LENGTH_OFFSET),
        initial_term_id=i32(layout.LOG_INITIAL_TERM_ID_OFFSET),
        raw_tails=(i64(tails), i64(tails + 8), i64(tails + 16)),
        active_term_count=i32(layout.LOG_ACTIVE_TERM_COUNT_OFFSET),
        is_connected=i32(layout.LOG_IS_CONNECTED_OFFSET) == 1,
        active_transports=i32(layout.LOG_ACTIVE_TRANSPORT_COUNT_OFFSET),
        end_of_stream=i64(layout.LOG_END_OF_STREAM_POSITION_OFFSET),
        publication_window_length=i32(layout.LOG_PUBLICATION_WINDOW_LENGTH_OFFSET),
        receiver_window_length=i32(layout.LOG_RECEIVER_WINDOW_LENGTH_OFFSET),
        spies_simulate_connection=page[layout.LOG_SPIES_SIMULATE_CONNECTION_OFFSET] == 1,
        is_revoked=page[layout.LOG_IS_PUBLICATION_REVOKED_OFFSET] == 1,
        length=length,
        allocated=allocated,
        created_ms=created_ms,
    )


def _frame_length_at(file: int, state: LogState, position: int) -> int | None:
    bits = descriptor.position_bits(state.term_length)
    count = position >> bits
    if not state.active_term_count - 1 <= count <= state.active_term_count:
        return None  # cleaned, or not yet begun
    offset = descriptor.partition_index(position, bits) * state.term_length
    word = os.pread(file, 4, offset + descriptor.term_offset_at(position, bits))
    return int(struct.unpack("<i", word)[0]) if len(word) == 4 else None
