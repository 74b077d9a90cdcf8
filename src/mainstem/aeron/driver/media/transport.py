"""The driver's I/O boundary to the network: it opens sockets only here."""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
import sys
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mainstem._core.driver.udp import UdpTransport
from mainstem._internal.frozen import frozen, mutable
from mainstem.aeron.driver.media.addresses import InetAddress, wildcard
from mainstem.aeron.driver.media.interfaces import system_interfaces
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainstem._core.driver.datagram import Transport
    from mainstem._core.driver.loss_generator import LossGenerator
    from mainstem.aeron.driver.media.addresses import NetworkInterface
    from mainstem.aeron.driver.settings import DriverSettings

# Socket options that Python's socket module doesn't define everywhere.
IP_MULTICAST_ALL = 49
IPV6_MULTICAST_ALL = 29
MAX_BUFFER = 0x7FFF_FFFF  # the largest length that setsockopt accepts
# Linux doubles the requested length to cover its own overhead, and never grants less than these minimums.
GRANT_FACTOR = 2 if sys.platform == "linux" else 1
LEAST_SEND_BUFFER, LEAST_RECEIVE_BUFFER = 4608, 2304


class BufferLimits(NamedTuple):
    """The default and the maximum lengths of socket buffers in bytes, as the system reports them."""

    default_send: int
    max_send: int
    default_receive: int
    max_receive: int

    def granted_send(self, requested: int) -> int:
        """Return the length that a send buffer gets for a request; 0 requests the default."""
        return max(LEAST_SEND_BUFFER, GRANT_FACTOR * min(requested, self.max_send)) if requested else self.default_send

    def granted_receive(self, requested: int) -> int:
        """Return the length that a receive buffer gets for a request; 0 requests the default."""
        if not requested:
            return self.default_receive
        return max(LEAST_RECEIVE_BUFFER, GRANT_FACTOR * min(requested, self.max_receive))


def check_buffers(settings: DriverSettings, limits: BufferLimits) -> None:
    """Raise ConfigurationError if the MTU exceeds a socket's send buffer, or the initial window its receive buffer."""
    send = limits.granted_send(settings.socket_so_sndbuf)
    receive = limits.granted_receive(settings.socket_so_rcvbuf)
    if settings.mtu_length > send:
        raise ConfigurationError(
            f"AERON_MTU_LENGTH {settings.mtu_length} exceeds the {send} bytes of a socket's send buffer "
            "(SO_SNDBUF, net.core.wmem_max)"
        )
    if settings.rcv_initial_window_length > receive:
        raise ConfigurationError(
            f"AERON_RCV_INITIAL_WINDOW_LENGTH {settings.rcv_initial_window_length} exceeds the {receive} bytes of a "
            "socket's receive buffer (SO_RCVBUF, net.core.rmem_max)"
        )


@frozen
class TransportRequest:
    """The parameters of a socket to open.

    ``bind`` is the local address. If its port is 0 and ``port_range`` (low, high) is given, the socket gets a free port of that
    range. ``connect`` is the only peer, or None for a socket that can send to any address. ``group`` is a multicast group to join
    on the interface with ``interface_ip``. Buffer lengths are in bytes, with 0 for the system's default. With ``timestamps``, the
    kernel records when datagrams arrive. ``channel`` is the channel URI of the socket. ``send_to`` is a multicast address to send
    to through a second socket, whose port the system chooses.
    """

    bind: InetAddress
    connect: InetAddress | None = None
    group: InetAddress | None = None
    interface_ip: str = ""
    interface_index: int = 0
    ttl: int = 0
    so_rcvbuf: int = 0
    so_sndbuf: int = 0
    port_range: tuple[int, int] | None = None
    timestamps: bool = False
    channel: str = ""
    send_to: InetAddress | None = None


@mutable
class OpenTransport:
    """A transport and the properties of its socket.

    The thread that uses the transport closes it; ``close`` is idempotent. ``reconnect`` changes the peer of a connected socket.
    """

    transport: Transport
    local_address: InetAddress
    receive_buffer_length: int
    send_buffer_length: int
    release: Callable[[], None]
    reconnect: Callable[[InetAddress], None]
    is_closed: bool = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.transport.close()
            self.release()


class AddressInUse(ConfigurationError):
    """Another socket is bound to the address."""


class Transports(Protocol):
    def open(self, request: TransportRequest) -> OpenTransport:
        """Open a transport. Raises AddressInUse, or ConfigurationError with the address and the reason."""
        ...

    def resolve(self, host: str) -> str: ...

    def interfaces(self) -> Sequence[NetworkInterface]: ...

    def buffer_limits(self) -> BufferLimits: ...


