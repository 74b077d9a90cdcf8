"""Encrypts duologues, with X25519 for keys and ChaCha20-Poly1305 for messages (docs/protocols/duologue.md, 5.3).

The client knows the server's public key ``S`` and makes a new key pair ``c`` for each attempt. The server makes a new key pair
``s`` for each duologue.

* HELLO carries ``C`` and the one-time pad, sealed under a key from ``cS``. Only the holder of the server's private key can read it.
* CONNECT carries the public half of ``s``, and a tag over its text under a key from ``cS`` and ``cs``. The tag proves that the
  sender has the server's private key, and binds CONNECT to this attempt and session.
* Both secrets, the public keys and the session id give two keys, one for each direction. A message consists of its number (eight
  bytes), the ciphertext and its tag, with the session id as associated data. Numbers start at 0 and have no gaps, so replayed,
  missing, reordered or modified messages are refused.

The secrets of one duologue do not open another. If a server key leaks, it does not open traffic recorded earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.duologue.messages import PUBLIC_KEY_LENGTH, Connect, SealedHello
from mainstem.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError, needs_extras

with needs_extras():
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

if TYPE_CHECKING:
    from random import Random

KEY_LENGTH = 32
NUMBER_LENGTH = 8
OVERHEAD = NUMBER_LENGTH + 16
MAX_MESSAGES = (1 << 63) - 1  # per direction; a larger number would not be positive
_ZERO_NONCE = bytes(12)  # for keys that seal exactly one message
_HELLO_CONTEXT = b"mainstem duologue 1 hello"
_KEYS_CONTEXT = b"mainstem duologue 1 keys"
_END = b"end"  # distinguishes the end from an empty message


class ServerKey:
    """A server's long-lived key pair.

    Args:
        private: The private key, 32 bytes.

    Raises:
        ConfigurationError: The private key is not 32 bytes long.

    Attributes:
        public: The public key, which clients need.

    Example:
        >>> key = ServerKey.generate()
        >>> server = serve(handler, "192.0.2.1", key=key)
    """

    def __init__(self, private: bytes) -> None:
        if len(private) != KEY_LENGTH:
            raise ConfigurationError(f"the private key must be {KEY_LENGTH} bytes (got {len(private)})")
        self._key = X25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, rng: Random | None = None) -> ServerKey:
        """Make a new key pair and return it.

        Args:
            rng: The source of random bytes, for a simulation. None uses the system's cryptographic generator.
        """
        return cls(X25519PrivateKey.generate().private_bytes_raw() if rng is None else rng.randbytes(KEY_LENGTH))

    @property
    def private_bytes(self) -> bytes:
        """The private key. `ServerKey` makes the same key pair from it again. Keep it secret."""
        return self._key.private_bytes_raw()

    def _open_hello(self, hello: SealedHello) -> tuple[int, bytes]:
        """Decrypt a client's HELLO into its one-time pad and the secret that sealed it. Raises RemoteProtocolError."""
        secret = _agree(self._key, hello.public_key)
        opened = _open(_hello_key(secret, hello.public_key, self.public), hello.sealed_key, b"", what="a sealed HELLO")
        return int.from_bytes(opened, "big"), secret

    def _respond(
        self, connect: Connect, hello: SealedHello, secret: bytes, *, duologue_session: int, rng: Random
    ) -> tuple[Connect, Ciphers]:
        """Sign a CONNECT with the secret of `_open_hello`, and derive the duologue's keys. Raises RemoteProtocolError."""
        ephemeral = X25519PrivateKey.from_private_bytes(rng.randbytes(KEY_LENGTH))
        public = ephemeral.public_key().public_bytes_raw()
        secrets = secret + _agree(ephemeral, hello.public_key)
        keys = _Keys.derive(secrets, hello.public_key, self.public, public, duologue_session)
        tag = ChaCha20Poly1305(keys.confirm).encrypt(_ZERO_NONCE, b"", connect.plain_part)
        signed = Connect(connect.session_id, connect.port, connect.control_port, connect.encrypted_session, public, tag)
        return signed, Ciphers(Sealer(keys.to_client, duologue_session), Opener(keys.to_server, duologue_session))


