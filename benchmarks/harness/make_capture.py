"""Create a capture of any size: ``python benchmarks/harness/make_capture.py PATH SIZE [--mux]``, with SIZE such as 256m or 5g.

The capture has four Aeron streams between one pair of hosts. A datagram contains four messages of 256 bytes, a status message
follows every 16 datagrams, and one datagram in a thousand is lost, requested and retransmitted. With ``--mux``, every eighth
packet is a segment of a bymux connection. The same arguments produce the same bytes.
"""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path

from mainstem._internal.units import parse_size

DATA_PORT, CONTROL_PORT, MUX_PORT = 40123, 40456, 9000
MESSAGE = 256
MESSAGES = 4  # of 288 bytes each: the number that fits Aeron's default MTU of 1408
STREAMS = 4
TERM = 1 << 24
PACKET_NS = 10_000
START_S = 1_700_000_000

_RECORD = struct.Struct("<IIII")
_DATA = struct.Struct("<iBBHiiiiq")
_NAK = struct.Struct("<iBBHiiiii")
_SM = struct.Struct("<iBBHiiiiiq")


def _ip(content: bytes, protocol: int, source: int, to: int) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(content), 0, 0x4000, 64, protocol, 0)
    ends = bytes((10, 0, 0, source, 10, 0, 0, to))
    return bytes(12) + b"\x08\x00" + head + ends + content


def _udp(payload: bytes, *, back: bool = False) -> bytes:
    ports = (DATA_PORT, CONTROL_PORT) if back else (CONTROL_PORT, DATA_PORT)
    return _ip(struct.pack(">HHHH", *ports, 8 + len(payload), 0) + payload, 17, 1 + back, 2 - back)


class Traffic:
    """Generates packets endlessly."""

    def __init__(self, *, mux: bool) -> None:
        self._rng = random.Random(7)
        self._positions = [0] * STREAMS
        self._mux = mux
        self._sequence = 1
        self._count = 0
        self._body = self._rng.randbytes(MESSAGE)
        self._write = b"\x21\x00" + struct.pack(">H", 1200) + self._rng.randbytes(1200)

    def packets(self) -> list[bytes]:
        """Return the next packets, usually one."""
        self._count += 1
        if self._mux and self._count % 8 == 0:
            if self._count == 8:
                syn = struct.pack(">HHIIBBHHH", 50000, MUX_PORT, 0, 0, 0x50, 2, 65535, 0, 0)
                return [_ip(syn + b"", 6, 1, 2)]
            head = struct.pack(">HHIIBBHHH", 50000, MUX_PORT, self._sequence, 0, 0x50, 16, 65535, 0, 0)
            self._sequence = (self._sequence + len(self._write)) & 0xFFFFFFFF
            return [_ip(head + self._write, 6, 1, 2)]
        stream = self._count % STREAMS
        if self._count % 16 == 0:
            term, offset = divmod(self._positions[stream], TERM)
            return [_udp(_SM.pack(36, 0, 0, 3, stream, 1001, term, offset, 131072, 77 + stream), back=True)]
        position = self._positions[stream]
        datagram = self._datagram(stream, position)
        self._positions[stream] += len(datagram)
        if self._rng.random() < 0.001:
            term, offset = divmod(position, TERM)
            nak = _NAK.pack(28, 0, 0, 2, stream, 1001, term, offset, len(datagram))
            return [_udp(nak, back=True), _udp(datagram)]
        return [_udp(datagram)]

    def _datagram(self, stream: int, position: int) -> bytes:
        out = bytearray()
        for n in range(MESSAGES):
            term, offset = divmod(position + n * (32 + MESSAGE), TERM)
            if offset + 32 + MESSAGE > TERM:
                break
            out += _DATA.pack(32 + MESSAGE, 0, 0xC0, 1, offset, stream, 1001, term, position) + self._body
        if not out:
            term, offset = divmod(position, TERM)
            self._positions[stream] += TERM - offset - 32
            out += _DATA.pack(TERM - offset, 0, 0xC0, 0, offset, stream, 1001, term, 0)
        return bytes(out)


def make(path: Path, size: int, *, mux: bool = False) -> int:
    """Write the file. Return the number of packets in it."""
    traffic, packets, written = Traffic(mux=mux), 0, 24
    with path.open("wb", buffering=1 << 20) as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        while written < size:
            for packet in traffic.packets():
                seconds, part = divmod(packets * PACKET_NS, 1_000_000_000)
                file.write(_RECORD.pack(START_S + seconds, part, len(packet), len(packet)))
                file.write(packet)
                packets += 1
                written += 16 + len(packet)
    return packets


if __name__ == "__main__":
    target = Path(sys.argv[1])
    print(make(target, parse_size(sys.argv[2]), mux="--mux" in sys.argv), "packets")
