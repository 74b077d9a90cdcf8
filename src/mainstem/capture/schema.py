"""The columns of ``frames``: one row per protocol frame in a capture, and one per problem.

Columns that do not apply to a kind of frame are null. ``KINDS`` has the values of ``protocol`` and ``frame_type``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa


@dataclass(frozen=True)
class Column:
    """A column: its name, its Spark type, and its meaning."""

    name: str
    type: str
    meaning: str


COLUMNS = (
    Column("file", "string", "path of the capture"),
    Column("packet", "bigint", "number of the packet in its file, from 1: of the last one that completed the frame"),
    Column("frame_index", "int", "0, 1, ... for the frames that one packet completed"),
    Column("time", "timestamp", "when that packet was captured, in microseconds"),
    Column("time_ns", "bigint", "the same in nanoseconds since 1970, as exact as the capture has it"),
    Column("wire_length", "int", "bytes that the packet had on the wire, its link header included"),
    Column("protocol", "string", "aeron, bymux, jmux, aqueduct; tcp for events of a connection; problem"),
    Column("transport", "string", "udp, tcp or quic"),
    Column("src", "string", "address of the sender"),
    Column("src_port", "int", "its port"),
    Column("dst", "string", "address of the receiver"),
    Column("dst_port", "int", "its port"),
    Column("frame_type", "string", "name of the frame's type (KINDS)"),
    Column("type", "int", "the type as it is on the wire"),
    Column("flags", "smallint", "the flags byte; of bymux and Jmux the first byte of the header"),
    Column("frame_length", "int", "aeron: its own length field (0 in a heartbeat); else bytes, header included"),
    Column("length", "int", "bytes of payload: message data without headers; PASSED_OVER: packets"),
    Column("datagram_length", "int", "udp: bytes of payload of the whole datagram"),
    Column("session_id", "int", "aeron"),
    Column("stream_id", "int", "aeron"),
    Column("term_id", "int", "DATA, PAD: the frame's; NAK: the gap's; SM: of the consumption; SETUP: the active term"),
    Column("term_offset", "int", "DATA, PAD: the frame's; NAK: the gap's; SM: of the consumption; SETUP: the sender's"),
    Column("initial_term_id", "int", "SETUP"),
    Column("term_length", "int", "SETUP: bytes"),
    Column("mtu", "int", "SETUP: bytes"),
    Column("ttl", "int", "SETUP"),
    Column("reserved_value", "bigint", "DATA, PAD"),
    Column("nak_length", "int", "NAK: bytes missing"),
    Column("receiver_window", "int", "SM: bytes that may be sent beyond the consumption"),
    Column("receiver_id", "bigint", "SM, RTTM, ERR"),
    Column("group_tag", "bigint", "SM, ERR: if the frame has one"),
    Column("echo_timestamp", "bigint", "RTTM: ns, of the clock of the side that asked"),
    Column("reception_delta", "bigint", "RTTM: ns"),
    Column("response_session_id", "int", "RSP_SETUP"),
    Column("error_code", "int", "aeron ERR"),
    Column(
        "text",
        "string",
        "text of an ERR, Error or Shutdown; names of a RES; heartbeat; a problem's text; an Aqueduct frame",
    ),
    Column("connection", "bigint", "tcp: number of the first packet of the connection; with file it is unique"),
    Column("from_client", "boolean", "tcp: whether the side that opened the connection sent it; null if unknown"),
    Column("stream_offset", "bigint", "tcp: offset of the frame in this side's bytes, from 0 at the first byte seen"),
    Column("mux_stream_id", "bigint", "bymux stream, Jmux session; null if a frame is about the whole connection"),
    Column("credit", "bigint", "bymux: of a Credit (0: no limit); Jmux: bytes of an IncrementRation or a header"),
    Column("cookie", "int", "Jmux Ping, PingAck"),
    Column("channel_id", "bigint", "aqueduct: the channel, as on the wire"),
    Column("message_number", "bigint", "aqueduct: of a Message; the count of SentUnreliable and FinishSender"),
)
"""Every column except ``payload``, in order. Unsigned 64-bit values above 2**63 - 1 appear as negative numbers."""

PAYLOAD = Column("payload", "binary", "the payload; only on request, as it costs the most to read")

AERON_TYPES = {
    0: "PAD",
    1: "DATA",
    2: "NAK",
    3: "SM",
    4: "ERR",
    5: "SETUP",
    6: "RTTM",
    7: "RES",
    8: "ATS_DATA",
    9: "ATS_SETUP",
    10: "ATS_SM",
    11: "RSP_SETUP",
    0xFFFF: "EXT",
}
BYMUX_TYPES = {0: "CREDIT", 1: "WRITE", 2: "PING", 3: "PONG", 4: "CLOSE", 5: "STOP_READ"}
"""Global packets (without ``mux_stream_id``) are GLOBAL_CREDIT and so on; CREATE is the global write, with its new stream."""

JMUX_TYPES = {
    0x4A: "HEADER",
    0x00: "NO_OPERATION",
    0x02: "SHUTDOWN",
    0x04: "PING",
    0x06: "PING_ACK",
    0x08: "ERROR",
    0x10: "INCREMENT_RATION",
    0x20: "ABORT",
    0x30: "CLOSE",
    0x40: "ACKNOWLEDGMENT",
    0x80: "DATA",
}
TCP_EVENTS = ("OPEN", "CLOSE", "RESET", "RETRANSMISSION", "OVERLAP", "OUT_OF_ORDER", "GAP")
PROBLEMS = (
    "TRUNCATED_FILE",  # the file ends inside a record
    "CORRUPT_FILE",  # an impossible record or block
    "UNREADABLE_FILE",  # not a capture, or it cannot be opened
    "TRUNCATED_PACKET",  # not captured completely
    "MALFORMED_PACKET",  # headers that contradict one another
    "MALFORMED_FRAME",  # a frame on a named port that breaks its protocol
    "LOST_FRAGMENT",  # an IP packet whose fragments did not all arrive
    "UNSUPPORTED_LINK",  # an unknown link type
    "PASSED_OVER",  # packets without a row: ``length`` is how many
)
KINDS = {
    "aeron": tuple(AERON_TYPES.values()),
    "bymux": (*BYMUX_TYPES.values(), *(f"GLOBAL_{name}" for name in BYMUX_TYPES.values() if name != "WRITE"), "CREATE"),
    "jmux": tuple(JMUX_TYPES.values()),
    "aqueduct": (
        "CONNECTION_CONTROL", "CHANNEL_CONTROL", "MESSAGE", "SENT_UNRELIABLE", "ACK_RELIABLE", "ACK_NACK_UNRELIABLE",
        "FINISH_SENDER", "CLOSE_RECEIVER", "CLOSED_CHANNEL_LOST", "VERSION",
    ),
    "tcp": TCP_EVENTS,
    "problem": PROBLEMS,
}  # fmt: skip
"""The values of ``frame_type`` for each ``protocol``."""


def columns(*, payload: bool = False) -> tuple[Column, ...]:
    return (*COLUMNS, PAYLOAD) if payload else COLUMNS


def ddl() -> str:
    return ", ".join(f"{column.name} {column.type}" for column in COLUMNS)


@cache
def arrow_kinds() -> dict[str, Any]:
    import pyarrow as pa

    return {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "smallint": pa.int16(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
    }


@cache
def arrow_types() -> dict[str, Any]:
    return {column.name: arrow_kinds()[column.type] for column in columns(payload=True)}


def arrow_schema(names: Iterable[str]) -> pa.Schema:
    import pyarrow as pa

    types = arrow_types()
    fields = []
    for name in names:
        if name not in types:
            raise ConfigurationError(f"a capture has no column {name!r}; it has {', '.join(types)}")
        fields.append(pa.field(name, types[name]))
    return pa.schema(fields)
