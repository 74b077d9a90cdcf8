"""Aqueduct without asyncio: the same connections, servers and channels, with blocking calls.

Theory of operation
-------------------
One event loop, in a thread shared by all objects, runs the asyncio API. They share a loop because a channel can be made before it
is known which connection it will travel over. Each object here is a facade of an asyncio object
(:mod:`mainstem._internal.loop_thread`). Any thread can use it.

When a message is encoded, a handle in it is taken for its asyncio handle, whose `Pipe` it has. When a message is decoded, each
asyncio handle is replaced by a handle of this module (`AqueductProtocol.present`). If a call is interrupted after it took a
message, the message is put back.

Each handler of a server runs in its own thread (`HandlerThreads`).

A child created by ``os.fork`` has no such thread, and starts its own for the objects that it makes. Those it inherited keep the
parent's, so their calls raise ClosedError.
"""

from __future__ import annotations

import atexit
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from mainstem._internal.handler_threads import HandlerThreads
from mainstem._internal.loop_thread import Facade, LoopThread, abort_outcome, asks, runs, waits
from mainstem._internal.made import Made
from mainstem._internal.overrides import apply_overrides
from mainstem.aqueduct import aio
from mainstem.aqueduct.events import Mode
from mainstem.aqueduct.limits import DEFAULT_LIMITS
from mainstem.aqueduct.serializers import RAW, Handle
from mainstem.aqueduct.settings import Settings
from mainstem.errors import ClosedError
from mainstem.instruments import NULL_INSTRUMENT

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

    from mainstem.aqueduct.connection import HeaderSource
    from mainstem.aqueduct.frames import Headers
    from mainstem.aqueduct.quic.tickets import ServerTickets, SessionCache
    from mainstem.aqueduct.quic.udp import Address
    from mainstem.aqueduct.serializers import Serializer
    from mainstem.instruments import Instrument

I = TypeVar("I", bound=Any)  # noqa: E741 - the inner object
M = TypeVar("M")

_lock = threading.Lock()
_loops: list[LoopThread] = []
_left: list[LoopThread] = []


def _shared_loop() -> LoopThread:
    """Return the loop's thread, which the first call starts and which ends with the process."""
    with _lock:
        if not _loops:
            _loops.append(LoopThread("mainstem-aqueduct"))
            atexit.register(_loops[0].stop)
        return _loops[0]


def _forget_loop() -> None:
    """Forget the thread in a forked child, which does not have it and must start its own."""
    global _lock
    _lock = threading.Lock()
    for thread in _loops:
        atexit.unregister(thread.stop)
    # Keep them, because the finalizer of an event loop warns that it was not closed.
    _left.extend(_loops)
    _loops.clear()


os.register_at_fork(after_in_child=_forget_loop)


class _Half(Facade[I], Handle):
    """Base class of `Sender` and `Receiver`."""

    __slots__ = ()

    @property
    def _pipe(self) -> Any:
        return self._inner._pipe

    @property
    def is_networked(self) -> bool:
        """Whether messages travel over a connection."""
        return bool(self._inner.is_networked)


class Sender(_Half["aio.Sender[M]"], Generic[M]):
    """The sending half of a channel, made by `channel` or `oneshot`, or received in a message.

    Like :class:`mainstem.aqueduct.aio.Sender`, but calls block. Any thread can use it.

    Example:
        >>> sender, receiver = channel()
        >>> with sender:
        ...     sender.send(b"tide")
    """

    __slots__ = ()
    is_sender: ClassVar[bool] = True

    send = waits(aio.Sender[Any].send)
    try_send = runs(aio.Sender[Any].try_send)
    send_acknowledged = waits(aio.Sender[Any].send_acknowledged)
    finish = runs(aio.Sender[Any].finish)
    close = waits(aio.Sender[Any].close, is_close=True)
    abort = runs(aio.Sender[Any].abort, is_close=True)
    wait_closed = waits(aio.Sender[Any].wait_closed)
    configure = runs(aio.Sender[Any].configure)

    @property
    def mode(self) -> Mode:
        """How messages travel."""
        return self._inner.mode

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abort()
        else:
            self.close()


