"""The message texts of docs/protocols/duologue.md, 4.4, with the guide's own example (4.7) as the test vector."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.duologue.messages import (
    MAX_ERROR_LENGTH,
    Connect,
    Hello,
    Refusal,
    SealedHello,
    decrypt_session,
    encrypt_session,
    error_of,
    error_text,
    parse_hello,
    parse_response,
)
from mainstem.errors import RemoteProtocolError

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
UINT32 = st.integers(0, (1 << 32) - 1)
PORT = st.integers(1, 65535)


def test_messages_match_the_guides_example() -> None:
    assert Hello(0x611786D9).encode() == b"HELLO 611786D9"
    answer = Connect(-555798973, 9014, 9011, encrypt_session(1938340545, 0x611786D9))
    assert answer.encode() == b"-555798973 CONNECT 9014 9011 129F3C18"
    assert decrypt_session(0x129F3C18, 0x611786D9) == 1938340545
    refusal = Refusal(-2147483648, "too many connections for IP address")
    assert refusal.encode() == b"-2147483648 ERROR too many connections for IP address"


@given(UINT32)
def test_a_hello_round_trips(key: int) -> None:
    assert parse_hello(Hello(key).encode()) == Hello(key)


@given(st.binary(min_size=20, max_size=20), st.binary(min_size=32, max_size=32))
def test_a_sealed_hello_round_trips(sealed: bytes, public: bytes) -> None:
    hello = SealedHello(sealed, public)
    assert parse_hello(hello.encode()) == hello


@given(INT32, PORT, PORT, UINT32, st.one_of(st.just((b"", b"")), st.just((b"k" * 32, b"t" * 16))))
def test_a_connect_round_trips(
    session: int, port: int, control: int, encrypted: int, keys: tuple[bytes, bytes]
) -> None:
    connect = Connect(session, port, control, encrypted, *keys)
    assert parse_response(connect.encode()) == connect


@given(INT32, st.text(max_size=40))
def test_a_refusal_round_trips(session: int, message: str) -> None:
    assert parse_response(Refusal(session, message).encode()) == Refusal(session, message)


@given(INT32, UINT32)
def test_the_one_time_pad_round_trips(session: int, key: int) -> None:
    encrypted = encrypt_session(session, key)
    assert 0 <= encrypted < 1 << 32
    assert decrypt_session(encrypted, key) == session


@pytest.mark.parametrize(
    "text",
    [b"", b"HELLO", b"HELLO ", b"HELLO 123456789", b"HELLO xyz", b"hello 12", b" HELLO 12", b"HELLO 12\n", b"HELLO -1"],
)
def test_only_a_hello_is_accepted(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="HELLO"):
        parse_hello(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"1 CONNECT 0 1 FF",
        b"1 CONNECT 1 65536 FF",
        b"1 CONNECT 1 2 1FFFFFFFF",
        b"2147483648 CONNECT 1 2 FF",
        b"1 CONNECT 1 2 FF 00",
        b"9999999999 ERROR x",
        b"x ERROR y",
    ],
)
def test_only_a_response_is_accepted(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="neither"):
        parse_response(text)


@given(st.binary(max_size=700))
def test_arbitrary_bytes_raise_only_protocol_errors(text: bytes) -> None:
    for parse in (parse_hello, parse_response):
        with suppress(RemoteProtocolError):
            parse(text)


def test_errors_are_distinguished_from_messages() -> None:
    assert error_of(error_text("bad message")) == "bad message"
    assert error_of(b"ECHO ERROR x") is None
    assert len(error_text("x" * 1000)) == MAX_ERROR_LENGTH + len(b"ERROR ")
