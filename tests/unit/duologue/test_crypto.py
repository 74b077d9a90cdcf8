"""Encryption: only the two ends can read messages, and changed, replayed or missing messages are refused."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.duologue import crypto
from mainstem.duologue.crypto import OVERHEAD, Ciphers, ClientHandshake, ServerKey
from mainstem.duologue.messages import Connect, encrypt_session, parse_hello, parse_response
from mainstem.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError

SESSION = 1938340545
PAD = 0x611786D9


def handshake(seed: int = 1, *, server_public: bytes | None = None) -> tuple[ServerKey, ClientHandshake, Random]:
    rng = Random(seed)
    key = ServerKey.generate(rng)
    return key, ClientHandshake(server_public or key.public, PAD, rng), rng


def agreed(seed: int = 1) -> tuple[Ciphers, Ciphers, Connect]:
    key, client, rng = handshake(seed)
    hello = parse_hello(client.hello.encode())
    pad, secret = key._open_hello(client.hello)
    assert (hello, pad) == (client.hello, PAD)
    connect = Connect(-5, 9014, 9011, encrypt_session(SESSION, pad))
    connect, server_end = key._respond(connect, client.hello, secret, duologue_session=SESSION, rng=rng)
    assert parse_response(connect.encode()) == connect
    return client.finish(connect, SESSION), server_end, connect


def seal(end: Ciphers, message: bytes) -> bytes:
    sealed = end.sealer.seal(message)
    end.sealer.number += 1
    return sealed


def unseal(end: Ciphers, sealed: bytes) -> bytes:
    message = end.opener.open(sealed)
    end.opener.number += 1
    return message


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_both_directions_carry_messages(messages: list[bytes]) -> None:
    client, server, _ = agreed()
    for message in messages:
        sealed = seal(client, message)
        assert len(sealed) == len(message) + OVERHEAD
        assert unseal(server, sealed) == message
        assert unseal(client, seal(server, message)) == message


def test_equal_messages_have_different_ciphertexts() -> None:
    client, _server, _ = agreed()
    assert seal(client, b"tide")[8:] != seal(client, b"tide")[8:]
    assert seal(agreed(2)[0], b"tide") != seal(agreed(3)[0], b"tide")
    assert seal(agreed(2)[0], b"tide") != seal(agreed(2)[1], b"tide")


@given(st.integers(0, (8 + 4 + 16) * 8 - 1))
def test_a_flipped_bit_is_rejected(bit: int) -> None:
    client, server, _ = agreed()
    sealed = bytearray(seal(client, b"tide"))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RemoteProtocolError):
        unseal(server, bytes(sealed))


def test_replayed_skipped_and_reflected_messages_are_rejected() -> None:
    client, server, _ = agreed()
    first, second, third = (seal(client, text) for text in (b"1", b"2", b"3"))
    assert unseal(server, first) == b"1"
    with pytest.raises(RemoteProtocolError, match="replayed"):
        unseal(server, first)
    with pytest.raises(RemoteProtocolError, match="lost"):
        unseal(server, third)
    assert unseal(server, second) == b"2"
    with pytest.raises(RemoteProtocolError, match="was changed on its way"):
        unseal(agreed()[0], first)


def test_a_direction_ends_before_its_nonces_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crypto, "MAX_MESSAGES", 2)
    client, server, _ = agreed()
    for message in (b"first", b"last"):
        assert unseal(server, seal(client, message)) == message
    with pytest.raises(LocalProtocolError, match="has used all of its message numbers"):
        seal(client, b"one more")


def test_another_duologues_message_is_rejected() -> None:
    with pytest.raises(RemoteProtocolError):
        unseal(agreed(2)[1], seal(agreed(3)[0], b"tide"))


@given(st.binary(max_size=OVERHEAD + 4))
def test_arbitrary_bytes_raise_only_protocol_errors(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        unseal(agreed()[1], data)


def test_another_servers_hello_is_rejected() -> None:
    _, client, _ = handshake(1)
    other = ServerKey.generate(Random(99))
    with pytest.raises(RemoteProtocolError, match="HELLO"):
        other._open_hello(client.hello)


def test_an_invalid_public_key_is_rejected() -> None:
    key, client, _ = handshake()
    with pytest.raises(RemoteProtocolError, match="public key is invalid"):
        key._open_hello(replace(client.hello, public_key=bytes(32)))


@pytest.mark.parametrize(
    "forged",
    [
        {"port": 9999},
        {"control_port": 9999},
        {"session_id": -6},
        {"public_key": b"\x09" + bytes(31)},
        {"tag": bytes(16)},
        {"tag": b"", "public_key": b""},
    ],
)
def test_a_forged_connect_is_rejected(forged: dict[str, object]) -> None:
    key, client, rng = handshake()
    pad, secret = key._open_hello(client.hello)
    connect = Connect(-5, 9014, 9011, encrypt_session(SESSION, pad))
    connect, _ = key._respond(connect, client.hello, secret, duologue_session=SESSION, rng=rng)
    with pytest.raises(RemoteProtocolError):
        client.finish(replace(connect, **forged), SESSION)  # type: ignore[arg-type]


def test_keys_are_bound_to_the_session() -> None:
    key, client, rng = handshake()
    pad, secret = key._open_hello(client.hello)
    connect = Connect(-5, 9014, 9011, encrypt_session(SESSION, pad))
    connect, _ = key._respond(connect, client.hello, secret, duologue_session=SESSION, rng=rng)
    with pytest.raises(RemoteProtocolError):
        client.finish(connect, SESSION + 1)


def test_a_key_of_the_wrong_length_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError):
        ServerKey(b"short")
    with pytest.raises(ConfigurationError):
        ClientHandshake(b"short", PAD, Random(1))


def test_a_server_key_can_be_restored_from_its_private_bytes() -> None:
    key = ServerKey.generate(Random(4))
    assert ServerKey(key.private_bytes).public == key.public
