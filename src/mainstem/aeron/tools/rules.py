"""The decision table of ``mainstem why``: read from the top, the first rule that applies decides.

``docs/why.md`` draws this table, and a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from mainstem.aeron.tools import messages
from mainstem.aeron.tools.stream_state import ImageStatus, PublicationStatus

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", PublicationStatus, ImageStatus)


class Holder(StrEnum):
    """What holds a stream back."""

    NONE = "nobody"
    NO_RECEIVER = "no receiver"
    SLOW_SUBSCRIBER = "slow subscriber"
    SPY = "spy"
    FLOW_CONTROL_WINDOW = "flow-control window"
    RECEIVER_BUFFER = "receiver buffer"
    LOSS = "loss"
    DISK = "disk"
    PUBLISHER = "publisher"
    DRIVER = "driver"


@dataclass(frozen=True)
class Rule(Generic[T]):
    """One row: ``when`` describes what ``applies`` computes, ``sentence`` writes it with the figures."""

    name: str
    holder: Holder
    when: str
    applies: Callable[[T], bool]
    sentence: Callable[[T], str]


def _waits_for_window(status: PublicationStatus) -> bool:
    return status.is_held and status.sender_is_out_of_window


def _has_holding_image(status: PublicationStatus) -> bool:
    return _waits_for_window(status) and status.holding_image is not None


def _window_held_by_loss(status: PublicationStatus) -> bool:
    image = status.holding_image
    return _waits_for_window(status) and image is not None and image.has_gap and not image.subscriber_lags


def _held_by_reader(status: PublicationStatus) -> bool:
    return status.is_held and status.reader is not None


def _held_by_recorder(status: PublicationStatus) -> bool:
    return _held_by_reader(status) and status.reader is not None and status.reader.client.records


def _window_cut(status: PublicationStatus) -> bool:
    return _has_holding_image(status) and status.holding_image is not None and status.holding_image.is_congested


def _sender_stuck(status: PublicationStatus) -> bool:
    sent = status.publication.sender_position
    return (
        status.is_held
        and sent is not None
        and status.publication.position > sent
        and not status.sender_is_out_of_window
    )


def _claim_blocks(status: PublicationStatus) -> bool:
    return status.has_stopped and status.claim_is_open and not status.spy_is_slowest


def _image_slow(status: ImageStatus) -> bool:
    return status.slowest is not None and status.subscriber_lags and status.window_is_used_up


PUBLICATION_RULES: tuple[Rule[PublicationStatus], ...] = (
    Rule(
        "driver-gone",
        Holder.DRIVER,
        "the driver's heartbeat is -1, missing, or older than 10 s",
        lambda f: f.driver_is_gone,
        messages.driver_gone,
    ),
    Rule(
        "disk-full",
        Holder.DISK,
        "the directory's file system has less than a page free, and the log is not wholly allocated",
        lambda f: f.disk_is_full,
        messages.disk_full,
    ),
    Rule(
        "channel-error",
        Holder.DRIVER,
        "the send channel's status is -1",
        lambda f: f.channel_is_broken,
        messages.channel_broken,
    ),
    Rule(
        "ended",
        Holder.NONE,
        "the log's metadata has an end-of-stream position, or says revoked",
        lambda f: f.is_ended,
        messages.ended,
    ),
    Rule(
        "no-subscriber",
        Holder.NO_RECEIVER,
        "IPC, and the log's metadata says not connected",
        lambda f: f.publication.is_ipc and not f.is_connected,
        messages.no_subscriber,
    ),
    Rule(
        "group-incomplete",
        Holder.NO_RECEIVER,
        "not connected, and fc-receivers is above 0",
        lambda f: not f.is_connected and (f.publication.receivers or 0) > 0,
        messages.group_incomplete,
    ),
    Rule(
        "no-receiver",
        Holder.NO_RECEIVER,
        "not connected",
        lambda f: not f.is_connected,
        messages.no_receiver,
    ),
    Rule(
        "spy",
        Holder.SPY,
        "held, and a spy that counts is behind snd-pos",
        lambda f: f.is_held and f.spy_is_slowest,
        messages.spy,
    ),
    Rule(
        "unfinished-claim",
        Holder.PUBLISHER,
        "stopped, and the frame at the slowest consumer's position has no length yet",
        _claim_blocks,
        messages.open_claim,
    ),
    Rule(
        "loss",
        Holder.LOSS,
        "held, the next frame does not fit below snd-lmt, this driver's image explains snd-lmt, it has a hole, and its "
        "subscribers wait at the hole",
        _window_held_by_loss,
        messages.loss,
    ),
    Rule(
        "slow-recorder",
        Holder.DISK,
        "as slow-subscriber, and that client owns an archive's recording position",
        _held_by_recorder,
        messages.slow_recorder,
    ),
    Rule(
        "slow-subscriber",
        Holder.SLOW_SUBSCRIBER,
        "held; IPC: the slowest sub-pos; network: the next frame does not fit below snd-lmt, this driver's image explains "
        "snd-lmt, and its slowest sub-pos is a quarter window or more behind rcv-pos",
        _held_by_reader,
        messages.slow_reader,
    ),
    Rule(
        "congestion-window",
        Holder.FLOW_CONTROL_WINDOW,
        "as receiver-window, and rcv-cc-cubic-wnd is below the configured window",
        _window_cut,
        messages.congestion,
    ),
    Rule(
        "receiver-window",
        Holder.RECEIVER_BUFFER,
        "held, the next frame does not fit below snd-lmt, this driver's image explains snd-lmt, and its subscribers have "
        "read nearly everything",
        _has_holding_image,
        messages.receiver_window,
    ),
    Rule(
        "late-status-message",
        Holder.FLOW_CONTROL_WINDOW,
        "held, the next frame does not fit below snd-lmt, the stream is unicast, and its receiver, which is this driver's "
        "too, has granted half a window or more beyond snd-lmt",
        lambda f: _waits_for_window(f) and f.status_message_is_late,
        messages.late_status_message,
    ),
    Rule(
        "group-window",
        Holder.FLOW_CONTROL_WINDOW,
        "held, the next frame does not fit below snd-lmt, no image here explains snd-lmt, and fc-receivers counts a group",
        lambda f: _waits_for_window(f) and (f.publication.receivers or 0) > 1,
        messages.group_window,
    ),
    Rule(
        "remote-window",
        Holder.FLOW_CONTROL_WINDOW,
        "held, the next frame does not fit below snd-lmt, and no image here explains snd-lmt",
        _waits_for_window,
        messages.remote_window,
    ),
    Rule(
        "slow-sender",
        Holder.DRIVER,
        "held, and snd-pos is behind pub-pos with room below snd-lmt",
        _sender_stuck,
        messages.slow_sender,
    ),
    Rule(
        "limit-not-raised",
        Holder.DRIVER,
        "held, and the slowest consumer is more than an eighth of the window beyond what pub-lmt allows for",
        lambda f: f.is_held and f.limit_lags,
        messages.limit_not_raised,
    ),
    Rule(
        "flowing",
        Holder.NONE,
        "pub-pos has moved since the sample before",
        lambda f: f.has_moved,
        messages.flowing,
    ),
    Rule("idle", Holder.NONE, "otherwise", lambda _: True, messages.idle),
)

IMAGE_RULES: tuple[Rule[ImageStatus], ...] = (
    Rule(
        "driver-gone",
        Holder.DRIVER,
        "the driver's heartbeat is -1, missing, or older than 10 s",
        lambda f: f.driver_is_gone,
        messages.driver_gone,
    ),
    Rule(
        "disk-full",
        Holder.DISK,
        "the directory's file system has less than a page free, and the log is not wholly allocated",
        lambda f: f.disk_is_full,
        messages.disk_full,
    ),
    Rule(
        "image-ended",
        Holder.NONE,
        "the log's metadata has an end-of-stream position",
        lambda f: f.log is not None and f.log.is_ended,
        messages.image_ended,
    ),
    Rule(
        "sender-gone",
        Holder.PUBLISHER,
        "the log's metadata counts no active transport",
        lambda f: f.log is not None and f.log.active_transports == 0,
        messages.sender_gone,
    ),
    Rule(
        "image-loss",
        Holder.LOSS,
        "rcv-hwm is beyond rcv-pos, which stands still or NAKs go out, and the subscribers wait at the hole",
        lambda f: f.has_gap and not f.subscriber_lags,
        messages.image_loss,
    ),
    Rule(
        "image-slow-recorder",
        Holder.DISK,
        "as image-slow-subscriber, and that client owns an archive's recording position",
        lambda f: _image_slow(f) and f.slowest is not None and f.slowest.client.records,
        messages.image_recorder,
    ),
    Rule(
        "image-slow-subscriber",
        Holder.SLOW_SUBSCRIBER,
        "three quarters of the window lie between the slowest sub-pos and rcv-hwm, a quarter or more of it in order",
        _image_slow,
        messages.image_slow,
    ),
    Rule(
        "image-congestion-window",
        Holder.FLOW_CONTROL_WINDOW,
        "rcv-cc-cubic-wnd is below the configured window, and three quarters of it are used",
        lambda f: f.is_congested and f.window_is_used_up,
        messages.image_congestion,
    ),
    Rule(
        "receiving", Holder.NONE, "rcv-pos has moved since the sample before", lambda f: f.has_moved, messages.receiving
    ),
    Rule("quiet", Holder.NONE, "otherwise", lambda _: True, messages.quiet),
)


def decide(rules: tuple[Rule[T], ...], status: T) -> Rule[T]:
    """Returns the first rule that applies; the last one always does."""
    return next(rule for rule in rules if rule.applies(status))
