"""Listens as a bymux, Jmux or Aqueduct server and records every message.

Messages over bymux and Jmux are length-prefixed (``mainstem.message_keys.framed``), as ``mainstem.channel`` sends them. An
optional key before the payload becomes the reserved value. The sender learns that its messages are recorded from the end of our
half of the bymux stream, or from the Jmux response. Aqueduct acknowledges on arrival.
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
    """Records messages. ``keyed``: each payload starts with a key, which becomes the reserved value."""

    def __init__(self, log: MessageLog, *, keyed: bool, on_messages: Callable[[int], object] = lambda _: None) -> None:
        self._log, self._keyed, self._on_messages = log, keyed, on_messages

    def take(self, messages: list[bytes]) -> None:
        """Record messages. Raises RemoteProtocolError if a key is missing."""
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
        """Record the messages of a byte stream until it ends; RemoteProtocolError if it ends inside one."""
        splitter = FrameSplitter()
        async for data in stream:
            if messages := splitter.feed(data):
                self.take(messages)
        if not splitter.is_between_messages:
            raise RemoteProtocolError("the stream ended inside a message")


async def listen(protocol: str, host: str, port: int, intake: MessageRecorder, **options: Any) -> Any:
    """Start a server whose messages go to ``intake``; the caller closes it. ``options`` are those of its ``serve``."""
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
