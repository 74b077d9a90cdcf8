"""The token of a tunnel, and the handshake in which both ends prove that they have it.

The client proves it first. The server sends no proof to a client that has not, so a stranger who connects gets nothing to test
guesses against. Each proof covers a label with the version, both nonces, and the client's proof, so none can be reflected,
replayed, or used for another handshake:

    client → server   nonce C (32 bytes)
    server → client   nonce S (32 bytes)
    client → server   P = HMAC-SHA-256(token, "mainstem-tunnel-2 client" 0 C S)
    server → client   HMAC-SHA-256(token, "mainstem-tunnel-2 server" 0 C S P)      only if P is right

An attacker who reads the connection, or tricks a client into connecting to them, gets P and can test tokens against it offline. TLS
prevents that. Without TLS, only a token that nobody can guess does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from mainstem.bymux.aio_connection import protocol_of
from mainstem.errors import ConfigurationError, ConnectionLost, RemoteProtocolError, Timeout

if TYPE_CHECKING:
    import random

    from mainstem.bymux.aio import Connection, Stream

TOKEN_VARIABLE = "MAINSTEM_TUNNEL_TOKEN"
# This many random base64 characters are 96 bits.
MIN_TOKEN_BYTES = 16
MAX_TOKEN_BYTES = 4096
NONCE_BYTES = 32
PROOF_BYTES = hashlib.sha256().digest_size
# Credit on the control stream, for a peer that has proved nothing yet.
CONTROL_CREDIT = 256
HANDSHAKE_TIMEOUT_S = 10.0
_LABEL = b"mainstem-tunnel-2 "


def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


def check_token(token: bytes) -> bytes:
    """Return the token. Raises ``ConfigurationError`` if it is too short to be secret, or too long."""
    if not MIN_TOKEN_BYTES <= len(token) <= MAX_TOKEN_BYTES:
        raise ConfigurationError(
            f"the tunnel's token must have {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} bytes (got {len(token)}); "
            "`mainstem tunnel token FILE` makes one"
        )
    return token


async def handshake(connection: Connection, control: Stream, token: bytes, entropy: random.Random) -> None:
    """Run the client's side: prove that this end has the token, then check the server's proof.

    An empty token means that neither end uses one. Raises ``RemoteProtocolError`` if the server does not have the token,
    ``Timeout``, and ``ConnectionLost``, also if the server refuses the client.
    """
    nonce = entropy.randbytes(NONCE_BYTES)
    control.write(nonce)
    nonces = nonce + await _read(control, NONCE_BYTES)
    proof = _proof(token, b"client", nonces)
    control.write(proof)
    answer = await _read(control, PROOF_BYTES)
    if not hmac.compare_digest(answer, _proof(token, b"server", nonces + proof)):
        raise _refusal(connection)


async def answer_handshake(connection: Connection, control: Stream, token: bytes, entropy: random.Random) -> None:
    """Run the server's side: check the client's proof, and only then prove that this end has the token.

    Raises ``RemoteProtocolError`` if the client does not have the token, ``Timeout``, and ``ConnectionLost``.
    """
    nonce = entropy.randbytes(NONCE_BYTES)
    control.write(nonce)
    nonces = await _read(control, NONCE_BYTES) + nonce
    proof = await _read(control, PROOF_BYTES)
    if not hmac.compare_digest(proof, _proof(token, b"client", nonces)):
        raise _refusal(connection)
    control.write(_proof(token, b"server", nonces + proof))


def _proof(token: bytes, role: bytes, transcript: bytes) -> bytes:
    return hmac.new(token, _LABEL + role + b"\0" + transcript, hashlib.sha256).digest()


async def _read(control: Stream, count: int) -> bytes:
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            return await control.readexactly(count)
    except TimeoutError:
        raise Timeout("the tunnel's handshake was not answered", timeout=HANDSHAKE_TIMEOUT_S) from None
    except asyncio.IncompleteReadError:
        raise ConnectionLost("the peer ended the tunnel's handshake: is it the same token at both ends?") from None


def _refusal(connection: Connection) -> RemoteProtocolError:
    peer = protocol_of(connection).peer_name
    return RemoteProtocolError(f"{peer} does not have the tunnel's token", rule="tunnel-token", peer=peer)
