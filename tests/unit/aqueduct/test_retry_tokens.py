"""Tokens of Retry packets: for whom and for how long they are valid."""

from __future__ import annotations

import pytest

from mainstem.aqueduct.admission import TOKEN_LIFETIME, RetryTokens

ADDRESS = ("192.0.2.7", 4433)
ORIGINAL, RETRIED = b"original", b"retried!"


@pytest.fixture
def tokens() -> RetryTokens:
    return RetryTokens()


@pytest.mark.parametrize("original", [b"original", b"12345678901234567890"])
def test_a_token_contains_the_clients_first_connection_id(tokens: RetryTokens, original: bytes) -> None:
    token = tokens.make(ADDRESS, original, RETRIED, 100.0)
    assert tokens.original(token, ADDRESS, RETRIED, 100.0 + TOKEN_LIFETIME) == original


def test_a_token_expires(tokens: RetryTokens) -> None:
    token = tokens.make(ADDRESS, ORIGINAL, RETRIED, 100.0)
    assert tokens.original(token, ADDRESS, RETRIED, 100.1 + TOKEN_LIFETIME) is None


@pytest.mark.parametrize(
    ("address", "retried"),
    [(("192.0.2.8", 4433), RETRIED), (("192.0.2.7", 4434), RETRIED), (ADDRESS, b"another!"), (ADDRESS, b"")],
)
def test_a_token_is_valid_only_for_its_address(tokens: RetryTokens, address: tuple[str, int], retried: bytes) -> None:
    token = tokens.make(ADDRESS, ORIGINAL, RETRIED, 100.0)
    assert tokens.original(token, address, retried, 100.0) is None


def test_another_servers_token_is_rejected(tokens: RetryTokens) -> None:
    token = tokens.make(ADDRESS, ORIGINAL, RETRIED, 100.0)
    assert RetryTokens().original(token, ADDRESS, RETRIED, 100.0) is None
    for index in range(len(token)):
        changed = bytearray(token)
        changed[index] ^= 1
        assert tokens.original(bytes(changed), ADDRESS, RETRIED, 100.0) is None
        assert tokens.original(token[:index], ADDRESS, RETRIED, 100.0) is None
