"""The settings of a client or server: QUIC settings, independent of the library, and the limits of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._internal.handler_threads import MAX_HANDLERS, MAX_HANDLERS_PER_ADDRESS
from mainstem._internal.validation import check_int, check_seconds
from mainstem.aqueduct.limits import Limits

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_BACKEND = "qh3"
DEFAULT_ALPN = "aqueduct"
"""The application protocol (ALPN) that both sides must name; the specification does not define one."""

DATAGRAM_SIZES = (1200, 65_527)
"""The smallest UDP payload that QUIC can rely on (RFC 9000, 14), and the largest possible one."""

CID_LENGTH = 8
"""Length in bytes of the connection ids issued here, by which a server finds the connection of a packet."""


@dataclass(frozen=True, kw_only=True)
class Settings(Limits):
    """The settings of a client or a server. Sizes are in bytes, times in seconds.

    `connect` and `serve` take an instance as ``settings=``. They also take each field as a keyword argument that overrides it.

    Raises:
        ConfigurationError: A value is out of range.

    Example:
        >>> settings = Settings(certificate="cert.pem", key="key.pem")
        >>> server = serve(handler, "0.0.0.0", 4433, settings=settings, max_payload=1 << 20)
    """

    backend: str = DEFAULT_BACKEND
    """The QUIC library: ``qh3`` or ``aioquic``."""

    alpn: str = DEFAULT_ALPN
    """The application protocol that is negotiated."""

    certificate: str | Path | None = None
    """A PEM file with this side's certificate chain. A server needs one."""

    key: str | Path | None = None
    """A PEM file with the certificate's private key."""

    ca: str | Path | None = None
    """A PEM file of the authorities that a client trusts; None for the system's."""

    verify: bool = True
    """Whether a client verifies the server's certificate; False accepts any, for tests only."""

    server_name: str | None = None
    """The name that the server's certificate must have; None for the host that the client connects to."""

    client_ca: str | Path | None = None
    """A server's: a PEM file of the authorities whose certificates clients must present; None asks for none. Only the backend
    ``aioquic`` can ask for them."""

    handshake_timeout: float = 15.0
    """How long to wait for the peer's connection headers before the connection is closed."""

    drain_timeout: float = 10.0
    """How long a server's handler may continue after its client has finished the entrypoint and closed, and how long channels
    may after the handler has returned. 0 gives them no time."""

    idle_timeout: float = 30.0
    """A connection on which nothing arrives for this long is lost. The shorter timeout of both sides holds."""

    keep_alive: float = 10.0
    """Send a ping, which the peer acknowledges, after this long without a packet, or after a third of the idle timeout in effect
    if that is sooner; 0 sends none. With the defaults a dead peer is noticed after 30 s, even if the application sends
    nothing."""

    max_datagram_size: int = 1200
    """UDP payload: 1200 works on every path; more is faster if the path allows it."""

    stream_window: int = 1 << 20
    """Flow control credit of one stream, beyond what was read."""

    connection_window: int = 16 << 20
    """Flow control credit of all streams together, beyond what was read."""

    max_streams: int = 1 << 14
    """Streams of each kind that the peer may have open. Each live channel needs one of the bidirectional kind."""

    max_connections: int = 1024
    """Connections that a server has at once; further handshakes are ignored. A handler that is still running after its
    connection ended counts as one. Up to 64 handshakes of clients with unproven addresses are not counted."""

    max_connections_per_address: int = 256
    """Of these, connections from one IPv4 address or IPv6 /64 network."""

    max_handlers: int = MAX_HANDLERS
    """Threads for a blocking server's handlers; further connections wait for a free one. Coroutines have no such limit."""

    max_handlers_per_address: int = MAX_HANDLERS_PER_ADDRESS
    """Of these, threads for one IPv4 address or IPv6 /64 network."""

    retry: bool = False
    """Whether a server responds to every first packet with a Retry, so that clients prove their address first. Otherwise it
    does so only while many handshakes are under way."""

    qlog_directory: str | Path | None = None
    """A directory in which the library writes a qlog file for each connection."""

    secrets_log: str | Path | None = None
    """A file for TLS secrets, for packet analyzers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds({"handshake_timeout": self.handshake_timeout, "idle_timeout": self.idle_timeout})
        check_seconds({"drain_timeout": self.drain_timeout, "keep_alive": self.keep_alive}, may_be_zero=True)
        least, most = DATAGRAM_SIZES
        check_int({"max_datagram_size": self.max_datagram_size}, min_value=least, max_value=most)
        bounds = ["stream_window", "connection_window", "max_streams", "max_connections", "max_connections_per_address"]
        bounds += ["max_handlers", "max_handlers_per_address"]
        check_int({name: getattr(self, name) for name in bounds}, min_value=1)
