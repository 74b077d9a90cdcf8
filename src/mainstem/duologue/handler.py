"""The program's side of a duologue server: called when a client joins, sends a message, and leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import BadMessage

if TYPE_CHECKING:
    from mainstem.duologue.session import Duologue


class Handler:
    """What a server calls for each duologue. Every method runs in the server's one thread and must not block it.

    Example:
        >>> class Upper(Handler):
        ...     def on_message(self, duologue: Duologue, message: bytes) -> None:
        ...         duologue.send(message.upper())
    """

    def on_open(self, duologue: Duologue) -> None:
        """A client joined.

        Args:
            duologue: The client's duologue.

        Example:
            >>> handler.on_open(duologue)
        """

    def on_message(self, duologue: Duologue, message: bytes) -> None:
        """A client sent a message. Any exception disconnects the client; all but BadMessage and Mainstem's are logged.

        Args:
            duologue: The client's duologue.
            message: The message, decrypted where the duologue is encrypted.

        Raises:
            BadMessage: The message is not one of this handler's protocol.

        Example:
            >>> handler.on_message(duologue, b"ECHO tide")
        """

    def on_close(self, duologue: Duologue, reason: str) -> None:
        """A client that had joined is gone.

        Args:
            duologue: The client's duologue, on which nothing can be sent any more.
            reason: Why it ended, in a few words.

        Example:
            >>> handler.on_close(duologue, "silent for too long")
        """


class Echo(Handler):
    """The guide's protocol (docs/protocols/duologue.md): ``ECHO <text>`` is sent back, anything else is a bad message.

    Example:
        >>> with serve(Echo(), "192.0.2.1") as server:
        ...     server.wait()
    """

    def on_message(self, duologue: Duologue, message: bytes) -> None:
        """Send the message back.

        Args:
            duologue: The client's duologue.
            message: ``ECHO <text>`` in UTF-8.

        Raises:
            BadMessage: The message is anything else.
            BackPressured: Too many messages wait for this client.

        Example:
            >>> Echo().on_message(duologue, b"ECHO tide")
        """
        if not message.startswith(b"ECHO "):
            raise BadMessage(f"{message[:40]!r} is not ECHO <text>")
        try:
            message.decode()
        except UnicodeDecodeError:
            raise BadMessage("the text of ECHO is not UTF-8") from None
        duologue.send(message)
