"""The limits and times of a Jmux client or server."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem._internal.validation import check_int
from mainstem.errors import ConfigurationError
from mainstem.jmux.codec import MAX_LENGTH, RATION_UNIT
from mainstem.mux.settings import ConnectionSettings

# Bytes of one session that wait unread here; times 128 sessions it bounds a connection at 32 MiB.
INITIAL_RATION = 256 * 1024
# A Data message's largest body: at 100 Mbit/s it occupies the line for little more than a millisecond.
FRAGMENT_LIMIT = 16 * 1024


@dataclass(frozen=True, kw_only=True)
class Settings(ConnectionSettings):
    """The limits and times of a client or server and its connections.

    Args:
        initial_ration: Bytes that this end holds for each session, a multiple of 256 up to 65535 * 256. 0 makes rations
            infinite, which obliges this end to hold whatever comes.
        fragment_limit: Bytes of the largest Data message, 1..65535.
        read_limit: Bytes that one ``read(-1)`` collects at most (64 MiB); beyond it the read raises ``LimitExceeded``.
        control_limit: Bytes of responses that may wait because the peer does not read; beyond it the connection fails.
        ping_interval: Seconds without received data after which the peer is pinged (10); None switches heartbeats off.
        ping_timeout: Seconds after such a ping without received data until the peer is presumed dead (30), which ends the
            connection with ``Timeout``.
        close_timeout: Seconds that closing waits for streams without progress, and for handlers that were cancelled (10).
        handshake_timeout: Seconds for TLS and for the peer's connection header (15); None for no limit.
        stall_timeout: Seconds without progress after which a response that the client does not take is aborted (600); None
            for no limit.
        max_connections: Connections at once; None for 8 of a client, each with 128 sessions, and for 1024 of a server. A
            connection that is gone counts while its handlers run. One that is too many replaces a connection that has sent nothing
            yet, or is closed if there is no such connection.
        max_connections_per_address: Of a server's connections, those from one IPv4 address or IPv6 /64 network (256); raise it
            where clients come through a proxy.
        max_handlers: Handlers that a blocking server runs at once (512), each in a thread of its own. Further requests wait.
        max_handlers_per_address: Of these, those that serve one address (128).
        certificate: A PEM file with this end's certificate chain. A server with one speaks TLS; a client presents it.
        key: A PEM file with the certificate's private key; None if it is in the same file.
        ca: Of a client: a PEM file of the authorities that it trusts; with it the client speaks TLS. For those of the system give
            ``ssl=ssl.create_default_context()``.
        client_ca: Of a server: a PEM file of the authorities whose certificates clients must present; None asks for none.

    Raises:
        ConfigurationError: A value is out of range.

    Example:
        >>> settings = Settings(initial_ration=1 << 20)
    """

    initial_ration: int = INITIAL_RATION
    fragment_limit: int = FRAGMENT_LIMIT

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int({"initial_ration": self.initial_ration}, min_value=0)
        units, rest = divmod(self.initial_ration, RATION_UNIT)
        if rest or units > 0xFFFF:
            raise ConfigurationError(
                f"initial_ration={self.initial_ration} is not a multiple of {RATION_UNIT} in 0..{0xFFFF * RATION_UNIT} bytes"
            )
        check_int({"fragment_limit": self.fragment_limit}, min_value=1, max_value=MAX_LENGTH)
