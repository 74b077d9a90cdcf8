"""Listening sockets: on every address of a host, all with the same port."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Any

from mainstem._internal.eyeballs import check_port, in_thread
from mainstem._internal.host_names import look_up
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem._internal.eyeballs import HostAddress

# Attempts to find a port that is free in all families, before giving up.
PORT_ATTEMPTS = 16
BACKLOG = 1024


async def find_listening_addresses(
    host: str | Sequence[str] | None, port: int, kind: socket.SocketKind
) -> list[HostAddress]:
    """Like `listening_addresses`, but look names up in a thread of the event loop's executor."""
    try:
        return listening_addresses(host, port, kind, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await in_thread(listening_addresses, host, port, kind)


def listening_addresses(
    host: str | Sequence[str] | None, port: int, kind: socket.SocketKind, *, flags: int = 0
) -> list[HostAddress]:
    """Return the addresses to listen on: of one host, of several, or of every interface (None). Raises OSError."""
    hosts = [host or None] if host is None or isinstance(host, str) else list(host)
    check_port(port)
    found: dict[HostAddress, None] = {}
    for each in hosts:
        for family, _, _, _, address in look_up(each, port, kind, socket.AI_PASSIVE | flags):
            if family in (socket.AF_INET, socket.AF_INET6):
                found[int(family), address] = None
    return list(found)


def bind_sockets(
    addresses: Sequence[HostAddress], *, kind: socket.SocketKind, backlog: int = BACKLOG
) -> list[socket.socket]:
    """Return a socket for each address. TCP sockets listen. Port 0 selects one free port, the same for all of them.

    An address of a family that this host does not have is skipped, as long as another one remains. Raises OSError.
    """
    for attempt in range(PORT_ATTEMPTS):
        try:
            return _bind_all(addresses, kind, backlog)
        except OSError as error:
            is_chosen = len(addresses) > 1 and any(address[1] == 0 for _, address in addresses)
            if error.errno != errno.EADDRINUSE or not is_chosen or attempt == PORT_ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def given_sockets(sock: socket.socket | Sequence[socket.socket], kind: socket.SocketKind) -> list[socket.socket]:
    """Return sockets that the application bound itself, for socket activation or SO_REUSEPORT, ready for an event loop.

    TCP and Unix sockets listen. Raises ConfigurationError if one is of another kind or not bound, and OSError.
    """
    sockets = [sock] if isinstance(sock, socket.socket) else list(sock)
    if not sockets:
        raise ConfigurationError("cannot listen: sock= is an empty list")
    for each in sockets:
        if not isinstance(each, socket.socket) or each.type != kind:
            raise ConfigurationError(f"cannot listen on {each!r}: sock= must be a socket of type {kind.name}")
        if each.family != socket.AF_UNIX and not each.getsockname()[1]:
            raise ConfigurationError(f"cannot listen on {each!r}: it is not bound; call bind() first")
        each.setblocking(False)
        if kind == socket.SOCK_STREAM:
            each.listen(BACKLOG)
    return sockets


def name_of(address: Any) -> str:
    """Return a socket's address as text: ``host:port``, IPv6 in brackets, or a Unix path (with ``@`` for an abstract one)."""
    if not isinstance(address, tuple):
        path = os.fsdecode(address) if isinstance(address, str | bytes | os.PathLike) else str(address)
        return f"@{path[1:]}" if path.startswith("\0") else path
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def local_address_to(host: str, port: int) -> str:
    """Return the address of this host from which datagrams reach another one. Raises OSError."""
    (family, kind, _, _, address), *_ = look_up(host, port, socket.SOCK_DGRAM)
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing
        local: str = probe.getsockname()[0]
    return local


def url_of(sock: socket.socket, scheme: str) -> str:
    """Return the URL of a service at a socket's address."""
    return f"{scheme}://{name_of(sock.getsockname())}"


def _bind_all(addresses: Sequence[HostAddress], kind: socket.SocketKind, backlog: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    chosen = 0
    # A UDP socket on the IPv6 wildcard also receives IPv4, but must not if there are IPv4 sockets too.
    v6_only = kind == socket.SOCK_STREAM or any(family == socket.AF_INET for family, _ in addresses)
    try:
        for family, address in addresses:
            host, port, *rest = address
            try:
                sock = _bind(family, (host, port or chosen, *rest), kind, backlog, v6_only=v6_only)
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                missing = error
                continue
            sockets.append(sock)
            if port == 0:
                chosen = sock.getsockname()[1]
        if not sockets:
            raise missing or OSError(errno.EADDRNOTAVAIL, "there is no address to listen on")
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _bind(
    family: int, address: tuple[object, ...], kind: socket.SocketKind, backlog: int, *, v6_only: bool
) -> socket.socket:
    # asyncio does not turn off Nagle's algorithm for sockets created without their protocol.
    sock = socket.socket(family, kind, socket.IPPROTO_TCP if kind == socket.SOCK_STREAM else 0)
    try:
        sock.setblocking(False)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and v6_only:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        if kind == socket.SOCK_STREAM:
            sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock
