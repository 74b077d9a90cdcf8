"""Creation of a publication's part in the sender (docs/protocols/aeron.md, 16.4, 17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.retransmit import RetransmitHandler
from mainstem.aeron.counters import CounterType
from mainstem.aeron.driver.event_log.stream import StreamEvents
from mainstem.aeron.driver.one_way import MeasurementBurst
from mainstem.aeron.driver.sender.flow_control import FlowControlDefaults, UnicastFlowControl, choose_flow_control
from mainstem.aeron.driver.sender.sender_publication import SenderPublication
from mainstem.aeron.driver.settings import DATAGRAMS_PER_VECTOR, FLOW_CONTROL_SUPPLIERS

if TYPE_CHECKING:
    from mainstem._core.driver.send_path import SendPath
    from mainstem.aeron.driver.conductor.channels import SendChannel
    from mainstem.aeron.driver.conductor.params import PublicationParams
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.stream_counters import SendCounters, StreamCounters
    from mainstem.aeron.driver.settings import DriverSettings

MAX_RUNS = 16  # the capacity of a compiled batch


def flow_control_defaults(settings: DriverSettings) -> FlowControlDefaults:
    """Return the defaults for what a channel's ``fc`` leaves out."""
    return FlowControlDefaults(
        strategy=FLOW_CONTROL_SUPPLIERS[settings.multicast_flowcontrol_supplier],
        unicast=FLOW_CONTROL_SUPPLIERS[settings.unicast_flowcontrol_supplier],
        group_tag=settings.flow_control_group_tag,
        group_min_size=settings.flow_control_group_min_size,
        receiver_timeout_ns=settings.flow_control_receiver_timeout_ns,
        unicast_window_multiple=settings.unicast_flow_control_rrwm,
        group_window_multiple=settings.multicast_flow_control_rrwm,
    )


def runs_at_once(settings: DriverSettings) -> int:
    """Return how many runs of datagrams a publication passes to its socket at once."""
    vectors = min(settings.network_publication_max_messages_per_send, settings.sender_io_vector_capacity)
    return min(vectors * DATAGRAMS_PER_VECTOR, MAX_RUNS)


def make_sender_publication(
    resources: Resources,
    path: SendPath,
    send_channel: SendChannel,
    params: PublicationParams,
    *,
    stream: StreamCounters,
    counters: SendCounters,
) -> SenderPublication:
    """Create the sender's part of a publication. The counter ``fc-receivers`` exists only if flow control counts receivers."""
    settings, channel = resources.settings, send_channel.udp
    group = channel.has_group_semantics
    requested = channel.uri.flow_control if group else None
    flow_control = choose_flow_control(requested, group=group, defaults=flow_control_defaults(settings))
    path.set_nak_counter(counters.naks_received.counter_id)
    path.receiver_timeout_ns = settings.publication_connection_timeout_ns
    gauge = None
    if not isinstance(flow_control, UnicastFlowControl):
        gauge = stream.allocate(CounterType.FLOW_CONTROL_RECEIVERS)
    return SenderPublication(
        path,
        send_channel.endpoint,
        registration_id=stream.registration_id,
        flow_control=flow_control,
        retransmit=RetransmitHandler(
            params.term_length,
            group=group,
            max_actions=params.max_resend,
            window_multiple=flow_control.window_multiple,
            delay_ns=settings.retransmit_unicast_delay_ns,
            linger_ns=settings.retransmit_unicast_linger_ns,
            rate=settings.retransmit_rate,
        ),
        response_correlation_id=params.response_correlation_id,
        is_response=params.is_response,
        on_group_size=None if gauge is None else gauge.set_release,
        measurements=None
        if settings.one_way_latency_interval_ns is None
        else MeasurementBurst(
            settings.one_way_latency_interval_ns, resources.clock.monotonic_ns(), resources.clock.epoch_ns
        ),
        events=None
        if resources.events is None
        else StreamEvents(resources.events, resources.clock, path, str(channel.uri)),
    )
