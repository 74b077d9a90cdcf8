"""What a program gives to be sent, as bytes: kept exactly, or refused. ``bytes(5)`` is five zeroes, which no one meant to send."""

from __future__ import annotations


def as_bytes(data: bytes | bytearray | memoryview) -> bytes:
    """Returns the bytes of a bytes-like object, copied where it may change.

    Args:
        data: An object with the buffer protocol.

    Returns:
        Its bytes.

    Raises:
        TypeError: It is something else: a number, text, a list.

    Example:
        >>> as_bytes(bytearray(b"tide"))
        b'tide'
    """
    return data if type(data) is bytes else bytes(memoryview(data))


def as_message(message: bytes | bytearray | memoryview | str) -> bytes:
    """Returns the bytes of a message that may be text, which is encoded as UTF-8.

    Args:
        message: Text, or an object with the buffer protocol.

    Returns:
        Its bytes.

    Raises:
        TypeError: It is something else: a number, a list.

    Example:
        >>> as_message("tide")
        b'tide'
    """
    return message.encode() if isinstance(message, str) else as_bytes(message)
