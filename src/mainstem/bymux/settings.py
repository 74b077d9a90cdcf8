"""What both ends agree on before the first byte, and how much this end stores at most."""

from __future__ import annotations

from dataclasses import dataclass, field

from mainstem._internal.validation import check_int, check_seconds
from mainstem.bymux.codec import INFINITE, MAX_STREAM_ID
from mainstem.bymux.state import HalfState
from mainstem.errors import ConfigurationError
from mainstem.mux.settings import PING_TIMEOUT_S, ConnectionSettings

# Both halves of a window travel while a grant is on its way: enough for 1 GB/s at a quarter of a millisecond.
STREAM_WINDOW = 256 * 1024
# Streams that a peer may have at once. Times the window it bounds what one connection can make this end hold.
PEER_STREAMS = 1024
# A write packet's largest body: at 100 Mbit/s it occupies the line for 5 ms.
PACKET_LIMIT = 64 * 1024
MAX_PACKET_LIMIT = 1 << 30


@dataclass(frozen=True)
class InitialStream:
    """A stream that exists from the start (docs/protocols/bymux.md, 7).

    Args:
        stream_id: Its id.
        local_credit: Bytes that this end may send on it, or ``INFINITE``.
        peer_credit: Bytes that the peer may send on it, or ``INFINITE``.

    Example:
        >>> settings = Settings(initial_streams=(InitialStream(0, local_credit=256, peer_credit=256),))
    """

    stream_id: int
    local_credit: int = field(default=0, kw_only=True)
    peer_credit: int = field(default=0, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class Settings(ConnectionSettings):
    """A connection's configuration; the defaults are vanilla bymux.

    Both ends must agree on the starting credits, on ``initial_streams`` (with own and peer exchanged), on the initial global
    credits and on the initial halves. The rest is each end's own choice.

    Args:
        stream_window: Bytes that this end holds for each stream, and keeps granted by the rule of docs/protocols/bymux.md, 9.
            ``INFINITE`` gives infinite credit; 0 leaves granting to the caller.
        peer_streams: Streams that the peer may have at once; 0 leaves it to the caller.
        allow_at_start: Whether the first credit for streams is given at the start; else the caller gives it
            (``allow_streams``). It is restored in either case.
        packet_limit: Bytes of the largest Write, 1..2**30.
        read_limit: Bytes that one ``read(-1)`` collects at most (64 MiB); beyond it the read raises ``LimitExceeded``.
        control_limit: Bytes of responses that may wait because the peer does not read; beyond it the connection fails.
        local_initial_credit: Bytes of credit that this end has on a stream that it creates.
        peer_initial_credit: Bytes of credit that the peer has on a stream that it creates.
        initial_streams: Streams that exist from the start.
        initial_local_streams: Streams that this end may create at the start.
        initial_peer_streams: Streams that the peer may create at the start.
        initial_local_state: Which global ends count as sent by this end.
        initial_peer_state: Which global ends count as sent by the peer.
        ping_interval: Seconds without received data after which the peer is pinged (10); None switches heartbeats off.
        ping_timeout: Seconds after such a ping without received data until the peer is presumed dead (30), which ends the
            connection with ``Timeout``.
        stream_ping_interval: The same for each stream; None, the default, for no heartbeats of streams.
        stream_ping_timeout: The same for each stream.
        send_stream_pongs: Whether a pong is sent for pings on streams without the caller; for global ones it always is.
        mark_aborts: Whether the Close of an aborted stream has the bit that marks its data as incomplete. Turn it off for a
            peer that does not ignore unused bits.
        stall_timeout: Seconds without progress after which closing a stream gives up and aborts it (600); None for no limit.
        close_timeout: Seconds that closing waits for streams without progress, and for handlers that were cancelled (10).
        handshake_timeout: Seconds for TLS and for the peer's first byte (15); None for no limit.
        max_connections: Of a server: connections at once (1024), with those that are gone and whose handlers still run. A further
            one replaces a connection that has sent nothing yet, or is closed if there is no such connection.
        max_connections_per_address: Of these, from one IPv4 address or IPv6 /64 network (256); raise it where clients come
            through a proxy.
        max_handlers: Of a blocking server: threads at once, for handlers and ``on_connection`` (512). Streams beyond wait, and
            their peers run out of credit.
        max_handlers_per_address: Of these, for one address (128).
        certificate: A PEM file with this end's certificate chain. A server with one speaks TLS; a client presents it.
        key: A PEM file with the certificate's private key; None if it is in the same file.
        ca: Of a client: a PEM file of the authorities that it trusts; with it the client speaks TLS. For those of the system give
            ``ssl=ssl.create_default_context()``.
        client_ca: Of a server: a PEM file of the authorities whose certificates clients must present; None asks for none.

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
