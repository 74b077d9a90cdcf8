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

    Raises:
        ConfigurationError: A value is out of range, or an initial stream's id occurs twice.

    Example:
        >>> settings = Settings(stream_window=1 << 20, peer_streams=100)
    """

    stream_window: int = STREAM_WINDOW
    """Bytes that this end buffers for each stream, kept granted by the rule of docs/protocols/bymux.md, 9. ``INFINITE``
    gives infinite credit; 0 leaves granting credit to the caller."""

    peer_streams: int = PEER_STREAMS
    """Maximum number of streams that the peer can have at once; 0 leaves allowing streams to the caller."""

    allow_at_start: bool = True
    """Whether the first credit for streams is given at the start. If not, the caller gives it (``allow_streams``). In
    either case it is restored as streams end."""

    packet_limit: int = PACKET_LIMIT
    """Maximum size in bytes of a Write, 1..2**30."""

    local_initial_credit: int = 0
    """Bytes of credit that this end has on a stream that it creates."""

    peer_initial_credit: int = 0
    """Bytes of credit that the peer has on a stream that it creates."""

    initial_streams: tuple[InitialStream, ...] = ()
    """Streams that exist from the start."""

    initial_local_streams: int = 0
    """Number of streams that this end can create at the start."""

    initial_peer_streams: int = 0
    """Number of streams that the peer can create at the start."""

    initial_local_state: HalfState = HalfState.OPEN
    """Which of the global Close and StopRead count as already sent by this end."""

    initial_peer_state: HalfState = HalfState.OPEN
    """Which of the global Close and StopRead count as already sent by the peer."""

    stream_ping_interval: float | None = None
    """Like ``ping_interval``, for each stream; None, the default, switches stream heartbeats off."""

    stream_ping_timeout: float = PING_TIMEOUT_S
    """Like ``ping_timeout``, for each stream."""

    send_stream_pongs: bool = True
    """Whether pings on streams are answered automatically. Global pings always are."""

    mark_aborts: bool = True
    """Whether the Close of an aborted stream has a bit that marks its data as incomplete. Turn this off for a peer that
    does not ignore unused bits."""

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
