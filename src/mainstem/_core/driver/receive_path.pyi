# Written from receive_path.py by tools/write_core_stubs.py: edit that file, then run the tool.
from typing_extensions import Buffer

from mainstem._core.driver.backing import Backing
from mainstem._core.driver.datagram import Address, Transport
from mainstem._core.driver.events import EventBuffer
from mainstem._core.driver.loss_detector import LossDetector
from mainstem._core.driver.positions import PositionSet
from mainstem._core.driver.table import PathTable
from mainstem._core.memory.buffer import AtomicBuffer

FIRST_TRANSPORTS: int
FIRST_CONNECTIONS: int
CONNECTION_COLUMNS: int

class Silence:
    """A session whose data is not reported until ``until_ns``; an entry of ``ReceiveEndpointCore.silences``."""

    until_ns: int
    def __init__(self, until_ns: int) -> None: ...

class ReceiveEndpointCore:
    """The sockets of a subscription's channel. Used by the receiver's thread only.

    ``paths`` leads from (session, stream) to an image's path, ``interests`` holds (stream, 0) of subscribed streams, and
    ``silences`` sessions that are known to Python and not to be reported. The timestamp offsets say where in each message's
    payload the time goes at which the kernel (media) or this driver (channel) received it: -1 nowhere, -8 into the reserved value.
    """

    paths: PathTable
    interests: PathTable
    silences: PathTable
    key: int
    last_packet_ns: int
    media_timestamp_offset: int
    channel_timestamp_offset: int
    def __init__(self, counters: AtomicBuffer, key: int = 0) -> None: ...
    def add_transport(self, transport: Transport) -> int:
        """Takes a socket in and returns its index."""
    def remove_transport(self, index: int) -> Transport | None: ...
    def transport(self, index: int) -> Transport | None: ...

class ReceivePath:
    """One image's way from the network into its log (docs/protocols/aeron.md, 15.3 to 15.5).

    ``high_water_mark`` and ``receiver_position`` of the constructor are counter ids; the path sets both to ``join_position``. It
    validates and inserts datagrams, asks for what is missing, moves rcv-hwm and rcv-pos, cleans behind the consumers,
    schedules and sends status messages, and writes the end of the stream into the log's metadata.

    ``draining`` puts the EOS flag into status messages, ``rejected`` stops insertion and status messages, ``status_events``
    reports each status message's time to Python, ``reports_loss_at_once`` does not gather losses for 10 ms first; all may be
    set from any thread. ``window_length`` is what the next status message offers.
    """

    log: AtomicBuffer
    subscribers: PositionSet
    session_id: int
    stream_id: int
    initial_term_id: int
    mtu: int
    term_length: int
    join_position: int
    key: int
    window_length: int
    force_status: bool
    draining: bool
    revoked: bool
    rejected: bool
    status_events: bool
    reports_loss_at_once: bool
    backing: Backing | None
    detector: LossDetector
    status_interval_ns: int
    connection_timeout_ns: int
    gap_scan_interval_ns: int
    next_python_ns: int
    last_packet_ns: int
    rebuild_position: int
    high_water_mark: int
    end_of_stream_position: int
    clean_position: int
    last_status_position: int
    status_messages_sent: int
    connections: int
    def __init__(
        self,
        log: AtomicBuffer,
        counters: AtomicBuffer,
        session_id: int,
        stream_id: int,
        initial_term_id: int,
        term_length: int,
        mtu: int,
        join_position: int,
        window_length: int,
        receiver_id: int,
        high_water_mark: int,
        receiver_position: int,
        group_tag: int | None = None,
        now_ns: int = 0,
    ) -> None: ...
    def attach(self, endpoint: ReceiveEndpointCore, events: EventBuffer) -> None:
        """Sets through which sockets the image arrives, and where its events go; the cycle does not check for None."""
    def add_connection(
        self, transport: Transport, index: int, control: Address, source: Address | None, now_ns: int
    ) -> bool:
        """Adds a connection to a sender; False when it was known (then it is refreshed), or this socket has 16 that live.

        Control frames go to ``control`` through ``transport``; datagrams of that socket (``index``), from ``source`` where one is
        given, keep it alive.
        """
    def remove_transport(self, index: int, now_ns: int) -> None:
        """Forgets the connections through a socket that is going away."""
    def connection_count(self, now_ns: int) -> int:
        """Connections that live."""
    def send_frame(self, frame: Buffer, now_ns: int) -> int:
        """Sends a control frame to every connection that lives; to how many it left."""
    def set_loss_detector(self, detector: LossDetector, is_reliable: bool = True) -> None:
        """How gaps are timed, in place of the unicast defaults, and whether they are asked for or filled with padding."""
    def set_nak_counter(self, counter_id: int) -> None:
        """Counts the requests of this image there, besides the system's own counter."""
    def status_now(self) -> None:
        """The next cycle sends a status message whether one is due or not."""
