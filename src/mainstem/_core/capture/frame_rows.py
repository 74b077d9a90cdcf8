"""Rows of ``frames`` as the buffers under Arrow columns: written row by row, and only for the selected columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from mainstem._core.capture.packets import Packet

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
else:
    from mainstem._core.capture.layout import *
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *
    from mainstem._core.memory.plain import Memory

# Bytes of a value in each column, by layout.ROW_...; 0 if the length varies.
WIDTHS = (
    (8, 4, 8, 4, 1, 1, 16, 4, 16, 4, 1)
    + (4, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 8)
    + (4, 4, 8, 8, 8, 8, 4, 4, 0, 8, 1, 8, 8, 8, 4, 8, 8, 1, 0)
)


@cython.cclass
class FrameRows:
    """A batch of up to ``rows`` rows of ``frames``; ``column_bits`` has a bit (``layout.ROW_...``) for each column to keep.

    src and dst are kept as 16 bytes each; an IPv4 address becomes an IPv4-mapped IPv6 address.
    """

    rows: readonly[cython.longlong]
    capacity: readonly[cython.longlong]
    text_length: readonly[cython.longlong]
    payload_length: readonly[cython.longlong]
    text_capacity: cython.longlong
    payload_capacity: cython.longlong
    column_bits: cython.longlong
    owners: list
    bitmaps: list
    column: cython.p_uchar[ROW_COLUMNS]
    valid: cython.p_uchar[ROW_COLUMNS]
    text: cython.p_uchar
    payload: cython.p_uchar
    text_owner: bytearray
    payload_owner: bytearray
    width: cython.int[ROW_COLUMNS]
    packet: cython.longlong
    time_ns: cython.longlong
    timed: cython.bint
    wire_length: cython.longlong
    transport: cython.int
    source_port: cython.int
    destination_port: cython.int
    frame_index: public[cython.int]
    addressed: cython.bint
    addresses: cython.p_uchar
    addresses_owner: bytearray

    def __init__(self, column_bits: cython.longlong = -1, rows: cython.longlong = 8192) -> None:
        i: cython.int = 0
        if rows < 1 or rows > 1048576:
            raise ValueError(f"{rows} rows are not between 1 and 1048576")
        self.column_bits = column_bits
        self.capacity = rows
        self.addresses_owner = bytearray(32)
        self.text_capacity = 262144
        self.payload_capacity = 4194304 if column_bits & (cython.cast(cython.longlong, 1) << ROW_PAYLOAD) else 0
        self.packet = self.time_ns = self.wire_length = 0
        self.timed = self.addressed = False
        self.transport = -1
        self.source_port = self.destination_port = 0
        self.frame_index = 0
        if cython.compiled:
            self.addresses = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.addresses_owner))
        else:
            self.addresses = Memory(self.addresses_owner)
            self.column = [None] * ROW_COLUMNS
            self.valid = [None] * ROW_COLUMNS
            self.width = [0] * ROW_COLUMNS
        for i in range(ROW_COLUMNS):
            self.width[i] = WIDTHS[i]
        self.start()

    @cython.exceptval(-1)
    def start(self) -> cython.int:
        """Allocate new buffers: those of the last batch belong to the caller of ``take``."""
        i: cython.int = 0
        size: cython.longlong = 0
        self.owners = [None] * ROW_COLUMNS
        self.bitmaps = [None] * ROW_COLUMNS
        self.rows = self.text_length = self.payload_length = 0
        for i in range(ROW_COLUMNS):
            if self.column_bits & (cython.cast(cython.longlong, 1) << i):
                size = self.width[i] * self.capacity if self.width[i] else (self.capacity + 1) * 4
                self.owners[i] = bytearray(size)
                self.bitmaps[i] = bytearray((self.capacity + 7) // 8)
                if cython.compiled:
                    self.column[i] = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.owners[i]))
                    self.valid[i] = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.bitmaps[i]))
                else:
                    self.column[i] = Memory(self.owners[i])
                    self.valid[i] = Memory(self.bitmaps[i])
            elif cython.compiled:
                self.column[i] = self.valid[i] = cython.NULL
        self.text_owner = bytearray(0)
        self.payload_owner = bytearray(0)
        self.reserve(0, 0)
        return 0

    def reserve(self, text: cython.longlong, payload: cython.longlong) -> None:
        """Grow the buffers of text and payload to hold this many more bytes, keeping their content."""
        self.text_capacity = max(self.text_capacity, self.text_length + text)
        if self.payload_capacity:
            self.payload_capacity = max(self.payload_capacity, self.payload_length + payload)
        if cython.compiled:
            PyByteArray_Resize(self.text_owner, self.text_capacity)
            PyByteArray_Resize(self.payload_owner, self.payload_capacity)
            self.text = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.text_owner))
            self.payload = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.payload_owner))
        else:
            self.text_owner = self.text_owner + bytearray(self.text_capacity - len(self.text_owner))
            self.payload_owner = self.payload_owner + bytearray(self.payload_capacity - len(self.payload_owner))
            self.text = Memory(self.text_owner)
            self.payload = Memory(self.payload_owner)

    def has_room(self, rows: cython.longlong, text: cython.longlong, payload: cython.longlong) -> cython.bint:
        if self.rows + rows > self.capacity or self.text_length + text > self.text_capacity:
            return False
        return self.payload_capacity == 0 or self.payload_length + payload <= self.payload_capacity

    @property
    def full(self) -> bool:
        """Whether no row is left."""
        return self.rows >= self.capacity

    def begin(
        self,
        number: cython.longlong,
        time_ns: cython.longlong,
        timed: cython.bint,
        wire_length: cython.longlong,
        transport: cython.int = -1,
    ) -> None:
        """Start a packet: the following rows belong to it."""
        self.new_packet(number, time_ns, timed, wire_length)
        self.transport = transport

    def flow(self, addresses: Buffer, source_port: cython.int, destination_port: cython.int) -> None:
        """Set the packet's addresses, 16 bytes each for sender and receiver, and ports."""
        if len(addresses) != 32:
            raise ValueError(f"two addresses are 32 bytes, not {len(addresses)}")
        self.addresses_owner[:] = addresses
        self.addressed = True
        self.source_port = source_port
        self.destination_port = destination_port

    def row(self, protocol: cython.int, kind: cython.int, values: dict[int, int], text: bytes = b"") -> None:
        """Write a whole row. Raises IndexError if none is left."""
        if self.rows >= self.capacity:
            raise IndexError(f"all of {self.capacity} rows are columns")
        self.reserve(len(text), 0)
        self.new_row(protocol, kind)
        for index, value in values.items():
            if not 0 <= index < ROW_COLUMNS:
                raise IndexError(f"there is no column {index}")
            self.put(index, value)
        if text:
            n: cython.longlong = len(text)
            self.text_owner[self.text_length : self.text_length + n] = text
            self.text_length += n
            self.mark_text()
        self.close_row()

    def mark_text(self) -> None:
        if self.column_bits & (cython.cast(cython.longlong, 1) << ROW_TEXT):
            flag: cython.int = get8(self.valid[ROW_TEXT], self.rows >> 3) | 1 << (self.rows & 7)
            put8(self.valid[ROW_TEXT], self.rows >> 3, flag)

    def new_packet(
        self, number: cython.longlong, time_ns: cython.longlong, timed: cython.bint, wire_length: cython.longlong
    ) -> cython.void:
        self.packet = number
        self.time_ns = time_ns
        self.timed = timed
        self.wire_length = wire_length
        self.frame_index = 0
        self.addressed = False
        self.transport = -1

    def set_flow(self, base: cython.p_uchar, packet: Packet) -> cython.void:
        self.addressed = True
        self.source_port = packet.source_port
        self.destination_port = packet.destination_port
        packet.put_address(base, 0, self.addresses, 0)
        packet.put_address(base, 1, self.addresses, 16)

    def new_row(self, protocol: cython.int, kind: cython.int) -> cython.void:
        """Begin a row, and fill in what is known of its packet. ``close_row`` ends it; there must be room."""
        self.put(ROW_PACKET, self.packet)
        self.put(ROW_FRAME_INDEX, self.frame_index)
        if self.timed:
            self.put(ROW_TIME_NS, self.time_ns)
        self.put(ROW_WIRE_LENGTH, self.wire_length)
        self.put(ROW_PROTOCOL, protocol)
        self.put(ROW_FRAME_TYPE, kind)
        if self.transport >= 0:
            self.put(ROW_TRANSPORT, self.transport)
        if self.addressed:
            self.put(ROW_SRC, 0)
            self.put(ROW_DST, 0)
            self.put(ROW_SRC_PORT, self.source_port)
            self.put(ROW_DST_PORT, self.destination_port)

    def put(self, index: cython.int, value: cython.longlong) -> cython.void:
        width: cython.int = self.width[index]
        bits: cython.int = 0
        if not self.column_bits & (cython.cast(cython.longlong, 1) << index):
            return
        if width == 4:
            put32(self.column[index], self.rows * 4, wrap_i32(value))
        elif width == 8:
            put64(self.column[index], self.rows * 8, value)
        elif width == 1:
            put8(self.column[index], self.rows, cython.cast(cython.int, value) & 0xFF)
        elif width == 2:
            put16(self.column[index], self.rows * 2, cython.cast(cython.int, value) & 0xFFFF)
        elif width == 16:
            copy_bytes(self.column[index], self.rows * 16, self.addresses, 0 if index == ROW_SRC else 16, 16)
        else:
            return
        bits = get8(self.valid[index], self.rows >> 3) | 1 << cython.cast(cython.int, self.rows & 7)
        put8(self.valid[index], self.rows >> 3, bits)

    def put_text(self, base: cython.p_uchar, o: cython.longlong, n: cython.longlong) -> cython.void:
        bits: cython.int = 0
        if not self.column_bits & (cython.cast(cython.longlong, 1) << ROW_TEXT):
            return
        copy_bytes(self.text, self.text_length, base, o, n)
        self.text_length += n
        bits = get8(self.valid[ROW_TEXT], self.rows >> 3) | 1 << cython.cast(cython.int, self.rows & 7)
        put8(self.valid[ROW_TEXT], self.rows >> 3, bits)

    def put_payload(self, base: cython.p_uchar, o: cython.longlong, n: cython.longlong) -> cython.void:
        bits: cython.int = 0
        if self.payload_capacity == 0:
            return
        copy_bytes(self.payload, self.payload_length, base, o, n)
        self.payload_length += n
        bits = get8(self.valid[ROW_PAYLOAD], self.rows >> 3) | 1 << cython.cast(cython.int, self.rows & 7)
        put8(self.valid[ROW_PAYLOAD], self.rows >> 3, bits)

    def close_row(self) -> cython.void:
        self.rows += 1
        self.frame_index += 1
        if self.column_bits & (cython.cast(cython.longlong, 1) << ROW_TEXT):
            put32(self.column[ROW_TEXT], self.rows * 4, cython.cast(cython.int, self.text_length))
        if self.payload_capacity:
            put32(self.column[ROW_PAYLOAD], self.rows * 4, cython.cast(cython.int, self.payload_length))

    def take(self) -> tuple[int, dict[int, tuple[bytearray, bytearray]], bytearray, bytearray]:
        """Return (rows, {column: (values, validity bits)}, text, payload); the next rows go to new buffers."""
        columns = {i: (self.owners[i], self.bitmaps[i]) for i in range(ROW_COLUMNS) if self.owners[i] is not None}
        out = (self.rows, columns, self.text_owner, self.payload_owner)
        self.start()
        return out
