"""Lay out frames as a publisher does: fragments, padding at the end of a term, positions that continue across terms."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstem.recording import Recorder
    from mainstem.recording.writer import RecordingWriter

HEADER = struct.Struct("<iBBHiiiiq")


def aligned(length: int) -> int:
    return (length + 31) & ~31


class Stream:
    """Lays messages out as frames; ``runs`` yields (position, frames), one run per message or padding."""

    def __init__(
        self,
        *,
        term_length: int = 65536,
        mtu: int = 1408,
        session_id: int = 77,
        stream_id: int = 1001,
        initial_term_id: int = -5,
        position: int = 0,
    ) -> None:
        self.term_length, self.mtu = term_length, mtu
        self.session_id, self.stream_id, self.initial_term_id = session_id, stream_id, initial_term_id
        self.position = position

    def start(self, recorder: Recorder, *, channel: str = "aeron:ipc") -> RecordingWriter:
        """Start the stream's recording at its current position."""
        return recorder.start(
            session_id=self.session_id,
            stream_id=self.stream_id,
            initial_term_id=self.initial_term_id,
            term_buffer_length=self.term_length,
            mtu_length=self.mtu,
            join_position=self.position,
            channel=channel,
        )

    def frame(self, payload: bytes, flags: int, kind: int = 1, length: int | None = None, reserved: int = 0) -> bytes:
        term_id = self.initial_term_id + self.position // self.term_length
        offset = self.position % self.term_length
        size = 32 + len(payload) if length is None else length
        head = HEADER.pack(size, 0, flags, kind, offset, self.session_id, self.stream_id, term_id, reserved)
        whole = (head + payload).ljust(aligned(size), b"\0")
        self.position += len(whole)
        return whole

    def message(self, payload: bytes, reserved: int = 0) -> bytes:
        most = self.mtu - 32
        parts = [payload[i : i + most] for i in range(0, len(payload), most)] or [b""]
        out = b""
        for i, part in enumerate(parts):
            flags = (0x80 if i == 0 else 0) | (0x40 if i == len(parts) - 1 else 0)
            out += self.frame(part, flags, reserved=reserved)
        return out

    def size_of(self, payload: bytes) -> int:
        most = self.mtu - 32
        return sum(aligned(32 + len(payload[i : i + most])) for i in range(0, len(payload), most)) or 32

    def runs(self, payloads: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        for payload in payloads:
            left = self.term_length - self.position % self.term_length
            if self.size_of(payload) > left:
                start = self.position
                yield start, self.frame(b"", 0xC0, kind=0, length=left)
            start = self.position
            yield start, self.message(payload)


def record(
    writer: RecordingWriter, stream: Stream, payloads: Iterable[bytes], *, time_ns: int = 0, step_ns: int = 0
) -> None:
    """Write the messages to a recording, run by run."""
    for _, run in stream.runs(payloads):
        writer.write(memoryview(run), time_ns)
        time_ns += step_ns
