"""Two ends of a stream in memory: a log with its send path, an image's log with its receive path, and the link between them."""

from __future__ import annotations

import importlib
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.unit._core import uncompiled

from mainstem._core import layout

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from types import ModuleType

TERM_LENGTH = layout.TERM_MIN_LENGTH
INITIAL_TERM_ID = 7
SESSION_ID = 1234
STREAM_ID = 1001
MTU = 1408
SENDER_ADDRESS = struct.pack("<HH4s8x", socket.AF_INET, 0x3412, b"\x7f\x00\x00\x01")
RECEIVER_ADDRESS = struct.pack("<HH4s8x", socket.AF_INET, 0x7856, b"\x7f\x00\x00\x01")
PUBLISHER_LIMIT, PUBLISHER_POSITION, SENDER_POSITION, SENDER_LIMIT, PRESSURE = 50, 51, 52, 53, 54
HIGH_WATER_MARK, RECEIVER_POSITION, SUBSCRIBER, SPY = 60, 61, 62, 63


def new_log(core: Any, *, term_length: int = TERM_LENGTH) -> Any:
    """Return a fresh log with its tails and default header (docs/protocols/aeron.md, 10.2)."""
    log = core.AtomicBuffer(bytearray(3 * term_length + layout.LOG_METADATA_LENGTH))
    meta = 3 * term_length
    log.put_i64(meta, INITIAL_TERM_ID << 32)
    for i in (1, 2):
        log.put_i64(meta + 8 * i, (INITIAL_TERM_ID + i - 3) << 32)
    header = meta + layout.LOG_DEFAULT_HEADER_OFFSET
    log.put_i32(header + layout.FRAME_SESSION_ID_OFFSET, SESSION_ID)
    log.put_i32(header + layout.FRAME_STREAM_ID_OFFSET, STREAM_ID)
    return log


def frame(
    payload: bytes,
    *,
    term_offset: int,
    term_id: int = INITIAL_TERM_ID,
    kind: int = layout.TYPE_DATA,
    flags: int = 0xC0,
    length: int | None = None,
    session_id: int = SESSION_ID,
    stream_id: int = STREAM_ID,
    version: int = 0,
) -> bytes:
    """Return a frame as it appears in a term: header, payload, and zeros up to the alignment."""
    size = 32 + len(payload) if length is None else length
    data = (
        struct.pack("<iBBHiiiiq", size, version, flags, kind, term_offset, session_id, stream_id, term_id, 0) + payload
    )
    return data + bytes(-len(data) % 32)


@dataclass
class Writer:
    """Appends whole frames to a log as an exclusive publication does, with padding and rotation at the end of a term."""

    log: Any
    term_length: int = TERM_LENGTH
    position: int = 0
    limit: int = 1 << 62

    def append(self, payload: bytes) -> bool:
        if self.position >= self.limit:
            return False
        data = frame(payload, term_offset=0)
        offset = self.position % self.term_length
        if offset + len(data) > self.term_length:
            self._put(
                frame(b"", term_offset=offset, kind=layout.TYPE_PAD, length=self.term_length - offset),
                self.term_length - offset,
            )
            offset = 0
        self._put(data, len(data))
        return True

    def _put(self, data: bytes, advance: int) -> None:
        meta = 3 * self.term_length
        count = self.position // self.term_length
        offset = self.position % self.term_length
        at = (count % 3) * self.term_length + offset
        term_id = INITIAL_TERM_ID + count
        head = bytearray(data)
        struct.pack_into("<i", head, 8, offset)
        struct.pack_into("<i", head, 20, term_id)
        self.log.put_bytes(at + 8, bytes(head[8:]))
        self.log.put_i64(at, struct.unpack_from("<q", head)[0])
        self.position += advance
        self.log.put_i64(meta + 8 * (count % 3), (term_id << 32) | (offset + advance))
        if offset + advance == self.term_length:
            self.log.put_i64(meta + 8 * ((count + 1) % 3), (term_id + 1) << 32)
            self.log.put_i32(meta + layout.LOG_ACTIVE_TERM_COUNT_OFFSET, count + 1)


def modules(*, compiled: bool) -> Modules:
    """Return the data path's modules, compiled or as plain Python."""
    names = (
        "memory.buffer",
        "driver.datagram",
        "driver.send_path",
        "driver.receive_path",
        "driver.send_cycle",
        "log.term",
        "driver.positions",
        "driver.ipc_path",
        "driver.loop",
        "driver.loss_generator",
        "driver.delay",
        "driver.loss_detector",
        "driver.retransmit",
        "driver.receive_cycle",
    )
    if compiled:
        return Modules(*(importlib.import_module(f"mainstem._core.{name}") for name in names))
    return Modules(*(uncompiled.load(name) for name in names))


