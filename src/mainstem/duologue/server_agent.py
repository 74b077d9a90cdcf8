"""Runs a duologue server for both APIs, from connecting to the driver to disconnecting from it."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.exit_cleanup import INHERITED
from mainstem.aeron.agent import AgentTerminated
from mainstem.duologue.ends import DriverConnection, secure_random
from mainstem.duologue.messages import BAD_MESSAGE, INTERNAL_ERROR
from mainstem.duologue.server_core import ServerCore
from mainstem.errors import BadMessage, ClosedError, MainstemError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.waiting import Steps
    from mainstem.duologue.channels import ServerChannels
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.session import Condition, Session
    from mainstem.duologue.settings import Settings
    from mainstem.duologue.stats import ServerStats

logger = logging.getLogger("mainstem.duologue")

HANDLER_TIMEOUT = 10.0
"""How many seconds a closing server waits for its handlers once their duologues have ended."""


class ServerAgent:
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
        settings = channels.settings.server_driver_settings()
        self._open_driver = partial(DriverConnection, aeron, directory, settings, "mainstem duologue server")
        self._open_core = partial(ServerCore, channels=channels, on_open=on_open, key=key, condition=condition)
        self._connection: DriverConnection | None = None
        self._core: ServerCore | None = None

    def connect(self) -> None:
        """Open the all-clients channel. Raises the same errors as `serve`, and then leaves nothing open."""
        assert self._connection is None, "a server is opened once at a time"
        self._connection = self._open_driver()
        try:
            self._core = self._open_core(self._connection.aeron, rng=secure_random())
        except BaseException:
            self.disconnect()
            raise

    @property
    def core(self) -> ServerCore:
        if self._core is None:
            raise ClosedError("the server is not running")
        return self._core

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def do_work(self, now_ns: int) -> int:
        """Run one duty cycle. If the server cannot continue, sets ``failure`` and raises AgentTerminated."""
        try:
            return self.core.do_work(now_ns)
        except MainstemError as error:
            self.failure = error
            logger.error("the server ends: %s", error)
            raise AgentTerminated from error

    def on_close(self) -> None:
        """End every duologue: abort it if ``is_aborted``, otherwise with ``failure`` as its error if there is one."""
        if self._core is not None:
            if self.is_aborted:
                self._core.abort()
            self._core.close(self.failure)

    def releasing(self) -> Steps[None]:
        """Wait until every client has learned of the server's end, or ``closing_timeout`` has passed.

        If the driver outlives the server, it sends the rest, so there is no need to wait.
        """
        core = self._core
        while core is not None and (connection := self._connection) is not None and not connection.aeron.closed:
            if core.release(SYSTEM_CLOCK.monotonic_ns(), waits=connection.owns_driver):
                return
            yield None

    def leave_to_parent(self) -> None:
        """Leave the server and its duologues to the parent of this process, which was forked."""
        self.failure = ClosedError(INHERITED)
        if self._core is not None:
            self._core.leave_to_parent()

    def disconnect(self) -> None:
        """Close everything that this agent opened. Idempotent."""
        self.on_close()
        if self._core is not None:
            self._core.abandon()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def reason_after(error: BaseException | None, session: Session) -> str:
    """Return the reason to give a client after its handler has ended; empty for an orderly end."""
    if isinstance(error, BadMessage):
        session.bad_messages += 1
        return BAD_MESSAGE
    if error is None or (not session.is_open and isinstance(error, MainstemError)):
        # The handler raised this error only because the duologue has ended, so it is not a failure of the handler.
        return ""
    logger.error("[%d] the handler failed", session.session_id, exc_info=error)
    return INTERNAL_ERROR


class ServerEnd:
    """The base of the servers of both APIs."""

    _agent: ServerAgent

    @property
    def settings(self) -> Settings:
        """The server's settings."""
        return self._agent.channels.settings

    @property
    def address(self) -> tuple[str, int]:
        """The address that the server listens on, and the port of the all-clients channel."""
        return self._agent.channels.host, self._agent.channels.port

    @property
    def error(self) -> MainstemError | None:
        """The error that ended the server, or None. It means that the server's driver has ended."""
        return self._agent.failure

    def stats(self) -> ServerStats:
        """Return a copy of the server's counts since its start. Raises ClosedError if the server was never started."""
        return replace(self._agent.core.stats)

    def broadcast(self, message: bytes | str) -> None:
        """Send a message to every connected client, without waiting.

        If a client's queue is full, the message is not sent to it, and its duologue ends unless the queue has space within 500 ms.

        Args:
            message: At most an eighth of ``term_length`` bytes, or 24 less with encryption. Text is encoded as UTF-8.

        Raises:
            ConfigurationError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.
            ClosedError: The server has ended.
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
