"""The settings that both multiplexers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._internal.handler_threads import MAX_HANDLERS, MAX_HANDLERS_PER_ADDRESS
from mainstem._internal.validation import check_int, check_seconds

if TYPE_CHECKING:
    from pathlib import Path

# Maximum bytes of responses (Pong, StopRead, Credit, PingAck, Abort) queued because the peer does not read. If there are more,
# the connection ends.
CONTROL_LIMIT = 1024 * 1024

# Maximum number of bytes that one read(-1) collects.
READ_ALL_LIMIT = 64 * 1024 * 1024

# A reader may pause, because of a page of output or a busy disk. One that takes nothing for this many seconds is not coming
# back. Until then, it occupies one window of memory, a stream, and the stream's handler.
STALL_TIMEOUT_S = 600.0

# Seconds that closing waits for streams that make no progress, and for cancelled handlers.
CLOSE_TIMEOUT_S = 10.0

# A peer that has sent nothing for the first interval is pinged. If it also sends nothing for the second, it is presumed dead.
# This is long enough for a process that is stopped for a moment, and short enough that a lost peer does not hold streams and
# handlers for long.
PING_INTERVAL_S = 10.0
PING_TIMEOUT_S = 30.0

# Maximum number of connections that one server has at once. Each can use as much memory as its windows allow.
MAX_CONNECTIONS = 1024
# Maximum number of these from one address. Streams share a connection, so a host needs few.
MAX_CONNECTIONS_PER_ADDRESS = 256
# Seconds for the TLS handshake and the peer's first byte, which Mainstem's clients send immediately.
HANDSHAKE_TIMEOUT_S = 15.0


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """The settings that both multiplexers share."""

    control_limit: int = CONTROL_LIMIT
    """Maximum bytes of responses queued because the peer does not read. If there are more when further data arrives, the
    connection fails."""

    read_limit: int = READ_ALL_LIMIT
    """Maximum bytes that one ``read(-1)`` collects. If there are more, the read raises ``LimitExceeded``."""

    ping_interval: float | None = PING_INTERVAL_S
    """Seconds without received data after which the peer is pinged; None switches heartbeats off."""

    ping_timeout: float = PING_TIMEOUT_S
    """Seconds after such a ping without received data until the peer is presumed dead, which ends the connection with
    ``Timeout``."""

    stall_timeout: float | None = STALL_TIMEOUT_S
    """Seconds without progress after which a stream that closes, or a Jmux response that its client does not read, is
    aborted; None means no limit."""

    close_timeout: float = CLOSE_TIMEOUT_S
    """Seconds that closing waits for streams without progress, and for cancelled handlers."""

    handshake_timeout: float | None = HANDSHAKE_TIMEOUT_S
    """Seconds for the TLS handshake and the peer's first bytes; None means no limit."""

    max_connections: int | None = None
    """Maximum number of connections at once. None means 1024 for a server, and 8 for a Jmux client, each with 128 sessions.
    At a server, an ended connection counts until its handlers have ended. Another connection replaces one that has sent
    nothing yet, or is closed if there is none."""

    max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS
    """For a server: maximum number of these from one IPv4 address or IPv6 /64 network. Raise it if clients connect through
    a proxy."""

    max_handlers: int = MAX_HANDLERS
    """For a blocking server: maximum number of threads for handlers. Further streams and requests wait."""

    max_handlers_per_address: int = MAX_HANDLERS_PER_ADDRESS
    """Maximum number of these for one address."""

    certificate: str | Path | None = None
    """A PEM file with this end's certificate chain. It makes a server use TLS; a client presents it."""

    key: str | Path | None = None
    """A PEM file with the certificate's private key; None if it is in the same file."""

    ca: str | Path | None = None
    """For a client: a PEM file of the authorities that it trusts, which makes the client use TLS. To trust the system's
    authorities, pass ``ssl=True``."""

    client_ca: str | Path | None = None
    """For a server: a PEM file of the authorities that must have signed the clients' certificates; None requests no client
    certificates."""

    def __post_init__(self) -> None:
        limits = (
            "control_limit",
            "read_limit",
            "max_connections_per_address",
            "max_handlers",
            "max_handlers_per_address",
        )
        check_int({name: getattr(self, name) for name in limits}, min_value=1)
        if self.max_connections is not None:
            check_int({"max_connections": self.max_connections}, min_value=1)
        times = ("ping_interval", "stall_timeout", "handshake_timeout")
        check_seconds({name: getattr(self, name) for name in times}, may_be_none=True)
        check_seconds({"ping_timeout": self.ping_timeout, "close_timeout": self.close_timeout})
