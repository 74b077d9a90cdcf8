"""Creation of an image's part in the receiver (docs/protocols/aeron.md, 16.2, 18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._core.driver.delay import BackoffDelay, StaticDelay
from mainstem._core.driver.loss_detector import LossDetector
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.aeron.channel_values import CongestionControlChoice as Choice
from mainstem.aeron.counters import CounterType
from mainstem.aeron.driver.conductor.params import pick
from mainstem.aeron.driver.one_way import OneWayLatency
from mainstem.aeron.driver.receiver.congestion_control import CubicCongestionControl, StaticWindowCongestionControl
from mainstem.aeron.driver.receiver.receiver_image import ReceiverImage
from mainstem.aeron.driver.settings import CONGESTION_CONTROL_SUPPLIERS, GroupConsideration

if TYPE_CHECKING:
    from mainstem._core.driver.delay import DelayGenerator
    from mainstem._core.driver.receive_path import ReceivePath
    from mainstem.aeron.driver.conductor.channels import ReceiveChannel
    from mainstem.aeron.driver.conductor.params import SubscriptionParams
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.stream_counters import ReceiveCounters, StreamCounters
    from mainstem.aeron.driver.conductor_proxy import CreateImage
    from mainstem.aeron.driver.receiver.congestion_control import CongestionControl
    from mainstem.aeron.driver.settings import DriverSettings


MAX_NAK_DELAY_NS = 3_600 * NS_PER_SECOND  # longer than any image waits; its product with the retry ratio fits 64 bits


def is_group(
    channel: ReceiveChannel, params: SubscriptionParams, message: CreateImage, settings: DriverSettings
) -> bool:
    """Return whether to handle loss as in a group of receivers.

    The subscription's channel decides, or else the settings. If neither does, an image is in a group if the channel is multicast or
    the SETUP says so.
    """
    if params.group is not None:
        return params.group
    if settings.receiver_group_consideration is not GroupConsideration.INFER:
        return settings.receiver_group_consideration is GroupConsideration.TRUE
    return channel.udp.is_multicast or bool(message.flags & layout.SETUP_FLAG_GROUP)


def make_receiver_image(
    resources: Resources,
    path: ReceivePath,
    channel: ReceiveChannel,
    params: SubscriptionParams,
    message: CreateImage,
    *,
    stream: StreamCounters,
    counters: ReceiveCounters,
    now_ns: int,
) -> ReceiverImage:
    settings = resources.settings
    path.set_nak_counter(counters.naks_sent.counter_id)
    path.status_interval_ns = settings.rcv_status_message_timeout_ns

    group = is_group(channel, params, message, settings)
    return ReceiverImage(
        path,
        message,
        registration_id=stream.registration_id,
        loss_detector=LossDetector(_delay(resources, channel, params, is_group=group), group=group),
        congestion_control=_congestion_control(settings, path, channel, stream, now_ns=now_ns),
        reliable=params.reliable,
        one_way=_one_way(settings, stream),
        epoch_ns=resources.clock.epoch_ns,
    )


def _one_way(settings: DriverSettings, stream: StreamCounters) -> OneWayLatency | None:
    if settings.one_way_latency_interval_ns is None:
        return None
    return OneWayLatency(
        latency_gauge=stream.allocate(CounterType.PER_IMAGE, name="rcv-one-way-latency"),
        drift_gauge=stream.allocate(CounterType.PER_IMAGE, name="rcv-clock-drift"),
    )


def _delay(
    resources: Resources, channel: ReceiveChannel, params: SubscriptionParams, *, is_group: bool
) -> DelayGenerator:
    settings = resources.settings
    if not params.reliable:
        return StaticDelay(0, 0)
    if is_group:
        return BackoffDelay(
            resources.rng,
            max_backoff_ns=settings.nak_multicast_max_backoff_ns,
            group_size=settings.nak_multicast_group_size,
        )
    return StaticDelay.unicast(
        min(pick(channel.udp.uri.nak_delay_ns, settings.nak_unicast_delay_ns), MAX_NAK_DELAY_NS),
        settings.nak_unicast_retry_delay_ratio,
    )


def _congestion_control(
    settings: DriverSettings, path: ReceivePath, channel: ReceiveChannel, stream: StreamCounters, *, now_ns: int
) -> CongestionControl:
    choice = channel.udp.uri.congestion_control
    if choice is None and CONGESTION_CONTROL_SUPPLIERS[settings.congestioncontrol_supplier] == "cubic":
        choice = Choice.CUBIC
    if choice is not Choice.CUBIC:
        return StaticWindowCongestionControl(path.window_length)
    return CubicCongestionControl(
        max_window_length=path.window_length,
        mtu=path.mtu,
        now_ns=now_ns,
        initial_round_trip_ns=settings.cubiccongestioncontrol_initialrtt_ns,
        measures=settings.cubiccongestioncontrol_measurertt,
        tcp_mode=settings.cubiccongestioncontrol_tcpmode,
        round_trip_gauge=stream.allocate(CounterType.PER_IMAGE, name="rcv-cc-cubic-rtt"),
        window_gauge=stream.allocate(CounterType.PER_IMAGE, name="rcv-cc-cubic-wnd"),
    )