class ClientHandshake:
    def __init__(self, server_public: bytes, key: int, rng: Random) -> None:
        if len(server_public) != PUBLIC_KEY_LENGTH:
            raise ConfigurationError(f"server_key must be {PUBLIC_KEY_LENGTH} bytes (got {len(server_public)})")
        self._server_public = server_public
        self._ephemeral = X25519PrivateKey.from_private_bytes(rng.randbytes(KEY_LENGTH))
        self._public = self._ephemeral.public_key().public_bytes_raw()
        self._secret = _agree(self._ephemeral, server_public)
        hello_key = _hello_key(self._secret, self._public, server_public)
        sealed = ChaCha20Poly1305(hello_key).encrypt(_ZERO_NONCE, key.to_bytes(4, "big"), b"")
        self.hello = SealedHello(sealed, self._public)

    def finish(self, connect: Connect, duologue_session: int) -> Ciphers:
        """Derive the client's ciphers. Raises RemoteProtocolError if the server did not make this CONNECT."""
        if not connect.tag:
            raise RemoteProtocolError("CONNECT has no key: the server does not encrypt", rule="encryption")
        secrets = self._secret + _agree(self._ephemeral, connect.public_key)
        keys = _Keys.derive(secrets, self._public, self._server_public, connect.public_key, duologue_session)
        _open(keys.confirm, connect.tag, connect.plain_part, what="CONNECT")
        return Ciphers(Sealer(keys.to_server, duologue_session), Opener(keys.to_client, duologue_session))


class _Direction:
    """The key of one direction and the number of its next message. The caller increments it once that is sent or received."""

    def __init__(self, key: bytes, session_id: int) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self._session = _session_bytes(session_id)
        self.number = 0

    def _vouched(self, *, is_end: bool) -> bytes:
        return self._session + _END if is_end else self._session


class Sealer(_Direction):
    """The encryption of one direction."""

    def seal(self, message: bytes, *, is_end: bool = False) -> bytes:
        """Encrypt a message with its number. Numbers must be sent in order, and each only once. ``is_end`` seals the end."""
        if self.number >= MAX_MESSAGES:
            raise LocalProtocolError("this duologue has used all of its message numbers; open a new one")
        number = self.number.to_bytes(NUMBER_LENGTH, "little")
        return number + self._cipher.encrypt(b"\0\0\0\0" + number, bytes(message), self._vouched(is_end=is_end))


class Opener(_Direction):
    """The decryption of one direction."""

    def open(self, sealed: bytes, *, is_end: bool = False) -> bytes:
        """Decrypt a message, or the end. Raises RemoteProtocolError unless it is the peer's next one, unmodified."""
        number = sealed[:NUMBER_LENGTH]
        if len(sealed) < OVERHEAD:
            raise RemoteProtocolError(
                f"not encrypted: a message of {len(sealed)} bytes (at least {OVERHEAD})", rule="encryption"
            )
        if int.from_bytes(number, "little") != self.number:
            raise RemoteProtocolError(
                f"expected message {self.number}, received {int.from_bytes(number, 'little')}: replayed, lost or reordered",
                rule="encryption",
            )
        try:
            return self._cipher.decrypt(b"\0\0\0\0" + number, sealed[NUMBER_LENGTH:], self._vouched(is_end=is_end))
        except InvalidTag:
            raise RemoteProtocolError(f"message {self.number} was changed on its way", rule="encryption") from None


@dataclass(frozen=True, slots=True)
class Ciphers:
    sealer: Sealer
    opener: Opener


@dataclass(frozen=True, slots=True)
class _Keys:
    confirm: bytes
    to_server: bytes
    to_client: bytes

    @classmethod
    def derive(cls, secrets: bytes, client: bytes, server: bytes, ephemeral: bytes, session_id: int) -> _Keys:
        context = _KEYS_CONTEXT + client + server + ephemeral + _session_bytes(session_id)
        derived = HKDF(SHA256(), 3 * KEY_LENGTH, salt=None, info=context).derive(secrets)
        return cls(*(derived[at : at + KEY_LENGTH] for at in range(0, 3 * KEY_LENGTH, KEY_LENGTH)))


def _session_bytes(session_id: int) -> bytes:
    return session_id.to_bytes(4, "little", signed=True)


def _hello_key(secret: bytes, client: bytes, server: bytes) -> bytes:
    return HKDF(SHA256(), KEY_LENGTH, salt=None, info=_HELLO_CONTEXT + client + server).derive(secret)


def _agree(own: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise RemoteProtocolError("the peer's public key is invalid", rule="encryption") from None


def _open(key: bytes, sealed: bytes, vouched: bytes, *, what: str) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(_ZERO_NONCE, sealed, vouched)
    except InvalidTag:
        raise RemoteProtocolError(f"{what} was not made with the right keys", rule="encryption") from None
