"""The decision table of ``mainstem why``: read from the top, the first rule that applies decides.

``docs/why.md`` draws this table, and a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem.aeron.tools import explanations
from mainstem.aeron.tools.stream_state import ImageStatus, PublicationStatus

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", PublicationStatus, ImageStatus)


class Cause(StrEnum):
    """Why a stream is stalled."""

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
    cause: Cause
    when: str
    applies: Callable[[T], bool]
    sentence: Callable[[T], str]


def _waits_for_window(status: PublicationStatus) -> bool:
    return status.is_stalled and status.sender_is_out_of_window


def _has_limiting_image(status: PublicationStatus) -> bool:
    return _waits_for_window(status) and status.limiting_image is not None


def _window_waits_for_loss(status: PublicationStatus) -> bool:
    image = status.limiting_image
    return _waits_for_window(status) and image is not None and image.has_gap and not image.subscriber_lags


def _reader_is_slow(status: PublicationStatus) -> bool:
    return status.is_stalled and status.reader is not None


def _recorder_is_slow(status: PublicationStatus) -> bool:
    return _reader_is_slow(status) and status.reader is not None and status.reader.client.records


def _window_cut(status: PublicationStatus) -> bool:
    return _has_limiting_image(status) and status.limiting_image is not None and status.limiting_image.is_congested


def _sender_stuck(status: PublicationStatus) -> bool:
    sent = status.publication.sender_position
    return (
        status.is_stalled
        and sent is not None
        and status.publication.position > sent
        and not status.sender_is_out_of_window
    )


def _claim_blocks(status: PublicationStatus) -> bool:
    return status.has_stopped and status.claim_is_open and not status.spy_is_slowest


def _image_slow(status: ImageStatus) -> bool:
    return status.slowest is not None and status.subscriber_lags and status.window_is_used_up


_OF_BOTH: tuple[Rule[Any], ...] = (
    Rule(
        "driver-gone",
        Cause.DRIVER,
        "the driver's heartbeat is -1, missing, or older than 10 s",
        lambda f: f.driver_is_gone,
        explanations.driver_gone,
    ),
    Rule(
        "disk-full",
        Cause.DISK,
        "the directory's file system has less than a page free, and the log is not wholly allocated",
        lambda f: f.disk_is_full,
        explanations.disk_full,
    ),
)

PUBLICATION_RULES: tuple[Rule[PublicationStatus], ...] = (
    *_OF_BOTH,
    Rule(
        "channel-error",
        Cause.DRIVER,
        "the send channel's status is -1",
        lambda f: f.channel_is_broken,
        explanations.channel_broken,
    ),
    Rule(
        "ended",
        Cause.NONE,
        "the log's metadata has an end-of-stream position, or says revoked",
        lambda f: f.is_ended,
        explanations.ended,
    ),
    Rule(
        "no-subscriber",
        Cause.NO_RECEIVER,
        "IPC, and the log's metadata says not connected",
        lambda f: f.publication.is_ipc and not f.is_connected,
        explanations.no_subscriber,
    ),
    Rule(
        "group-incomplete",
        Cause.NO_RECEIVER,
        "not connected, and fc-receivers is above 0",
        lambda f: not f.is_connected and (f.publication.receivers or 0) > 0,
        explanations.group_incomplete,
    ),
    Rule(
        "no-receiver",
        Cause.NO_RECEIVER,
        "not connected",
        lambda f: not f.is_connected,
        explanations.no_receiver,
    ),
    Rule(
        "spy",
        Cause.SPY,
        "stalled, and a spy that counts is behind snd-pos",
        lambda f: f.is_stalled and f.spy_is_slowest,
        explanations.spy,
    ),
    Rule(
        "unfinished-claim",
        Cause.PUBLISHER,
        "stopped, and the frame at the slowest consumer's position has no length yet",
        _claim_blocks,
        explanations.open_claim,
    ),
    Rule(
        "loss",
        Cause.LOSS,
        "stalled, the next frame does not fit below snd-lmt, this driver's image explains snd-lmt, it has a gap, and its "
        "subscribers wait at the gap",
        _window_waits_for_loss,
        explanations.loss,
    ),
    Rule(
        "slow-recorder",
        Cause.DISK,
        "as slow-subscriber, and that client owns an archive's recording position",
        _recorder_is_slow,
        explanations.slow_recorder,
    ),
    Rule(
        "slow-subscriber",
        Cause.SLOW_SUBSCRIBER,
        "stalled; IPC: the slowest sub-pos; network: the next frame does not fit below snd-lmt, this driver's image explains "
        "snd-lmt, and its slowest sub-pos is a quarter window or more behind rcv-pos",
        _reader_is_slow,
        explanations.slow_reader,
    ),
    Rule(
        "congestion-window",
        Cause.FLOW_CONTROL_WINDOW,
        "as receiver-window, and rcv-cc-cubic-wnd is below the configured window",
        _window_cut,
        explanations.congestion,
    ),
    Rule(
        "receiver-window",
        Cause.RECEIVER_BUFFER,
        "stalled, the next frame does not fit below snd-lmt, this driver's image explains snd-lmt, and its subscribers have "
        "read nearly everything",
        _has_limiting_image,
        explanations.receiver_window,
    ),
    Rule(
        "late-status-message",
        Cause.FLOW_CONTROL_WINDOW,
        "stalled, the next frame does not fit below snd-lmt, the stream is unicast, and its receiver, which is this driver's "
        "too, has granted half a window or more beyond snd-lmt",
        lambda f: _waits_for_window(f) and f.status_message_is_late,
        explanations.late_status_message,
    ),
    Rule(
        "group-window",
        Cause.FLOW_CONTROL_WINDOW,
        "stalled, the next frame does not fit below snd-lmt, no image here explains snd-lmt, and fc-receivers counts a group",
        lambda f: _waits_for_window(f) and (f.publication.receivers or 0) > 1,
        explanations.group_window,
    ),
    Rule(
        "remote-window",
        Cause.FLOW_CONTROL_WINDOW,
        "stalled, the next frame does not fit below snd-lmt, and no image here explains snd-lmt",
        _waits_for_window,
        explanations.remote_window,
    ),
    Rule(
        "slow-sender",
        Cause.DRIVER,
        "stalled, and snd-pos is behind pub-pos with room below snd-lmt",
        _sender_stuck,
        explanations.slow_sender,
    ),
    Rule(
        "limit-not-raised",
        Cause.DRIVER,
        "stalled, and the slowest consumer is more than an eighth of the window beyond what pub-lmt allows for",
        lambda f: f.is_stalled and f.limit_lags,
        explanations.limit_not_raised,
    ),
    Rule(
        "flowing",
        Cause.NONE,
        "pub-pos has moved since the sample before",
        lambda f: f.has_moved,
        explanations.flowing,
    ),
    Rule("idle", Cause.NONE, "otherwise", lambda _: True, explanations.idle),
)

IMAGE_RULES: tuple[Rule[ImageStatus], ...] = (
    *_OF_BOTH,
    Rule(
        "image-ended",
        Cause.NONE,
        "the log's metadata has an end-of-stream position",
        lambda f: f.log is not None and f.log.is_ended,
        explanations.image_ended,
    ),
    Rule(
        "sender-gone",
        Cause.PUBLISHER,
        "the log's metadata counts no active transport",
        lambda f: f.log is not None and f.log.active_transports == 0,
        explanations.sender_gone,
    ),
    Rule(
        "image-loss",
        Cause.LOSS,
        "rcv-hwm is beyond rcv-pos, which stands still or NAKs go out, and the subscribers wait at the gap",
        lambda f: f.has_gap and not f.subscriber_lags,
        explanations.image_loss,
    ),
    Rule(
        "image-slow-recorder",
        Cause.DISK,
        "as image-slow-subscriber, and that client owns an archive's recording position",
        lambda f: _image_slow(f) and f.slowest is not None and f.slowest.client.records,
        explanations.image_recorder,
    ),
    Rule(
        "image-slow-subscriber",
        Cause.SLOW_SUBSCRIBER,
        "three quarters of the window lie between the slowest sub-pos and rcv-hwm, a quarter or more of it in order",
        _image_slow,
        explanations.image_slow,
    ),
    Rule(
        "image-congestion-window",
        Cause.FLOW_CONTROL_WINDOW,
        "rcv-cc-cubic-wnd is below the configured window, and three quarters of it are used",
        lambda f: f.is_congested and f.window_is_used_up,
        explanations.image_congestion,
    ),
    Rule(
        "receiving",
        Cause.NONE,
        "rcv-pos has moved since the sample before",
        lambda f: f.has_moved,
        explanations.receiving,
    ),
    Rule("quiet", Cause.NONE, "otherwise", lambda _: True, explanations.quiet),
)


def decide(rules: tuple[Rule[T], ...], status: T) -> Rule[T]:
    """Return the first rule that applies; the last one always does."""
    return next(rule for rule in rules if rule.applies(status))
