"""Errors of a duologue that carry more than their family's: which step failed, what the server said."""

from __future__ import annotations

from mainstem.errors import RemoteProtocolError, TimedOut


class StepTimedOut(TimedOut):
    """A step of connecting did not come about in time; ``step`` says which."""

    def __init__(self, message: str, *, step: str, timeout: float) -> None:
        self.step = step
        super().__init__(message, timeout=timeout)


class Refused(RemoteProtocolError):
    """The server said ``ERROR <message>``: ``reason`` is its message."""

    def __init__(self, message: str, *, reason: str, peer: str) -> None:
        self.reason = reason
        super().__init__(message, rule="guide 4.4", peer=peer)
