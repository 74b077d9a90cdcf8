"""The settings of duologues and of their media drivers (docs/protocols/duologue.md, 4.5 and 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from mainstem._core import layout
from mainstem._internal.address_prefixes import AddressPrefixes
from mainstem._internal.clock import seconds_ns
from mainstem._internal.validation import check_int, check_seconds
from mainstem.errors import ConfigurationError

FIRST_SESSION_ID = 1
LAST_SESSION_ID = (1 << 31) - 1
STREAM_ID = 0x2044F002  # the guide's stream id; both ends need the same one
# On the open internet, a datagram should not exceed 1200 bytes. An MTU must be a multiple of 32.
SAFE_MTU = 1184
TERM_LENGTH = 64 * 1024  # three per direction of a duologue; allows messages of 8 KiB and needs little memory
HEARTBEAT_INTERVAL = 0.2  # seconds between the status messages of a driver; its other heartbeats are more frequent
MAX_CLIENTS = 32_000  # each needs two of 65,535 ports; the driver serves hundreds well


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The limits and timeouts of a duologue server and its clients. Times are in seconds, sizes in bytes.

    Raises:
        ConfigurationError: A value is out of range.

    Example:
        >>> settings = Settings(max_clients=200, idle_timeout=None)
    """

    control_port: int | None = None
    """The control port of the all-clients channel; None for the port after the server's. Client and server need the same."""

    stream_id: int = STREAM_ID
    """The stream id of every stream. Client and server need the same."""

    heartbeat_timeout: float = 5.0
    """Seconds without a heartbeat after which the peer is presumed dead, if a driver is started for this end; more than 0.2.
    Drivers exchange heartbeats five to ten times a second, even while no message is sent."""

    mtu: int = SAFE_MTU
    """The longest datagram's payload, a multiple of 32."""

    term_length: int = TERM_LENGTH
    """The length of this end's terms. A message has at most an eighth of it."""

    base_port: int | None = None
    """Server: the first of two ports for each of ``max_clients``; None for ten above the server's port."""

    max_clients: int = 64
    """Server: duologues at a time. Also limits handlers: one that outlives its client keeps the client's place."""

    max_clients_per_address: int = 4
    """How many of them may be from one address."""

    prefixes: AddressPrefixes = field(default_factory=AddressPrefixes)
    """How many bits of an address count: by default all of IPv4, the first 64 of IPv6."""

    join_timeout: float = 5.0
    """Seconds that a client has to join its duologue."""

    left_timeout: float = 0.0
    """Seconds that a duologue is kept after its client has left."""

    idle_timeout: float | None = 60.0
    """Seconds after which a client that sends no message is disconnected; None never does."""

    closing_timeout: float = 1.0
    """Seconds for the last messages of a duologue."""

    handshake_timeout: float = 10.0
    """Seconds that a client may stay on the all-clients channel without a request."""

    hello_rate: float = 20.0
    """Requests per second from one address that a server handles."""

    hello_burst: int = 0
    """Requests at once from one address that a server handles; 0 for twice its share of duologues plus 8."""

    check_address: bool = True
    """Whether a duologue ends if it is joined from another address than its client's."""

    max_term_length: int = 16 << 20
    """The longest terms that a server lets a client use."""

    def __post_init__(self) -> None:
        if self.mtu % layout.FRAME_ALIGNMENT or not 64 <= self.mtu <= 65504:
            raise ConfigurationError(
                f"mtu={self.mtu}: must be a multiple of {layout.FRAME_ALIGNMENT} between 64 and 65504"
            )
        check_int({"max_clients": self.max_clients}, min_value=1, max_value=MAX_CLIENTS)
        check_int({"max_clients_per_address": self.max_clients_per_address}, min_value=1)
        check_int({"hello_burst": self.hello_burst}, min_value=0)
        for name in ("join_timeout", "handshake_timeout", "heartbeat_timeout"):
            check_seconds({name: getattr(self, name)})
        if self.heartbeat_timeout <= HEARTBEAT_INTERVAL:
            raise ConfigurationError(
                f"heartbeat_timeout={self.heartbeat_timeout}: must exceed {HEARTBEAT_INTERVAL}, the interval of heartbeats"
            )
        check_seconds({"left_timeout": self.left_timeout, "closing_timeout": self.closing_timeout}, may_be_zero=True)
        check_seconds({"idle_timeout": self.idle_timeout}, may_be_none=True)
        if not 0 < self.hello_rate < math.inf:
            raise ConfigurationError(f"hello_rate={self.hello_rate!r}: must be above 0")

    @property
    def burst(self) -> int:
        """How many requests at once from one address a server handles."""
        return self.hello_burst or 2 * self.max_clients_per_address + 8

    def driver_settings(self) -> dict[str, Any]:
        """Return the settings of a client's media driver. They reserve session ids for duologues and keep logs small.

        Returns:
            Settings by name, for `MediaDriver.launch`.

        Example:
            >>> driver = MediaDriver.launch(**Settings().driver_settings())
        """
        silence_ns = seconds_ns(self.heartbeat_timeout)
        return {
            **reserved_sessions(),
            "image_liveness_timeout_ns": silence_ns,
            "publication_connection_timeout_ns": silence_ns,
            "mtu_length": self.mtu,
            "term_buffer_length": self.term_length,
        }

    def server_driver_settings(self) -> dict[str, Any]:
        """Return the settings of a server's media driver: those of a client's, plus limits on streams from strangers.

        Returns:
            Settings by name, for `MediaDriver.launch`.
        """
        return {
            **self.driver_settings(),
            # Handshakes come and go, and several may be in progress at once. Only a flood makes more sessions than this.
            "driver_stream_session_limit": 2 * self.max_clients + 64,
            "endpoint_filter_max_term_length": self.max_term_length,
            "endpoint_filter_rate": math.ceil(self.hello_rate),
            # A client needs one stream for its request and another for its duologue.
            "endpoint_filter_burst": 2 * self.burst,
        }


def reserved_sessions() -> dict[str, Any]:
    """Return settings that stop a driver from choosing session ids that servers assign to duologues."""
    return {
        "publication_reserved_session_id_low": FIRST_SESSION_ID,
        "publication_reserved_session_id_high": LAST_SESSION_ID,
    }