def _put_back(receiver: aio.Receiver[Any], outcome: Any) -> None:
    receiver._put_back(outcome)


def _put_back_if_any(receiver: aio.Receiver[Any], outcome: Any) -> None:
    if outcome is not None:
        receiver._put_back(outcome)


class Receiver(_Half["aio.Receiver[M]"], Generic[M]):
    """The receiving half of a channel: iterate over it, or call `receive`.

    Like :class:`mainstem.aqueduct.aio.Receiver`, but calls block. Any thread can use it.

    Example:
        >>> for message in receiver:
        ...     print(message)
    """

    __slots__ = ()
    is_sender: ClassVar[bool] = False

    receive = waits(aio.Receiver[M].receive, undo=_put_back)
    try_receive = runs(aio.Receiver[M].try_receive, undo=_put_back_if_any)
    close = waits(aio.Receiver[Any].close, is_close=True)
    abort = runs(aio.Receiver[Any].abort, is_close=True)

    def __iter__(self) -> Iterator[M]:
        """Iterate over messages until the sender finishes the channel. Raises the same errors as `receive`."""
        while True:
            # Keep no reference to a message here, so that dropping a handle in it ends the handle's channel.
            try:
                messages = [self.receive()]
            except ClosedError:
                if self._thread.is_inherited:
                    raise
                return
            yield messages.pop()

    def __exit__(self, *_: object) -> None:
        self.abort()


def _present(thread: LoopThread, half: aio.Sender[Any] | aio.Receiver[Any]) -> Sender[Any] | Receiver[Any]:
    return Sender(thread, half) if isinstance(half, aio.Sender) else Receiver(thread, half)


class Connection(Facade["aio.Connection"], metaclass=Made, made_by="mainstem.aqueduct.connect()"):
    """One connection, from either side. `connect` returns it, and a server's handler receives it.

    A client has `sender` and a server has `receiver`, the two halves of the entrypoint channel. A ``with`` block closes the
    connection at its end, or aborts it if an exception leaves the block.

    Example:
        >>> with connect("localhost", 4433, ca="ca.pem") as connection:
        ...     connection.sender.send(b"tide")
    """

    __slots__ = ("_entrypoint",)

    def __init__(
        self, thread: LoopThread, inner: aio.Connection, entrypoint: aio.Sender[Any] | aio.Receiver[Any]
    ) -> None:
        super().__init__(thread, inner)
        inner._protocol.present = present = partial(_present, thread)
        self._entrypoint = present(entrypoint)

    headers = waits(aio.Connection.headers)
    close = waits(aio.Connection.close, is_close=True)
    abort = runs(aio.Connection.abort, is_close=True)
    wait_closed = waits(aio.Connection.wait_closed)
    wait_channels_closed = waits(aio.Connection.wait_channels_closed)
    stats = asks(aio.Connection.stats)

    @property
    def sender(self) -> Sender[Any]:
        """The entrypoint's sender, on a client. Raises ConfigurationError on a server."""
        assert self._inner.sender
        assert isinstance(self._entrypoint, Sender)
        return self._entrypoint

    @property
    def receiver(self) -> Receiver[Any]:
        """The entrypoint's receiver, on a server. Raises ConfigurationError on a client."""
        assert self._inner.receiver
        assert isinstance(self._entrypoint, Receiver)
        return self._entrypoint

    @property
    def peer_address(self) -> Address:
        """The peer's address in the form that `socket` uses: host and port first."""
        return self._inner.peer_address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it; None if it presented none."""
        return self._inner.peer_certificate

    @property
    def peer_certificate_der(self) -> bytes | None:
        """The peer's TLS certificate in DER form; None if it presented none."""
        return self._inner.peer_certificate_der

    @property
    def early_data_accepted(self) -> bool:
        """Whether the server accepted the data sent before the handshake was complete."""
        return self._inner.early_data_accepted

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abort()
        self.close()


