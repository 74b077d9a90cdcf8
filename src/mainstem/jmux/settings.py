"""The limits and timeouts of a Jmux client or server."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem._internal.validation import check_int
from mainstem.errors import ConfigurationError
from mainstem.jmux.codec import MAX_LENGTH, RATION_UNIT
from mainstem.mux.settings import ConnectionSettings

# Maximum unread bytes of one session. Times 128 sessions, it limits a connection to 32 MiB.
INITIAL_RATION = 256 * 1024
# Maximum body of a Data message: at 100 Mbit/s, it occupies the link for little more than a millisecond.
FRAGMENT_LIMIT = 16 * 1024


@dataclass(frozen=True, kw_only=True)
class Settings(ConnectionSettings):
    """The limits and timeouts of a client or server and its connections.

    Args:
        initial_ration: Bytes that this end buffers for each session, a multiple of 256 up to 65535 * 256. 0 makes rations
            infinite, which forces this end to buffer everything that arrives.
        fragment_limit: Maximum body of a Data message in bytes, 1..65535.
        read_limit: Maximum bytes that one ``read(-1)`` collects (64 MiB). If there are more, the read raises ``LimitExceeded``.
        control_limit: Maximum bytes of responses queued because the peer does not read. If there are more, the connection fails.
        ping_interval: Seconds without received data after which the peer is pinged (10); None switches heartbeats off.
        ping_timeout: Seconds after such a ping without received data until the peer is presumed dead (30), which ends the
            connection with ``Timeout``.
        close_timeout: Seconds that closing waits for streams without progress, and for cancelled handlers (10).
        handshake_timeout: Seconds for the TLS handshake and the peer's connection header (15); None means no limit.
        stall_timeout: Seconds without progress after which a response that the client does not read is aborted (600); None means
            no limit.
        max_connections: Maximum number of connections at once. None means 8 for a client, each with 128 sessions, and 1024 for a
            server. At a server, an ended connection counts until its handlers have ended. Another connection replaces one that has
            sent nothing yet, or is closed if there is none.
        max_connections_per_address: For a server: maximum number of connections from one IPv4 address or IPv6 /64 network (256).
            Raise it if clients connect through a proxy.
        max_handlers: For a blocking server: maximum number of handlers that run at once (512), each in its own thread. Further
            requests wait.
        max_handlers_per_address: Maximum number of these for one address (128).
        certificate: A PEM file with this end's certificate chain. It makes a server use TLS; a client presents it.
        key: A PEM file with the certificate's private key; None if it is in the same file.
        ca: For a client: a PEM file of the authorities that it trusts, which makes the client use TLS. To trust the system's
            authorities, pass ``ssl=ssl.create_default_context()``.
        client_ca: For a server: a PEM file of the authorities that must have signed the clients' certificates; None requests no
            client certificates.

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
