"""Listens as a bymux, Jmux or Aqueduct server and records every message that comes.

A message over bymux and Jmux has its length in front (``mainstem.message_keys.framed``), as ``mainstem.channel`` sends it. The key
that may stand in front of the payload becomes the reserved value. The other side is notified that its messages are received
only when they are in the recording: bymux by the end of our half of the stream, Jmux by the response. Aqueduct acknowledges on
arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError, RemoteProtocolError
from mainstem.message_keys import KEY_LENGTH, FrameSplitter, MessageKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.recording.message_log import MessageLog

OK = b"ok"


class MessageRecorder:
    """Puts messages into a log. ``keyed``: each payload has a key in front, which becomes the reserved value."""

    def __init__(self, log: MessageLog, *, keyed: bool, on_messages: Callable[[int], object] = lambda _: None) -> None:
        self._log, self._keyed, self._on_messages = log, keyed, on_messages

    def take(self, messages: list[bytes]) -> None:
        """Record them. Raises RemoteProtocolError for a message without the key that it should have."""
        self._log.write(map(self._pair, messages))
        self._on_messages(len(messages))

    def _pair(self, message: bytes) -> tuple[int, bytes]:
        if not self._keyed:
            return 0, message
        try:
            return MessageKey.decode(message).reserved_value(), message[KEY_LENGTH:]
        except ValueError as error:
            raise RemoteProtocolError(f"a message has an invalid key: {error}") from None

    async def drain(self, stream: Any) -> None:
        """Record what comes over a stream of bytes until it ends; RemoteProtocolError when it ends inside a message."""
        splitter = FrameSplitter()
        async for data in stream:
            if messages := splitter.feed(data):
                self.take(messages)
        if not splitter.is_between_messages:
            raise RemoteProtocolError("the stream ended inside a message")


async def listen(protocol: str, host: str, port: int, intake: MessageRecorder, **options: Any) -> Any:
    """A server of that protocol whose messages go to ``intake``; the caller closes it. ``options`` are those of its ``serve``."""
    if protocol == "bymux":
        from mainstem import bymux

        return await bymux.aio.serve(intake.drain, host, port, **options)
    if protocol == "jmux":
        from mainstem.jmux import aio as jmux

        async def respond(session: Any) -> None:
            await intake.drain(session)
            session.write(OK)

        return await jmux.serve(respond, host, port, **options)
    if protocol == "aqueduct":
        from mainstem.aqueduct import aio

        async def entrypoint(connection: Any) -> None:
            async for message in connection.receiver:
                intake.take([bytes(message)])

        return await aio.serve(entrypoint, host, port, **options)
    raise ConfigurationError(f"the protocol must be bymux, jmux or aqueduct (got {protocol!r})")