@dataclass
class Modules:
    """The modules under test, compiled or not."""

    buffer: ModuleType
    datagram: ModuleType
    send_path: ModuleType
    receive_path: ModuleType
    send_cycle: ModuleType
    term: ModuleType
    positions: ModuleType
    ipc_path: ModuleType
    loop: ModuleType
    loss: ModuleType
    delay: ModuleType
    loss_detector: ModuleType
    retransmit: ModuleType
    receive_cycle: ModuleType

    @property
    def AtomicBuffer(self) -> Any:  # noqa: N802 - stands for the class
        return self.buffer.AtomicBuffer


@dataclass
class Pair:
    """A sender and a receiver with one stream between them; ``deliver`` moves what they sent."""

    core: Modules
    term_length: int = TERM_LENGTH
    window: int = TERM_LENGTH // 2
    mtu: int = MTU
    now_ns: int = 1
    max_segments: int = 64
    tap: Callable[[Any], Any] | None = None  # placed between the sender and its transport
    counters: Any = field(init=False)

    def __post_init__(self) -> None:
        core = self.core
        self.counters = core.AtomicBuffer(bytearray(128 * 128))
        self.out_log = new_log(core, term_length=self.term_length)
        self.in_log = new_log(core, term_length=self.term_length)
        self.writer = Writer(self.out_log, self.term_length)
        self.sender_transport = core.datagram.MemoryTransport(max_segments=self.max_segments)
        self.receiver_transport = core.datagram.MemoryTransport()
        self.send_endpoint = core.send_path.SendEndpointCore(
            self.tap(self.sender_transport) if self.tap else self.sender_transport, self.counters, key=1
        )
        self.send_path = core.send_path.SendPath(
            self.out_log, self.counters, SESSION_ID, STREAM_ID, INITIAL_TERM_ID, self.term_length, self.mtu, self.term_length // 2,
            PUBLISHER_LIMIT, PUBLISHER_POSITION, SENDER_POSITION, SENDER_LIMIT, PRESSURE, now_ns=self.now_ns,
        )  # fmt: skip
        self.send_path.key = 1
        self.sender = core.send_cycle.SenderCycle(self.counters)
        self.sender.add_endpoint(self.send_endpoint)
        self.sender.add_path(self.send_path, self.send_endpoint)
        self.receive_endpoint = core.receive_path.ReceiveEndpointCore(self.counters, key=1)
        self.index = self.receive_endpoint.add_transport(self.receiver_transport)
        self.receive_endpoint.interests.put(STREAM_ID, 0, True)
        self.receive_path = core.receive_path.ReceivePath(
            self.in_log, self.counters, SESSION_ID, STREAM_ID, INITIAL_TERM_ID, self.term_length, self.mtu, 0, self.window, 99,
            HIGH_WATER_MARK, RECEIVER_POSITION, now_ns=self.now_ns,
        )  # fmt: skip
        self.receive_path.key = 1
        self.receiver = core.receive_cycle.ReceiverCycle(self.counters)
        self.receiver.add_endpoint(self.receive_endpoint)
        self.receiver.add_path(self.receive_path, self.receive_endpoint)
        self.receive_path.subscribers.add(SUBSCRIBER)
        self.receive_path.add_connection(
            self.receiver_transport, self.index, core.datagram.Address(SENDER_ADDRESS), None, self.now_ns
        )

    def value(self, counter_id: int) -> int:
        return int(self.counters.get_i64(128 * counter_id))

    def set_value(self, counter_id: int, value: int) -> None:
        self.counters.put_i64(128 * counter_id, value)

    def connect(self) -> None:
        """Make the receiver known to the sender, with the window of its first status message."""
        self.send_path.add_receiver(99, self.window, self.now_ns)

    def read(self, position: int, into: list[bytes]) -> int:
        """Append the payloads in the receiver's log from ``position`` on to ``into``; return the number of bytes read."""
        start = position
        while position < self.value(RECEIVER_POSITION):
            at = (position // self.term_length % 3) * self.term_length + position % self.term_length
            length = self.in_log.get_i32(at)
            if self.in_log.get_u16(at + layout.FRAME_TYPE_OFFSET) == layout.TYPE_DATA:
                into.append(self.in_log.get_bytes(at + 32, length - 32))
            position += (length + 31) & ~31
        return position - start

    def consume(self) -> None:
        """Let the subscriber read everything available."""
        self.set_value(SUBSCRIBER, self.value(RECEIVER_POSITION))

    def deliver(
        self, faults: random.Random | None = None, *, loss: float = 0, duplicates: float = 0, reorder: bool = False
    ) -> None:
        """Move everything sent, in both directions, with faults drawn from ``faults``."""
        for source, target, address in (
            (self.sender_transport, self.receiver_transport, SENDER_ADDRESS),
            (self.receiver_transport, self.sender_transport, RECEIVER_ADDRESS),
        ):
            moved = [datagram for _, datagram in source.take()]
            if faults is not None:
                moved = [each for each in moved if faults.random() >= loss]
                moved += [each for each in moved if faults.random() < duplicates]
                if reorder:
                    faults.shuffle(moved)
            for datagram in moved:
                target.deliver(datagram, address)

    def cycle(self) -> None:
        self.sender.run_cycle(self.now_ns)
        self.receiver.run_cycle(self.now_ns)
