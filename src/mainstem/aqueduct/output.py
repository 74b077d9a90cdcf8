"""What goes out on QUIC streams and in datagrams, until the transport asks for it.

Stream ids are minted here, in QUIC's own order (bit 0 is set for streams that the server opened, bit 1 for those of one
direction), so that the protocol never waits for its transport.
"""

from __future__ import annotations

from mainstem._core.aqueduct.run_writer import MessageWriter
from mainstem.aqueduct.events import Command, ResetStream, SendDatagram, SendStream, WatchDelivery
from mainstem.aqueduct.halves import OPENED_BY_SERVER, UNIDIRECTIONAL

LARGE_PIECE = 1 << 12
"""Bytes from which on a piece is handed to the transport by itself: joining it with others would copy it once more."""

UNLIMITED = 1 << 60
"""Room where the transport has set no limit."""


class Output:
    """What goes out: writes are joined stream by stream until the transport asks for them."""

    def __init__(self, *, is_client: bool) -> None:
        initiator = 0 if is_client else OPENED_BY_SERVER
        self._next_bidi = initiator
        self._next_uni = initiator | UNIDIRECTIONAL
        self._commands: list[Command] = []
        self._writes: dict[int, tuple[list[bytes], bool]] = {}
        self._new: set[int] = set()
        # Streams opened here whose first command has not been taken.
        self.unreported = {True: 0, False: 0}
        # Plain messages, encoded as they are sent; it also counts what there is room for.
        self.plain = MessageWriter()
        self.plain.stream_room = UNLIMITED
        self.bidi_room = UNLIMITED

    def note_room(
        self, bidi_streams: int | None, uni_streams: int | None, datagrams: int | None, max_datagram: int | None
    ) -> None:
        """What the transport has room for; None leaves a value alone. Streams whose commands were not taken are counted here."""
        plain = self.plain
        if bidi_streams is not None:
            self.bidi_room = bidi_streams - self.unreported[False]
        if uni_streams is not None:
            plain.stream_room = uni_streams - self.unreported[True] - plain.waiting_singles
        if datagrams is not None:
            plain.datagram_room = datagrams
        if max_datagram is not None:
            plain.max_datagram = max_datagram

    def open(self, *, unidirectional: bool) -> int:
        """A new stream's id. The caller has seen that there is room, and writes a frame at once."""
        self._gather_alone()
        self.unreported[unidirectional] += 1
        if unidirectional:
            stream_id = self._next_uni
            self._next_uni += 4
            self.plain.stream_room -= 1
        else:
            stream_id = self._next_bidi
            self._next_bidi += 4
            self.bidi_room -= 1
        self._new.add(stream_id)
        self._writes[stream_id] = ([self.plain.opening] if self.plain.opening else [], False)
        return stream_id

    def write(self, stream_id: int, data: bytes) -> None:
        """Write to a stream."""
        if self.plain.stream_id >= 0:
            self._gather()
        write = self._writes.get(stream_id)
        if write is None:
            self._writes[stream_id] = ([data], False)
        else:
            write[0].append(data)

    def finish(self, stream_id: int) -> None:
        """End a stream after what was written."""
        self._gather()
        write = self._writes.get(stream_id)
        self._writes[stream_id] = (write[0] if write else [], True)

    def reset(self, stream_id: int, code: int) -> None:
        """End a stream abruptly; what the transport has not been given yet is dropped."""
        self._gather()
        if stream_id in self._new:
            # A stream is never opened without a frame on it, and streams are opened in the order of their ids.
            self._flush()
        self._writes.pop(stream_id, None)
        self._commands.append(ResetStream(stream_id, code))

    def datagram(self, data: bytes) -> None:
        """Send a datagram."""
        self._gather_alone()
        self.plain.datagram_room -= 1
        self._commands.append(SendDatagram(self.plain.opening + data))

    def watch(self, stream_id: int) -> None:
        """Ask for a report when the stream's bytes have reached the peer."""
        self._flush()
        self._commands.append(WatchDelivery(stream_id))

    def command(self, command: Command) -> None:
        """Ask something else of the transport."""
        self._commands.append(command)

    def _gather(self) -> None:
        """Put the plain messages where the other writes of their stream are."""
        if self.plain.stream_id >= 0:
            stream_id, pieces = self.plain.take()
            write = self._writes.get(stream_id)
            if write is None:
                self._writes[stream_id] = (pieces, False)
            else:
                write[0].extend(pieces)

    def _gather_alone(self) -> None:
        """Put the messages that travel alone where the other commands are. Their streams get their ids here."""
        if not self.plain.has_alone:
            return
        singles, datagrams = self.plain.take_alone()
        if singles:
            if self._new:
                # Streams are opened in the order of their ids.
                self._flush()
            stream_id = self._next_uni
            for data in singles:
                self._commands.append(SendStream(stream_id, data, True))
                stream_id += 4
            self._next_uni = stream_id
            self.unreported[True] += len(singles)
        self._commands.extend(map(SendDatagram, datagrams))

    def _flush(self) -> None:
        self._gather()
        for stream_id, (pieces, fin) in self._writes.items():
            if len(pieces) == 1:
                self._commands.append(SendStream(stream_id, pieces[0], fin))
            else:
                self._join(stream_id, pieces, fin)
        self._writes.clear()
        self._new.clear()

    def _join(self, stream_id: int, pieces: list[bytes], fin: bool) -> None:
        """Join what is small; what is large goes as it is."""
        run: list[bytes] = []
        for piece in pieces:
            if len(piece) < LARGE_PIECE:
                run.append(piece)
                continue
            if run:
                self._commands.append(SendStream(stream_id, b"".join(run), False))
                run = []
            self._commands.append(SendStream(stream_id, piece, False))
        if run or fin:
            self._commands.append(SendStream(stream_id, b"".join(run), fin))

    @property
    def is_pending(self) -> bool:
        return bool(self._writes or self._commands or self.plain.stream_id >= 0 or self.plain.has_alone)

    def take(self) -> list[Command]:
        """All that goes out now."""
        self._flush()
        self._gather_alone()
        self.plain.renew()
        commands, self._commands = self._commands, []
        self.unreported[True] = self.unreported[False] = 0
        return commands

    def forget(self, stream_id: int) -> None:
        """The peer reads no more of this stream: what was not given to the transport is dropped."""
        self._gather()
        if stream_id not in self._new:
            self._writes.pop(stream_id, None)

    def clear(self) -> None:
        """Forget what has not gone out."""
        self._gather()
        self.plain.take_alone()
        self._writes.clear()
        self._commands.clear()
        self._new.clear()
