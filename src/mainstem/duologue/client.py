"""DuologueClient: a client that works in the thread of whoever calls it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

from mainstem.aeron.idle import BackoffIdle
from mainstem.clock import NS_PER_SECOND
from mainstem.duologue.client_core import ClientCore, Step
from mainstem.duologue.environment import Confinement, Connection, secure_random
from mainstem.duologue.settings import ClientSettings
from mainstem.errors import ClosedError, MainstemError, TimedOut

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron

CLOSE_NS = 2 * NS_PER_SECOND  # how long a close waits for the driver's last answer


class DuologueClient:
    """A duologue with a server, made by ``connect``. A context manager; ``close`` may be called twice.

    It has no thread: what it has to do is done inside ``send`` and ``receive``, always by the same thread.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        aeron: Aeron | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._closed = True
        self.settings = settings
        self._assert_thread = Confinement("a duologue client")
        self._connection = Connection(
            aeron=aeron,
            directory=directory,
            driver_settings=settings.driver_settings(),
            name="mainstem duologue client",
        )
        self._clock = self._connection.aeron.context.clock
        self._idle = BackoffIdle()
        self._core = ClientCore(
            self._connection.aeron, settings, chance=secure_random(), now_ns=self._clock.monotonic_ns()
        )
        self._closed = False

    @classmethod
    def connect(
        cls,
        server: str | None = None,
        *,
        settings: ClientSettings | None = None,
        aeron: Aeron | None = None,
        directory: str | os.PathLike[str] | None = None,
        **overrides: Any,
    ) -> Self:
        """Gets a duologue from the server at an address; returns when it is open.

        ``aeron`` is a client to use, ``directory`` that of a driver to connect to; with neither, a driver is started. Raises
        StepTimedOut, which names the step, Refused with the server's message, or the driver's RegistrationError.
        """
        if settings is None:
            settings = ClientSettings(server=server or "", **overrides)
        client = cls(settings, aeron=aeron, directory=directory)
        try:
            while not client._core.is_open:
                client._work()
        except BaseException:
            client.close()
            raise
        return client

    @property
    def session_id(self) -> int:
        """The duologue's session."""
        return self._core.duologue_session

    @property
    def is_encrypted(self) -> bool:
        """Whether messages are encrypted."""
        return bool(self.settings.server_key)

    @property
    def max_message_length(self) -> int:
        """The longest message that can be sent."""
        return self._core.max_message_length

    def _work(self) -> int:
        self._assert_thread()
        self._check_open()
        work = self._core.do_work(self._clock.monotonic_ns())
        self._idle.idle(work)
        return work

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the duologue client is closed")

    def send(self, message: bytes | str) -> None:
        """Sends a message; returns once the stream has taken it.

        Raises BackPressured or NotConnected when it did not within 500 ms, Refused or ClosedError when the server has ended the
        duologue, ValueError for a message above ``max_message_length``.
        """
        self._assert_thread()
        self._check_open()
        data = message.encode() if isinstance(message, str) else bytes(message)
        self._core.send(data, self._clock.monotonic_ns())
        while self._core.queued:
            self._work()

    def receive(self, *, timeout: float | None = None) -> bytes:
        """The next message. Raises TimedOut when none comes within ``timeout`` seconds, Refused or ClosedError at the end."""
        deadline_ns = None if timeout is None else self._clock.monotonic_ns() + round(timeout * NS_PER_SECOND)
        self._assert_thread()
        while (message := self._core.receive()) is None:
            self._work()
            if deadline_ns is not None and self._clock.monotonic_ns() >= deadline_ns:
                message = self._core.receive()
                if message is None:
                    raise TimedOut(f"no message came within {timeout:g} s", timeout=timeout)
                break
        return message

    def poll(self) -> bytes | None:
        """The next message if there is one; never waits."""
        self._assert_thread()
        self._check_open()
        message = self._core.receive()
        if message is None:
            self._core.do_work(self._clock.monotonic_ns())
            message = self._core.receive()
        return message

    def __iter__(self) -> Iterator[bytes]:
        """Messages until the server ends the duologue. Raises Refused when it said why."""
        while True:
            try:
                yield self.receive()
            except ClosedError:
                return

    def close(self) -> None:
        """Leaves the duologue, and ends the driver that was started for it. May be called twice."""
        if self._closed:
            return
        self._closed = True
        deadline_ns = self._clock.monotonic_ns() + CLOSE_NS
        aeron = self._connection.aeron
        while not self._core.close() and not aeron.closed and self._clock.monotonic_ns() < deadline_ns:
            aeron.invoke()
            self._idle.idle(0)
        self._connection.close()

    @property
    def step(self) -> Step:
        """Where the client is."""
        return self._core.step

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"a duologue client of {self.settings.server} was not closed", ResourceWarning, stacklevel=2)
            try:
                self.close()
            except MainstemError:
                return
