"""The encodings below the frames: compared with bytes from the reference's encoder, and by round trip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.aqueduct.frames import (
    Incomplete,
    as_headers,
    decode_headers,
    decode_range_data,
    decode_uint,
    encode_headers,
    encode_range_data,
    encode_uint,
)
from mainstem.aqueduct.limits import DEFAULT_LIMITS
from mainstem.errors import LocalProtocolError, RemoteProtocolError

UINT = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (2**56, "808080808080808001"),
        (2**63 - 1, "ffffffffffffffff7f"),
    ],
)
def test_encodes_integers_as_the_reference_does(value: int, encoded: str) -> None:
    assert encode_uint(value).hex() == encoded


@given(UINT)
def test_decodes_what_it_encodes(value: int) -> None:
    data = encode_uint(value)
    assert decode_uint(data, 0, len(data)) == (value, len(data))
    for end in range(len(data)):
        with pytest.raises(Incomplete):
            decode_uint(data, 0, end)


@given(UINT)
def test_rejects_an_integer_encoded_longer_than_necessary(value: int) -> None:
    data = encode_uint(value)
    longer = data[:-1] + bytes((data[-1] | 0x80, 0))
    with pytest.raises(RemoteProtocolError) as caught:
        decode_uint(longer, 0, len(longer))
    assert caught.value.rule == "canonical integer"


@pytest.mark.parametrize(
    "encoded", ["ffffffffffffffffff02", "ffffffffffffffffff81", "8080808080808080808001", "80808080808080808000"]
)
def test_rejects_an_integer_of_more_than_64_bits(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    with pytest.raises(RemoteProtocolError):
        decode_uint(data, 0, len(data))


@pytest.mark.parametrize("value", [-1, 2**64])
def test_encodes_only_64_bit_integers(value: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_uint(value)


@given(
    st.lists(st.tuples(st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1), st.binary()), max_size=8)
)
def test_headers_round_trip_in_order(pairs: list[tuple[str, bytes]]) -> None:
    data = encode_headers(as_headers(pairs))
    assert decode_headers(data, 0, len(data), DEFAULT_LIMITS) == (tuple(pairs), len(data))


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("020161", "header pairs"),
        ("020000", "header key"),
        ("0301e900", "header key"),
        ("0105", "header data"),
        ("0180", "header data"),
    ],
)
def test_rejects_invalid_headers(body: str, rule: str) -> None:
    data = bytes.fromhex(body)
    with pytest.raises(RemoteProtocolError) as caught:
        decode_headers(data, 0, len(data), DEFAULT_LIMITS)
    assert caught.value.rule == rule


@pytest.mark.parametrize("key", ["", "é"])
def test_does_not_send_an_invalid_header_key(key: str) -> None:
    with pytest.raises(LocalProtocolError):
        as_headers([(key, b"")])


def test_a_byte_array_above_its_limit_is_rejected_before_its_bytes_arrive() -> None:
    data = encode_uint(1 << 30)
    with pytest.raises(RemoteProtocolError) as caught:
        decode_headers(data, 0, len(data), DEFAULT_LIMITS)
    assert caught.value.rule == "size limit"


@pytest.mark.parametrize("counts", [(), (3,), (0, 2, 1), (1, 2, 3, 4)])
def test_range_data_round_trips(counts: tuple[int, ...]) -> None:
    data = encode_range_data(counts)
    assert decode_range_data(data, 0, len(data), DEFAULT_LIMITS) == (counts, len(data))


@pytest.mark.parametrize("body", ["0100", "03010001", "020100", "0180"])
def test_rejects_invalid_range_data(body: str) -> None:
    data = bytes.fromhex(body)
    with pytest.raises(RemoteProtocolError):
        decode_range_data(data, 0, len(data), DEFAULT_LIMITS)


def test_rejects_range_data_beyond_64_bits() -> None:
    data = encode_range_data((2**64 - 1, 1))
    with pytest.raises(RemoteProtocolError):
        decode_range_data(data, 0, len(data), DEFAULT_LIMITS)
