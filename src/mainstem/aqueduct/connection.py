"""The `Connection` of the asyncio API, from either side."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mainstem._internal.tasks import within
from mainstem.aqueduct.certificates import describe_certificate
from mainstem.aqueduct.channels import Receiver, Sender, make_handle
from mainstem.aqueduct.connection_state import ConnectionCounters
from mainstem.aqueduct.state import ReceiverState
from mainstem.aqueduct.stats import connection_stats
from mainstem.errors import ChannelError, ConfigurationError

if TYPE_CHECKING:
    from mainstem.aqueduct.frames import Headers
    from mainstem.aqueduct.quic.adapter import Address
    from mainstem.aqueduct.runner import Runner
    from mainstem.aqueduct.stats import AqueductStats

HeaderSource = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None
"""Connection headers to send: a mapping, or pairs if a name repeats. Text is encoded as UTF-8."""

LINGER_S = 10.0
"""Maximum number of seconds to wait for channels, and for the handlers of a server that closes."""

DRAIN_S = 0.25
"""Seconds that a socket is kept after its connections have ended, to send the close again."""

CLOSE_TIMEOUT_S = 10.0
"""Seconds that closing a connection waits until every message is acknowledged."""


class Connection:
    """One connection, from either side: what `connect` returns and what a server's handler gets.

    A client has `sender`, a server `receiver`: the two halves of the entrypoint channel. Other channels are sent through it.

    As an asynchronous context manager it is closed at the end of the block, and aborted if an exception leaves the block.

    Example:
        >>> async with connect("localhost", 4433, ca="ca.pem") as connection:
        ...     await connection.sender.send(b"tide")
    """

    def __init__(self, runner: Runner, *, is_client: bool) -> None:
        self._runner = runner
        self._is_client = is_client
        self._closed_here = False
        self._entrypoint = make_handle(runner, runner.engine.entrypoint)

    @property
    def sender(self) -> Sender[Any]:
        """The entrypoint's sender, on a client. Raises ConfigurationError on a server."""
        if not isinstance(self._entrypoint, Sender):
            raise ConfigurationError("a server's connection has the entrypoint's receiver, not its sender")
        return self._entrypoint

    @property
    def receiver(self) -> Receiver[Any]:
        """The entrypoint's receiver, on a server. Raises ConfigurationError on a client."""
        if not isinstance(self._entrypoint, Receiver):
            raise ConfigurationError("a client's connection has the entrypoint's sender, not its receiver")
        return self._entrypoint

    async def headers(self, timeout: float | None = None) -> Headers:
        """Wait for the peer's connection headers.

        Args:
            timeout: Seconds to wait; None waits until the connection ends.

        Returns:
            Pairs of a key and a value, in the peer's order.

        Raises:
            Timeout: They did not come in time.
            ConnectionLost: The connection ended before they came.
            RemoteProtocolError: The peer broke the protocol before they came.
        """
        return await within(timeout, asyncio.shield(self._runner.peer_headers), "waiting for the peer's headers")

    @property
    def peer_address(self) -> Address:
        """The peer's address as `socket` has it: host and port first."""
        return self._runner.address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it.

        None if the peer presented none, or the session was resumed. A server with ``client_ca`` has one, and has verified it.
        A client has the server's even if it does not ``verify`` it.
        """
        der = self.peer_certificate_der
        return None if der is None else describe_certificate(der)

    @property
    def peer_certificate_der(self) -> bytes | None:
        """The peer's TLS certificate in DER; None if it presented none, or the session was resumed."""
        return self._runner.adapter.peer_certificate

    @property
    def early_data_accepted(self) -> bool:
        """Whether the server accepted what was sent before the handshake was complete."""
        return self._runner.adapter.early_data_accepted

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._runner.ended.done()

    @property
    def error(self) -> Exception | None:
        """Why the connection failed; None while it is open, and after an orderly close by either side."""
        return self._runner.error

    def stats(self) -> AqueductStats:
        """Return the connection's current state and counters. May be called in any thread.

        A server's connections share the counters of bytes and of connections.

        Returns:
            The figures.
        """
        runner = self._runner
        role = "client" if self._is_client else "server"
        return connection_stats((runner,), runner.traffic, ConnectionCounters(), role=role, closed=self.closed)

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Wait until the connection is over. Returns after an orderly close by either side.

        Args:
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: The connection is still open.
            ConnectionLost: The connection was lost.
            RemoteProtocolError: The peer broke the protocol, or reports that this side did.
        """
        await within(timeout, asyncio.shield(self._runner.ended), "waiting for the connection to close")
        if self._runner.error is not None:
            raise self._runner.error.with_traceback(None)

    async def wait_channels_closed(self, timeout: float | None = LINGER_S) -> None:
        """Wait until every channel has ended and the peer has what was sent, or until the timeout. Does not raise Timeout.

        Args:
            timeout: Maximum number of seconds to wait; None waits forever.
        """
        await self._runner.wait_channels_closed(timeout)

    async def close(self, reason: str = "", timeout: float | None = CLOSE_TIMEOUT_S) -> None:
        """Close the connection in order. May be called again.

        Finish the entrypoint, wait until every message is acknowledged and until the server has seen the entrypoint's end,
        or the client has the acknowledgments of what was received (at most one second, or 20 round trips), then close.
        Channels that are still open end with `ConnectionLost`. The connection is also closed if the call fails or is
        cancelled.

        Args:
            reason: A text for the peer.
            timeout: Seconds to wait for acknowledgments; None waits until the connection ends.

        Raises:
            Timeout: Messages were not acknowledged in time.
            ConnectionLost: The connection ended, and messages were not acknowledged.
            NoReceivers: A receiver was closed before it had all messages.
            LostInTransit: A receiver was lost on its way to the peer, with its messages.
        """
        try:
            if not self._closed_here:
                if self._is_client:
                    self.sender.finish()
                self._runner.engine.acknowledge_taken()
                await self._runner.flush_messages(timeout)
                await self._hand_over_end()
        finally:
            self.abort(reason)
            if self._is_client:
                # A server's socket stays, and sends the close again without this.
                await self._runner.wait_over(DRAIN_S)

    def abort(self, reason: str = "") -> None:
        """Close the connection and all its channels at once. What is not acknowledged may be lost. May be called again.

        Args:
            reason: A text for the peer.
        """
        self._closed_here = True
        self._runner.close(reason)

    @property
    def _has_all(self) -> bool:
        """On a server: whether the client has finished the entrypoint."""
        return self._entrypoint._pipe.end is ReceiverState.FINISHED

    def __repr__(self) -> str:
        host, port, *_ = self.peer_address
        state = "closed" if self.closed else "open"
        return f"<Connection {'to' if self._is_client else 'from'} {host}:{port}, {state}>"

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abort()
        await self.close()

    async def _hand_over_end(self) -> None:
        """Wait until the peer has what a close must not overtake.

        A client's close that overtakes the entrypoint's end would cancel the handler at once. A server's that overtakes its
        acknowledgments would make its client report messages as lost that the handler has received.
        """
        if not self._is_client:
            await self._runner.hand_over()
        else:
            with contextlib.suppress(TimeoutError, ChannelError):
                async with asyncio.timeout(self._runner.flush_time):
                    await self.sender._wait_closed()

    def __del__(self) -> None:
        runner = getattr(self, "_runner", None)
        if runner is not None and not self._closed_here and self._is_client and not runner.engine.is_ended:
            warnings.warn("an Aqueduct connection was dropped without being closed", ResourceWarning, stacklevel=2)
