"""Every first byte and every reserved bit: which are messages and which are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.jmux import codec
from mainstem.jmux.codec import Kind, decode_message

# The specification's bit patterns of the first byte: 0 and 1 are fixed, x stands for a value.
PATTERNS = {
    Kind.NO_OPERATION: "00000000",
    Kind.SHUTDOWN: "00000010",
    Kind.PING: "00000100",
    Kind.PING_ACK: "00000110",
    Kind.ERROR: "00001000",
    Kind.INCREMENT_RATION: "0001xxx0",
    Kind.ABORT: "001000x0",
    Kind.CLOSE: "00110000",
    Kind.ACKNOWLEDGMENT: "01000000",
    Kind.DATA: "100xxxx0",
}
OF_A_SESSION = (Kind.INCREMENT_RATION, Kind.ABORT, Kind.CLOSE, Kind.ACKNOWLEDGMENT, Kind.DATA)
WITHOUT_VALUE = (Kind.CLOSE, Kind.ACKNOWLEDGMENT)


def kind_of(first: int) -> Kind | None:
    bits = f"{first:08b}"
    return next(
        (
            kind
            for kind, pattern in PATTERNS.items()
            if all(is_ in (must, "x") or must == "x" for is_, must in zip(bits, pattern, strict=True))
        ),
        None,
    )


def is_legal(kind: Kind | None, second: int) -> bool:
    """Reserved bits are ignored: in the second byte of connection messages, and in the value of Close and Acknowledgment."""
    return kind is not None and not (second & 0x80 and kind in OF_A_SESSION)


def decoded(data: bytes) -> codec.Message | str | None:
    try:
        return decode_message(data)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("first", range(256))
def test_every_first_byte_is_a_message_or_a_bad_header(first: int) -> None:
    kind = kind_of(first)
    for second in (0, 1, 2, 64, 126, 127, 128, 129, 192, 255):
        for value in (0, 1, 0x8000, 0xFFFF):
            data = bytes((first, second)) + value.to_bytes(2, "big")
            message = decoded(data)
            if not is_legal(kind, second):
                assert message == f"bad message header: {data.hex().upper()}"
                continue
            assert isinstance(message, codec.Message)
            assert message.kind is kind
            assert message.value == (0 if kind in WITHOUT_VALUE else value)
            assert message.session_id == (second if kind in OF_A_SESSION else -1)


@pytest.mark.parametrize("flags", range(16))
def test_data_flags_survive_a_round_trip(flags: int) -> None:
    bits = (codec.OPEN, codec.CLOSE, codec.EOF, codec.ACK_REQUIRED)
    chosen = sum(bit for number, bit in enumerate(bits) if flags >> number & 1)
    data = codec.HEADER.pack(codec.DATA | chosen, 5, 0x1234)
    assert data == bytes((0x80 | chosen, 5, 0x12, 0x34))
    assert decode_message(data) == codec.Message(Kind.DATA, 5, chosen, 0x1234)


@pytest.mark.parametrize("shift", range(8))
def test_an_increment_is_scaled_by_its_shift(shift: int) -> None:
    message = decode_message(bytes((0x10 | shift << 1, 127, 0x01, 0x02)))
    assert message is not None
    assert message.increment == 0x0102 << 2 * shift


def test_an_abort_says_whether_anything_was_processed() -> None:
    for partial, first in ((0, 0x20), (codec.PARTIAL, 0x22)):
        data = codec.encode_session(Kind.ABORT, 3, flags=partial, body=b"why")
        assert data == bytes((first, 3, 0, 3)) + b"why"
        message = decode_message(data)
        assert message == codec.Message(Kind.ABORT, 3, partial, 3)


@given(ration=st.integers(0, 0xFFFF), version=st.integers(0, 255), reserved=st.integers(0, 255))
def test_a_connection_header_survives_a_round_trip(ration: int, version: int, reserved: int) -> None:
    data = b"Jmux" + bytes((version,)) + ration.to_bytes(2, "big") + bytes((reserved,))
    assert codec.decode_connection_header(data) == (version, ration * 256, reserved)
    assert codec.encode_connection_header(ration * 256) == b"Jmux\x01" + ration.to_bytes(2, "big") + b"\0"


@given(st.binary(max_size=3))
def test_an_incomplete_header_needs_more_bytes(data: bytes) -> None:
    assert decode_message(data) is None
