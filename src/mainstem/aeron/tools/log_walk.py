"""The frames of a log buffer file, read as subscribers read them, but without mapping the file.

Reading a hole of a sparse file through a mapping would allocate storage for it; ``pread`` does not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem.aeron.logbuffer import descriptor
from mainstem.aeron.protocol.layouts import DATA_HEADER
from mainstem.aeron.tools.log_state import LogState, read_log_state
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

CHUNK = 1 << 20  # bytes per read
_FLAG_LETTERS = (
    (layout.FLAG_BEGIN, "B"),
    (layout.FLAG_END, "E"),
    (layout.FLAG_EOS, "S"),
    (layout.FLAG_REVOKED, "R"),
)
_TYPES = {layout.TYPE_PAD: "PAD", layout.TYPE_DATA: "DATA"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFrame:
    """A frame. ``length`` includes the header and is negative for an uncommitted claim. ``position`` is where the frame begins."""

    position: int
    partition: int
    term_id: int
    term_offset: int
    length: int
    version: int
    flags: int
    type_id: int
    session_id: int
    stream_id: int
    reserved_value: int
    payload: bytes = b""

    @property
    def flag_letters(self) -> str:
        """Letters for the flags: B begin, E end, S end of stream, R revoked, and a dash for each flag that is not set."""
        return "".join(letter if self.flags & bit else "-" for bit, letter in _FLAG_LETTERS)

    @property
    def type_name(self) -> str:
        return _TYPES.get(self.type_id, f"0x{self.type_id:02x}")


def decode_frame(memory: bytes | mmap, offset: int, position: int, payload_limit: int) -> LogFrame:
    """Decode the frame at an offset of memory that contains at least its header, with up to ``payload_limit`` bytes of payload."""
    length, version, flags, kind, term_offset, session_id, stream_id, term_id, reserved = DATA_HEADER.unpack_from(
        memory, offset
    )
    begin = offset + layout.DATA_HEADER_LENGTH
    has_payload = kind == layout.TYPE_DATA and length > layout.DATA_HEADER_LENGTH
    return LogFrame(
        position=position,
        partition=0,
        term_id=term_id,
        term_offset=term_offset,
        length=length,
        version=version,
        flags=flags,
        type_id=kind,
        session_id=session_id,
        stream_id=stream_id,
        reserved_value=reserved,
        payload=memory[begin : min(begin + payload_limit, offset + length)] if has_payload else b"",
    )


class LogFile:
    """A log buffer file that is open for reading. Raises ConfigurationError if the file is not a log."""

    def __init__(self, path: str) -> None:
        state = read_log_state(path)
        if state is None:
            raise ConfigurationError(f"{path} is not a log buffer, or cannot be read")
        self.state: LogState = state
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def tails(self) -> tuple[tuple[int, int], ...]:
        length = self.state.term_length
        return tuple((descriptor.tail_term_id(r), descriptor.tail_offset(r, length)) for r in self.state.raw_tails)

    def partitions_in_order(self) -> tuple[int, ...]:
        initial = self.state.initial_term_id
        used = [(descriptor.wrap_i32(term_id - initial), i) for i, (term_id, _) in enumerate(self.tails())]
        return tuple(i for count, i in sorted(used) if count >= 0)

    def frames(self, partition: int, *, payload_limit: int = 0) -> Iterator[LogFrame]:
        """Yield the frames of one partition, with up to ``payload_limit`` bytes of each payload.

        Zeros between frames are skipped. The walk ends at a frame that extends beyond the term, or at a committed frame with a
        wrong offset.
        """
        term_length = self.state.term_length
        offset = 0
        while (start := self._next_written(partition, offset)) is not None:
            frame = self._frame(partition, start, payload_limit)
            if frame is None:
                return
            yield frame
            offset = start + descriptor.align_frame(abs(frame.length))
            if offset > term_length:
                return

    def _read(self, partition: int, offset: int, length: int) -> bytes:
        return os.pread(self._file, length, partition * self.state.term_length + offset)

    def _next_written(self, partition: int, offset: int) -> int | None:
        length = layout.FRAME_ALIGNMENT
        while offset < self.state.term_length:
            # Most frames directly follow the previous one, so read one header first, and a whole chunk only if that is empty.
            chunk = self._read(partition, offset, min(length, self.state.term_length - offset))
            length = CHUNK
            if not chunk:
                return None
            zeroes = len(chunk) - len(chunk.lstrip(b"\0"))
            if zeroes < len(chunk):
                return offset + zeroes // layout.FRAME_ALIGNMENT * layout.FRAME_ALIGNMENT
            offset += len(chunk)
        return None

    def _frame(self, partition: int, offset: int, payload_limit: int) -> LogFrame | None:
        header = self._read(partition, offset, layout.DATA_HEADER_LENGTH)
        if len(header) < layout.DATA_HEADER_LENGTH:
            return None
        frame = decode_frame(header, 0, 0, 0)
        if frame.length == 0 or offset + abs(frame.length) > self.state.term_length:
            return None
        if frame.length > 0 and frame.term_offset != offset:
            return None
        # The rest of the header of an open claim may not have been written yet.
        term_id = frame.term_id if frame.length > 0 else self.tails()[partition][0]
        bits = descriptor.position_bits(self.state.term_length)
        nbytes = (
            min(frame.length - layout.DATA_HEADER_LENGTH, payload_limit) if frame.type_id == layout.TYPE_DATA else 0
        )
        return replace(
            frame,
            position=descriptor.position_of(term_id, offset, self.state.initial_term_id, bits),
            partition=partition,
            term_id=term_id,
            term_offset=offset,
            payload=self._read(partition, offset + layout.DATA_HEADER_LENGTH, nbytes) if nbytes > 0 else b"",
        )
