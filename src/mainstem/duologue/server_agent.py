"""A duologue server from its first connection to the driver until the last: what the blocking and the asyncio API share."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.aeron.agent import AgentTerminated
from mainstem.duologue.environment import DriverConnection, secure_random
from mainstem.duologue.messages import BAD_MESSAGE, INTERNAL_ERROR
from mainstem.duologue.server_core import ServerCore
from mainstem.errors import BadMessage, ClosedError, MainstemError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.channels import ServerChannels
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.session import Condition, Session
    from mainstem.duologue.settings import Settings
    from mainstem.duologue.stats import ServerStats

logger = logging.getLogger("mainstem.duologue.server")

HANDLER_TIMEOUT = 10.0
"""Seconds that closing a server waits for its handlers, once their duologues have ended."""


class ServerAgent:
    """A server, an agent for whatever runs its duty cycles."""

    role_name = "mainstem-duologue-server"

    def __init__(
        self,
        channels: ServerChannels,
        on_open: Callable[[Session], None],
        condition: Callable[[], Condition],
        *,
        aeron: Aeron | None = None,
        directory: str | os.PathLike[str] | None = None,
        key: ServerKey | None = None,
    ) -> None:
        self.channels = channels
        self.failure: MainstemError | None = None
        self.is_aborted = False
        self._on_open = on_open
        self._condition = condition
        self._aeron = aeron
        self._directory = directory
        self._key = key
        self._connection: DriverConnection | None = None
        self._core: ServerCore | None = None

    def connect(self) -> None:
        """Open the all-clients channel. Raises what `serve` raises; nothing is left open then."""
        assert self._connection is None, "a server is opened once at a time"
        self._connection = DriverConnection(
            aeron=self._aeron,
            directory=self._directory,
            driver_settings=self.channels.settings.server_driver_settings(),
            name="mainstem duologue server",
        )
        try:
            self._core = ServerCore(
                self._connection.aeron,
                self.channels,
                self._on_open,
                rng=secure_random(),
                key=self._key,
                condition=self._condition,
            )
        except BaseException:
            self.disconnect()
            raise

    @property
    def core(self) -> ServerCore:
        """The server itself, also once it has ended. Raises ClosedError before it was opened."""
        if self._core is None:
            raise ClosedError("the server is not running")
        return self._core

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def do_work(self, now_ns: int) -> int:
        """One duty cycle. Raises AgentTerminated where the server cannot go on, and sets ``failure``."""
        try:
            return self.core.do_work(now_ns)
        except MainstemError as error:
            self.failure = error
            logger.error("the server ends: %s", error)
            raise AgentTerminated from error

    def on_close(self) -> None:
        """End every duologue: abort it, where ``is_aborted``, with ``failure`` as the error where there is one."""
        if self._core is not None:
            if self.is_aborted:
                self._core.abort()
            self._core.close(self.failure)

    def has_released(self) -> bool:
        """Whether every client has learned that the server has ended, or had ``closing_timeout`` for it; for the last wait.

        With a driver that goes on there is no need to wait: it sends what is left.
        """
        connection, core = self._connection, self._core
        if connection is None or core is None or connection.aeron.closed:
            return True
        return core.release(SYSTEM_CLOCK.monotonic_ns(), waits=connection.owns_driver)

    def disconnect(self) -> None:
        """Close everything that was opened here. May be called again."""
        self.on_close()
        if self._core is not None:
            self._core.abandon()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def reason_after(error: BaseException | None, session: Session) -> str:
    """What the client is told when a handler has ended, by an exception or without: nothing, for an end in order."""
    if isinstance(error, BadMessage):
        session.bad_messages += 1
        return BAD_MESSAGE
    if error is None or (not session.is_open and isinstance(error, MainstemError)):
        # What it may raise when the duologue has ended is not a fault of the program.
        return ""
    logger.error("[%d] the handler failed", session.session_id, exc_info=error)
    return INTERNAL_ERROR


class ServerEnd:
    """What the servers of both APIs have in common."""

    _agent: ServerAgent

    @property
    def settings(self) -> Settings:
        """The settings of this server."""
        return self._agent.channels.settings

    @property
    def address(self) -> tuple[str, int]:
        """The address that is listened on, and the port of the all-clients channel."""
        return self._agent.channels.host, self._agent.channels.port

    @property
    def error(self) -> MainstemError | None:
        """The error that ended the server, if one did: its driver has ended."""
        return self._agent.failure

    def stats(self) -> ServerStats:
        """Read the server's counts.

        Returns:
            A copy: the counts since the start.

        Raises:
            ClosedError: The server was never started.

        Example:
            >>> server.stats().duologues_opened
        """
        return replace(self._agent.core.stats)

    def broadcast(self, message: bytes | str) -> None:
        """Send a message to every client that is there, without waiting.

        A client whose queue is full is left out, and one that does not make room within 500 ms is ended.

        Args:
            message: At most an eighth of ``term_length`` bytes, 24 less with encryption; text is encoded as UTF-8.

        Raises:
            ValueError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.
            ClosedError: The server has ended.

        Example:
            >>> server.broadcast("the server ends at noon")
        """
        if self._has_ended:
            raise ClosedError("the server has ended")
        self._agent.core.broadcast(message)

    @property
    def _has_ended(self) -> bool:
        return not self._agent.is_connected or self._agent.failure is not None

    def __repr__(self) -> str:
        state = "closed" if self._has_ended else "open"
        return f"<duologue Server on {self._agent.channels.name}, {state}>"