class Server(Facade["aio.Server"], metaclass=Made, made_by="mainstem.aqueduct.serve()"):
    """A listening server, made by `serve`. A ``with`` block closes it at its end. A server that is dropped is aborted.

    Example:
        >>> with serve(handler, "0.0.0.0", 4433, certificate=certificate, key=key) as server:
        ...     server.wait()
    """

    __slots__ = ()

    wait = waits(aio.Server.wait)
    shutdown = waits(aio.Server.shutdown, is_close=True)
    close = waits(aio.Server.close, is_close=True)
    abort = runs(aio.Server.abort, is_close=True)
    stats = asks(aio.Server.stats)

    @property
    def port(self) -> int:
        """The UDP port on which the server listens, at every address."""
        return self._inner.port

    @property
    def connections(self) -> int:
        """The number of connections that are open, in their handshake, or closing."""
        return self._inner.connections

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._warn_if_open(owns_thread=False)


def channel(
    *,
    mode: Mode = Mode.ORDERED,
    max_messages: int = DEFAULT_LIMITS.send_messages,
    max_bytes: int = DEFAULT_LIMITS.send_bytes,
) -> tuple[Sender[Any], Receiver[Any]]:
    """Make a channel. Within the process, messages always keep their order; ``mode`` applies once the channel is networked.

    Args:
        mode: How messages travel.
        max_messages: Maximum number of queued and unacknowledged messages before `Sender.send` waits.
        max_bytes: Maximum bytes of queued and unacknowledged messages before `Sender.send` waits, once the channel is networked.

    Returns:
        The channel's sender and its receiver.

    Raises:
        ConfigurationError: The mode is not a `Mode`, or a limit is not an integer >= 1.

    Example:
        >>> sender, receiver = channel()
        >>> connection.sender.send({"subscribe": "tide", "updates": sender})
        >>> for update in receiver:
        ...     print(update)
    """
    return _facades(*aio.channel(mode=mode, max_messages=max_messages, max_bytes=max_bytes))


def oneshot(*, mode: Mode = Mode.UNORDERED) -> tuple[Sender[Any], Receiver[Any]]:
    """Make a channel for one message: sending it finishes the channel.

    Args:
        mode: How the message travels.

    Returns:
        The channel's sender and its receiver.

    Example:
        >>> sender, receiver = oneshot()
        >>> connection.sender.send({"text": "tide", "response": sender})
        >>> print(receiver.receive())
    """
    return _facades(*aio.oneshot(mode=mode))


def _facades(sender: aio.Sender[Any], receiver: aio.Receiver[Any]) -> tuple[Sender[Any], Receiver[Any]]:
    thread = _shared_loop()
    return Sender(thread, sender), Receiver(thread, receiver)


