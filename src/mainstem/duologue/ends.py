"""What the blocking and the asyncio API share: everything except how they wait.

A call that may wait is written as steps (``aeron/client/waiting.py``). If they are abandoned, they have sent and received nothing.
While they wait, a client idles, and a `Duologue` waits on its condition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack, nullcontext
from functools import partial
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.clock import SYSTEM_CLOCK, Deadline
from mainstem._internal.exit_cleanup import INHERITED
from mainstem._internal.validation import check_seconds
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.client.context import log_error
from mainstem.aeron.client.waiting import Wait
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.duologue.client_core import ClientCore
from mainstem.duologue.messages import checked_message
from mainstem.duologue.session import DuologueState
from mainstem.duologue.stats import DuologueStats
from mainstem.errors import (
    Aborted,
    BackPressured,
    ClientTimeout,
    ClosedError,
    ConnectionLost,
    Delivery,
    DriverTimeout,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from mainstem.aeron.client.waiting import Steps
    from mainstem.duologue.channels import ClientChannels
    from mainstem.duologue.session import Session
    from mainstem.duologue.settings import Settings
    from mainstem.duologue.streams import Link
    from mainstem.errors import MainstemError


def secure_random() -> Random:
    """Return the system's cryptographic random generator, for session ids, one-time pads and keys."""
    return SystemRandom()


def _log_error(error: BaseException) -> None:
    # The end of the client is an error of the duologue, which its calls raise.
    if not isinstance(error, (ClientTimeout, DriverTimeout)):
        log_error(error)


class DriverConnection:
    """A client of a media driver, and the driver itself if this process started it."""

    def __init__(
        self,
        aeron: Aeron | None,
        directory: str | os.PathLike[str] | None,
        driver_settings: dict[str, Any],
        name: str,
    ) -> None:
        self._owned = ExitStack()
        self.owns_driver = aeron is None and directory is None
        with ExitStack() as opened:
            if aeron is None:
                if directory is None:
                    directory = opened.enter_context(MediaDriver.launch(**driver_settings)).directory
                aeron = opened.enter_context(Aeron.connect(directory, client_name=name, on_error=_log_error))
            self.aeron = aeron
            self._owned = opened.pop_all()

    def close(self) -> None:
        self._owned.close()


T = TypeVar("T")

STEP_TIMEOUT = 5.0
"""The default limit in seconds for each step of connecting."""

CLOSE_TIMEOUT = 5.0
"""How many seconds ``close`` waits by default until everything is delivered."""

DRIVER_TIMEOUT = 2.0
"""How many seconds a closing client waits for the driver's last responses."""


class End(ABC):
    """The base of a client's and a server's end of a duologue."""

    @property
    @abstractmethod
    def _link(self) -> Link: ...

    @property
    @abstractmethod
    def error(self) -> MainstemError | None: ...

    @property
    @abstractmethod
    def _is_left(self) -> bool:
        """Whether this end belongs to the parent of this process, which was forked."""

    @property
    def _lock(self) -> AbstractContextManager[object]:
        """The lock to hold during each step of a call, but not while waiting."""
        return nullcontext()

    def _work(self) -> None:  # noqa: B027 - only clients override it; a server's thread works for its ends
        ...

    def _sending(self, message: bytes | str, timeout: float | None) -> Steps[None]:
        link = self._link
        data = checked_message(message, link.max_message_length)
        deadline = Deadline(SYSTEM_CLOCK, timeout)
        self._work()
        while not link.offer(data):
            yield Wait(deadline.check("wait for room in the stream"))
            self._work()

    def _receiving(self, timeout: float | None) -> Steps[bytes]:
        link = self._link
        message = link.receive()
        if message is None:
            deadline = Deadline(SYSTEM_CLOCK, timeout)
            self._work()
            while (message := link.receive()) is None:
                yield Wait(deadline.check("wait for a message"))
                self._work()
        return message

    def try_send(self, message: bytes | str) -> bool:
        """Send a message like `send`, but without waiting. Return whether the stream had space for it.

        Args:
            message: At most ``max_message_length`` bytes; text is encoded as UTF-8.
        """
        with self._lock:
            return next(self._sending(message, None), True) is True

    def poll(self) -> bytes | None:
        """Receive the next message without waiting, or return None. Raises the same errors as `receive`, except Timeout."""
        with self._lock:
            link = self._link
            message = link.receive()
            if message is None:
                self._work()
                message = link.receive()
            return message

    @property
    def max_message_length(self) -> int:
        """The maximum length of a message, in bytes."""
        return self._link.max_message_length


