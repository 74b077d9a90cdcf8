"""The compiled paths and the Python codec accept the same datagrams and read the same fields.

The test generates frames of every type, mutates most of them, and gives each datagram to the compiled send path, receive path and
capture decoder. Everything they do that can be seen from outside is compared with what the codec says about the same bytes. The two
differ on purpose in a few places. Each is numbered here, and a comment with the number marks its line in the functions below:

=====  =========  ==================================================================================================
 no.    where      difference
=====  =========  ==================================================================================================
  1     sender     DATA, PAD and SETUP are skipped unread: they arrive if a channel is looped back
  2     both       RES is refused: it belongs on the resolver's socket, which reads it with the codec
  3     sender     a NAK for a stream unknown to the sender is not examined
  4     receiver   SM, NAK, ERR and RSP_SETUP are skipped unread: they arrive if receivers share a group
  5     receiver   of data of a stream without an image only the first header is examined; it goes to Python
  6     receiver   data of a term before the stream's first is skipped: there is no such position
  7     capture    frames with only invalid values are shown, not refused: captures are read to find them
  8     capture    bytes after a control frame are read as the next frame: captures can join equal frames
  9     capture    a PAD of length 0, which a receiver takes for a heartbeat, is reported
 10     capture    names of RES entries are shown up to the first with unknown flags or without padding
 11     all        an empty datagram is legal UDP but not Aeron: the transport skips it
 12     capture    bytes after a PAD's header are read as the next frame: no sender transmits what a PAD covers
=====  =========  ==================================================================================================
"""

from __future__ import annotations

import random
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import captures
from tests.support.case_selection import long_after
from tests.unit._core.network import (
    HIGH_WATER_MARK,
    INITIAL_TERM_ID,
    RECEIVER_ADDRESS,
    SENDER_ADDRESS,
    SESSION_ID,
    STREAM_ID,
    TERM_LENGTH,
    Pair,
    modules,
)

from mainstem._core import layout
from mainstem._core.driver.retransmit import RetransmitHandler
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.protocol.frames import (
    Data,
    ErrorFrame,
    Frame,
    Heartbeat,
    Nak,
    Pad,
    Resolution,
    ResolutionEntry,
    ResponseSetup,
    Rttm,
    Setup,
    StatusMessage,
    StreamFrame,
    before_beginning,
    check_header,
    check_range,
    decode_datagram,
    protocol_error,
)
from mainstem.aeron.protocol.layouts import LAYOUTS, FrameType, Header
from mainstem.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

CORE = modules(compiled=True)
DATAGRAMS = 3_000
KNOWN_RECEIVER, KEY = 99, 1
WINDOW = TERM_LENGTH // 2
SENT = 32 * 512  # bytes the sender has sent, in empty frames: a NAK for any aligned offset below can be served
EVENT_ROOM = 1088
INTEGERS = [0, 1, -1, 31, 32, -32, 64, 4096, TERM_LENGTH - 32, TERM_LENGTH, (1 << 31) - 1, -(1 << 31)]


# Generated datagrams.


