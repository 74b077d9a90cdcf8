"""The settings of a duologue server and of its clients, and the channels that follow from them.

See docs/protocols/duologue.md, 4.4 and 4.5.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field, replace
from typing import Any

from mainstem._core import layout
from mainstem._internal.clock import seconds_ns
from mainstem._internal.validation import check_int, check_seconds
from mainstem.duologue.limits import AddressPrefixes
from mainstem.duologue.port_allocator import FIRST_SESSION_ID, LAST_SESSION_ID
from mainstem.errors import ConfigurationError

STREAM_ID = 0x2044F002  # the guide's own; both sides need the same
# Over the open internet a datagram should stay within 1200 bytes, and an MTU must be a multiple of 32.
SAFE_MTU = 1184
TERM_LENGTH = 64 * 1024  # three of them for each direction of each duologue: messages of 8 KiB, and little memory
PORTS_PER_DUOLOGUE = 2
MAX_CLIENTS = 32_000  # two ports each, of 65,535; the driver serves hundreds well


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _check_port(name: str, port: int) -> None:
    if not 0 < port < 65536:
        raise ConfigurationError(f"{name} {port} is not a port between 1 and 65535")


def _check_mtu(mtu: int) -> None:
    if mtu % layout.FRAME_ALIGNMENT or not 64 <= mtu <= 65504:
        raise ConfigurationError(f"mtu {mtu} is not a multiple of {layout.FRAME_ALIGNMENT} between 64 and 65504")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """A server's settings. Times are in seconds, sizes in bytes.

    Attributes:
        address: The address to bind.
        initial_port: The port of the all-clients channel, to which clients send.
        initial_control_port: The control port of the all-clients channel, from which they receive.
        base_port: The first of two ports for each of ``max_clients``.
        max_clients: Duologues at a time.
        max_per_address: Duologues at a time of each of ``prefixes``.
        prefixes: How many bits of an address count as one client.
        join_timeout: How long a client may take to join its duologue.
        left_timeout: How long a duologue waits after its client has left.
        idle_timeout: Seconds after which a client that sends nothing is disconnected; None never does.
        heartbeat_timeout: Seconds without a sign of life after which a client is presumed dead, if a driver is started for this
            server. Drivers exchange heartbeats ten times a second, also while no message is sent.
        closing_timeout: How long the last messages of a duologue may take.
        handshake_timeout: How long a client may stay on the all-clients channel without a request.
        hello_rate: Requests of one prefix that are processed in a second.
        hello_burst: Requests of one prefix that are processed at once; 0 for twice its duologues and a few.
        check_address: Whether a duologue ends when it is joined from another address than its client's.
        stream_id: The stream id of every stream; clients need the same.
        mtu: The longest datagram's payload, a multiple of 32.
        term_length: The length of the server's terms; a message has at most an eighth of it.
        max_term_length: The longest terms that a client may use.

    Raises:
        ConfigurationError: A setting cannot be used.

    Example:
        >>> ServerSettings(address="192.0.2.1", max_clients=200)
    """

    address: str
    initial_port: int = 9000
    initial_control_port: int = 9001
    base_port: int = 9010
    max_clients: int = 64
    max_per_address: int = 4
    prefixes: AddressPrefixes = field(default_factory=AddressPrefixes)
    join_timeout: float = 5.0
    left_timeout: float = 0.0
    idle_timeout: float | None = 60.0
    heartbeat_timeout: float = 5.0
    closing_timeout: float = 1.0
    handshake_timeout: float = 10.0
    hello_rate: float = 20.0
    hello_burst: int = 0
    check_address: bool = True
    stream_id: int = STREAM_ID
    mtu: int = SAFE_MTU
    term_length: int = TERM_LENGTH
    max_term_length: int = 16 << 20

    def __post_init__(self) -> None:
        _check_port("initial_port", self.initial_port)
        _check_port("initial_control_port", self.initial_control_port)
        _check_mtu(self.mtu)
        try:
            ipaddress.ip_address(self.address)
        except ValueError:
            raise ConfigurationError(f"{self.address!r} is not an address of this machine to bind") from None
        check_int({"max_clients": self.max_clients}, min_value=1, max_value=MAX_CLIENTS)
        check_int({"max_per_address": self.max_per_address}, min_value=1)
        check_int({"hello_burst": self.hello_burst}, min_value=0)
        for name in ("join_timeout", "handshake_timeout", "heartbeat_timeout"):
            check_seconds({name: getattr(self, name)})
        check_seconds({"left_timeout": self.left_timeout, "closing_timeout": self.closing_timeout}, may_be_zero=True)
        if self.idle_timeout is not None:
            check_seconds({"idle_timeout": self.idle_timeout})
        if not 0 < self.hello_rate < math.inf:
            raise ConfigurationError(f"hello_rate={self.hello_rate!r} is no rate above 0")
        duologues = range(self.base_port, self.base_port + PORTS_PER_DUOLOGUE * self.max_clients)
        if duologues.start < 1 or duologues.stop > 65536:
            raise ConfigurationError(f"duologue ports {duologues.start} to {duologues.stop - 1} are not all ports")
        for name in ("initial_port", "initial_control_port"):
            if getattr(self, name) in duologues:
                raise ConfigurationError(f"{name} {getattr(self, name)} is one of the duologues' ports, {duologues}")
        if self.initial_port == self.initial_control_port:
            raise ConfigurationError(f"initial_port and initial_control_port are both {self.initial_port}")

    @property
    def burst(self) -> int:
        """Requests of one prefix that are processed at once: by default, twice the duologues that it may have and a few."""
        return self.hello_burst or 2 * self.max_per_address + 8

    @property
    def initial_subscription(self) -> str:
        """The channel on which clients send their requests."""
        return f"aeron:udp?endpoint={_host(self.address)}:{self.initial_port}"

    @property
    def initial_publication(self) -> str:
        """The channel on which the server responds to them."""
        return self._publication(self.initial_control_port)

    def duologue_subscription(self, port: int, session_id: int) -> str:
        """The channel of one client's messages; every other session is ignored.

        Args:
            port: The duologue's port.
            session_id: The duologue's session.

        Returns:
            The channel URI.

        Example:
            >>> settings.duologue_subscription(9010, 17)
            'aeron:udp?endpoint=192.0.2.1:9010|session-id=17'
        """
        return f"aeron:udp?endpoint={_host(self.address)}:{port}|session-id={session_id}"

    def duologue_publication(self, control_port: int, session_id: int) -> str:
        """The channel of the messages to one client.

        Args:
            control_port: The duologue's control port.
            session_id: The duologue's session.

        Returns:
            The channel URI.

        Example:
            >>> channel = settings.duologue_publication(9074, 17)
        """
        return f"{self._publication(control_port)}|session-id={session_id}"

    def _publication(self, control_port: int) -> str:
        return (
            f"aeron:udp?control={_host(self.address)}:{control_port}|control-mode=dynamic"
            f"|mtu={self.mtu}|term-length={self.term_length}"
        )

    def driver_settings(self) -> dict[str, Any]:
        """The settings of a server's driver: its own session ids outside the duologues', small logs, and limits.

        Returns:
            Settings by name, as `MediaDriver.launch` takes them.

        Example:
            >>> driver = MediaDriver.launch(**settings.driver_settings())
        """
        return {
            **reserved_sessions(),
            **_liveness(self.heartbeat_timeout),
            "mtu_length": self.mtu,
            "term_buffer_length": self.term_length,
            # Handshakes come and go, and several may be under way; beyond that only a flood makes so many sessions.
            "driver_stream_session_limit": 2 * self.max_clients + 64,
            "endpoint_filter_max_term_length": self.max_term_length,
            "endpoint_filter_rate": math.ceil(self.hello_rate),
            # A client needs a stream for its request, and another on its duologue.
            "endpoint_filter_burst": 2 * self.burst,
        }


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """A client's settings. Times are in seconds, sizes in bytes.

    Attributes:
        server: The server's address.
        initial_port: The port of the server's all-clients channel.
        initial_control_port: The control port of the server's all-clients channel.
        local_address: The address to bind; empty for any.
        timeout: How long each step of connecting may take.
        heartbeat_timeout: Seconds without a sign of life after which the server is presumed dead, if a driver is started for this
            client. Drivers exchange heartbeats ten times a second, also while no message is sent.
        server_key: The server's public key, which switches encryption on.
        stream_id: The stream id of every stream; the server needs the same.
        mtu: The longest datagram's payload, a multiple of 32.
        term_length: The length of the client's terms; a message has at most an eighth of it.

    Raises:
        ConfigurationError: A setting cannot be used.

    Example:
        >>> ClientSettings(server="192.0.2.1", timeout=2)
    """

    server: str
    initial_port: int = 9000
    initial_control_port: int = 9001
    local_address: str = ""
    timeout: float = 5.0
    heartbeat_timeout: float = 5.0
    server_key: bytes = b""
    stream_id: int = STREAM_ID
    mtu: int = SAFE_MTU
    term_length: int = TERM_LENGTH

    def __post_init__(self) -> None:
        _check_port("initial_port", self.initial_port)
        _check_port("initial_control_port", self.initial_control_port)
        _check_mtu(self.mtu)
        check_seconds({"timeout": self.timeout, "heartbeat_timeout": self.heartbeat_timeout})

    @property
    def initial_subscription(self) -> str:
        """The channel of the server's responses."""
        return self._subscription(self.initial_control_port)

    @property
    def initial_publication(self) -> str:
        """The channel on which the client sends its request."""
        return self._publication(self.initial_port)

    def duologue_subscription(self, control_port: int, session_id: int) -> str:
        """The channel of the server's messages to this client; every other session is ignored.

        Args:
            control_port: The duologue's control port.
            session_id: The duologue's session.

        Returns:
            The channel URI.

        Example:
            >>> channel = settings.duologue_subscription(9074, 17)
        """
        return f"{self._subscription(control_port)}|session-id={session_id}"

    def duologue_publication(self, port: int, session_id: int) -> str:
        """The channel of this client's messages.

        Args:
            port: The duologue's port.
            session_id: The duologue's session.

        Returns:
            The channel URI.

        Example:
            >>> channel = settings.duologue_publication(9010, 17)
        """
        return f"{self._publication(port)}|session-id={session_id}"

    def _subscription(self, control_port: int) -> str:
        local = self.local_address or ("::" if ":" in self.server else "0.0.0.0")
        control = f"{_host(self.server)}:{control_port}"
        return f"aeron:udp?endpoint={_host(local)}:0|control={control}|control-mode=dynamic"

    def _publication(self, port: int) -> str:
        endpoint = f"{_host(self.server)}:{port}"
        return f"aeron:udp?endpoint={endpoint}|mtu={self.mtu}|term-length={self.term_length}"

    def driver_settings(self) -> dict[str, Any]:
        """The settings of a client's driver: its own session ids outside the duologues', and small logs.

        Returns:
            Settings by name, as `MediaDriver.launch` takes them.

        Example:
            >>> driver = MediaDriver.launch(**settings.driver_settings())
        """
        return {
            **reserved_sessions(),
            **_liveness(self.heartbeat_timeout),
            "mtu_length": self.mtu,
            "term_buffer_length": self.term_length,
        }


