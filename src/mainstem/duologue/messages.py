"""The messages on the all-clients channel and the errors on a duologue (docs/protocols/duologue.md, 4.4).

They are ``HELLO <key>``, ``<session> CONNECT <port> <control-port> <encrypted-session>``, ``<session> ERROR <message>``, and on a
duologue ``ERROR <message>``. Ports and sessions are decimal. Keys and encrypted sessions are upper-case hexadecimal. With
encryption, HELLO and CONNECT also carry public keys (see ``crypto``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mainstem._internal.validation import as_message
from mainstem.aeron.logbuffer.descriptor import wrap_i32
from mainstem.errors import ConfigurationError, RemoteProtocolError

# The longest valid message is an error. Longer ones are refused without parsing.
MAX_TEXT_LENGTH = 512
MAX_ERROR_LENGTH = 256

SERVER_FULL = "server full"
SHUTTING_DOWN = "server shutting down"
TOO_MANY_CONNECTIONS = "too many connections for IP address"
BAD_MESSAGE = "bad message"
INTERNAL_ERROR = "internal error"
ENCRYPTION_REQUIRED = "encryption required"
ENCRYPTION_NOT_OFFERED = "encryption not offered"

# The reserved value by which an end says that it has ended (docs/protocols/duologue.md, 6.4). In HELLO and in responses it
# promises that; in a duologue it marks the last message. Other implementations send 0 and ignore what they receive.
SAYS_END = int.from_bytes(b"mainstem", "big")

KEY_BITS = 32
PUBLIC_KEY_LENGTH = 32
SEAL_LENGTH = 24  # encryption adds a number and a tag to each message

_HELLO = re.compile(rb"HELLO ([0-9A-Fa-f]{1,8})")
_SEALED_HELLO = re.compile(rb"HELLO ([0-9A-Fa-f]{40}) ([0-9A-Fa-f]{64})")
_CONNECT = re.compile(
    rb"(-?[0-9]{1,10}) CONNECT ([0-9]{1,5}) ([0-9]{1,5}) ([0-9A-Fa-f]{1,8})(?: ([0-9A-Fa-f]{64}) ([0-9A-Fa-f]{32}))?"
)
_ERROR = re.compile(rb"(-?[0-9]{1,10}) ERROR (.*)", re.DOTALL)
_DUOLOGUE_ERROR = b"ERROR "


@dataclass(frozen=True, slots=True)
class Hello:
    """A client's request for a duologue. ``key`` is its one-time pad, an unsigned 32-bit integer."""

    key: int

    def encode(self) -> bytes:
        return b"HELLO %X" % self.key


@dataclass(frozen=True, slots=True)
class SealedHello:
    """An encrypted request: the one-time pad, sealed for the server, and the public key of this attempt."""

    sealed_key: bytes
    public_key: bytes

    def encode(self) -> bytes:
        return b"HELLO %s %s" % (_hex(self.sealed_key), _hex(self.public_key))


@dataclass(frozen=True, slots=True)
class Connect:
    """The response that the client with ``session_id`` may join a duologue. Encryption adds ``public_key`` and ``tag``."""

    session_id: int
    port: int
    control_port: int
    encrypted_session: int
    public_key: bytes = b""
    tag: bytes = b""

    def encode(self) -> bytes:
        return b"%s %s %s" % (self.plain_part, _hex(self.public_key), _hex(self.tag)) if self.tag else self.plain_part

    @property
    def plain_part(self) -> bytes:
        """The message without what encryption adds to it. The tag authenticates this part."""
        ports = b"%d %d" % (self.port, self.control_port)
        return b"%d CONNECT %s %X" % (self.session_id, ports, self.encrypted_session & 0xFFFF_FFFF)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The response that refuses the client with ``session_id``. ``message`` is the reason."""

    session_id: int
    message: str

    def encode(self) -> bytes:
        return b"%d ERROR %s" % (self.session_id, self.message.encode()[:MAX_ERROR_LENGTH])


def parse_hello(text: bytes, peer: str = "") -> Hello | SealedHello:
    """Parse a client's request. Raises RemoteProtocolError."""
    if len(text) <= MAX_TEXT_LENGTH:
        if match := _HELLO.fullmatch(text):
            return Hello(int(match[1], 16))
        if match := _SEALED_HELLO.fullmatch(text):
            return SealedHello(bytes.fromhex(match[1].decode()), bytes.fromhex(match[2].decode()))
    raise RemoteProtocolError(f"{_shown(text)} is not HELLO <key>", rule="guide 4.4", peer=peer)


def parse_response(text: bytes, peer: str = "") -> Connect | Refusal:
    """Parse a response to any client from the all-clients channel. Raises RemoteProtocolError."""
    if len(text) <= MAX_TEXT_LENGTH:
        if match := _CONNECT.fullmatch(text):
            session_id, port, control_port = int(match[1]), int(match[2]), int(match[3])
            if _is_int32(session_id) and 0 < port < 65536 and 0 < control_port < 65536:
                public_key = bytes.fromhex((match[5] or b"").decode())
                tag = bytes.fromhex((match[6] or b"").decode())
                return Connect(session_id, port, control_port, int(match[4], 16), public_key, tag)
        elif (match := _ERROR.fullmatch(text)) and _is_int32(int(match[1])):
            return Refusal(int(match[1]), match[2].decode(errors="replace"))
    raise RemoteProtocolError(f"{_shown(text)} is neither CONNECT nor ERROR", rule="guide 4.4", peer=peer)


def error_text(message: str) -> bytes:
    """Encode a message that ends a duologue with a reason."""
    return _DUOLOGUE_ERROR + message.encode()[:MAX_ERROR_LENGTH]


def error_of(text: bytes) -> str | None:
    if not text.startswith(_DUOLOGUE_ERROR):
        return None
    return text[len(_DUOLOGUE_ERROR) :][:MAX_ERROR_LENGTH].decode(errors="replace")


def longest_message(term_length: int, *, is_encrypted: bool) -> int:
    """Return the maximum message length in bytes for a term length."""
    return term_length // 8 - (SEAL_LENGTH if is_encrypted else 0)


def checked_message(message: bytes | str, longest: int) -> bytes:
    """Encode a message. Raises TypeError if it is neither text nor bytes, and ConfigurationError if it is too long."""
    data = as_message(message)
    if len(data) > longest:
        raise ConfigurationError(f"message of {len(data)} bytes is too long (limit {longest}, by term_length)")
    return data


def encrypt_session(session_id: int, key: int) -> int:
    """Encrypt a session id with the one-time pad. Returns an unsigned 32-bit integer."""
    return (session_id ^ key) & 0xFFFF_FFFF


def decrypt_session(encrypted: int, key: int) -> int:
    """Undo ``encrypt_session``. Returns a signed 32-bit integer."""
    return wrap_i32(encrypted ^ key)


def _is_int32(value: int) -> bool:
    return value == wrap_i32(value)


def _hex(data: bytes) -> bytes:
    return data.hex().upper().encode()


def _shown(text: bytes) -> str:
    """Return an untrusted message, escaped and shortened for an error message."""
    return repr(text[:40]) + ("..." if len(text) > 40 else "")
