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
from mainstem.aqueduct.context import ConnectionCounters
from mainstem.aqueduct.stats import connection_stats
from mainstem.errors import ChannelError, ConfigurationError

if TYPE_CHECKING:
    from mainstem.aqueduct.frames import Headers
    from mainstem.aqueduct.protocol import AqueductProtocol
    from mainstem.aqueduct.quic.udp import Address
    from mainstem.aqueduct.stats import AqueductStats

HeaderSource = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None
"""Connection headers to send: a mapping, or pairs if a name repeats. Text is encoded as UTF-8."""

LINGER_S = 10.0
"""Maximum number of seconds to wait for channels to end, and for handlers when a server closes."""

DRAIN_S = 0.25
"""Seconds to keep a socket open after its connections have ended, to send the close again."""

CLOSE_TIMEOUT_S = 10.0
"""Seconds that closing a connection waits until every message is acknowledged."""


class Connection:
    """One connection, from either side. `connect` returns it, and a server's handler receives it.

    A client has `sender` and a server has `receiver`, the two halves of the entrypoint channel. Other channels are sent through
    it. An ``async with`` block closes the connection at its end, or aborts it if an exception leaves the block. A client's
    connection that is dropped is closed once no channel is left.

    Example:
        >>> async with connect("localhost", 4433, ca="ca.pem") as connection:
        ...     await connection.sender.send(b"tide")
    """

    def __init__(self, protocol: AqueductProtocol, *, is_client: bool) -> None:
        self._protocol = protocol
        self._is_client = is_client
        protocol.make_handle = make_handle
        self._entrypoint = make_handle(protocol, protocol.engine.channels.entrypoint)

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
            Timeout: The headers did not arrive in time.
            ConnectionLost: The connection ended before the headers arrived.
            RemoteProtocolError: The peer broke the protocol before its headers arrived.
        """
        return await within(timeout, asyncio.shield(self._protocol.peer_headers), "waiting for the peer's headers")

    @property
    def peer_address(self) -> Address:
        """The peer's address in the form that `socket` uses: host and port first."""
        return self._protocol.address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it.

        None if the peer presented no certificate, or the session was resumed. On a server with ``client_ca``, it is always present
        and verified. On a client, it is the server's certificate, even if the client does not ``verify`` it.
        """
        der = self.peer_certificate_der
        return None if der is None else describe_certificate(der)

    @property
    def peer_certificate_der(self) -> bytes | None:
        """The peer's TLS certificate in DER form; None if it presented none, or the session was resumed."""
        return self._protocol.adapter.peer_certificate

    @property
    def early_data_accepted(self) -> bool:
        """Whether the server accepted the data sent before the handshake was complete."""
        return self._protocol.adapter.lifecycle.early_data_accepted

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._protocol.ended.done()

    @property
    def error(self) -> Exception | None:
        """The error with which the connection failed; None while it is open, and after an orderly close by either side."""
        return self._protocol.error

    def stats(self) -> AqueductStats:
        """Return the connection's current state and counters. Can be called from any thread.

        The counters of bytes and connections are shared by all connections of a server.

        Returns:
            The statistics.
        """
        protocol = self._protocol
        role = "client" if self._is_client else "server"
        return connection_stats((protocol,), protocol.traffic, ConnectionCounters(), role=role, closed=self.closed)

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Wait until the connection has ended. Returns after an orderly close by either side.

        Args:
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: The connection is still open.
            ConnectionLost: The connection was lost.
            RemoteProtocolError: The peer broke the protocol, or reports that this side did.
        """
        await within(timeout, asyncio.shield(self._protocol.ended), "waiting for the connection to close")
        if self._protocol.error is not None:
            raise self._protocol.error.with_traceback(None)

    async def wait_channels_closed(self, timeout: float | None = LINGER_S) -> None:
        """Wait until every channel has ended and the peer has everything that was sent. Does not raise Timeout.

        Args:
            timeout: Maximum number of seconds to wait; None waits forever.
        """
        await self._protocol.wait_channels_closed(timeout)

    async def close(self, reason: str = "", timeout: float | None = CLOSE_TIMEOUT_S) -> None:
        """Close the connection gracefully. Can be called more than once.

        Finishes the entrypoint and waits until every message is acknowledged. Then waits until the server has seen the end of the
        entrypoint, or the client has received the acknowledgments (at most one second, or 20 round trips), and closes. Channels
        that are still open end with `ConnectionLost`. The connection is also closed if the call fails or is cancelled.

        Args:
            reason: A text for the peer.
            timeout: Seconds to wait for acknowledgments; None waits until the connection ends.

        Raises:
            Timeout: Messages were not acknowledged in time.
            ConnectionLost: The connection ended before all messages were acknowledged.
            NoReceivers: A receiver was closed before it had received all messages.
            LostInTransit: A receiver was lost on its way to the peer, with its messages.
        """
        if self._protocol.is_left:
            return
        try:
            if not self._protocol.closed_here:
                if self._is_client:
                    self.sender.finish()
                self._protocol.engine.acknowledge_taken()
                await self._protocol.flush_messages(timeout)
                await self._hand_over_end()
        finally:
            self.abort(reason)
            if self._is_client:
                # On a server, the socket stays open and repeats the close without waiting here.
                await self._protocol.wait_over(DRAIN_S)

    def abort(self, reason: str = "") -> None:
        """Close the connection and all its channels immediately. Unacknowledged messages may be lost. Can be called more than once.

        Args:
            reason: A text for the peer.
        """
        self._protocol.closed_here = True
        self._protocol.close(reason)

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
        """Wait until the peer has received everything that a close must not overtake.

        If a client's close overtook the end of the entrypoint, the server would cancel the handler immediately. If a server's close
        overtook its acknowledgments, its client would report messages as lost that the handler has received.
        """
        if not self._is_client:
            await self._protocol.hand_over()
        else:
            with contextlib.suppress(TimeoutError, ChannelError):
                async with asyncio.timeout(self._protocol.flush_time):
                    await self.sender.wait_closed()

    def __del__(self) -> None:
        protocol = getattr(self, "_protocol", None)
        if protocol is None or protocol.closed_here or protocol.is_left:
            return
        if self._is_client and not protocol.engine.is_ended:
            text = f"{self!r} was dropped without being closed"
            protocol.close_unused()
            # Without `source`, because a recorded warning would keep the entrypoint's handle alive, and with it the connection.
            warnings.warn(text, ResourceWarning, stacklevel=2)
