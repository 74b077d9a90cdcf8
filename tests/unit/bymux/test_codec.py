"""bymux packets as bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.bymux.codec import HEADER_LENGTHS, Packet, decode_header, encode_global, encode_stream

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "bymux.txt"
IDS = st.integers(0, 2**64 - 1)


def vectors() -> list[tuple[bytes, Packet, int | None, int | None]]:
    rows = []
    for line in VECTORS.read_text().splitlines():
        if line.startswith("#"):
            continue
        wire, name, stream, value = (part.strip() for part in line.split("|"))
        numbers = [None if text == "-" else int(text) for text in (stream, value)]
        rows.append((bytes.fromhex(wire), Packet[name], *numbers))
    return rows


@pytest.mark.parametrize(("wire", "packet", "stream_id", "value"), vectors())
def test_encodes_and_decodes_each_vector(wire: bytes, packet: Packet, stream_id: int | None, value: int | None) -> None:
    encoded = encode_global(packet, value) if stream_id is None else encode_stream(packet, stream_id, value)
    assert encoded == wire
    header = decode_header(wire)
    assert header is not None
    assert (header.packet, header.is_global, header.length) == (packet, stream_id is None, len(wire))
    if stream_id is not None:
        assert (header.stream_id, header.amount) == (stream_id, value or 0)
    elif packet is Packet.WRITE:
        assert header.stream_id == value
    else:
        assert header.amount == (value or 0)


@pytest.mark.parametrize(
    ("wire", "packet", "stream_id", "amount"),
    [
        ("440007", Packet.PING, 7, 0),
        ("4800000007", Packet.PING, 7, 0),
        ("4c0000000000000007", Packet.PING, 7, 0),
        ("4307", Packet.PING, 7, 0),
        ("5f", Packet.PING, -1, 0),
        ("9c", Packet.CLOSE, -1, 0),
        ("1d0005", Packet.CREDIT, -1, 5),
        ("03000000000000000064", Packet.CREDIT, 0, 100),
    ],
)
def test_accepts_wide_fields_and_ignores_unused_bits(wire: str, packet: Packet, stream_id: int, amount: int) -> None:
    header = decode_header(bytes.fromhex(wire))
    assert header == (packet, stream_id < 0, stream_id, amount, len(wire) // 2)


@pytest.mark.parametrize("byte", range(0xC0, 0x100))
def test_rejects_undefined_packet_types(byte: int) -> None:
    assert HEADER_LENGTHS[byte] == 0
    with pytest.raises(ValueError, match="undefined"):
        decode_header(bytes([byte]) + bytes(16))


@given(packet=st.sampled_from(Packet), stream_id=IDS, amount=IDS)
def test_every_stream_packet_round_trips_in_the_fewest_bytes(packet: Packet, stream_id: int, amount: int) -> None:
    has_amount = packet in (Packet.CREDIT, Packet.WRITE)
    wire = encode_stream(packet, stream_id, amount if has_amount else None)
    header = decode_header(b"\xff" + wire, 1)
    assert header == (packet, False, stream_id, amount if has_amount else 0, len(wire))

    def smallest(value: int) -> int:
        return next(width for width in (1, 2, 4, 8) if value < 1 << 8 * width)

    assert len(wire) == 1 + smallest(stream_id) + (smallest(amount) if has_amount else 0)


@given(data=st.binary(max_size=20))
def test_an_incomplete_header_needs_more_bytes(data: bytes) -> None:
    if data and HEADER_LENGTHS[data[0]] == 0:
        with pytest.raises(ValueError):
            decode_header(data)
        return
    header = decode_header(data)
    needed = HEADER_LENGTHS[data[0]] if data else 1
    assert (header is None) == (len(data) < needed)
