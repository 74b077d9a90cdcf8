"""TCP connections and fragmented IP packets: the packets of a capture whose decoding depends on earlier packets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem._core.capture import layout as layout
from mainstem._core.capture.mux_frames import MuxParser
from mainstem.capture.ip_fragments import LINK_RAW, Fragments, Partial
from mainstem.capture.tcp_streams import Stream

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mainstem._core.capture.aeron_frames import CaptureDecoder
    from mainstem._core.capture.packets import Packet

FIN, SYN, RST, ACK = 1, 2, 4, 16
MAX_CONNECTIONS = 16384  # connections followed at once; a new one replaces the oldest


@dataclass
class Segment:
    """A segment's packet, as rows identify it, and its number of rows."""

    number: int
    time_ns: int
    timed: bool
    wire_length: int
    addresses: bytes
    source_port: int
    destination_port: int
    rows: int = 0


@dataclass
class Connection:
    """Both directions of a connection; index 0 is the one whose address and port sort first.

    ``last`` is each direction's last segment, to which events at the end of the capture are assigned.
    """

    streams: tuple[Stream, Stream]
    last: list[Segment | None] = field(default_factory=lambda: [None, None])
    opened: tuple[int, int] | None = None  # (end, sequence number) of the SYN that opened it


class Flows:
    """A decoder of packets that depend on earlier ones. Every method is a generator that yields whenever the rows are full."""

    def __init__(
        self, decoder: CaptureDecoder, *, bymux: Collection[int], jmux: Collection[int], tcp_buckets: int, keep: bool
    ) -> None:
        self._decoder, self._rows = decoder, decoder.rows
        self._jmux, self._ports = frozenset(jmux), frozenset((*bymux, *jmux))
        self._tcp_buckets = tcp_buckets
        self._keep = keep
        self._fragments = Fragments()
        self._connections: dict[tuple[bytes, int, bytes, int], Connection] = {}

    def take(self, source: bytes | bytearray) -> Iterator[None]:
        """Process the packet at which the decoder stopped."""
        packet, walk = self._decoder.packet, self._decoder.walk
        data = bytes(memoryview(source)[packet.payload : packet.payload + packet.available])
        if packet.kind == layout.PACKET_TCP:
            yield from self._counted(packet, *packet.addresses(source), data)
            return
        # Every part that owns TCP buckets reads the fragments of TCP; only one of them counts and reports them.
        is_tcp = packet.protocol == layout.PROTOCOL_NUMBER_TCP
        mine = self._tcp_buckets if is_tcp else ~0
        owned = bool((mine >> packet.bucket) & 1)
        addresses = b"".join(packet.addresses(source))
        whole = self._fragments.add(packet, data, addresses, self._decoder.number, walk.time_ns, owned=owned)
        for partial in self._fragments.expired(walk.time_ns):
            yield from self._lost(partial)
        if whole is None:
            if owned:
                self._decoder.pass_over(layout.PASSED_FRAGMENT)
            return
        # Rows of lost fragments have replaced the current packet in ``rows``.
        self._rows.begin(self._decoder.number, walk.time_ns, walk.timed, walk.original)
        while (kind := self._decoder.whole(whole, LINK_RAW)) < 0:
            yield
        if kind == layout.PACKET_TCP and is_tcp:
            if not (self._tcp_buckets >> packet.bucket) & 1:
                return
            data = whole[packet.payload : packet.payload + packet.available]
            yield from self._counted(packet, *packet.addresses(whole), data)
        elif kind != layout.PACKET_UDP and owned:
            # A segment or fragment inside a fragmented tunnel packet comes here too: the owner of its flow does not read it.
            self._decoder.pass_over(layout.PASSED_FRAGMENT)

    def finish(self) -> Iterator[None]:
        for connection in self._connections.values():
            for stream, last in zip(connection.streams, connection.last, strict=True):
                if last is not None:
                    self._begin(last)
                    yield from stream.finish()
                    if self._rows.frame_index > last.rows == 0:
                        self._decoder.pass_over(layout.PASSED_SEGMENT, -1)
        self._connections.clear()
        for partial in self._fragments.rest():
            yield from self._lost(partial)

    def _begin(self, segment: Segment) -> None:
        self._rows.begin(segment.number, segment.time_ns, segment.timed, segment.wire_length, layout.TRANSPORT_TCP)
        self._rows.flow(segment.addresses, segment.source_port, segment.destination_port)
        self._rows.frame_index = segment.rows

    def _counted(self, packet: Packet, source: bytes, destination: bytes, data: bytes) -> Iterator[None]:
        """Process a segment, and count it if it completed no row."""
        walk = self._decoder.walk
        segment = Segment(
            self._decoder.number, walk.time_ns, walk.timed, walk.original, source + destination, packet.source_port,
            packet.destination_port,
        )  # fmt: skip
        yield from self._segment(packet, segment, source, destination, data)
        segment.rows = self._rows.frame_index
        if not segment.rows:
            self._decoder.pass_over(layout.PASSED_SEGMENT)

    def _lost(self, partial: Partial) -> Iterator[None]:
        if not partial.owned:
            return
        self._decoder.pass_over(layout.PASSED_FRAGMENT, -1)
        while self._rows.full:
            yield
        self._rows.begin(partial.number, partial.time_ns, partial.time_ns > 0, 0)
        text = f"{len(partial.parts)} fragments, {partial.held} bytes of an IP packet came; the rest never did"
        self._rows.row(
            layout.PROTOCOL_PROBLEM, layout.KIND_PROBLEM + layout.PROBLEM_LOST_FRAGMENT, {}, text=text.encode()
        )

    def _segment(
        self, packet: Packet, segment: Segment, source: bytes, destination: bytes, data: bytes
    ) -> Iterator[None]:
        a, b = (source, packet.source_port), (destination, packet.destination_port)
        if self._ports.isdisjoint((packet.destination_port, packet.source_port)):
            return
        end = 0 if a <= b else 1
        key = (*a, *b) if end == 0 else (*b, *a)
        self._begin(segment)
        connection = self._connections.get(key)
        flags, sequence = packet.tcp_flags, packet.sequence
        begins = flags & (SYN | ACK | RST) == SYN and (connection is None or connection.opened != (end, sequence))
        if connection is not None and begins:
            # The ports are being reused.
            yield from self._drop(key)
            connection = None
        if connection is None:
            if not packet.length and not flags & SYN:
                return
            connection = self._open(key, packet, end, begins=begins)
        connection.last[end] = segment
        stream, other = connection.streams[end], connection.streams[1 - end]
        if flags & SYN and not (stream.position or stream.ended):
            stream.begin(sequence)
        if begins:
            connection.opened = (end, sequence)
            yield from stream.opened()
        if flags & ACK:
            other.acknowledged(packet.acknowledged)
        start = (sequence + 1) & 0xFFFFFFFF if flags & SYN else sequence
        yield from stream.segment(start, data, packet.length, last=bool(flags & FIN))
        if flags & RST:
            yield from stream.reset()
            yield from self._drop(key)

    def _open(self, key: tuple[bytes, int, bytes, int], packet: Packet, end: int, *, begins: bool) -> Connection:
        if len(self._connections) >= MAX_CONNECTIONS:
            del self._connections[next(iter(self._connections))]
        client = end if begins else self._client_of(packet, end)
        jmux = not self._jmux.isdisjoint((packet.source_port, packet.destination_port))
        streams = []
        for side in (0, 1):
            parser = MuxParser(self._rows, jmux, self._keep)
            parser.connection = self._decoder.number
            parser.from_client = -1 if client is None else int(client == side)
            streams.append(Stream(self._rows, parser))
        connection = Connection((streams[0], streams[1]))
        self._connections[key] = connection
        return connection

    def _client_of(self, packet: Packet, end: int) -> int | None:
        """Find the client of a connection without a SYN: if only one end has a named port, that end is the server."""
        if packet.tcp_flags & (SYN | ACK) == SYN | ACK:
            return 1 - end
        is_to_server = packet.destination_port in self._ports
        if (packet.source_port in self._ports) == is_to_server:
            return None
        return end if is_to_server else 1 - end

    def _drop(self, key: tuple[bytes, int, bytes, int]) -> Iterator[None]:
        connection = self._connections.pop(key)
        for stream in connection.streams:
            yield from stream.finish()
