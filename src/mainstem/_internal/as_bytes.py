"""Data to send, as bytes. Anything else is rejected: ``bytes(5)`` is five zeroes, which nobody meant to send."""

from __future__ import annotations


def as_bytes(data: bytes | bytearray | memoryview) -> bytes:
    """Return the bytes of a bytes-like object, copied unless they are ``bytes``. Raises TypeError."""
    return data if type(data) is bytes else bytes(memoryview(data))


def as_message(message: bytes | bytearray | memoryview | str) -> bytes:
    """Return the bytes of a message, which may be text; text is encoded as UTF-8. Raises TypeError."""
    return message.encode() if isinstance(message, str) else as_bytes(message)
