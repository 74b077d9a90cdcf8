"""What a program gives a duologue server: what happens when a client comes, says something, goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from mainstem.duologue.session import Duologue


class BadMessage(MainstemError):
    """A handler raises this for a message that its protocol does not know: the client is told and disconnected."""


class Handler:
    """The three things that happen on a duologue; all are called in the server's one thread, and must not wait."""

    def on_open(self, duologue: Duologue) -> None:
        """A client joined."""

    def on_message(self, duologue: Duologue, message: bytes) -> None:
        """It said something. Raise BadMessage to have it disconnected; any other error disconnects it too, and is logged."""

    def on_close(self, duologue: Duologue, reason: str) -> None:
        """It is gone: ``reason`` says why."""


class Echo(Handler):
    """The guide's protocol: ``ECHO <text>`` comes back, anything else is a bad message."""

    def on_message(self, duologue: Duologue, message: bytes) -> None:
        """Sends it back."""
        if not message.startswith(b"ECHO "):
            raise BadMessage(f"{message[:40]!r} is not ECHO <text>")
        try:
            message.decode()
        except UnicodeDecodeError:
            raise BadMessage("the text of ECHO is not UTF-8") from None
        duologue.send(message)
