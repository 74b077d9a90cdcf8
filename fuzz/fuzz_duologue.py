"""Messages of duologues: requests, responses, errors and sealed messages are decoded, or refused by a named rule."""

from __future__ import annotations

import random
from contextlib import suppress

from mainstem.duologue.messages import (
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
from mainstem.errors import MissingExtraError, RemoteProtocolError

try:
    from mainstem.duologue.crypto import Opener, ServerKey

    KEY: ServerKey | None = ServerKey.generate(random.Random(1))
except (ImportError, MissingExtraError):  # the package cryptography is missing
    KEY = None

_HELLOS = [Hello(0x1234ABCD), SealedHello(bytes(20), bytes(range(32)))]
_RESPONSES = [
    Connect(5, 40123, 40124, 99),
    Connect(-5, 1, 65535, 0xFFFFFFFF, bytes(range(32)), bytes(16)),
    Refusal(7, "no"),
]
SEEDS = [message.encode() for message in (*_HELLOS, *_RESPONSES)] + [error_text("the end")]


def target(data: bytes) -> None:
    """Process one input."""
    hello = None
    with suppress(RemoteProtocolError):
        hello = parse_hello(data)
        assert parse_hello(hello.encode()) == hello
    with suppress(RemoteProtocolError):
        response = parse_response(data)
        # Only for Connect: replacing invalid UTF-8 makes an error's text longer, so it may be truncated.
        if isinstance(response, Connect):
            assert parse_response(response.encode()) == response
            assert decrypt_session(encrypt_session(response.session_id, 5), 5) == response.session_id
    error_of(data)
    if KEY is None:
        return
    if isinstance(hello, SealedHello):
        with suppress(RemoteProtocolError):
            KEY._open_hello(hello)
    try:
        Opener(bytes(32), 5).open(data)
    except RemoteProtocolError:
        return
    raise AssertionError("a message that nobody sealed was opened")
