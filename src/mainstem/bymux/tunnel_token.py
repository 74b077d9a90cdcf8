"""The token of a tunnel, and how both ends prove to each other that they have it.

The client proves first. The server sends no proof to a client that has not, so a stranger who connects learns nothing that a guess
could be compared with. Each proof covers a label with the version, both nonces and the client's proof, so that none can be sent
back, replayed, or used for another handshake:

    client → server   nonce C (32 bytes)
    server → client   nonce S (32 bytes)
    client → server   P = HMAC-SHA-256(token, "mainstem-tunnel-2 client" 0 C S)
    server → client   HMAC-SHA-256(token, "mainstem-tunnel-2 server" 0 C S P)      only if P is right

Whoever reads the connection, or makes a client connect to them, has P, and can try tokens on it without the server. TLS prevents
that; without TLS, only a token that nobody can guess does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError, ConnectionLost, RemoteProtocolError, Timeout

if TYPE_CHECKING:
    import random

    from mainstem.bymux.aio import Connection, Stream

TOKEN_VARIABLE = "MAINSTEM_TUNNEL_TOKEN"
# As many random characters of base64 are 96 bits.
MIN_TOKEN_BYTES = 16
MAX_TOKEN_BYTES = 4096
NONCE_BYTES = 32
PROOF_BYTES = hashlib.sha256().digest_size
# Credit on the control stream for a peer that has not proved anything yet.
CONTROL_CREDIT = 256
HANDSHAKE_TIMEOUT_S = 10.0
_LABEL = b"mainstem-tunnel-2 "


def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


def check_token(token: bytes) -> bytes:
    """Return the token. Raises ``ConfigurationError`` where it is too short to be a secret, or too long."""
    if not MIN_TOKEN_BYTES <= len(token) <= MAX_TOKEN_BYTES:
        raise ConfigurationError(
            f"the tunnel's token must have {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} bytes (got {len(token)}); "
            "`mainstem tunnel token FILE` makes one"
        )
    return token


async def handshake(connection: Connection, control: Stream, token: bytes, entropy: random.Random) -> None:
    """The client's side: proves that this end has the token, then checks the server's proof. With an empty token both have none.

    Raises ``RemoteProtocolError`` when the server does not have the token, ``Timeout``, and ``ConnectionLost``, which is also how
    a server refuses the client.
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
    """The server's side: checks the client's proof, and only then proves that this end has the token.

    Raises ``RemoteProtocolError`` when the client does not have the token, ``Timeout``, and ``ConnectionLost``.
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
    peer = connection._runner.peer_name
    return RemoteProtocolError(f"{peer} does not have the tunnel's token", rule="tunnel-token", peer=peer)
