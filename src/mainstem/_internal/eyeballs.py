"""Connecting to a host that has several addresses: they are tried in parallel (Happy Eyeballs, RFC 8305).

An address may be dead without an error, as IPv6 is on many networks, so no address may use up the time of the others. The first
address has a head start of a quarter of a second; after that, or when it fails, the next attempt starts in parallel. The first
attempt that succeeds ends all others.

An attempt may be doubtful: a UDP port that is closed now may be opened in a moment. Such an attempt continues, but the next one
need not wait, and when every other attempt has failed, nothing waits for the doubtful one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.clock import timeout_of
from mainstem._internal.host_names import look_up
from mainstem._internal.tasks import start_task
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

T = TypeVar("T")

ATTEMPT_DELAY_S = 0.25  # RFC 8305, 5: the recommended time between two attempts

HostAddress = tuple[int, tuple[Any, ...]]
"""An address family, and the address in the form that sockets of that family use."""


class NoneSucceededError(Exception):
    """No address could be connected to. ``failures`` has the errors of attempts that ended, with their addresses."""

    def __init__(self, failures: list[tuple[HostAddress, Exception]], *, timed_out: bool) -> None:
        self.failures = failures
        self.timed_out = timed_out
        texts = [str(error) for _, error in failures]
        if len(set(texts)) > 1:
            texts = [f"{address[0]}: {error}" for (_, address), error in failures]
        super().__init__("; ".join(dict.fromkeys(texts)))


def interleaved(addresses: Sequence[HostAddress]) -> list[HostAddress]:
    """Return the addresses without duplicates, alternating between families (RFC 8305, 4)."""
    by_family: dict[int, list[HostAddress]] = {}
    for address in dict.fromkeys(addresses):
        by_family.setdefault(address[0], []).append(address)
    return [address for address in chain(*zip_longest(*by_family.values())) if address is not None]


async def in_thread(look_up: Callable[..., T], *arguments: Any) -> T:
    """Run a function that blocks in a thread of the event loop's executor."""
    try:
        running = asyncio.get_running_loop().run_in_executor(None, look_up, *arguments)
    except RuntimeError:  # the interpreter is exiting (atexit), and its executors take no more work
        return look_up(*arguments)
    return await running


def check_port(port: int) -> None:
    """Raise ConfigurationError for an invalid port number, which `getaddrinfo` would wrap around."""
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise ConfigurationError(f"port must be an integer in 0..65535 (got {port!r})")


async def resolve(host: str, port: int, kind: socket.SocketKind) -> list[HostAddress]:
    """Return the addresses of a host in the order in which to try them. Raises OSError, and ConfigurationError for its port."""
    check_port(port)
    try:
        # A numeric address needs no lookup in a thread.
        found = look_up(host, port, kind, socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await in_thread(look_up, host, port, kind)
    return interleaved([(family, address) for family, _, _, _, address in found])


async def race(
    addresses: Sequence[HostAddress],
    attempt: Callable[[HostAddress, Callable[[], None]], Coroutine[Any, Any, T]],
    *,
    discard: Callable[[T], None],
    timeout: float | None,
    delay: float = ATTEMPT_DELAY_S,
) -> T:
    """Return the result of the first attempt that succeeds, after all others have ended. Raises NoneSucceededError.

    ``attempt`` gets an address, and a function that starts the next attempt before ``delay`` has passed. ``discard`` disposes of
    the result of an attempt that succeeds too late.
    """
    running: dict[asyncio.Task[T], HostAddress] = {}
    doubtful: set[asyncio.Task[T]] = set()
    failures: list[tuple[HostAddress, Exception]] = []
    deadline = asyncio.timeout(timeout_of(timeout))
    has_result = False
    try:
        async with deadline:
            result = await _first(deque(addresses), attempt, delay, running, doubtful, failures)
            has_result = True
    except TimeoutError:
        if not deadline.expired():
            raise
        raise NoneSucceededError(failures, timed_out=True) from None
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(lambda task: _take_back(task, discard))
        try:
            await asyncio.gather(*running, return_exceptions=True)
        except BaseException:
            if has_result:
                discard(result)
            raise
    return result


async def _first(
    waiting: deque[HostAddress],
    attempt: Callable[[HostAddress, Callable[[], None]], Coroutine[Any, Any, T]],
    delay: float,
    running: dict[asyncio.Task[T], HostAddress],
    doubtful: set[asyncio.Task[T]],
    failures: list[tuple[HostAddress, Exception]],
) -> T:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def begin(address: HostAddress) -> None:
        def doubt() -> None:
            doubtful.add(task)
            changed.set()

        task = start_task(attempt(address, doubt), loop)
        running[task] = address
        task.add_done_callback(lambda _: changed.set())

    while waiting or running:
        if waiting:
            begin(waiting.popleft())
        pause = asyncio.timeout(delay if waiting else None)
        try:
            async with pause:
                await changed.wait()
        except TimeoutError:
            if not pause.expired():
                raise
        changed.clear()
        for task in [task for task in running if task.done()]:
            address = running.pop(task)
            try:
                return task.result()
            except Exception as error:
                failures.append((address, error))
        if failures and not waiting and running.keys() <= doubtful:
            break
    raise NoneSucceededError(failures, timed_out=False)


def _take_back(task: asyncio.Task[T], discard: Callable[[T], None]) -> None:
    if not task.cancelled() and task.exception() is None:
        discard(task.result())


def reset_on_close(sock: socket.socket, resets: bool) -> None:
    """Set whether closing a TCP socket resets the connection, so that the peer does not take it for an orderly end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", resets, 0))


async def open_socket(address: HostAddress, *, resets: bool = False) -> socket.socket:
    """Return a non-blocking TCP socket that is connected to the address. Raises OSError.

    With ``resets``, closing it resets the connection, until the caller changes that (`reset_on_close`).
    """
    family, where = address
    # asyncio does not turn off Nagle's algorithm for a socket created without its protocol.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        if resets:
            reset_on_close(sock, True)
        await _connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect(sock: socket.socket, where: tuple[Any, ...]) -> None:
    """Like ``loop.sock_connect``, which loses the scope of a link-local address in uvloop."""
    try:
        sock.connect(where)
    except BlockingIOError:
        pass
    else:
        return
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(sock.fileno(), writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(sock.fileno())
    number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise OSError(number, os.strerror(number))


async def connect_socket(host: str, port: int, *, timeout: float | None) -> socket.socket:
    """Return a TCP socket that is connected to the first of a host's addresses that accepts.

    Closing it resets the connection, until the caller changes that (`reset_on_close`). Raises OSError, and TimeoutError after
    ``timeout`` seconds.
    """

    async def attempt(address: HostAddress, _doubt: Callable[[], None]) -> socket.socket:
        return await open_socket(address, resets=True)

    addresses = await resolve(host, port, socket.SOCK_STREAM)
    try:
        return await race(addresses, attempt, discard=socket.socket.close, timeout=timeout)
    except NoneSucceededError as error:
        if error.timed_out:
            raise TimeoutError(f"no answer within {timeout:g} s {error}".rstrip()) from None
        if len(error.failures) == 1:
            raise error.failures[0][1] from None
        raise OSError(str(error)) from error.failures[0][1]
