"""Handmade rows of ``frames``, as a capture of a small stream would have them."""

from __future__ import annotations

from typing import Any

from mainstem.capture.schema import AERON_TYPES, COLUMNS

TYPES = {name: number for number, name in AERON_TYPES.items()}
MS = 1_000_000
BEGUN_NS = 1_700_000_000 * 1_000_000_000


class Wire:
    """Appends frames to ``rows``; ``now`` is in nanoseconds since the capture began."""

    def __init__(
        self, *, session_id: int = 7, stream_id: int = 1001, term_length: int = 65536, first: int = -3
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self.now = 0
        self.session_id, self.stream_id = session_id, stream_id
        self.term_length, self.initial_term_id = term_length, first
        self.publisher, self.receiver = ("10.0.0.1", 40000), ("10.0.0.2", 20121)
        self.control: tuple[str, int] | None = None
        self.packet = 0

    def row(self, source: tuple[str, int], target: tuple[str, int], protocol: str, kind: str, **values: Any) -> None:
        self.packet += 1
        time_ns = BEGUN_NS + self.now
        row: dict[str, Any] = {column.name: None for column in COLUMNS}
        row |= {
            "file": "hand.pcap", "packet": self.packet, "frame_index": 0, "time": time_ns // 1000, "time_ns": time_ns,
            "protocol": protocol, "transport": "udp" if protocol == "aeron" else "tcp",
            "src": source[0], "src_port": source[1], "dst": target[0], "dst_port": target[1], "frame_type": kind,
            "flags": 0, "frame_length": 28, "length": 0, "wire_length": 70,
        }  # fmt: skip
        self.rows.append(row | values)

    def aeron(self, kind: str, *, answer: bool = False, receiver: tuple[str, int] | None = None, **values: Any) -> None:
        far = receiver or self.receiver
        source, target = (far, self.control or self.publisher) if answer else (self.publisher, self.receiver)
        own = {"type": TYPES[kind], "session_id": self.session_id, "stream_id": self.stream_id}
        self.row(source, target, "aeron", kind, **own | values)

    def term_position(self, position: int) -> dict[str, int]:
        term_id = self.initial_term_id + position // self.term_length
        return {"term_id": term_id, "term_offset": position % self.term_length}

    def setup(self, position: int = 0) -> None:
        facts = {"initial_term_id": self.initial_term_id, "term_length": self.term_length, "mtu": 1408}
        self.aeron("SETUP", frame_length=40, **facts, **self.term_position(position))

    def data(self, position: int, payload: int = 96, flags: int = 0xC0) -> int:
        """Append a data frame; return the position after it."""
        self.aeron("DATA", flags=flags, frame_length=32 + payload, length=payload, wire_length=74 + payload,
                   reserved_value=0, **self.term_position(position))  # fmt: skip
        return position + ((32 + payload + 31) & ~31)

    def pad(self, position: int, length: int) -> int:
        self.aeron("PAD", flags=0xC0, frame_length=length, **self.term_position(position))
        return position + length

    def heartbeat(self, position: int, flags: int = 0xC0) -> None:
        self.aeron("DATA", flags=flags, frame_length=0, **self.term_position(position))

    def nak(self, start: int, end: int, **values: Any) -> None:
        self.aeron("NAK", answer=True, nak_length=end - start, **self.term_position(start), **values)

    def status(self, position: int, window: int, receiver_id: int = 99, flags: int = 0, **values: Any) -> None:
        own = {"receiver_window": window, "receiver_id": receiver_id, "flags": flags, "frame_length": 36}
        self.aeron("SM", answer=True, **own, **self.term_position(position), **values)

    def rttm(self, echo: int, *, question: bool, receiver_id: int = 99) -> None:
        own = {"echo_timestamp": echo, "reception_delta": 0, "receiver_id": receiver_id, "frame_length": 40}
        self.aeron("RTTM", answer=question, flags=0x80 if question else 0, **own)

    def wait(self, milliseconds: float) -> None:
        self.now += int(milliseconds * MS)


def lossy_stream(wire: Wire, *, frames: int = 60) -> Wire:
    """Append a stream with losses on both sides of the capture, stalls and retransmissions."""
    wire.status(0, 0, flags=0x80)
    wire.setup()
    position, consumed = 0, 0
    for number in range(frames):
        wire.wait(0.01)
        if number % 20 == 7:
            lost, position = position, position + 128  # the capture never sees this frame
            position = wire.data(position)
            wire.wait(0.05)
            wire.nak(lost, lost + 128)
            wire.wait(0.05)
            wire.nak(lost, lost + 128)
            wire.wait(0.2)
            wire.data(lost)
        elif number % 20 == 12:
            start = position
            position = wire.data(position)
            wire.wait(0.1)
            wire.nak(start, start + 128)
            wire.wait(0.3)
            wire.data(start)
            wire.wait(0.1)
            wire.nak(start, start + 128)
        elif number % 20 == 15:
            late, position = position, position + 128
            position = wire.data(position)
            wire.data(late)
        elif number % 20 == 17:
            wire.data(position - 128)
        else:
            position = wire.data(position)
        if number % 5 == 4:
            consumed = position
            wire.status(consumed, 1024)
        if number % 25 == 3:
            wire.rttm(number, question=True)
            wire.wait(0.4)
            wire.rttm(number, question=False)
    for _ in range(8):
        position = wire.data(position)  # this fills the window
    wire.wait(5)
    wire.status(position, 4096)
    wire.wait(0.1)
    position = wire.data(position)
    for _ in range(3):
        wire.wait(100)
        wire.heartbeat(position)
    position = wire.data(position)
    wire.nak(position, position + 96)
    wire.wait(30)
    wire.heartbeat(position + 96)
    wire.wait(100)
    wire.heartbeat(position + 96, flags=0xE0)
    wire.status(position - 128, 4096, flags=0x40)
    return wire


class Connection(Wire):
    """Appends frames of one TCP connection."""

    def __init__(self, protocol: str, types: dict[int, str], number: int = 1) -> None:
        super().__init__()
        self.protocol, self.types, self.number = protocol, {name: value for value, name in types.items()}, number
        self.client, self.server = ("10.0.0.1", 50000 + number), ("10.0.0.2", 4000)

    def frame(self, kind: str, *, client: bool, **values: Any) -> None:
        ends = (self.client, self.server) if client else (self.server, self.client)
        own = {
            "connection": self.number,
            "from_client": client,
            "type": self.types.get(kind.removeprefix("GLOBAL_"), 1),
        }
        if kind.startswith("GLOBAL_") or kind == "CREATE":
            own["flags"] = own["type"] << 5 | 0x10
        self.row(*ends, self.protocol, kind, **own | values)

    def tcp(self, event: str) -> None:
        self.row(self.client, self.server, "tcp", event, connection=self.number, from_client=True)


def bymux_connection(connection: Connection) -> Connection:
    """Append two streams: one that is written, blocked by credit and ended, and one that is still open when the connection ends."""
    say = connection.frame
    say("GLOBAL_CREDIT", client=False, credit=2)
    for stream in (0, 2):
        connection.wait(1)
        say("CREATE", client=True, mux_stream_id=stream)
        say("CREDIT", client=False, mux_stream_id=stream, credit=100 if stream == 0 else 0)
    for _ in range(3):
        connection.wait(1)
        say("WRITE", client=True, mux_stream_id=0, length=100)
        connection.wait(2)
        say("CREDIT", client=False, mux_stream_id=0, credit=100)
    say("PING", client=True, mux_stream_id=0)
    say("GLOBAL_PING", client=False)
    connection.wait(0.5)
    say("PONG", client=False, mux_stream_id=0)
    say("GLOBAL_PONG", client=True)
    say("WRITE", client=True, mux_stream_id=2, length=5000)
    for client in (True, False):
        say("CLOSE", client=client, mux_stream_id=0)
        say("STOP_READ", client=client, mux_stream_id=0)
    connection.wait(3)
    connection.tcp("RESET")
    return connection


def jmux_connection(connection: Connection) -> Connection:
    """Append requests that are answered, aborted and cut off by a shutdown, and a ration that runs out."""
    say, wait = connection.frame, connection.wait
    for client in (True, False):
        say("HEADER", client=client, credit=512)
    for _ in range(3):
        wait(1)
        say("DATA", client=True, mux_stream_id=0, flags=0x90, length=512)
        wait(1)
        say("INCREMENT_RATION", client=False, mux_stream_id=0, credit=512)
        say("DATA", client=True, mux_stream_id=0, flags=0x84, length=100)
        wait(2)
        say("DATA", client=False, mux_stream_id=0, flags=0x80, length=50)
        wait(1)
        say("DATA", client=False, mux_stream_id=0, flags=0x8E, length=10)
        say("ACKNOWLEDGMENT", client=True, mux_stream_id=0)
    say("DATA", client=True, mux_stream_id=1, flags=0x94, length=5)
    say("DATA", client=True, mux_stream_id=2, flags=0x94, length=5)
    say("PING", client=False, cookie=17)
    wait(0.25)
    say("PING_ACK", client=True, cookie=17)
    say("ABORT", client=False, mux_stream_id=1, flags=0x22)
    wait(1)
    say("SHUTDOWN", client=False, text="later")
    return connection


def aqueduct_trace(wire: Wire) -> Wire:
    """Append the frames of two Aqueduct channels."""
    for number in range(4):
        wire.wait(1)
        for channel in (0, 8 | 1 | 2 | 4):
            wire.row(wire.publisher, wire.receiver, "aqueduct", "MESSAGE", channel_id=channel, message_number=number,
                     length=10 * number, connection=1)  # fmt: skip
    for kind, channel in (("ACK_RELIABLE", 0), ("FINISH_SENDER", 0), ("CLOSED_CHANNEL_LOST", 15)):
        wire.row(wire.publisher, wire.receiver, "aqueduct", kind, channel_id=channel, message_number=4, connection=1)
    return wire


def everything() -> list[dict[str, Any]]:
    """Return one capture with rows of every protocol, sorted by time and with consecutive packet numbers."""
    group = lossy_stream(Wire(session_id=8), frames=40)
    for row in group.rows:  # the same stream to a multicast group
        for end in ("dst", "src"):
            if row[end] == "10.0.0.2":
                row[end] = "224.0.1.1" if end == "dst" else row[end]
        if row["src"] == "10.0.0.2":
            row["dst"], row["dst_port"] = "224.0.1.2", 20121
    from mainstem.capture.schema import BYMUX_TYPES, JMUX_TYPES

    parts = [
        lossy_stream(Wire()),
        group,
        bymux_connection(Connection("bymux", BYMUX_TYPES, 1)),
        jmux_connection(Connection("jmux", JMUX_TYPES, 2)),
        aqueduct_trace(Wire()),
    ]
    parts[0].aeron("ERR", answer=True, error_code=13, text="go away", receiver_id=99)
    rows = sorted((row for part in parts for row in part.rows), key=lambda row: row["time_ns"])
    for number, row in enumerate(rows):
        row["packet"] = number + 1
    fault = {column.name: None for column in COLUMNS} | {"file": "hand.pcap", "protocol": "problem"}
    return [*rows, fault | {"frame_type": "TRUNCATED_FILE", "text": "the file ends inside a record", "time_ns": None}]


# A frame's type, its origin (port 8), its destination (port 9) and the channel that it belongs to.
CHANNELS = [
    (1, "10.0.0.1", "10.0.0.2", "10.0.0.2:9"),
    (2, "10.0.0.2", "10.0.0.1", "10.0.0.2:8"),
    (3, "10.0.0.2", "224.1.1.2", "224.1.1.1:9"),
    (3, "10.0.0.2", "239.255.0.0", "239.255.0.255:9"),
    (3, "10.0.0.2", "223.1.1.2", "10.0.0.2:8"),
    (3, "fe80::1", "ff02::1:10", "ff02::1:f:9"),
    (3, "fe80::1", "ff02::", None),
    (3, None, "10.0.0.1", None),
]


def to_arrow(rows: list[dict[str, Any]]) -> Any:
    """Return rows as an Arrow table with the types of ``frames``."""
    import pyarrow as pa

    from mainstem.capture.schema import arrow_schema

    return pa.Table.from_pylist(rows, schema=arrow_schema([column.name for column in COLUMNS]))
