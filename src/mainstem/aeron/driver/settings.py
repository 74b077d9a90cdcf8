"""The settings of the media driver (docs/protocols/aeron.md, 24), under the reference's environment names.

The name of an attribute is that of its environment variable in lower case, without ``AERON_``. Durations end in ``_ns``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, ClassVar

from mainstem._core import layout
from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND, NS_PER_US
from mainstem._internal.file_modes import ACCEPTED_MODE, is_mode
from mainstem._internal.validation import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from mainstem.aeron.admission import networks
from mainstem.aeron.channel_values import FlowControlStrategy
from mainstem.aeron.directory import user_directory
from mainstem.aeron.idle import idle_strategy, is_idle_strategy
from mainstem.errors import ConfigurationError
from mainstem.settings import Settings, boolean, choice, duration, fraction, integer, size, text

__all__ = ["DriverSettings", "GroupConsideration", "TerminationValidator", "ThreadNaming", "ThreadingMode"]

MAX_IO_VECTORS = 16  # the capacity of the reference's batches
# The number of datagrams or runs that one vector of the reference stands for in this driver. It gains from longer batches because
# it makes decisions in Python; the datagrams are the same.
DATAGRAMS_PER_VECTOR = 4
MAX_RESEND = 256  # the capacity of the reference's retransmit pool
MAX_BOOTSTRAP_NEIGHBORS = 20
KIB, MIB = 1 << 10, 1 << 20
NATIVE_AGENT = "driver_native_resource_agent"
IDLE_AGENTS = ("conductor", "sender", "receiver", "shared", "sharednetwork", NATIVE_AGENT)
NAME_RESOLVERS = ("default", "driver", "csv_table")
# The reference's names, and the symbols that its C driver accepts in their place.
FLOW_CONTROL_SUPPLIERS = {
    "unicast_max": FlowControlStrategy.MAX,
    "multicast_max": FlowControlStrategy.MAX,
    "multicast_min": FlowControlStrategy.MIN,
    "multicast_tagged": FlowControlStrategy.TAGGED,
    "aeron_unicast_flow_control_strategy_supplier": FlowControlStrategy.MAX,
    "aeron_max_multicast_flow_control_strategy_supplier": FlowControlStrategy.MAX,
    "aeron_min_flow_control_strategy_supplier": FlowControlStrategy.MIN,
    "aeron_tagged_flow_control_strategy_supplier": FlowControlStrategy.TAGGED,
}
CONGESTION_CONTROL_SUPPLIERS = {
    "default": "default",
    "static": "static",
    "cubic": "cubic",
    "aeron_congestion_control_default_strategy_supplier": "default",
    "aeron_static_window_congestion_control_strategy_supplier": "static",
    "aeron_cubic_congestion_control_strategy_supplier": "cubic",
}
FLOW_CONTROL = "unicast_max, multicast_max, multicast_min or multicast_tagged"
CONGESTION_CONTROL = "default, static or cubic"
NETWORKS = "addresses and networks, as in 192.0.2.0/24, separated by commas"
INTERCEPTORS = "loss, fixed-loss, multi-gap-loss, separated by commas"
NATIVE_AGENT_SLEEP = "1ms"
IDLE_ARGUMENTS = "Arguments of that strategy, as in 10-20-1us-1ms for backoff and 1ms for sleep-ns."
IDLE = "backoff, spin, noop, yield or sleep-ns"


class ThreadingMode(StrEnum):
    """Which agents share a thread. With INVOKER, the application runs all of them by calling ``do_work``."""

    DEDICATED = "DEDICATED"
    SHARED_NETWORK = "SHARED_NETWORK"
    SHARED = "SHARED"
    INVOKER = "INVOKER"


class ThreadNaming(StrEnum):
    """The names of the driver's threads: ``driver-conductor`` with CLASSIC, the reference's ``aeron-md-cnd`` with NEW."""

    CLASSIC = "classic"
    NEW = "new"


class GroupConsideration(StrEnum):
    """Whether receivers handle loss as in a group. INFER follows the channel and the sender's SETUP."""

    TRUE = "true"
    FALSE = "false"
    INFER = "infer"


class TerminationValidator(StrEnum):
    """Whether clients may terminate the driver."""

    DENY = "deny"
    ALLOW = "allow"


