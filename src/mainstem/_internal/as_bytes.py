"""What a program gives to be sent, as bytes: kept exactly, or refused. ``bytes(5)`` is five zeroes, which no one meant to send."""

from __future__ import annotations


def as_bytes(data: bytes | bytearray | memoryview) -> bytes:
    """Return the bytes of a bytes-like object, copied where it may change. Raises TypeError."""
    return data if type(data) is bytes else bytes(memoryview(data))


def as_message(message: bytes | bytearray | memoryview | str) -> bytes:
    """Return the bytes of a message that may be text, which is encoded as UTF-8. Raises TypeError."""
    return message.encode() if isinstance(message, str) else as_bytes(message)