class SystemTransports:
    """The UDP sockets of the operating system.

    ``incoming_loss`` and ``outgoing_loss`` return the loss generator of a transport, given its number. ``offload=False`` disables
    the kernel's segmentation offload. ``slots`` is the number of datagrams, or coalesced runs of them, that a transport reads at
    once; 0 is the default number.
    """

    def __init__(
        self,
        *,
        incoming_loss: Callable[[int], LossGenerator] | None = None,
        outgoing_loss: Callable[[int], LossGenerator] | None = None,
        offload: bool = True,
        slots: int = 0,
    ) -> None:
        self._incoming_loss = incoming_loss
        self._outgoing_loss = outgoing_loss
        self._offload = offload
        self._slots = slots
        self._generators: list[LossGenerator] = []
        self._opened = 0

    @property
    def dropped_data(self) -> int:
        return sum(each.dropped_data for each in _chained(self._generators))

    @property
    def dropped_control(self) -> int:
        return sum(each.dropped_control for each in _chained(self._generators))

    def open(self, request: TransportRequest) -> OpenTransport:
        v6 = request.bind.is_v6
        sock, sender = _new_socket(v6=v6), None
        try:
            _set_buffers(sock, request)
            if request.group is not None or request.bind.is_multicast:
                _bind_group(sock, request)
            else:
                _bind(sock, request)
            if request.connect is not None:
                _connect(sock, request.connect)
            if request.send_to is not None:
                sender = _new_socket(v6=v6)
                _set_buffers(sender, request)
                _send_through_interface(sender, request)
                _connect(sender, request.send_to)
            transport = UdpTransport(
                sock.fileno(),
                self._make(self._incoming_loss),
                self._make(self._outgoing_loss),
                self._offload,
                request.timestamps,
                self._slots,
                -1 if sender is None else sender.fileno(),
            )
        except OSError as error:
            sock.close()
            if sender is not None:
                sender.close()
            kind = AddressInUse if error.errno == errno.EADDRINUSE else ConfigurationError
            raise kind(f"UDP socket on {request.bind}: {error.strerror or error}") from error
        self._opened += 1

        def release() -> None:
            sock.close()
            if sender is not None:
                sender.close()

        name = sock.getsockname()
        return OpenTransport(
            transport=transport,
            local_address=InetAddress(name[0].partition("%")[0], name[1], name[3] if v6 else 0),
            receive_buffer_length=_buffer_length(sock, socket.SO_RCVBUF, requested=request.so_rcvbuf > 0),
            send_buffer_length=_buffer_length(sender or sock, socket.SO_SNDBUF, requested=request.so_sndbuf > 0),
            release=release,
            reconnect=lambda address: _connect(sock, address),
        )

    def _make(self, factory: Callable[[int], LossGenerator] | None) -> LossGenerator | None:
        if factory is None:
            return None
        generator = factory(self._opened)
        self._generators.append(generator)
        return generator

    def resolve(self, host: str) -> str:
        from mainstem._internal.host_names import numeric_address  # most drivers start without names to look up

        return numeric_address(host)

    def buffer_limits(self) -> BufferLimits:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            lengths = []
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                lengths.append(_buffer_length(probe, option, requested=False))
                probe.setsockopt(socket.SOL_SOCKET, option, MAX_BUFFER)
                lengths.append(_buffer_length(probe, option, requested=True))
        return BufferLimits(*lengths)

    def interfaces(self) -> Sequence[NetworkInterface]:
        return system_interfaces()


def _chained(generators: Iterable[LossGenerator]) -> Iterable[LossGenerator]:
    for generator in generators:
        each: LossGenerator | None = generator
        while each is not None:
            yield each
            each = each.then


def _address(address: InetAddress) -> tuple[str, int] | tuple[str, int, int, int]:
    if address.is_v6:
        return (address.ip, address.port, 0, address.scope)
    return (address.ip, address.port)


def _connect(sock: socket.socket, address: InetAddress) -> None:
    if (sock.family == socket.AF_INET6) != address.is_v6:
        raise OSError(errno.EAFNOSUPPORT, f"{address} and the socket must have the same IP version")
    sock.connect(_address(address))


def _set_buffers(sock: socket.socket, request: TransportRequest) -> None:
    # The system caps larger requests at its own maximum.
    if request.so_rcvbuf > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, min(request.so_rcvbuf, MAX_BUFFER))
    if request.so_sndbuf > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, min(request.so_sndbuf, MAX_BUFFER))


def _buffer_length(sock: socket.socket, option: int, *, requested: bool) -> int:
    """Return the length of a socket buffer: what was granted of the requested length, or the system's default."""
    length = sock.getsockopt(socket.SOL_SOCKET, option)
    return length // GRANT_FACTOR if requested else length


def _bind(sock: socket.socket, request: TransportRequest) -> None:
    if request.bind.port or request.port_range is None:
        sock.bind(_address(request.bind))
        return
    low, high = request.port_range
    for port in range(low, high + 1):
        try:
            sock.bind(_address(request.bind.with_port(port)))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return
    raise OSError(errno.EADDRINUSE, f"no available ports in range {low} {high}")


def _new_socket(*, v6: bool) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    sock.setblocking(False)
    return sock


def _send_through_interface(sock: socket.socket, request: TransportRequest) -> None:
    """Make the socket send multicast datagrams through the request's interface and with its TTL."""
    if request.bind.is_v6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, request.interface_index)
        if request.ttl > 0:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, request.ttl)
        return
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(request.interface_ip))
    if request.ttl > 0:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, request.ttl)


def _bind_group(sock: socket.socket, request: TransportRequest) -> None:
    """Bind a socket for multicast on one interface, and join the group if there is one (docs/protocols/aeron.md, 19.2)."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    group = request.group
    v6 = request.bind.is_v6
    sock.bind(_address(wildcard(v6=v6, port=request.bind.port)))
    _send_through_interface(sock, request)
    if v6:
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0)
        if group is not None:
            member = ipaddress.IPv6Address(group.ip).packed + struct.pack("@I", request.interface_index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
        return
    sock.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
    if group is not None:
        member = socket.inet_aton(group.ip) + socket.inet_aton(request.interface_ip)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
