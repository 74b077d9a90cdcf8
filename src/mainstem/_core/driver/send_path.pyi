# Written from send_path.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Callable

from typing_extensions import Buffer

from mainstem._core.driver.backing import Backing
from mainstem._core.driver.datagram import Address, Transport
from mainstem._core.driver.destinations import DestinationList
from mainstem._core.driver.events import EventBuffer
from mainstem._core.driver.positions import PositionSet
from mainstem._core.driver.receivers import ReceiverTable
from mainstem._core.driver.retransmit import RetransmitHandler
from mainstem._core.driver.table import PathTable
from mainstem._core.memory.buffer import AtomicBuffer

class SendEndpointCore:
    """The socket of a publication's channel: data out to one destination or to ``many``, control frames in.

    ``destination`` None means the address the socket is connected to. Used by the sender's thread only.
    """

    transport: Transport
    paths: PathTable
    key: int
    many: bool
    destinations: DestinationList
    last_status_ns: int
    def __init__(
        self,
        transport: Transport,
        counters: AtomicBuffer,
        key: int = 0,
        many: bool = False,
        destination: Address | None = None,
    ) -> None: ...
    def set_destination(self, destination: Address | None) -> None: ...
    def send_frame(self, frame: Buffer, only: Address | None = None) -> bool:
        """One frame to ``only`` or to every destination; True when it left for all of them."""

class SendPath:
    """One network publication's way from its log to the network (docs/protocols/aeron.md, 11.6 and 14).

    The last arguments of the constructor are counter ids; those counters must hold the start position already. The path
    moves pub-lmt, pub-pos, snd-pos, snd-lmt and snd-bpe, cleans the log and writes is-connected by itself.

    ``draining``, ``end_of_stream`` and ``revoked`` may be set from any thread; positions may be read from any thread.
    ``tracks_minimum`` makes the limit the least of the counted receivers' (else it only rises), ``limit_frozen`` holds it,
    ``limit_cap`` bounds it; ``timestamp_offset`` is where in each message's payload the time of sending goes (-1 nowhere, -8 into
    the reserved value); ``group_ready`` says that flow control has the receivers it requires.
    """

    log: AtomicBuffer
    backing: Backing | None
    spies: PositionSet
    endpoint: SendEndpointCore
    destination: Address | None
    session_id: int
    stream_id: int
    initial_term_id: int
    mtu: int
    term_length: int
    window_length: int
    publisher_limit: int
    sender_position: int
    sender_limit: int
    clean_position: int
    last_send_ns: int
    last_status_ns: int
    table: ReceiverTable
    retransmit: RetransmitHandler
    connected: bool
    key: int
    on_resend: Callable[[int, int], None] | None
    draining: bool
    end_of_stream: bool
    revoked: bool
    spies_simulate_connection: bool
    group_ready: bool
    limit_frozen: bool
    tracks_minimum: bool
    has_initial_connection: bool
    setup_elicited: bool
    received_unicast_eos: bool
    limit_cap: int
    timestamp_offset: int
    setup_due_ns: int
    setup_interval_ns: int
    heartbeat_interval_ns: int
    receiver_timeout_ns: int
    next_python_ns: int
    def __init__(
        self,
        log: AtomicBuffer,
        counters: AtomicBuffer,
        session_id: int,
        stream_id: int,
        initial_term_id: int,
        term_length: int,
        mtu: int,
        window_length: int,
        publisher_limit: int,
        publisher_position: int,
        sender_position: int,
        sender_limit: int,
        back_pressure: int,
        max_runs: int = 16,
        spies_simulate_connection: bool = False,
        now_ns: int = 0,
    ) -> None: ...
    def attach(self, endpoint: SendEndpointCore, events: EventBuffer) -> None:
        """Sets through which socket the stream goes, and where its events do; the cycle checks neither for None."""
    def set_destination(self, destination: Address | None) -> None:
        """Only there from now on, whatever the endpoint's destinations are (response channels)."""
    @property
    def receiver_count(self) -> int:
        """How many receivers live."""
    @property
    def has_receivers(self) -> bool:
        """At least one receiver lives."""
    def send_setup(self, flags: int, ttl: int) -> bool:
        """Sends a SETUP frame with the place where the stream is now; True when it left."""
    def heartbeat_now(self) -> None:
        """The next idle cycle sends a heartbeat whether one is due or not."""
    def add_receiver(self, receiver_id: int, edge: int, now_ns: int, counts: bool = True) -> bool:
        """A receiver that allows sending up to position ``edge``; False when MAX_RECEIVERS are tracked already.

        ``counts`` is false for a receiver that lives but has no say in flow control.
        """
    def remove_receiver(self, receiver_id: int) -> bool:
        """False when it was not known."""
    def discount_receiver(self, receiver_id: int) -> bool:
        """It lives on without a say in flow control; False when it was not known."""
    def receivers(self) -> list[tuple[int, int, int, bool]]:
        """(receiver id, edge, last heard of, counts) of each."""
    def clamp_limit(self, position: int) -> None:
        """Pulls the publishers' limit down to ``position`` if it is above."""
    def producer_position(self) -> int:
        """Where the producers are, from the tail."""
    def set_retransmit(self, retransmit: RetransmitHandler) -> None:
        """Sets how NAKs are served, in place of the unicast defaults; before the path is driven."""
    def set_nak_counter(self, counter_id: int) -> None:
        """Counts the requests for this publication there, besides the system's own counter."""
    def resend(self, position: int, length: int) -> int:
        """Sends a range again, whole frames of it; the bytes that left. Nothing at or behind the sender's position is sent."""
