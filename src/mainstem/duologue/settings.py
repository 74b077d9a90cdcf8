"""What a duologue server and its clients are told, and the channels that follow from it (guide, 4.4 and 4.5)."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field
from typing import Any

from mainstem._core import layout
from mainstem.clock import NS_PER_SECOND
from mainstem.duologue.limits import Prefixes
from mainstem.duologue.port_allocator import FIRST_SESSION_ID, LAST_SESSION_ID
from mainstem.errors import ConfigurationError

STREAM_ID = 0x2044F002  # the guide's own; both sides need the same
# Over the open internet a datagram should stay within 1200 bytes, and an MTU must be a multiple of 32.
SAFE_MTU = 1184
TERM_LENGTH = 64 * 1024  # three of them for each direction of each duologue: messages of 8 KiB, and little memory
PORTS_PER_DUOLOGUE = 2
MAX_CLIENTS = 32_000  # two ports each, of 65,535; the driver serves hundreds well


def seconds_ns(seconds: float) -> int:
    """Seconds as nanoseconds."""
    return round(seconds * NS_PER_SECOND)


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
    """A server's parameters. Times are in seconds.

    ``initial_port`` and ``initial_control_port`` are the all-clients channel's; duologues use the ports from ``base_port`` on,
    two for each of ``max_clients``. ``max_per_address`` counts for each of ``prefixes``. A duologue ends when nobody joined
    within ``join_timeout``, ``left_timeout`` after everybody left, and when its client said nothing for ``silence_timeout``
    (None: never). ``hello_rate`` and ``hello_burst`` bound the requests of one prefix that are answered, a second and at once.
    ``max_term_length`` bounds what a client's stream may cost. ``check_address`` drops a duologue which somebody with another
    address than the asking client's joins.
    """

    address: str
    initial_port: int = 9000
    initial_control_port: int = 9001
    base_port: int = 9010
    max_clients: int = 64
    max_per_address: int = 4
    prefixes: Prefixes = field(default_factory=Prefixes)
    join_timeout: float = 5.0
    left_timeout: float = 0.0
    silence_timeout: float | None = 60.0
    closing_timeout: float = 1.0
    initial_timeout: float = 10.0
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
        if not 1 <= self.max_clients <= MAX_CLIENTS or self.max_per_address < 1:
            raise ConfigurationError(
                f"max_clients {self.max_clients} is not 1 to {MAX_CLIENTS}, or max_per_address {self.max_per_address} not above 0"
            )
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
        """How many requests of one prefix are answered at once: left out, twice what it may have, and a few."""
        return self.hello_burst or 2 * self.max_per_address + 8

    @property
    def initial_subscription(self) -> str:
        """Where clients introduce themselves."""
        return f"aeron:udp?endpoint={_host(self.address)}:{self.initial_port}"

    @property
    def initial_publication(self) -> str:
        """What all clients listen to."""
        return self._publication(self.initial_control_port)

    def duologue_subscription(self, port: int, session_id: int) -> str:
        """Where one client's messages come in; every other session is ignored."""
        return f"aeron:udp?endpoint={_host(self.address)}:{port}|session-id={session_id}"

    def duologue_publication(self, control_port: int, session_id: int) -> str:
        """What one client listens to."""
        return f"{self._publication(control_port)}|session-id={session_id}"

    def _publication(self, control_port: int) -> str:
        return (
            f"aeron:udp?control={_host(self.address)}:{control_port}|control-mode=dynamic"
            f"|mtu={self.mtu}|term-length={self.term_length}"
        )

    def driver_settings(self) -> dict[str, Any]:
        """What a server's driver needs: its own session ids outside the duologues', and small logs."""
        return {
            **reserved_sessions(),
            "mtu_length": self.mtu,
            "term_buffer_length": self.term_length,
            # Introductions come and go, and several may be under way; beyond that only a flood makes so many sessions.
            "driver_stream_session_limit": 2 * self.max_clients + 64,
            "endpoint_filter_max_term_length": self.max_term_length,
            "endpoint_filter_rate": math.ceil(self.hello_rate),
            # A client needs a stream to introduce itself, and another on its duologue.
            "endpoint_filter_burst": 2 * self.burst,
        }


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """A client's parameters. Times are in seconds; each of the steps of connecting may take ``timeout``.

    ``local_address`` is bound, by default any; ``server_key`` is the server's public key and switches encryption on.
    """

    server: str
    initial_port: int = 9000
    initial_control_port: int = 9001
    local_address: str = ""
    timeout: float = 5.0
    server_key: bytes = b""
    stream_id: int = STREAM_ID
    mtu: int = SAFE_MTU
    term_length: int = TERM_LENGTH

    def __post_init__(self) -> None:
        _check_port("initial_port", self.initial_port)
        _check_port("initial_control_port", self.initial_control_port)
        _check_mtu(self.mtu)
        if self.timeout <= 0:
            raise ConfigurationError(f"a timeout of {self.timeout:g} s lets nothing happen")

    @property
    def initial_subscription(self) -> str:
        """Where the server's answers come from."""
        return self._subscription(self.initial_control_port)

    @property
    def initial_publication(self) -> str:
        """Where the client introduces itself."""
        return self._publication(self.initial_port)

    def duologue_subscription(self, control_port: int, session_id: int) -> str:
        """What the server says to this client; no other session of that port is heard."""
        return f"{self._subscription(control_port)}|session-id={session_id}"

    def duologue_publication(self, port: int, session_id: int) -> str:
        """Where this client's messages go."""
        return f"{self._publication(port)}|session-id={session_id}"

    def _subscription(self, control_port: int) -> str:
        local = self.local_address or ("::" if ":" in self.server else "0.0.0.0")
        control = f"{_host(self.server)}:{control_port}"
        return f"aeron:udp?endpoint={_host(local)}:0|control={control}|control-mode=dynamic"

    def _publication(self, port: int) -> str:
        endpoint = f"{_host(self.server)}:{port}"
        return f"aeron:udp?endpoint={endpoint}|mtu={self.mtu}|term-length={self.term_length}"

    def driver_settings(self) -> dict[str, Any]:
        """What a client's driver needs."""
        return {**reserved_sessions(), "mtu_length": self.mtu, "term_buffer_length": self.term_length}


def reserved_sessions() -> dict[str, Any]:
    """The session ids that a driver must not give out itself, because servers give them to duologues."""
    return {
        "publication_reserved_session_id_low": FIRST_SESSION_ID,
        "publication_reserved_session_id_high": LAST_SESSION_ID,
    }
