"""bymux packets and Jmux messages, encoded and taken out of a buffer, both compiled and from the uncompiled source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit._core.uncompiled import load

from mainstem._core.mux import packets as compiled
from mainstem.bymux.codec import Packet, decode_header, encode_global, encode_stream
from mainstem.jmux.codec import DATA, HEADER, Kind, decode_message

if TYPE_CHECKING:
    from types import ModuleType

BOTH = [pytest.param(compiled, id="compiled"), pytest.param(load("mux.packets"), id="uncompiled")]
both = pytest.mark.parametrize("module", BOTH)

IDS = st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1])
BODIES = st.binary(max_size=300) | st.integers(0, 70_000).map(bytes)
MOST = 1000


@both
@given(stream_id=IDS, body=BODIES)
def test_a_write_is_encoded_in_the_fewest_bytes(module: ModuleType, stream_id: int, body: bytes) -> None:
    assert module.write_packet(stream_id, body) == encode_stream(Packet.WRITE, stream_id, len(body)) + body


def expected_writes(data: bytes, start: int) -> tuple[int, bytes, int] | None:
    """Return what the codec must find: the whole Writes of one stream, joined as far as possible."""
    found: tuple[int, bytes, int] | None = None
    at = start
    while (header := decode_header(data, at)) is not None and header.packet is Packet.WRITE and not header.is_global:
        body = data[at + header.length : at + header.length + header.amount]
        if len(body) < header.amount:
            break
        if found is not None and (header.stream_id != found[0] or len(found[1]) + len(body) > MOST):
            break
        at += header.length + header.amount
        found = header.stream_id, (found[1] if found else b"") + body, at
    return found


PACKETS = st.one_of(
    st.tuples(IDS, BODIES).map(lambda write: encode_stream(Packet.WRITE, write[0], len(write[1])) + write[1]),
    st.tuples(st.just(7), st.binary(max_size=200)).map(lambda write: bytes((0x20, write[0], len(write[1]))) + write[1]),
    st.tuples(st.just(7), st.binary(max_size=9)).map(
        lambda write: b"\x2e" + write[0].to_bytes(8, "big") + len(write[1]).to_bytes(4, "big") + write[1]
    ),
    IDS.map(lambda stream_id: encode_stream(Packet.CREDIT, stream_id, 5)),
    IDS.map(lambda stream_id: encode_stream(Packet.CLOSE, stream_id)),
    IDS.map(lambda stream_id: encode_global(Packet.WRITE, stream_id)),
    st.just(b"\x23\x07" + b"\xff" * 8),
)


@both
@given(packets=st.lists(PACKETS, max_size=8), start=st.integers(0, 3), cut=st.integers(0, 40))
def test_the_whole_writes_of_one_stream_are_joined(
    module: ModuleType, packets: list[bytes], start: int, cut: int
) -> None:
    whole = bytes(start) + b"".join(packets)
    data = whole[: max(start, len(whole) - cut)]
    assert module.take_writes(memoryview(data), start, MOST) == expected_writes(data, start)


@both
@given(data=st.binary(max_size=40), start=st.integers(0, 50))
def test_any_bytes_are_read_within_their_bounds(module: ModuleType, data: bytes, start: int) -> None:
    writes: Any = module.take_writes(data, start, MOST)
    assert writes is None or start < writes[2] <= len(data)
    message: Any = module.take_data(data, start)
    assert message is None or start < message[3] <= len(data)


@both
@given(
    session_id=st.integers(0, 255),
    flags=st.integers(0, 15).map(lambda flags: flags << 1),
    body=BODIES.filter(lambda body: len(body) < 65536),
    cut=st.integers(0, 5),
    first=st.sampled_from([0x80, 0x81, 0x20, 0x10, 0x04, 0xA0]),
)
def test_only_complete_data_messages_are_accepted(
    module: ModuleType, session_id: int, flags: int, body: bytes, cut: int, first: int
) -> None:
    message = bytearray(b"?" + HEADER.pack(DATA | flags, session_id, len(body)) + body)
    message[1] = first | flags
    data = bytes(message[: len(message) - cut])
    taken = module.take_data(data, 1)
    if first == 0x80 and session_id < 128 and not cut:
        header = decode_message(data, 1)
        assert header is not None
        assert header.kind is Kind.DATA
        assert taken == (header.session_id, header.flags, body, len(data))
    else:
        assert taken is None