class BlockingEnd(End):
    """An end that sends and receives in the caller's thread."""

    @abstractmethod
    def _run(self, steps: Steps[T]) -> T:
        """Run a procedure, and wait between its steps."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    def send(self, message: bytes | str, timeout: float | None = None) -> None:
        """Send a message, and return once the stream has accepted it. If the call fails, it has sent nothing.

        Args:
            message: At most ``max_message_length`` bytes; text is encoded as UTF-8.
            timeout: Seconds to wait for space; None waits forever.

        Raises:
            Timeout: The stream had no space in time.
            ConnectRefused: The server ended the duologue with a reason.
            ConnectionLost: The peer sent no heartbeat for ``heartbeat_timeout``, its stream ended although it did not say so, or
                the connection to the media driver was lost.
            Aborted: The peer aborted the duologue.
            ClosedError: The peer has left, or this end is closed.
            ConfigurationError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.

        Example:
            >>> duologue.send("ECHO tide")
        """
        self._run(self._sending(message, timeout))

    def receive(self, timeout: float | None = None) -> bytes:
        """Receive the next message.

        Args:
            timeout: Seconds to wait; None waits forever.

        Returns:
            The message, decrypted if the duologue is encrypted.

        Raises:
            Timeout: No message arrived in time. A later call can still receive it. On a server, also: the client sent nothing for
                ``idle_timeout``, which ended the duologue.
            ClosedError: The peer has left, or this end is closed. All earlier messages were received.
            MainstemError: The duologue ended in another way, as for `send`.
        """
        return self._run(self._receiving(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over messages until the peer leaves. If the duologue ends in another way, raises the same error as `receive`."""
        while True:
            try:
                yield self.receive()
            except ClosedError:
                if self.error is not None or self._is_left:
                    raise
                return


class DuologueEnd(End):
    """The server's end of a duologue."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _link(self) -> Session:
        if self._session.is_left:
            raise ClosedError(INHERITED)
        return self._session

    @property
    def _is_left(self) -> bool:
        return self._session.is_left

    @property
    def session_id(self) -> int:
        """The session id of both streams of the duologue."""
        return self._session.session_id

    @property
    def peer_address(self) -> tuple[str, int]:
        """The client's address and port."""
        return self._session.peer_address

    @property
    def is_encrypted(self) -> bool:
        """Whether messages are encrypted."""
        return self._session.ciphers is not None

    @property
    def closed(self) -> bool:
        """Whether the duologue has ended or is about to end. Nothing can be sent any more."""
        return self._session.is_left or not self._session.is_open

    @property
    def error(self) -> MainstemError | None:
        """The error that ended the duologue. None while it is open and after an orderly end."""
        return self._session.error

    def stats(self) -> DuologueStats:
        """Return the counts of sent and received messages."""
        return self._session.stats()

    def abort(self) -> None:
        """End the duologue at once. Queued messages are dropped, and the client's calls raise Aborted."""
        if self._is_left:
            return
        with self._session.changed:
            self._session.abort()

    def _closing(self, error: str, timeout: float | None) -> Steps[None]:
        session = self._session
        if session.is_left:
            return
        session.close(error)
        deadline = Deadline(SYSTEM_CLOCK, timeout)
        while session.state is not DuologueState.CLOSED:
            yield Wait(deadline.check("wait for the end of the duologue"))
        if session.queued:
            raise BackPressured(
                f"duologue {session.session_id}: {session.queued} messages were not sent: the client does not read"
            )
        if session.error is not None and not session.has_told:
            session.has_told = True
            raise session.error

    def __repr__(self) -> str:
        host, port = self.peer_address
        return f"<Duologue {self.session_id} with {host}:{port}, {'closed' if self.closed else 'open'}>"