def port_range(value: str) -> tuple[int, int] | None:
    """Return the first and last port of a range such as ``20700 20799``.

    Return None if the value isn't a range, or is ``0 0``, with which the system chooses ports.
    """
    match = re.fullmatch(r"\s*([0-9]{1,5})\s+([0-9]{1,5})\s*", value)
    if match is None:
        return None
    low, high = int(match[1]), int(match[2])
    return (low, high) if 1 <= low <= high <= 65535 else None


def _is_port_range(value: str) -> bool:
    return port_range(value) is not None or value.split() == ["0", "0"]


def _are_neighbors(value: str) -> bool:
    return len([part for part in value.split(",") if part.strip()]) <= MAX_BOOTSTRAP_NEIGHBORS


def _are_networks(value: str) -> bool:
    try:
        networks(value)
    except ConfigurationError:
        return False
    return True


def _idle_strategy(agent: str) -> Any:
    return text("backoff", f"What the {agent} does without work.", accepts=IDLE, fits=is_idle_strategy)


def _cpu_affinity(agent: str) -> Any:
    return integer(-1, f"The processor that the {agent}'s thread is bound to; -1 for any.", low=-1, high=4095)


def _wildcard_ports(agent: str) -> Any:
    return text(
        None,
        f"Ports that the {agent} takes for port 0; unset: the system's own.",
        accepts="a first and a last port, as in 20700 20799",
        fits=_is_port_range,
    )