def server_settings(
    settings: ServerSettings | None, host: str | None, port: int | None, overrides: dict[str, Any]
) -> ServerSettings:
    """Return the settings that the arguments of ``serve`` describe."""
    fields = _fields("address", host, port, overrides)
    return ServerSettings(**fields) if settings is None else replace(settings, **fields)


def client_settings(
    settings: ClientSettings | None, host: str | None, port: int | None, overrides: dict[str, Any]
) -> ClientSettings:
    """Return the settings that the arguments of ``connect`` describe."""
    fields = _fields("server", host, port, overrides)
    return ClientSettings(**fields) if settings is None else replace(settings, **fields)


def _fields(address: str, host: str | None, port: int | None, overrides: dict[str, Any]) -> dict[str, Any]:
    """Name the settings; unless given, the control port is the one after ``port``."""
    fields: dict[str, Any] = {}
    if host is not None:
        fields[address] = host
    if port is not None:
        fields["initial_port"] = port
        if "initial_control_port" not in overrides:
            fields["initial_control_port"] = port + 1
    if twice := sorted(fields.keys() & overrides.keys()):
        raise TypeError(f"{', '.join(twice)}: given twice; host is {address} and port is initial_port")
    return {**fields, **overrides}


def reserved_sessions() -> dict[str, Any]:
    """The session ids that a driver must not choose itself, because servers assign them to duologues."""
    return {
        "publication_reserved_session_id_low": FIRST_SESSION_ID,
        "publication_reserved_session_id_high": LAST_SESSION_ID,
    }


def _liveness(heartbeat_timeout: float) -> dict[str, Any]:
    """When a driver gives up a stream from which, or to which, it has heard nothing."""
    silence_ns = seconds_ns(heartbeat_timeout)
    return {"image_liveness_timeout_ns": silence_ns, "publication_connection_timeout_ns": silence_ns}