class Generator:
    """Valid frames of one stream, with fields at and around their limits."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def stream(self) -> dict[str, int]:
        near = self.rng.random() < 0.9
        return {
            "session_id": SESSION_ID if near else self.rng.choice(INTEGERS),
            "stream_id": STREAM_ID if near or self.rng.random() < 0.5 else 7,
        }

    def term(self) -> int:
        near = [INITIAL_TERM_ID] * 8 + [INITIAL_TERM_ID + 1, INITIAL_TERM_ID - 1, INITIAL_TERM_ID + 2]
        return self.rng.choice([*near, -(1 << 31), (1 << 31) - 1])

    def offset(self) -> int:
        small = 32 * self.rng.randrange(600)
        return self.rng.choice([small, small, small, 0, TERM_LENGTH - 32, TERM_LENGTH // 2])

    def int64(self) -> int:
        return self.rng.choice([0, 1, -1, KNOWN_RECEIVER, (1 << 63) - 1, -(1 << 63), self.rng.getrandbits(60)])

    def flags(self, *often: int) -> int:
        return self.rng.choice([*often, *often, self.rng.randrange(256)])

    def data(self) -> bytes:
        stream = self.stream() | {"term_id": self.term(), "flags": self.flags(0xC0, 0x80, 0x40)}
        offset, out = self.offset(), b""
        for _ in range(self.rng.randint(1, 4)):
            payload = self.rng.randbytes(self.rng.choice([0, 1, 31, 32, 33, 200]))
            frame: Data | Pad = Data(**stream, term_offset=offset, reserved_value=self.int64(), payload=payload)
            if self.rng.random() < 0.1:
                frame = Pad(**stream, term_offset=offset, frame_length=self.rng.choice([32, 32, 33, 64, 320]))
            offset += frame.aligned_length
            out += frame.encode().ljust(frame.aligned_length, b"\0")
        if self.rng.random() < 0.2:
            length = self.rng.choice([32, 33, 320, TERM_LENGTH - offset, TERM_LENGTH, (1 << 31) - 1])
            out += Pad(**stream, term_offset=offset, frame_length=max(32, length)).encode()
        return out

    def pad(self) -> bytes:
        offset = self.offset()
        length = self.rng.choice([32, 33, 320, TERM_LENGTH - offset, TERM_LENGTH, (1 << 31) - 1])
        return Pad(**self.stream(), term_id=self.term(), term_offset=offset, frame_length=max(32, length)).encode()

    def heartbeat(self) -> bytes:
        flags = self.flags(0xC0, 0xE0, 0xF0)
        return Heartbeat(**self.stream(), term_id=self.term(), term_offset=self.offset(), flags=flags).encode()

    def nak(self) -> bytes:
        length = self.rng.choice([0, 32, 64, 1408, 33, TERM_LENGTH, (1 << 31) - 1, -32])
        return Nak(**self.stream(), term_id=self.term(), term_offset=self.offset(), length=length).encode()

    def status(self) -> bytes:
        message = StatusMessage(
            **self.stream(),
            consumption_term_id=self.term(),
            consumption_term_offset=self.offset(),
            receiver_window=self.rng.choice([0, 1, 4096, WINDOW, WINDOW + 1, (1 << 31) - 1]),
            receiver_id=self.int64(),
            group_tag=self.rng.choice([None, self.int64()]),
            flags=self.flags(0, 0, 0x80, 0x40),
        ).encode()
        options = self.rng.choice([b"", b"", b"", bytes(4), b"option" * 2])
        return (len(message) + len(options)).to_bytes(4, "little") + message[4:] + options

    def error(self) -> bytes:
        text = self.rng.choice(["", "go away", "ä" * 20, "x" * 1023])
        ids = self.stream() | {"receiver_id": self.int64(), "error_code": self.rng.choice(INTEGERS)}
        return ErrorFrame(**ids, group_tag=self.rng.choice([None, self.int64()]), text=text).encode()

    def setup(self) -> bytes:
        initial = self.term()
        return Setup(
            **self.stream(),
            initial_term_id=initial,
            active_term_id=self.rng.choice([initial, self.term()]),
            term_offset=self.offset(),
            term_length=self.rng.choice([TERM_LENGTH, 1 << 30, 1 << 15, TERM_LENGTH + 1, 1 << 20]),
            mtu=self.rng.choice([1408, 32, 65504, 0, 1400, 1424, 65536]),
            ttl=self.rng.choice(INTEGERS),
            flags=self.flags(0, 0x40, 0x80),
        ).encode()

    def rttm(self) -> bytes:
        times = {"echo_timestamp": self.int64(), "reception_delta": self.int64(), "receiver_id": self.int64()}
        return Rttm(**self.stream(), **times, flags=self.flags(0, 0x80)).encode()

    def response_setup(self) -> bytes:
        return ResponseSetup(**self.stream(), response_session_id=self.rng.choice(INTEGERS)).encode()

    def resolution(self) -> bytes:
        addresses = [ip_address("127.0.0.1"), ip_address("::1")]
        return Resolution(
            entries=tuple(
                ResolutionEntry(
                    name="n" * self.rng.randrange(20), address=self.rng.choice(addresses), port=20, is_self=True
                )
                for _ in range(self.rng.randint(1, 3))
            )
        ).encode()

    def mutate(self, datagram: bytes) -> bytes:
        """Change some bytes, mostly of the header and the fields; perhaps cut the datagram or append to it."""
        data = bytearray(datagram)
        for _ in range(self.rng.choice([1, 1, 1, 2, 4])):
            at = self.rng.randrange(min(len(data), 48))
            data[at] = self.rng.choice([0, 1, 2, 0x1F, 0x20, 0x7F, 0x80, 0xFF, self.rng.randrange(256)])
        if self.rng.random() < 0.15:
            del data[self.rng.randrange(len(data)) :]
        elif self.rng.random() < 0.15:
            data += self.rng.randbytes(self.rng.choice([1, 4, 8, 32, 1200]))
        return bytes(data)

    def datagrams(self, kinds: list[Callable[[], bytes]]) -> Iterable[bytes]:
        for number in range(DATAGRAMS):
            datagram = kinds[number % len(kinds)]()
            yield datagram if self.rng.random() < 0.35 else self.mutate(datagram)


def to_senders(generator: Generator) -> Iterable[bytes]:
    kinds = [generator.nak, generator.status, generator.status, generator.error, generator.rttm]
    return generator.datagrams(
        [*kinds, generator.response_setup, generator.data, generator.setup, generator.resolution]
    )


def to_receivers(generator: Generator) -> Iterable[bytes]:
    kinds = [generator.data, generator.data, generator.pad, generator.heartbeat, generator.setup, generator.rttm]
    return generator.datagrams([*kinds, generator.status, generator.nak, generator.error, generator.resolution])


def to_captures(generator: Generator) -> Iterable[bytes]:
    kinds = [generator.data, generator.pad, generator.heartbeat, generator.nak, generator.status, generator.error]
    return generator.datagrams(
        [*kinds, generator.setup, generator.rttm, generator.response_setup, generator.resolution]
    )


# What the compiled paths do, and what they must do according to the codec.

Effects = dict[str, Any]
UNREAD_BY_SENDERS = (FrameType.DATA, FrameType.PAD, FrameType.SETUP)
UNREAD_BY_RECEIVERS = (FrameType.STATUS_MESSAGE, FrameType.NAK, FrameType.ERROR, FrameType.RESPONSE_SETUP)


def pass_over(datagram: bytes, length: int) -> None:
    """Check the rules of every control frame, and the length that its type needs."""
    header = check_header(datagram)
    if header.frame_length > len(datagram) or len(datagram) < length:
        raise protocol_error("datagram length", "too short")


def of_the_stream(frame: Any) -> bool:
    return (frame.session_id, frame.stream_id) == (SESSION_ID, STREAM_ID)


class SendSide:
    """A sender that has sent ``SENT`` bytes and knows one receiver."""

    def __init__(self) -> None:
        pair = Pair(CORE)
        for _ in range(SENT // 32):
            pair.writer.append(b"")
        self.log = pair.out_log.get_bytes(0, SENT)

    def effects(self, datagram: bytes) -> Effects:
        pair = Pair(CORE)
        pair.out_log.put_bytes(0, self.log)
        pair.send_path.add_receiver(KNOWN_RECEIVER, SENT, pair.now_ns)
        pair.send_path.tracks_minimum = True
        pair.cycle()
        assert pair.send_path.sender_position == SENT
        pair.sender.events.take()
        resent: list[tuple[int, int]] = []
        pair.send_path.on_resend = lambda position, length: resent.append((position, length))
        pair.sender_transport.deliver(datagram, RECEIVER_ADDRESS)
        pair.now_ns += 100_000_000
        pair.sender.run_cycle(pair.now_ns)
        receivers = {row[0]: row[1] for row in pair.send_path.receivers()}
        return {
            "invalid": pair.value(SystemCounter.INVALID_PACKETS),
            "naks": pair.value(SystemCounter.NAKS_RECEIVED),
            "status messages": pair.value(SystemCounter.STATUS_MESSAGES_RECEIVED),
            "rejected": pair.value(SystemCounter.STATUS_MESSAGES_REJECTED),
            "events": [(event[0], event[2], event[7]) for event in pair.sender.events.take() if event[7]],
            "resent": resent,
            "edge": receivers[KNOWN_RECEIVER],
        }

    def expected(self, datagram: bytes) -> Effects:
        nothing: Effects = {"events": [], "resent": [], "edge": SENT}
        effects = nothing | dict.fromkeys(("invalid", "naks", "status messages", "rejected"), 0)
        if not datagram:
            return effects  # 11
        try:
            kind = check_header(datagram).type
            if kind in UNREAD_BY_SENDERS:
                pass_over(datagram, layout.DATA_HEADER_LENGTH)  # 1
                return effects
            (frame,) = decode_datagram(datagram)
            if isinstance(frame, Resolution):
                raise protocol_error("frame type", "RES")  # 2
            return effects | self.of_frame(frame, datagram)
        except RemoteProtocolError:
            effects["invalid"] = 1
            return effects

    def of_frame(self, frame: Frame, datagram: bytes) -> Effects:
        effects: Effects = {"status messages": 1} if isinstance(frame, StatusMessage) else {}
        if not of_the_stream(frame):
            return effects  # 3
        if isinstance(frame, Nak):
            frame.check(TERM_LENGTH, INITIAL_TERM_ID)
            return {"naks": 1, "resent": self.resent(frame)}
        if not isinstance(frame, StatusMessage):
            return {"events": [(layout.EVENT_FRAME, KEY, datagram[:EVENT_ROOM])]}
        try:
            frame.check(TERM_LENGTH, INITIAL_TERM_ID)
        except RemoteProtocolError:
            return effects | {"invalid": 1}
        return effects | self.of_status(frame, datagram)

    def resent(self, nak: Nak) -> list[tuple[int, int]]:
        position = ((nak.term_id - INITIAL_TERM_ID) & 0xFFFFFFFF) * TERM_LENGTH + nak.term_offset
        granted = RetransmitHandler(TERM_LENGTH).on_nak(position, nak.length, SENT, 1)
        return [] if granted is None or granted[1] < layout.FRAME_ALIGNMENT else [granted]  # whole frames only

    def of_status(self, status: StatusMessage, datagram: bytes) -> Effects:
        def event(kind: int) -> Effects:
            return {"events": [(kind, KEY, datagram[:EVENT_ROOM])]}

        if status.requests_setup:
            return event(layout.EVENT_SETUP_ELICITED)
        terms = (status.consumption_term_id - INITIAL_TERM_ID) & 0xFFFFFFFF
        position = terms * TERM_LENGTH + status.consumption_term_offset
        if 2 * abs(position - SENT) > TERM_LENGTH:
            return {"rejected": 1}
        if status.is_end_of_stream:
            return event(layout.EVENT_RECEIVER_LEFT)
        if status.receiver_id != KNOWN_RECEIVER:
            return event(layout.EVENT_NEW_RECEIVER)
        return {"edge": position + status.receiver_window}


class ReceiveSide:
    """A receiver with a fresh image of the stream."""

    def effects(self, datagram: bytes) -> Effects:
        pair = Pair(CORE)
        pair.receiver_transport.deliver(datagram, SENDER_ADDRESS)
        pair.receiver.run_cycle(pair.now_ns)
        at = pair.value(HIGH_WATER_MARK)
        events = [event for event in pair.receiver.events.take() if event[0] != layout.EVENT_LOSS]
        return {
            "invalid": pair.value(SystemCounter.INVALID_PACKETS),
            "over-runs": pair.value(SystemCounter.FLOW_CONTROL_OVER_RUNS),
            "heartbeats": pair.value(SystemCounter.HEARTBEATS_RECEIVED),
            "high-water mark": at,
            "end": (pair.receive_path.end_of_stream_position, pair.receive_path.revoked),
            "log": pair.in_log.get_bytes(0, TERM_LENGTH).rstrip(b"\0"),
            "events": [(event[0], event[7]) for event in events],
        }

    def expected(self, datagram: bytes) -> Effects:
        nothing: Effects = {"high-water mark": 0, "end": (-1, False), "log": b"", "events": []}
        effects = nothing | dict.fromkeys(("invalid", "over-runs", "heartbeats"), 0)
        if not datagram:
            return effects  # 11
        try:
            kind = check_header(datagram).type
            if kind in (FrameType.DATA, FrameType.PAD):
                return effects | self.of_data(datagram)
            if kind in UNREAD_BY_RECEIVERS:
                pass_over(datagram, LAYOUTS[kind].length)  # 4
                return effects
            (frame,) = decode_datagram(datagram)
            if isinstance(frame, Resolution):
                raise protocol_error("frame type", "RES")  # 2
            return effects | self.of_frame(frame, datagram)
        except RemoteProtocolError:
            effects["invalid"] = 1
            return effects

    def of_frame(self, frame: Frame, datagram: bytes) -> Effects:
        if isinstance(frame, Setup):
            frame.check()
            wanted = frame.stream_id == STREAM_ID
            return {"events": [(layout.EVENT_SETUP, datagram[: layout.SETUP_LENGTH])]} if wanted else {}
        assert isinstance(frame, Rttm)
        return {"events": [(layout.EVENT_FRAME, datagram[:EVENT_ROOM])]} if of_the_stream(frame) else {}

    def of_data(self, datagram: bytes) -> Effects:
        if len(datagram) < layout.DATA_HEADER_LENGTH or len(datagram) % 32:
            raise protocol_error("datagram length", "not a multiple of 32")
        first = LAYOUTS[FrameType.DATA].read(datagram)
        if (first["session_id"], first["stream_id"]) != (SESSION_ID, STREAM_ID):
            reported = first["stream_id"] == STREAM_ID and not Header.read(datagram).flags & layout.FLAG_EOS
            header = datagram[: layout.DATA_HEADER_LENGTH]
            return {"events": [(layout.EVENT_UNKNOWN_SESSION, header)]} if reported else {}  # 5
        check_range(first["term_offset"], 0, TERM_LENGTH, "term range")
        if before_beginning(first["term_id"], INITIAL_TERM_ID):
            return {}  # 6
        frames = [frame for frame in decode_datagram(datagram) if isinstance(frame, StreamFrame)]
        for frame in frames:
            frame.check(TERM_LENGTH)
        position = ((first["term_id"] - INITIAL_TERM_ID) & 0xFFFFFFFF) * TERM_LENGTH + first["term_offset"]
        end = position + sum(frame.aligned_length for frame in frames)
        if end > 2 * WINDOW:
            return {"over-runs": 1}
        if position + len(datagram) * (not isinstance(frames[0], Heartbeat)) > WINDOW:
            return {"over-runs": 1}
        if isinstance(frames[0], Heartbeat):
            return {"heartbeats": 1, "high-water mark": end, **self.of_end(frames[0], end)}
        return {"high-water mark": end, "log": (bytes(position) + datagram).rstrip(b"\0")}

    def of_end(self, heartbeat: Heartbeat, position: int) -> Effects:
        if not heartbeat.is_end_of_stream:
            return {}
        is_reached = position == 0 or heartbeat.is_revoked  # nothing has arrived
        return {
            "end": (position, heartbeat.is_revoked),
            "events": [(layout.EVENT_END_OF_STREAM, b"")] if is_reached else [],
        }


@pytest.mark.parametrize("seed", long_after(1, range(2)))
def test_a_sender_and_the_codec_agree(seed: int) -> None:
    side, outcomes = SendSide(), dict.fromkeys(("invalid", "naks", "rejected", "events", "resent"), 0)
    for datagram in to_senders(Generator(seed)):
        expected = side.expected(datagram)
        assert side.effects(datagram) == expected, datagram.hex()
        for name in outcomes:
            outcomes[name] += bool(expected[name])
    assert min(outcomes.values()) > DATAGRAMS // 200  # each outcome was compared often


@pytest.mark.parametrize("seed", long_after(1, range(2)))
def test_a_receiver_and_the_codec_agree(seed: int) -> None:
    side, outcomes = ReceiveSide(), dict.fromkeys(("invalid", "over-runs", "heartbeats", "log", "events"), 0)
    for datagram in to_receivers(Generator(seed)):
        expected = side.expected(datagram)
        assert side.effects(datagram) == expected, datagram.hex()
        for name in outcomes:
            outcomes[name] += bool(expected[name])
    assert min(outcomes.values()) > DATAGRAMS // 200


# Captures.

# The columns whose name differs from the field's.
COLUMNS = {
    FrameType.STATUS_MESSAGE: {"consumption_term_id": "term_id", "consumption_term_offset": "term_offset"},
    FrameType.SETUP: {"active_term_id": "term_id"},
    FrameType.NAK: {"length": "nak_length"},
}
PORT = 40_123


def row_of(frame: Frame, datagram: bytes) -> dict[str, Any]:
    """Return the row that a capture shows for a frame of the datagram."""
    layout_of, names = LAYOUTS[frame.type], COLUMNS.get(frame.type, {})
    row: dict[str, Any] = {"frame_type": layout_of.name, "flags": frame.flags, "length": 0}
    for field in layout_of.fields:
        if field != "text_length":
            row[names.get(field, field)] = getattr(frame, field)
    if isinstance(frame, StatusMessage | ErrorFrame):
        row["group_tag"] = frame.group_tag
    if isinstance(frame, ErrorFrame):
        row["text"] = frame.text
    if isinstance(frame, Resolution) and frame.entries and frame.encode() == datagram:  # 10
        names_of = "".join(entry.name for entry in frame.entries)
        row["text"] = names_of.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(frame, Data):
        row |= {"length": len(frame.payload), "payload": frame.payload}
    return row


def is_refused_by_header(datagram: bytes) -> bool:
    """Return whether the first header alone, or a datagram too short for its type, rules out an Aeron datagram."""
    try:
        header = check_header(datagram)
    except RemoteProtocolError:
        return True
    if header.type == FrameType.EXTENSION:
        return header.frame_length > len(datagram)
    if header.type not in LAYOUTS or len(datagram) < LAYOUTS[header.type].length:
        return True
    if header.type == FrameType.PAD:
        return header.frame_length < layout.DATA_HEADER_LENGTH  # 9
    return header.frame_length > len(datagram) or (
        header.type == FrameType.DATA and 0 < header.frame_length < layout.DATA_HEADER_LENGTH
    )


def covers(frame: Frame) -> bool:
    """Return whether the frame is a PAD longer than its header."""
    return isinstance(frame, Pad) and frame.aligned_length > layout.DATA_HEADER_LENGTH


@pytest.mark.parametrize("seed", long_after(1, range(2)))
def test_captures_and_the_codec_agree(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    datagrams = list(to_captures(Generator(seed)))
    packets = [captures.ip(captures.udp(datagram, to=PORT)) for datagram in datagrams]
    data = captures.pcap(packets, kind=captures.RAW)
    rows: list[list[dict[str, Any]]] = [[] for _ in datagrams]
    for row in captures.rows_of_bytes(tmp_path, data, aeron_ports=(PORT,)):
        rows[row["packet"] - 1].append(row)
    refused = 0
    for datagram, shown in zip(datagrams, rows, strict=True):
        if is_refused_by_header(datagram):
            refused += 1
            assert [row["protocol"] for row in shown] == (["problem"] if datagram else []), datagram.hex()  # 11
            continue
        assert shown[0]["protocol"] == "aeron", datagram.hex()
        try:
            frames = decode_datagram(datagram)
        except RemoteProtocolError:
            continue  # 7
        if not isinstance(frames[0], StreamFrame):
            shown = shown[:1]  # 8
        if any(covers(frame) for frame in frames):
            frames = frames[: 1 + [covers(frame) for frame in frames].index(True)]
            shown = shown[: len(frames)]  # 12
        assert len(shown) == len(frames), datagram.hex()
        for frame, row in zip(frames, shown, strict=True):
            expected = row_of(frame, datagram)
            assert {name: row.get(name) for name in expected} == expected, datagram.hex()
    assert DATAGRAMS // 50 < refused < DATAGRAMS // 2
