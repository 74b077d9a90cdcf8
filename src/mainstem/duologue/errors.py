"""Errors of a duologue that carry more than their family's: which step failed, with which reason the server refused."""

from __future__ import annotations

from mainstem.errors import RemoteProtocolError, TimedOut


class StepTimedOut(TimedOut):
    """A step of connecting did not come about in time.

    Attributes:
        step: What was waited for.
        timeout: The limit, in seconds.

    Example:
        >>> try:
        ...     DuologueClient.connect("192.0.2.1", timeout=2)
        ... except StepTimedOut as error:
        ...     print(error.step)
    """

    def __init__(self, message: str, *, step: str, timeout: float) -> None:
        self.step = step
        super().__init__(message, timeout=timeout)


class Refused(RemoteProtocolError):
    """The server sent ``ERROR <message>``.

    Attributes:
        reason: The message.
        peer: The server's address and port.

    Example:
        >>> try:
        ...     DuologueClient.connect("192.0.2.1")
        ... except Refused as error:
        ...     print(error.reason)
    """

    def __init__(self, message: str, *, reason: str, peer: str) -> None:
        self.reason = reason
        super().__init__(message, rule="guide 4.4", peer=peer)