class DriverSettings(Settings):
    """The settings of a media driver. Sizes are in bytes, durations in nanoseconds; the TOML table is ``[driver]``.

    ``mainstem config explain`` prints the meaning, default and limits of each one; ``explain`` returns the same.

    Example:
        >>> settings = DriverSettings.load(threading_mode="SHARED", term_buffer_length="4m")
        >>> driver = MediaDriver.launch(settings=settings)
    """

    SECTION: ClassVar[str] = "driver"
    ENV_PREFIX: ClassVar[str] = "AERON_"
    CLAMPS: ClassVar[bool] = True

    # The directory and its files.
    dir: str = text(user_directory, "The driver's directory.", accepts="the path of a directory")
    dir_delete_on_start: bool = boolean(
        False, "Whether a directory that is there is deleted at start whatever is in it."
    )
    dir_delete_on_shutdown: bool = boolean(False, "Whether the directory is deleted at a clean end.")
    dir_warn_if_exists: bool = boolean(False, "Whether a directory that is there at start is worth a warning.")
    dir_mode: str | None = text(
        None,
        "The mode of the directory; its files have it too, without x. Unset: 0777 less the umask.",
        accepts=ACCEPTED_MODE,
        fits=is_mode,
    )
    dir_group: str = text(
        "", "The group of the directory and its files. Unset: the driver's.", accepts="a group's name or number"
    )
    conductor_buffer_length: int = size(
        MIB + layout.RING_TRAILER_LENGTH,
        "Commands' buffer: a power of two and its trailer of 768.",
        high=INT32_MAX,
        clamp=(MIB + layout.RING_TRAILER_LENGTH, INT32_MAX),
    )
    clients_buffer_length: int = size(
        MIB + layout.BROADCAST_TRAILER_LENGTH,
        "Responses' buffer: a power of two and its trailer of 128.",
        high=INT32_MAX,
        clamp=(MIB + layout.BROADCAST_TRAILER_LENGTH, INT32_MAX),
    )
    counters_buffer_length: int = size(8 * MIB, "Counter values, 128 bytes a counter.", low=MIB, high=500 * MIB)
    error_buffer_length: int = size(
        4 * MIB, "Distinct errors.", low=64 * KIB, high=INT32_MAX, clamp=(4 * MIB, INT32_MAX)
    )
    loss_report_buffer_length: int = size(MIB, "The loss report.", low=KIB, high=INT32_MAX)
    file_page_size: int = size(
        4 * KIB,
        "The page size that files are rounded up to.",
        low=4 * KIB,
        high=1 << 30,
        power_of_two=True,
        clamp=(4 * KIB, INT32_MAX),
    )
    term_buffer_sparse_file: bool = boolean(True, "Whether logs take their memory only as they are written.")
    perform_storage_checks: bool = boolean(
        True, "Whether a new log needs free space for itself and for the unallocated parts of sparse logs."
    )
    low_file_store_warning_threshold: int = size(160 * MIB, "Free space below which a warning is given.")
    # Agents.
    threading_mode: ThreadingMode = choice(
        ThreadingMode.DEDICATED, "Which of conductor, sender and receiver share a thread."
    )
    conductor_idle_strategy: str = _idle_strategy("conductor")
    conductor_idle_strategy_init_args: str = text("", IDLE_ARGUMENTS)
    sender_idle_strategy: str = _idle_strategy("sender")
    sender_idle_strategy_init_args: str = text("", IDLE_ARGUMENTS)
    receiver_idle_strategy: str = _idle_strategy("receiver")
    receiver_idle_strategy_init_args: str = text("", IDLE_ARGUMENTS)
    shared_idle_strategy: str = _idle_strategy("shared agent")
    shared_idle_strategy_init_args: str = text("", IDLE_ARGUMENTS)
    sharednetwork_idle_strategy: str = _idle_strategy("shared network agent")
    sharednetwork_idle_strategy_init_args: str = text("", IDLE_ARGUMENTS)
    driver_native_resource_agent_idle_strategy: str = text(
        "sleep-ns",
        "Accepted, and without effect: files and names are the conductor's work here, and idle as it does.",
        accepts=IDLE,
        fits=is_idle_strategy,
    )
    driver_native_resource_agent_idle_strategy_init_args: str = text(NATIVE_AGENT_SLEEP, IDLE_ARGUMENTS)
    conductor_cpu_affinity: int = _cpu_affinity("conductor")
    sender_cpu_affinity: int = _cpu_affinity("sender")
    receiver_cpu_affinity: int = _cpu_affinity("receiver")
    driver_native_resource_agent_cpu_affinity: int = integer(
        -1, "Accepted, and without effect: files and names are the conductor's work here.", low=-1, high=4095
    )
    driver_cpuset_affinity: bool = boolean(
        False, "Whether those numbers count the processors of the cpuset of the driver's control group (version 2)."
    )
    driver_cpuset_warnings_as_errors: bool = boolean(
        False, "Whether a cpuset that splits cores, dies or L3 caches is refused; by default it is a warning."
    )
    driver_conductor_cycle_threshold_ns: int = duration(
        100 * NS_PER_MS, "How long a duty cycle of the conductor may take before it is counted."
    )
    driver_sender_cycle_threshold_ns: int = duration(
        100 * NS_PER_MS, "How long a duty cycle of the sender may take before it is counted."
    )
    driver_receiver_cycle_threshold_ns: int = duration(
        100 * NS_PER_MS, "How long a duty cycle of the receiver may take before it is counted."
    )
    driver_name_resolver_threshold_ns: int = duration(
        5 * NS_PER_SECOND, "How long resolving a name may take before it is counted."
    )
    driver_resource_free_limit: int = integer(
        1, "How many resources the conductor frees in one duty cycle.", low=1, high=INT32_MAX
    )
    thread_naming: ThreadNaming = choice(
        ThreadNaming.CLASSIC, "How the driver's threads are named; new: as in the reference, aeron-md-cnd and so on."
    )
    timer_interval_ns: int = duration(
        NS_PER_SECOND, "How often the conductor checks timeouts.", low=1, clamp=(NS_PER_US, INT64_MAX)
    )
    # Liveness and termination.
    driver_timeout_ns: int = duration(
        10 * NS_PER_SECOND,
        "How old the driver's heartbeat may be before the driver counts as dead.",
        low=NS_PER_MS,
        plain_unit="ms",
    )
    client_liveness_timeout_ns: int = duration(
        10 * NS_PER_SECOND, "How long a client may be silent; above the timer interval.", low=NS_PER_US
    )
    image_liveness_timeout_ns: int = duration(
        10 * NS_PER_SECOND, "How long an image stays without a packet of its sender.", low=NS_PER_US
    )
    publication_unblock_timeout_ns: int = duration(
        15 * NS_PER_SECOND,
        "When a claim that is never committed is turned into padding; above the client liveness timeout.",
        low=NS_PER_US,
    )
    publication_connection_timeout_ns: int = duration(
        5 * NS_PER_SECOND, "How long a publication stays connected without a status message.", low=NS_PER_US
    )
    publication_linger_timeout_ns: int = duration(
        5 * NS_PER_SECOND, "How long a drained publication stays to retransmit.", clamp=(NS_PER_US, INT64_MAX)
    )
    counters_free_to_reuse_timeout_ns: int = duration(NS_PER_SECOND, "How long a freed counter rests.")
    driver_termination_validator: TerminationValidator = choice(
        TerminationValidator.DENY, "Whether a client may end the driver."
    )
    print_configuration: bool = boolean(False, "Whether the driver prints its settings at start.")
    # Publications.
    term_buffer_length: int = size(
        16 * MIB,
        "Term of a network publication.",
        low=layout.TERM_MIN_LENGTH,
        high=layout.TERM_MAX_LENGTH,
        power_of_two=True,
        clamp=(KIB, INT32_MAX),
    )
    ipc_term_buffer_length: int = size(
        64 * MIB,
        "Term of an IPC publication.",
        low=layout.TERM_MIN_LENGTH,
        high=layout.TERM_MAX_LENGTH,
        power_of_two=True,
        clamp=(KIB, INT32_MAX),
    )
    mtu_length: int = size(
        1408,
        "The largest datagram's payload.",
        low=layout.MTU_MIN_LENGTH,
        high=layout.MTU_MAX_LENGTH,
        multiple=layout.FRAME_ALIGNMENT,
        clamp=(layout.DATA_HEADER_LENGTH, layout.MTU_MAX_LENGTH),
    )
    ipc_mtu_length: int = size(
        1408,
        "The largest frame of an IPC publication.",
        low=layout.MTU_MIN_LENGTH,
        high=layout.MTU_MAX_LENGTH,
        multiple=layout.FRAME_ALIGNMENT,
        clamp=(layout.DATA_HEADER_LENGTH, layout.MTU_MAX_LENGTH),
    )
    publication_term_window_length: int = size(
        0, "How far a publisher may be ahead, half a term at most; 0 for half a term.", high=layout.TERM_MAX_LENGTH
    )
    ipc_publication_term_window_length: int = size(0, "The same for IPC publications.", high=layout.TERM_MAX_LENGTH)
    publication_reserved_session_id_low: int = integer(
        -1, "First session id that is never given out.", low=INT32_MIN, high=INT32_MAX
    )
    publication_reserved_session_id_high: int = integer(
        1000, "Last session id that is never given out.", low=INT32_MIN, high=INT32_MAX
    )
    spies_simulate_connection: bool = boolean(False, "Whether spies alone make a publication connected.")
    network_publication_max_messages_per_send: int = integer(
        4,
        "Batches of datagrams that one publication sends in a duty cycle; a batch is four, or four runs of equal ones.",
        low=1,
        high=MAX_IO_VECTORS,
    )
    send_to_status_poll_ratio: int = integer(
        6, "Duty cycles with sends between two polls of the control socket.", low=1, high=INT32_MAX
    )
    # Flow control and retransmission.
    unicast_flowcontrol_supplier: str = text(
        "unicast_max", "Flow control to one receiver.", accepts=FLOW_CONTROL, fits=FLOW_CONTROL_SUPPLIERS.__contains__
    )
    multicast_flowcontrol_supplier: str = text(
        "multicast_max",
        "Flow control to several receivers if the channel has no fc.",
        accepts=FLOW_CONTROL,
        fits=FLOW_CONTROL_SUPPLIERS.__contains__,
    )
    flow_control_group_tag: int = integer(
        -1, "Tag of the receivers that count in tagged flow control.", low=INT64_MIN, high=INT64_MAX
    )
    flow_control_group_min_size: int = integer(
        0, "Receivers that a group needs before it is connected.", low=0, high=INT32_MAX
    )
    flow_control_receiver_timeout_ns: int = duration(5 * NS_PER_SECOND, "How long a silent receiver still counts.")
    unicast_flow_control_rrwm: int = integer(
        16, "Windows that one request of a receiver may have sent again, to one receiver.", low=1, high=INT32_MAX
    )
    multicast_flow_control_rrwm: int = integer(
        4, "The same with several receivers, if the channel's fc has no rrwm.", low=1, high=INT32_MAX
    )
    retransmit_unicast_delay_ns: int = duration(0, "How long a retransmission waits.")
    retransmit_unicast_linger_ns: int = duration(
        10 * NS_PER_MS, "How long a repeated request for the same is ignored.", clamp=(NS_PER_US, INT64_MAX)
    )
    retransmit_rate: int = size(
        16 * MIB,
        "Bytes that a stream sends again in a second, beyond four times its new bytes; 0 for any number.",
        high=1 << 32,
    )
    max_resend: int = integer(16, "Retransmissions under way with several receivers.", low=1, high=MAX_RESEND)
    # Receivers.
    rcv_initial_window_length: int = size(
        128 * KIB,
        "What a receiver offers to take in advance, half a term at most.",
        low=256,
        high=INT32_MAX,
    )
    rcv_status_message_timeout_ns: int = duration(
        200 * NS_PER_MS, "How often the last status message is repeated.", low=NS_PER_US
    )
    receiver_group_tag: int | None = integer(None, "Tag that receivers send.", low=INT64_MIN, high=INT64_MAX)
    receiver_group_consideration: GroupConsideration = choice(
        GroupConsideration.INFER, "Whether receivers behave as members of a group."
    )
    congestioncontrol_supplier: str = text(
        "default",
        "Congestion control; default follows the channel's cc.",
        accepts=CONGESTION_CONTROL,
        fits=CONGESTION_CONTROL_SUPPLIERS.__contains__,
    )
    cubiccongestioncontrol_measurertt: bool = boolean(False, "Whether cubic measures the round trip.")
    cubiccongestioncontrol_initialrtt_ns: int = duration(
        100 * NS_PER_US, "The round trip that cubic begins with.", low=1
    )
    cubiccongestioncontrol_tcpmode: bool = boolean(False, "Whether cubic is as friendly to others as TCP.")
    one_way_latency_interval_ns: int | None = duration(
        None, "How often senders send receivers the time, and receivers show latency and drift; unset for never.", low=1
    )
    nak_unicast_delay_ns: int = duration(
        NS_PER_US, "How long a gap may close by itself before its first NAK.", low=NS_PER_US
    )
    nak_unicast_retry_delay_ratio: int = integer(
        100, "Times that delay before the NAK is repeated.", low=1, high=INT64_MAX
    )
    nak_multicast_group_size: int = integer(
        10, "Receivers that a multicast group is expected to have.", low=1, high=INT32_MAX
    )
    nak_multicast_max_backoff_ns: int = duration(
        10 * NS_PER_MS, "The longest random wait before a group member asks.", low=NS_PER_US
    )
    reliable_stream: bool = boolean(True, "Whether loss is repaired; else it is filled.")
    tether_subscriptions: bool = boolean(True, "Whether a slow subscriber holds up the stream rather than losing it.")
    rejoin_stream: bool = boolean(True, "Whether a stream that ended may be joined again.")
    untethered_window_limit_timeout_ns: int = duration(
        5 * NS_PER_SECOND, "How long an untethered subscriber may lag; above the timer interval.", low=1
    )
    untethered_linger_timeout_ns: int | None = duration(
        None, "How long it then still counts, above the timer interval; unset: as long as it may lag."
    )
    untethered_resting_timeout_ns: int = duration(
        10 * NS_PER_SECOND, "How long it then rests before it may join again; above the timer interval.", low=1
    )
    driver_stream_session_limit: int = integer(
        INT32_MAX, "Sessions of one stream that an endpoint takes.", low=1, high=INT32_MAX
    )
    driver_source_image_limit: int = integer(
        16_384,
        "Images of one source, an IPv4 address or an IPv6 /64; its further SETUPs are refused.",
        low=1,
        high=INT32_MAX,
    )
    driver_image_limit: int = integer(65_536, "Images in all; further SETUPs are refused.", low=1, high=INT32_MAX)
    # Which addresses may send streams to this driver (SourceFilter in mainstem.aeron.admission). Addresses are refused before an
    # image is created.
    endpoint_filter_allow: str = text(
        "", "Networks that may send streams; empty for any.", accepts=NETWORKS, fits=_are_networks
    )
    endpoint_filter_deny: str = text("", "Networks that may not send streams.", accepts=NETWORKS, fits=_are_networks)
    endpoint_filter_rate: int = integer(
        0, "New streams a second of one IPv4 address or IPv6 /64; 0 for any number.", low=0, high=INT32_MAX
    )
    endpoint_filter_burst: int = integer(16, "New streams at once from one such address.", low=1, high=INT32_MAX)
    endpoint_filter_total_rate: int = integer(
        0, "New streams a second of all together; 0 for any number.", low=0, high=INT32_MAX
    )
    endpoint_filter_total_burst: int = integer(256, "New streams at once of all together.", low=1, high=INT32_MAX)
    endpoint_filter_max_term_length: int = size(
        layout.TERM_MAX_LENGTH,
        "The longest term of a stream that is taken.",
        low=layout.TERM_MIN_LENGTH,
        high=layout.TERM_MAX_LENGTH,
    )
    # Sockets.
    socket_so_rcvbuf: int = size(128 * KIB, "Receive buffer of sockets; 0 for the system's own.", high=INT32_MAX)
    socket_so_sndbuf: int = size(0, "Send buffer of sockets; 0 for the system's own.", high=INT32_MAX)
    socket_multicast_ttl: int = integer(0, "Hops of multicast datagrams; 0 for the system's own.", low=0, high=255)
    receiver_io_vector_capacity: int = integer(
        4, "Batches of datagrams taken from a socket at once; a batch is four.", low=1, high=MAX_IO_VECTORS
    )
    sender_io_vector_capacity: int = integer(
        4, "Batches of datagrams given to a socket at once; a batch is four.", low=1, high=MAX_IO_VECTORS
    )
    driver_connect: bool = boolean(True, "Whether sockets of unicast publications are connected.")
    sender_wildcard_port_range: str | None = _wildcard_ports("sender")
    receiver_wildcard_port_range: str | None = _wildcard_ports("receiver")
    udp_channel_incoming_interceptors: str = text("", "Loss generators for incoming datagrams.", accepts=INTERCEPTORS)
    udp_channel_outgoing_interceptors: str = text("", "Loss generators for outgoing datagrams.", accepts=INTERCEPTORS)
    udp_channel_transport_bindings_loss_args: str = text(
        "", "What loss loses: rate, seed and recv-msg-mask.", accepts="key=value|key=value"
    )
    udp_channel_transport_bindings_fixed_loss_args: str = text(
        "", "What fixed-loss loses: term-id, term-offset and length.", accepts="key=value|key=value"
    )
    udp_channel_transport_bindings_multi_gap_loss_args: str = text(
        "", "What multi-gap-loss loses: term-id, gap-radix, gap-length and total-gaps.", accepts="key=value|key=value"
    )
    debug_send_data_loss_rate: float = fraction(0.0, "Data frames that senders lose on the way out, of 1.")
    debug_send_data_loss_seed: int = integer(-1, "Which of them.", low=INT64_MIN, high=INT64_MAX)
    debug_send_control_loss_rate: float = fraction(0.0, "Control frames that senders lose on the way in, of 1.")
    debug_send_control_loss_seed: int = integer(-1, "Which of them.", low=INT64_MIN, high=INT64_MAX)
    debug_receive_data_loss_rate: float = fraction(0.0, "Data frames that receivers lose on the way in, of 1.")
    debug_receive_data_loss_seed: int = integer(-1, "Which of them.", low=INT64_MIN, high=INT64_MAX)
    debug_receive_control_loss_rate: float = fraction(0.0, "Control frames that receivers lose on the way out, of 1.")
    debug_receive_control_loss_seed: int = integer(-1, "Which of them.", low=INT64_MIN, high=INT64_MAX)
    # Names.
    driver_reresolution_check_interval_ns: int = duration(
        NS_PER_SECOND, "How often silent endpoints are resolved again."
    )
    name_resolver_supplier: str = text("default", "What resolves names: default, driver or csv_table.")
    name_resolver_init_args: str = text("", "Arguments of that resolver.")
    driver_resolver_name: str | None = text(None, "This driver's name among its neighbors.")
    driver_resolver_interface: str | None = text(None, "Address and port that the resolver is bound to.")
    driver_resolver_bootstrap_neighbor: str | None = text(
        None, "Neighbors to begin with, separated by commas.", accepts="up to 20 of host:port", fits=_are_neighbors
    )
    driver_resolver_neighbor_timeout_ns: int = duration(
        10 * NS_PER_SECOND, "When a silent neighbor is forgotten.", low=NS_PER_MS
    )
    driver_resolver_self_resolution_interval_ns: int = duration(
        NS_PER_SECOND, "How often this driver announces its name.", low=NS_PER_MS
    )
    driver_resolver_neighbor_resolution_interval_ns: int = duration(
        2 * NS_PER_SECOND, "How often it announces all names that it has.", low=NS_PER_MS
    )
    driver_resolver_bootstrap_neighbor_resolution_interval_ns: int = duration(
        10 * NS_PER_SECOND, "How often neighbors to begin with are resolved again.", low=NS_PER_MS
    )
    # The event log.
    event_log: str = text("", "Events to log: admin, all, or names or ids; empty for none.")
    event_log_disable: str = text("", "Events to leave out of those.")
    event_log_render_data: bool = boolean(
        False, "Whether the payload of data frames is in the event log, as hexadecimal."
    )
    event_log_filename: str = text("", "File of the event log; empty for standard output.")
    event_log_file_max_length: int = size(0, "Length at which that file is started again; 0 for never.")

    @property
    def has_endpoint_filter(self) -> bool:
        """Whether these settings restrict which streams this driver accepts."""
        return bool(
            self.endpoint_filter_allow
            or self.endpoint_filter_deny
            or self.endpoint_filter_rate
            or self.endpoint_filter_total_rate
            or self.endpoint_filter_max_term_length < layout.TERM_MAX_LENGTH
        )

    def validate(self) -> None:
        """Check that no settings contradict each other. Called whenever settings are created.

        Raises:
            ConfigurationError: Two settings contradict each other. The message names both and the limit.
        """
        if self.publication_unblock_timeout_ns <= self.client_liveness_timeout_ns:
            raise ConfigurationError(
                f"AERON_PUBLICATION_UNBLOCK_TIMEOUT of {self.publication_unblock_timeout_ns} ns must exceed"
                f" AERON_CLIENT_LIVENESS_TIMEOUT of {self.client_liveness_timeout_ns} ns"
            )
        if self.publication_reserved_session_id_low > self.publication_reserved_session_id_high:
            raise ConfigurationError(
                f"AERON_PUBLICATION_RESERVED_SESSION_ID_LOW {self.publication_reserved_session_id_low} is above"
                f" AERON_PUBLICATION_RESERVED_SESSION_ID_HIGH {self.publication_reserved_session_id_high}"
            )
        for name, timeout in (
            ("AERON_CLIENT_LIVENESS_TIMEOUT", self.client_liveness_timeout_ns),
            ("AERON_UNTETHERED_WINDOW_LIMIT_TIMEOUT", self.untethered_window_limit_timeout_ns),
            ("AERON_UNTETHERED_LINGER_TIMEOUT", self.untethered_linger_timeout_ns),
            ("AERON_UNTETHERED_RESTING_TIMEOUT", self.untethered_resting_timeout_ns),
        ):
            if timeout is not None and timeout <= self.timer_interval_ns:
                raise ConfigurationError(
                    f"{name} of {timeout} ns must exceed AERON_TIMER_INTERVAL of {self.timer_interval_ns} ns"
                )
        if self.nak_unicast_delay_ns * self.nak_unicast_retry_delay_ratio > INT64_MAX:
            raise ConfigurationError(
                f"AERON_NAK_UNICAST_DELAY of {self.nak_unicast_delay_ns} ns times AERON_NAK_UNICAST_RETRY_DELAY_RATIO"
                f" {self.nak_unicast_retry_delay_ratio} exceeds {INT64_MAX} ns"
            )
        for agent in IDLE_AGENTS:
            prefix = f"{agent}_idle_strategy"
            arguments = getattr(self, f"{prefix}_init_args")
            if agent == NATIVE_AGENT and arguments == NATIVE_AGENT_SLEEP:
                arguments = ""  # the default applies only to the default strategy, as in the reference
            idle_strategy(getattr(self, prefix), arguments)
        if self.driver_resolver_interface and not self.driver_resolver_name:
            raise ConfigurationError("AERON_DRIVER_RESOLVER_INTERFACE requires AERON_DRIVER_RESOLVER_NAME")
        if self.name_resolver_supplier not in NAME_RESOLVERS:
            raise ConfigurationError(
                f"AERON_NAME_RESOLVER_SUPPLIER must be one of {', '.join(NAME_RESOLVERS)} (got {self.name_resolver_supplier!r})"
            )
        if self.name_resolver_supplier == "csv_table" and not self.name_resolver_init_args.strip():
            raise ConfigurationError(
                "AERON_NAME_RESOLVER_SUPPLIER=csv_table requires rows in AERON_NAME_RESOLVER_INIT_ARGS"
            )
        if self.name_resolver_supplier == "driver" and not self.driver_resolver_name:
            raise ConfigurationError("AERON_NAME_RESOLVER_SUPPLIER=driver requires AERON_DRIVER_RESOLVER_NAME")