class ClientEnd(End):
    """The client's end of a duologue, from connecting to the driver to disconnecting from it.

    ``_connect`` and ``_disconnect`` block while a driver starts or ends.
    """

    _is_over = False  # whether `close` or `abort` was called
    _is_left = False

    def __init__(
        self,
        channels: ClientChannels,
        *,
        timeout: float | None = None,
        server_key: bytes = b"",
        aeron: Aeron | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        check_seconds({"timeout": timeout}, may_be_none=True)
        self._channels = channels
        self._is_encrypted = bool(server_key)
        settings = channels.settings.driver_settings()
        self._open_driver = partial(DriverConnection, aeron, directory, settings, "mainstem duologue client")
        self._open_core = partial(ClientCore, channels=channels, timeout=timeout, server_key=server_key)
        self._connection: DriverConnection | None = None
        self._core: ClientCore | None = None

    def _connect(self) -> None:
        """Connect to the driver, or start one, and begin to open the duologue. If this fails, everything is closed again."""
        self._connection = self._open_driver()
        try:
            now_ns = SYSTEM_CLOCK.monotonic_ns()
            self._core = self._open_core(self._connection.aeron, rng=secure_random(), now_ns=now_ns)
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        """Close the driver's client, and the driver if this end started it. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _work(self) -> None:
        if self._core is not None:
            self._core.do_work(SYSTEM_CLOCK.monotonic_ns())

    def _opening(self) -> Steps[None]:
        while not self._link.is_open:
            self._work()
            yield None

    def _closing(self, timeout: float | None) -> Steps[MainstemError | None]:
        """Leave the duologue and wait for the driver's responses. Returns the error if messages are undelivered."""
        core, connection = self._core, self._connection
        if core is None or connection is None:
            return None
        failure: MainstemError | None = None
        if core.is_open:
            self._work()
            core.finish()
            deadline = Deadline(SYSTEM_CLOCK, timeout)
            while core.error is None:
                if deadline.expired:
                    sent = core.stats().messages_sent
                    if sent:
                        text = f"{core.peer} did not confirm within {timeout:g} s that it received all {sent} messages"
                        failure = ConnectionLost(text, delivery=Delivery.UNKNOWN)
                    break
                yield None
                self._work()
            if core.error is not None and not (core.has_told or isinstance(core.error, ClosedError)):
                failure = core.error
        if failure is None and core.unread:
            failure = Aborted(
                f"{core.peer} ended the duologue without reading the last {core.unread} of {core.stats().messages_sent} messages"
            )
        deadline = Deadline(SYSTEM_CLOCK, DRIVER_TIMEOUT)
        while not core.close() and not connection.aeron.closed and not deadline.expired:
            connection.aeron.invoke()
            yield None
        return failure

    @property
    def _link(self) -> ClientCore:
        if self._is_left:
            raise ClosedError(INHERITED)
        if self._core is None or self._is_over:
            raise ClosedError("the duologue client is closed")
        return self._core

    @property
    def settings(self) -> Settings:
        """The client's settings."""
        return self._channels.settings

    @property
    def session_id(self) -> int:
        """The session id of both streams of the duologue, or 0 before it exists."""
        return 0 if self._core is None else self._core.duologue_session

    @property
    def peer_address(self) -> tuple[str, int]:
        """The server's address and the port of its all-clients channel."""
        return self._channels.host, self._channels.port

    @property
    def is_encrypted(self) -> bool:
        """Whether messages are encrypted."""
        return self._is_encrypted

    @property
    def closed(self) -> bool:
        """Whether the duologue has ended. Nothing can be sent any more."""
        if self._is_left:
            return True
        return self._connection is None or self._core is None or not self._core.is_open or self._core.error is not None

    @property
    def error(self) -> MainstemError | None:
        """The error that ended the duologue. None while it is open and after an orderly end."""
        error = None if self._core is None else self._core.error
        return None if isinstance(error, ClosedError) else error

    def stats(self) -> DuologueStats:
        """Return the counts of sent and received messages."""
        return DuologueStats() if self._core is None else self._core.stats()

    def _leave_to_parent(self) -> None:
        """Give up ownership in a forked child: the threads, the driver and the clients belong to the parent."""
        self._is_over = self._is_left = True

    def _abort(self) -> None:
        self._is_over = True
        if self._core is not None:
            self._core.abort()

    def __repr__(self) -> str:
        return f"<duologue Client of {self._channels.name}, {'closed' if self.closed else 'open'}>"
