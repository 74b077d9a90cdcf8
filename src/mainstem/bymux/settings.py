"""Settings: the parameters on which both ends must agree before the first byte, and the limits on what this end stores."""

from __future__ import annotations

from dataclasses import dataclass, field

from mainstem._internal.validation import check_int, check_seconds
from mainstem.bymux.codec import INFINITE, MAX_STREAM_ID
from mainstem.bymux.state import HalfState
from mainstem.errors import ConfigurationError
from mainstem.mux.settings import PING_TIMEOUT_S, ConnectionSettings

# Both halves of a window are in flight while a grant is: enough for 1 GB/s at 250 µs.
STREAM_WINDOW = 256 * 1024
# Maximum number of streams that a peer can have at once. Times the window, it limits how much one connection makes this end hold.
PEER_STREAMS = 1024
# Maximum body of a Write packet: at 100 Mbit/s, it occupies the link for 5 ms.
PACKET_LIMIT = 64 * 1024
MAX_PACKET_LIMIT = 1 << 30


@dataclass(frozen=True)
class InitialStream:
    """A stream that exists from the start of a connection (docs/protocols/bymux.md, 7).

    Args:
        stream_id: The stream's id.
        local_credit: Bytes that this end can send on the stream, or ``INFINITE``.
        peer_credit: Bytes that the peer can send on the stream, or ``INFINITE``.

    Example:
        >>> settings = Settings(initial_streams=(InitialStream(0, local_credit=256, peer_credit=256),))
    """

    stream_id: int
    local_credit: int = field(default=0, kw_only=True)
    peer_credit: int = field(default=0, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class Settings(ConnectionSettings):
    """The configuration of a connection. The defaults are vanilla bymux.

    Both ends must agree on the initial credits, on ``initial_streams`` (with local and peer values swapped), on the initial global
    credits, and on the initial states. Each end chooses the other settings freely.

    Args:
        stream_window: Bytes that this end buffers for each stream, kept granted by the rule of docs/protocols/bymux.md, 9.
            ``INFINITE`` gives infinite credit; 0 leaves granting credit to the caller.
        peer_streams: Maximum number of streams that the peer can have at once; 0 leaves allowing streams to the caller.
        allow_at_start: Whether the first credit for streams is given at the start. If not, the caller gives it
            (``allow_streams``). In either case it is restored as streams end.
        packet_limit: Maximum size in bytes of a Write, 1..2**30.
        read_limit: Maximum bytes that one ``read(-1)`` collects (64 MiB). If there are more, the read raises ``LimitExceeded``.
        control_limit: Maximum bytes of responses queued because the peer does not read. If there are more, the connection fails.
        local_initial_credit: Bytes of credit that this end has on a stream that it creates.
        peer_initial_credit: Bytes of credit that the peer has on a stream that it creates.
        initial_streams: Streams that exist from the start.
        initial_local_streams: Number of streams that this end can create at the start.
        initial_peer_streams: Number of streams that the peer can create at the start.
        initial_local_state: Which of the global Close and StopRead count as already sent by this end.
        initial_peer_state: Which of the global Close and StopRead count as already sent by the peer.
        ping_interval: Seconds without received data after which the peer is pinged (10); None switches heartbeats off.
        ping_timeout: Seconds after such a ping without received data until the peer is presumed dead (30), which ends the
            connection with ``Timeout``.
        stream_ping_interval: Like ``ping_interval``, for each stream; None, the default, switches stream heartbeats off.
        stream_ping_timeout: Like ``ping_timeout``, for each stream.
        send_stream_pongs: Whether pings on streams are answered automatically. Global pings always are.
        mark_aborts: Whether the Close of an aborted stream has a bit that marks its data as incomplete. Turn this off for a
            peer that does not ignore unused bits.
        stall_timeout: Seconds without progress after which closing a stream aborts it (600); None means no limit.
        close_timeout: Seconds that closing waits for streams without progress, and for cancelled handlers (10).
        handshake_timeout: Seconds for the TLS handshake and the peer's first byte (15); None means no limit.
        max_connections: For a server: maximum number of connections at once (1024), including ended connections with running
            handlers. Another connection replaces one that has sent nothing yet, or is closed if there is none.
        max_connections_per_address: Maximum number of these from one IPv4 address or IPv6 /64 network (256). Raise it if clients
            connect through a proxy.
        max_handlers: For a blocking server: maximum number of threads for handlers and ``on_connection`` (512). Further streams
            wait, and their peers run out of credit.
        max_handlers_per_address: Maximum number of these for one address (128).
        certificate: A PEM file with this end's certificate chain. It makes a server use TLS; a client presents it.
        key: A PEM file with the certificate's private key; None if it is in the same file.
        ca: For a client: a PEM file of the authorities that it trusts, which makes the client use TLS. To trust the system's
            authorities, pass ``ssl=ssl.create_default_context()``.
        client_ca: For a server: a PEM file of the authorities that must have signed the clients' certificates; None requests no
            client certificates.

    Raises:
        ConfigurationError: A value is out of range, or an initial stream's id occurs twice.

    Example:
        >>> settings = Settings(stream_window=1 << 20, peer_streams=100)
    """

    stream_window: int = STREAM_WINDOW
    peer_streams: int = PEER_STREAMS
    allow_at_start: bool = True
    packet_limit: int = PACKET_LIMIT
    local_initial_credit: int = 0
    peer_initial_credit: int = 0
    initial_streams: tuple[InitialStream, ...] = ()
    initial_local_streams: int = 0
    initial_peer_streams: int = 0
    initial_local_state: HalfState = HalfState.OPEN
    initial_peer_state: HalfState = HalfState.OPEN
    stream_ping_interval: float | None = None
    stream_ping_timeout: float = PING_TIMEOUT_S
    send_stream_pongs: bool = True
    mark_aborts: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        amounts = ("stream_window", "peer_streams", "local_initial_credit", "peer_initial_credit")
        streams = ("initial_local_streams", "initial_peer_streams")
        check_int({name: getattr(self, name) for name in (*amounts, *streams)}, min_value=0, max_value=INFINITE)
        check_int({"packet_limit": self.packet_limit}, min_value=1, max_value=MAX_PACKET_LIMIT)
        check_seconds({"stream_ping_interval": self.stream_ping_interval}, may_be_none=True)
        check_seconds({"stream_ping_timeout": self.stream_ping_timeout})
        seen: set[int] = set()
        for stream in self.initial_streams:
            check_int({"initial stream id": stream.stream_id}, min_value=0, max_value=MAX_STREAM_ID)
            if stream.stream_id in seen:
                raise ConfigurationError(f"initial stream id {stream.stream_id} is given twice")
            check_int(
                {"local_credit": stream.local_credit, "peer_credit": stream.peer_credit},
                min_value=0,
                max_value=INFINITE,
            )
            seen.add(stream.stream_id)
