"""What a connection sends: commands for the QUIC connection, and the bytes of each stream until they become commands.

Writes to a stream are joined until the transport asks for output. Stream ids are minted here, in QUIC's own order (bit 0 is set
for streams that the server opened, bit 1 for unidirectional streams), so that the engine never waits for its transport.

Plain messages are encoded in compiled code, by a `MessageWriter`, which also tracks how much room the transport has for
unidirectional streams and datagrams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.aqueduct.run_writer import MessageWriter
from mainstem.aqueduct.events import ResetStream, SendDatagram, SendStream
from mainstem.aqueduct.frames import VERSION_BYTES
from mainstem.aqueduct.halves import OPENED_BY_SERVER, UNIDIRECTIONAL

if TYPE_CHECKING:
    from mainstem.aqueduct.context import Context
    from mainstem.aqueduct.events import Command

LARGE_PIECE = 1 << 12
"""Minimum size in bytes at which a piece is passed to the transport by itself: joining it with others would copy it again."""

UNLIMITED = 1 << 60
"""The room assumed when the transport has set no limit."""


class Output:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.commands: list[Command] = []
        self.plain = MessageWriter()
        self.plain.stream_room = self.bidi_room = UNLIMITED
        if context.is_client:
            # Everything the client sends before the server has responded begins with a Version frame.
            self.plain.opening = VERSION_BYTES
        # The pieces to write to each stream, and the streams that end with them.
        self.writes: dict[int, list[bytes]] = {}
        self._fins: set[int] = set()
        # Keyed by the bit of unidirectional streams: the next id, and the first id not yet passed to the transport.
        initiator = 0 if context.is_client else OPENED_BY_SERVER
        self._next_id = {0: initiator, UNIDIRECTIONAL: initiator | UNIDIRECTIONAL}
        self._first_new = self._next_id.copy()

    def transport_state(
        self,
        bidi_streams: int | None = None,
        uni_streams: int | None = None,
        datagrams: int | None = None,
        max_datagram: int | None = None,
        rtt_ns: int = 0,
    ) -> None:
        """Record how much room the QUIC connection has, minus streams it does not know yet; None leaves a value unchanged."""
        plain = self.plain
        if bidi_streams is not None:
            self.bidi_room = bidi_streams - (self._next_id[0] - self._first_new[0]) // 4
        if uni_streams is not None:
            new = (self._next_id[UNIDIRECTIONAL] - self._first_new[UNIDIRECTIONAL]) // 4
            plain.stream_room = uni_streams - new - plain.waiting_singles
        if datagrams is not None:
            plain.datagram_room = datagrams
        if max_datagram is not None:
            plain.max_datagram = max_datagram
        if rtt_ns:
            self._context.rtt_ns = rtt_ns

    def open_stream(self, data: bytes, *, unidirectional: bool, fin: bool = False) -> int:
        """Open a stream that begins with ``data``; return its id. The caller has checked that there is room."""
        plain = self.plain
        if plain.has_alone:
            self._gather_alone()
        if unidirectional:
            kind = UNIDIRECTIONAL
            plain.stream_room -= 1
        else:
            kind = 0
            self.bidi_room -= 1
        stream_id = self._next_id[kind]
        self._next_id[kind] = stream_id + 4
        self.writes[stream_id] = [plain.opening, data] if plain.opening else [data]
        if fin:
            self._fins.add(stream_id)
        return stream_id

    def _is_new(self, stream_id: int) -> bool:
        first_new = self._first_new[stream_id & UNIDIRECTIONAL]
        return stream_id >= first_new and not (stream_id ^ first_new) & OPENED_BY_SERVER

    def write(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Write to a stream; if ``fin``, end this side's direction."""
        if self.plain.stream_id >= 0:
            self._gather()
        pieces = self.writes.get(stream_id)
        if pieces is None:
            self.writes[stream_id] = [data]
        else:
            pieces.append(data)
        if fin:
            self._fins.add(stream_id)

    def reset(self, stream_id: int, code: int) -> None:
        """End a stream abruptly, dropping data that has not been passed to the transport."""
        self._gather()
        if self._is_new(stream_id):
            # Every stream opens with a frame, and streams open in the order of their ids.
            self.flush()
        self.forget_writes(stream_id)
        self.commands.append(ResetStream(stream_id, code))

    def forget_writes(self, stream_id: int) -> None:
        """Drop data written to a stream that has not been passed to the transport."""
        self._gather()
        if not self._is_new(stream_id):
            self.writes.pop(stream_id, None)
            self._fins.discard(stream_id)

    def send_datagram(self, data: bytes) -> None:
        self._gather_alone()
        self.plain.datagram_room -= 1
        self.commands.append(SendDatagram(self.plain.opening + data))

    def _gather(self) -> None:
        """Append the pending plain messages to the other writes of their stream."""
        if self.plain.stream_id >= 0:
            stream_id, pieces = self.plain.take()
            self.writes.setdefault(stream_id, []).extend(pieces)

    def _gather_alone(self) -> None:
        """Append the messages that travel alone to the commands, assigning ids to their streams."""
        singles, datagrams = self.plain.take_alone()
        if singles:
            # Streams must open in the order of their ids.
            self.flush()
            stream_id = self._next_id[UNIDIRECTIONAL]
            for data in singles:
                self.commands.append(SendStream(stream_id, data, True))
                stream_id += 4
            self._next_id[UNIDIRECTIONAL] = stream_id
        self.commands.extend(map(SendDatagram, datagrams))

    def flush(self) -> None:
        """Turn what has been written to streams into commands."""
        if self.plain.stream_id >= 0:
            stream_id, pieces = self.plain.take()
            self.writes.setdefault(stream_id, []).extend(pieces)
        append, fins = self.commands.append, self._fins
        for stream_id, pieces in self.writes.items():
            fin = stream_id in fins
            if len(pieces) == 1:
                append(SendStream(stream_id, pieces[0], fin))
                continue
            small: list[bytes] = []
            for piece in pieces:
                if len(piece) < LARGE_PIECE:
                    small.append(piece)
                    continue
                if small:
                    append(SendStream(stream_id, b"".join(small), False))
                    small = []
                append(SendStream(stream_id, piece, False))
            if small or fin:
                append(SendStream(stream_id, b"".join(small), fin))
        self.writes.clear()
        fins.clear()

    def take(self) -> list[Command]:
        """Remove and return all commands."""
        if self.writes or self.plain.stream_id >= 0:
            self.flush()
        if self.plain.has_alone:
            self._gather_alone()
        self.plain.renew()
        commands, self.commands = self.commands, []
        self._first_new.update(self._next_id)
        return commands

    def drop(self) -> None:
        self._gather()
        self.plain.take_alone()
        self.writes.clear()
        self._fins.clear()
        self.commands.clear()