def connect(
    host: str,
    port: int,
    *,
    headers: HeaderSource = None,
    serializers: Sequence[Serializer] = (RAW,),
    sessions: SessionCache | None = None,
    early: bool = False,
    timeout: float | None = 10.0,
    settings: Settings | None = None,
    instrument: Instrument = NULL_INSTRUMENT,
    **overrides: Any,
) -> Connection:
    """Connect to a server, and return once the handshake is complete.

    If the host has several addresses, each is tried 250 ms after the previous one, or as soon as that one fails. The first
    handshake to complete wins, and the other attempts are closed.

    Args:
        host: The server's name or address.
        port: The server's UDP port.
        headers: Connection headers for the server's handler.
        serializers: Serializers for messages, the preferred one first. If there is more than one, connecting waits for the
            server's choice.
        sessions: Storage for session tickets.
        early: If ``sessions`` has a ticket, return immediately. Messages then travel in the first flight (0-RTT), to the address
            of the previous connection.
        timeout: Seconds to wait; None waits as long as QUIC does.
        settings: The settings; None for the defaults.
        instrument: What observes frames and state changes.
        **overrides: Fields of `Settings` by name, instead of those in ``settings``.

    Returns:
        The connection.

    Raises:
        Timeout: The server did not respond in time.
        ConnectionLost: The server, or TLS, refused the connection.
        RemoteProtocolError: The peer does not speak Aqueduct, or supports none of the serializers.
        ConfigurationError: A setting is invalid.

    Example:
        >>> with connect("localhost", 4433, ca="certs/ca.pem") as connection:
        ...     connection.sender.send(b"tide")
    """
    thread = _shared_loop()

    async def open_connection() -> Connection:
        inner = await aio.connect(
            host,
            port,
            headers=headers,
            serializers=serializers,
            sessions=sessions,
            early=early,
            timeout=timeout,
            settings=settings,
            instrument=instrument,
            **overrides,
        )
        return Connection.made(thread, inner, inner.sender)

    return thread.run(open_connection, undo=abort_outcome)


def serve(
    handler: Callable[[Connection], object],
    host: str | Sequence[str] = "127.0.0.1",
    port: int = 0,
    *,
    sock: socket.socket | Sequence[socket.socket] | None = None,
    headers: HeaderSource | Callable[[Headers], HeaderSource] = None,
    serializers: Sequence[Serializer] = (RAW,),
    tickets: ServerTickets | None = None,
    defer_early_data: bool = False,
    settings: Settings | None = None,
    instrument: Instrument = NULL_INSTRUMENT,
    **overrides: Any,
) -> Server:
    """Listen for connections, and run a handler for each in its own thread.

    Once the handler has returned and every channel has ended, or after ``drain_timeout``, the connection is closed. If the
    connection or the server ends first, the handler's calls raise; if the client had finished the entrypoint, the handler first
    has ``drain_timeout`` to process what it received. If a handler raises an exception, the exception is logged and the
    connection ends with an error.

    Args:
        handler: A function that takes a `Connection`.
        host: One or more addresses or names to listen on.
        port: The UDP port, the same for every address; 0 picks a free port.
        sock: One or more bound UDP sockets to listen on instead, for example from socket activation or with ``SO_REUSEPORT``.
            The server closes them.
        headers: Connection headers, or a function that takes the client's headers, returns the server's, and does not block.
        serializers: Serializers for messages; the client's preference decides.
        tickets: Storage for session tickets. With it, clients can send early data in their first flight. Early data is processed
            immediately: each ticket is used only once, so it cannot be a replay. Without storage there is no early data.
        defer_early_data: Whether to process early data only after the handshake is complete.
        settings: The settings; None for the defaults. ``max_handlers`` limits the threads; further connections wait for one.
        instrument: What observes frames and state changes.
        **overrides: Fields of `Settings` by name, instead of those in ``settings``.

    Returns:
        The server, which is listening.

    Raises:
        ConfigurationError: A setting is invalid.
        OSError: The address cannot be bound.

    Example:
        >>> def handler(connection):
        ...     for message in connection.receiver:
        ...         print(message)
        >>> with serve(handler, "0.0.0.0", 4433, certificate="certs/cert.pem", key="certs/key.pem") as server:
        ...     server.wait()
    """
    chosen = apply_overrides(Settings, settings, overrides)
    threads = HandlerThreads(chosen.max_handlers, chosen.max_handlers_per_address)
    thread = _shared_loop()

    async def open_server() -> Server:
        inner = await aio.serve(
            threads.adapt(handler, lambda inner: Connection.made(thread, inner, inner.receiver)),
            host,
            port,
            sock=sock,
            headers=headers,
            serializers=serializers,
            tickets=tickets,
            defer_early_data=defer_early_data,
            settings=chosen,
            instrument=instrument,
        )
        return Server.made(thread, inner)

    return thread.run(open_server, undo=abort_outcome)
