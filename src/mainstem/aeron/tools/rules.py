"""The decision table of ``mainstem why``. The first rule that applies decides.

Each rule has a name, a cause, its condition in words, and a function that checks the condition and writes the rule's sentence: the
observation, with the numbers that show it. A test keeps the table in ``docs/why.md`` equal to this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.group import group_size, incomplete_group
from mainstem.aeron.tools.stream_state import ImageStatus, PublicationStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.tools.streams import Client, Subscriber

T = TypeVar("T", PublicationStatus, ImageStatus)

SILENT_MS = 2_000  # a client's conductor writes a heartbeat every 500 ms


class Cause(StrEnum):
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
    """A row of the table. ``explain`` returns the sentence, or None if the rule does not apply; ``when`` says when it does."""

    name: str
    cause: Cause
    when: str
    explain: Callable[[T], str | None]


class RuleTable(list[Rule[T]]):
    """An ordered list of rules. The last one always applies."""

    def row(
        self, name: str, cause: Cause, when: str
    ) -> Callable[[Callable[[T], str | None]], Callable[[T], str | None]]:
        """Return a decorator that adds a rule with the decorated function as its ``explain``."""

        def add(explain: Callable[[T], str | None]) -> Callable[[T], str | None]:
            self.append(Rule(name, cause, when, explain))
            return explain

        return add

    def decide(self, status: T) -> tuple[Rule[T], str]:
        """Return the rule that applies, and its sentence."""
        return next((rule, text) for rule in self if (text := rule.explain(status)) is not None)


PUBLICATION_RULES: RuleTable[PublicationStatus] = RuleTable()
IMAGE_RULES: RuleTable[ImageStatus] = RuleTable()


def _of_both(
    name: str, cause: Cause, when: str
) -> Callable[[Callable[[Any], str | None]], Callable[[Any], str | None]]:
    def add(explain: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
        PUBLICATION_RULES.row(name, cause, when)(explain)
        IMAGE_RULES.row(name, cause, when)(explain)
        return explain

    return add


@_of_both("driver-gone", Cause.DRIVER, "the driver's heartbeat is -1, missing, or older than 10 s")
def _driver_gone(status: PublicationStatus | ImageStatus) -> str | None:
    if not status.driver_is_gone:
        return None
    age = status.snapshot.heartbeat_age_ms
    if age is None:
        return "the driver has shut down: nothing moves"
    return f"the driver (pid {status.snapshot.pid}) last wrote a heartbeat {age / 1000:.1f} s ago: nothing moves"


@_of_both(
    "disk-full",
    Cause.DISK,
    "the directory's file system has less than a page free, and the log is not wholly allocated",
)
def _disk_full(status: PublicationStatus | ImageStatus) -> str | None:
    if not status.disk_is_full:
        return None
    needed = status.log.unallocated if status.log else 0
    return (
        f"the file system of {status.snapshot.directory} is full: {_count(status.snapshot.free_space or 0)} are free, and "
        f"this log may need {_count(needed)} more; the next process that writes to a new page of it is killed"
    )


@PUBLICATION_RULES.row("channel-error", Cause.DRIVER, "the send channel's status is -1")
def _channel_broken(status: PublicationStatus) -> str | None:
    if not status.channel_is_broken:
        return None
    return f"the driver could not open {status.publication.key.channel}; `mainstem errors` shows why"


@PUBLICATION_RULES.row("ended", Cause.NONE, "the log's metadata has an end-of-stream position, or says revoked")
def _ended(status: PublicationStatus) -> str | None:
    if not status.is_ended:
        return None
    if status.log is not None and status.log.is_revoked:
        return "the publication was revoked"
    left = f": {_count(status.backlog)} are still unread" if status.backlog else ""
    return f"the publication was closed and will go{left}"


@PUBLICATION_RULES.row("no-subscriber", Cause.NO_RECEIVER, "IPC, and the log's metadata says not connected")
def _no_subscriber(status: PublicationStatus) -> str | None:
    if not status.publication.is_ipc or status.is_connected:
        return None
    return f"stream {status.publication.key.stream_id} has no IPC subscription here: offers return NOT_CONNECTED"


@PUBLICATION_RULES.row("group-incomplete", Cause.NO_RECEIVER, "not connected, and fc-receivers is above 0")
def _group_incomplete(status: PublicationStatus) -> str | None:
    receivers, channel = status.publication.receivers, status.publication.key.channel
    if not receivers or status.is_connected:
        return None
    return (
        f"{incomplete_group(receivers, group_size(channel))}, and the flow control of {channel} waits for more: offers return "
        "NOT_CONNECTED until it is complete"
    )


@PUBLICATION_RULES.row("no-receiver", Cause.NO_RECEIVER, "not connected")
def _no_receiver(status: PublicationStatus) -> str | None:
    if status.is_connected:
        return None
    text = "no receiver has responded within the connection timeout: offers return NOT_CONNECTED"
    if size := group_size(status.publication.key.channel):
        text += f"; flow control waits for {size} receivers, and all subscriptions on one driver are one receiver"
    if status.publication.destinations is not None:
        text += f"; destinations known: {status.publication.destinations}"
    if status.publication.subscribers:
        text += f"; {_number(len(status.publication.subscribers), 'spy listens', 'spies listen')}: none counts without ssc=true"
    return text


@PUBLICATION_RULES.row(
    "spy",
    Cause.SPY,
    "stalled, and a spy that counts is behind snd-pos, or at it where spies alone are connected (ssc=true)",
)
def _spy(status: PublicationStatus) -> str | None:
    spy = status.slowest
    if spy is None or not status.is_stalled or not status.spy_is_slowest:
        return None
    behind = status.publication.position - spy.position
    sent = (status.publication.sender_position or 0) - spy.position
    return (
        f"{_reader(spy)} spies on this stream and is {_count(behind)} behind the publisher, "
        f"{_count(sent)} behind the sender: a publisher waits for its spies{_silent(status, spy.client)}"
    )


@PUBLICATION_RULES.row(
    "unfinished-claim",
    Cause.PUBLISHER,
    "stopped, and the frame at the slowest consumer's position has no length yet",
)
def _open_claim(status: PublicationStatus) -> str | None:
    if not status.has_stopped or not status.claim_is_open or status.spy_is_slowest:
        return None
    return (
        f"the message at position {status.consumer:,} was claimed but never committed: {_count(status.backlog)} behind it "
        f"wait until its producer ({_client(status.publication.client)} or another that shares the log) commits it, or the "
        "driver unblocks it"
    )


@PUBLICATION_RULES.row(
    "loss",
    Cause.LOSS,
    "stalled, the next frame does not fit below snd-lmt, this driver's image explains snd-lmt, it has a gap, and its "
    "subscribers wait at the gap",
)
def _loss(status: PublicationStatus) -> str | None:
    image = _window_image(status)
    if image is None or not image.has_gap or image.subscriber_lags:
        return None
    return f"{_gap(image)}, and the sender has {_count(status.sender_room or 0)} of window left"


@PUBLICATION_RULES.row("slow-recorder", Cause.DISK, "as slow-subscriber, and an archive records by that subscription")
def _slow_recorder(status: PublicationStatus) -> str | None:
    return _with_recorder(_slow_reader(status), status.reader)


@PUBLICATION_RULES.row(
    "slow-subscriber",
    Cause.SLOW_SUBSCRIBER,
    "stalled; IPC: the slowest sub-pos; network: the next frame does not fit below snd-lmt, this driver's image explains "
    "snd-lmt, and its slowest sub-pos is a quarter window or more behind rcv-pos",
)
def _slow_reader(status: PublicationStatus) -> str | None:
    who, image = status.reader, status.limiting_image
    if who is None or not status.is_stalled:
        return None
    if status.publication.is_ipc or image is None:
        behind = status.publication.position - who.position
        window = status.publication.window
        of = f" of a window of {_count(window)}" if window else ""
        return f"{_reader(who)} has {_count(behind)} unread{of}{_silent(status, who.client)}{_unrecorded(who)}"
    return (
        f"{_reader(who)} has {_count(image.unread)} unread of the receiver's window of {_count(image.window or 0)}; the "
        f"sender has {_count(status.sender_room or 0)} of it left and {_count(status.backlog)} waiting"
        f"{_silent(status, who.client)}{_unrecorded(who)}"
    )


@PUBLICATION_RULES.row(
    "congestion-window",
    Cause.FLOW_CONTROL_WINDOW,
    "as receiver-window, and rcv-cc-cubic-wnd is below the configured window",
)
def _congestion(status: PublicationStatus) -> str | None:
    image = _window_image(status)
    if image is None or not image.is_congested:
        return None
    return (
        f"congestion control has cut the receiver's window to {_count(image.image.cubic_window or 0)} of "
        f"{_count(image.image.window or 0)}; the subscribers have read all but {_count(image.unread)}, and "
        f"{_count(status.backlog)} wait at the sender"
    )


@PUBLICATION_RULES.row(
    "receiver-window",
    Cause.RECEIVER_BUFFER,
    "stalled, the next frame does not fit below snd-lmt, this driver's image explains snd-lmt, and its subscribers have "
    "read nearly everything",
)
def _receiver_window(status: PublicationStatus) -> str | None:
    image = _window_image(status)
    if image is None:
        return None
    return (
        f"the receiver's window of {_count(image.window or 0)} is full, although its subscribers have read all but "
        f"{_count(image.unread)}: data in flight fills it. A larger window (rcv-wnd, with so-rcvbuf to match) lets more "
        f"through; {_count(status.backlog)} wait at the sender"
    )


@PUBLICATION_RULES.row(
    "late-status-message",
    Cause.FLOW_CONTROL_WINDOW,
    "stalled, the next frame does not fit below snd-lmt, the stream is unicast, and its receiver, which is this driver's "
    "too, has granted half a window or more beyond snd-lmt",
)
def _late_status_message(status: PublicationStatus) -> str | None:
    image = status.only_image
    if image is None or not _waits_for_window(status) or not status.status_message_is_late:
        return None
    granted = image.consumed + (image.window or 0)
    return (
        f"the subscribers have read up to {image.consumed:,}, which allows the sender to reach {granted:,}, but the sender's "
        f"limit is still {status.publication.sender_limit or 0:,}: the status message is late, lost, or not processed yet; "
        f"{_count(status.backlog)} wait at the sender"
    )


@PUBLICATION_RULES.row(
    "group-window",
    Cause.FLOW_CONTROL_WINDOW,
    "stalled, the next frame does not fit below snd-lmt, no image here explains snd-lmt, and fc-receivers counts a group",
)
def _group_window(status: PublicationStatus) -> str | None:
    receivers = status.publication.receivers or 0
    if receivers <= 1 or not _waits_for_window(status):
        return None
    return (
        f"the slowest of {receivers} receivers holds the sender back: "
        f"{_count(status.sender_room or 0)} of window left, {_count(status.backlog)} waiting. To see which one, run this "
        f"command where the receivers are{_not_here(status)}"
    )


@PUBLICATION_RULES.row(
    "remote-window",
    Cause.FLOW_CONTROL_WINDOW,
    "stalled, the next frame does not fit below snd-lmt, and no image here explains snd-lmt",
)
def _remote_window(status: PublicationStatus) -> str | None:
    if not _waits_for_window(status):
        return None
    return (
        f"the receiver's window holds the sender back: {_count(status.sender_room or 0)} left, {_count(status.backlog)} "
        "waiting. Either a subscriber is slow or the window is too small: run this command where the receiver is"
        f"{_not_here(status)}"
    )


@PUBLICATION_RULES.row("slow-sender", Cause.DRIVER, "stalled, and snd-pos is behind pub-pos with room below snd-lmt")
def _slow_sender(status: PublicationStatus) -> str | None:
    sent = status.publication.sender_position
    if sent is None or not status.is_stalled or status.publication.position <= sent or status.sender_is_out_of_window:
        return None
    longest = status.snapshot.system(SystemCounter.SENDER_MAX_CYCLE_TIME) / 1e6
    not_taken = f"; the socket did not take {status.short_sends} batches" if status.short_sends else ""
    return (
        f"the driver's sender has {_count(status.backlog)} to send and {_count(status.sender_room or 0)} of window left: "
        f"its duty cycle is late (longest cycle so far: {longest:.1f} ms{not_taken})"
    )


@PUBLICATION_RULES.row(
    "limit-not-raised",
    Cause.DRIVER,
    "stalled, and the slowest consumer is more than an eighth of the window beyond what pub-lmt allows for",
)
def _limit_not_raised(status: PublicationStatus) -> str | None:
    if not status.is_stalled or not status.limit_lags:
        return None
    ahead = status.consumer - (status.implied_consumer or 0)
    longest = status.snapshot.system(SystemCounter.CONDUCTOR_MAX_CYCLE_TIME) / 1e6
    return (
        f"every consumer is {_count(ahead)} ahead of the position that the publisher's limit is based on: the driver's "
        f"conductor has not raised the limit (longest cycle so far: {longest:.1f} ms)"
    )


@PUBLICATION_RULES.row("flowing", Cause.NONE, "pub-pos has moved since the sample before")
def _flowing(status: PublicationStatus) -> str | None:
    if not status.has_moved:
        return None
    room = max(0, status.publication.limit - status.publication.position)
    return (
        f"flowing: {_count(status.backlog)} wait, {_count(room)} can be written before back pressure{_left_out(status)}"
    )


@PUBLICATION_RULES.row("idle", Cause.NONE, "otherwise")
def _idle(status: PublicationStatus) -> str:
    return f"nothing waits: the publisher can write{_recorded(status.publication.subscribers)}{_left_out(status)}"


@IMAGE_RULES.row("image-ended", Cause.NONE, "the log's metadata has an end-of-stream position")
def _image_ended(status: ImageStatus) -> str | None:
    if status.log is None or not status.log.is_ended:
        return None
    return f"the stream has ended; {_count(status.unread)} are unread"


@IMAGE_RULES.row("sender-gone", Cause.PUBLISHER, "the log's metadata counts no active transport")
def _sender_gone(status: ImageStatus) -> str | None:
    if status.log is None or status.log.active_transports != 0:
        return None
    return (
        f"the sender is silent: no connection feeds this image; {_count(status.unread)} that arrived before are unread"
    )


@IMAGE_RULES.row(
    "image-loss",
    Cause.LOSS,
    "rcv-hwm is beyond rcv-pos, which stands still or NAKs go out, and the subscribers wait at the gap",
)
def _image_loss(status: ImageStatus) -> str | None:
    return _gap(status) if status.has_gap and not status.subscriber_lags else None


@IMAGE_RULES.row(
    "image-slow-recorder", Cause.DISK, "as image-slow-subscriber, and an archive records by that subscription"
)
def _image_recorder(status: ImageStatus) -> str | None:
    return _with_recorder(_image_slow(status), status.slowest)


@IMAGE_RULES.row(
    "image-slow-subscriber",
    Cause.SLOW_SUBSCRIBER,
    "three quarters of the window lie between the slowest sub-pos and rcv-hwm, a quarter or more of it in order",
)
def _image_slow(status: ImageStatus) -> str | None:
    who = status.slowest
    if who is None or not status.subscriber_lags or not status.window_is_used_up:
        return None
    return (
        f"{_reader(who)} has {_count(status.unread)} unread of the receiver's window of {_count(status.window or 0)}: the "
        f"sender can hardly send{_silent(status, who.client)}{_unrecorded(who)}"
    )


@IMAGE_RULES.row(
    "image-congestion-window",
    Cause.FLOW_CONTROL_WINDOW,
    "rcv-cc-cubic-wnd is below the configured window, and three quarters of it are used",
)
def _image_congestion(status: ImageStatus) -> str | None:
    if not status.is_congested or not status.window_is_used_up:
        return None
    return (
        f"congestion control has cut the window to {_count(status.image.cubic_window or 0)} of "
        f"{_count(status.image.window or 0)}, and it is used up"
    )


@IMAGE_RULES.row("receiving", Cause.NONE, "rcv-pos has moved since the sample before")
def _receiving(status: ImageStatus) -> str | None:
    if not status.has_moved:
        return None
    return f"data is arriving; the slowest subscriber has {_count(status.unread)} unread"


@IMAGE_RULES.row("quiet", Cause.NONE, "otherwise")
def _quiet(status: ImageStatus) -> str:
    unread = f"; {_count(status.unread)} are unread" if status.unread else ""
    return f"nothing is arriving: the sender sends nothing{unread}{_recorded(status.image.subscribers)}"


def _waits_for_window(status: PublicationStatus) -> bool:
    return status.is_stalled and status.sender_is_out_of_window


def _window_image(status: PublicationStatus) -> ImageStatus | None:
    """Return the image whose window the sender waits for, if it is on this driver."""
    return status.limiting_image if _waits_for_window(status) else None


def _count(value: int) -> str:
    """Return a number of bytes with thousands separators."""
    return f"{value:,} bytes"


def _client(who: Client) -> str:
    return f"client {who.client_id} ({who.name})" if who.name else f"client {who.client_id}"


def _reader(who: Subscriber) -> str:
    return f"subscription {who.registration_id} of {_client(who.client)}"


def _unrecorded(who: Subscriber) -> str:
    """Return the end of a sentence about a slow subscriber: whether an archive does not record what it should read."""
    if who.archive_id is None or who.recording is not None:
        return ""
    return (
        f"; it is of archive {who.archive_id}, which is not recording this stream: if that archive's log says that streams wait "
        "to be recorded, a limit such as max_concurrent_recordings is reached"
    )


def _with_recorder(slow: str | None, who: Subscriber | None) -> str | None:
    """Add to a sentence about a slow subscriber what an archive's counters show, if it is the subscription of a recording."""
    if slow is None or who is None or who.recording is None:
        return None
    recording = who.recording
    text = f"{slow}; it writes {recording.name}, which is at {recording.position:,}"
    if not recording.write_bytes:
        return f"{text}: check the disk first (counters cannot tell a slow disk from a busy CPU)"
    rate = recording.write_bytes / max(recording.write_ns, 1) * 1e3
    return (
        f"{text}; while writing, this archive's recorder wrote {rate:,.0f} MB/s, and its longest write took "
        f"{recording.max_write_ns / 1e6:,.1f} ms"
    )


def _recorded(readers: tuple[Subscriber, ...]) -> str:
    """Return how far archives have recorded a stream that has stopped."""
    return "".join(f"; {s.recording.name} is at {s.recording.position:,}" for s in readers if s.recording)


def _number(value: int, one: str, several: str) -> str:
    return f"{value} {one if value == 1 else several}"


def _gap(image: ImageStatus) -> str:
    return (
        f"data is missing at the receiver from position {image.image.position:,}: up to {_count(image.missing)} after the "
        f"gap wait until it is repaired ({_number(image.naks_sent, 'NAK', 'NAKs')} since the previous sample)"
    )


def _silent(status: PublicationStatus | ImageStatus, who: Client) -> str:
    if who.heartbeat_ms <= 0:
        return ""
    age = status.snapshot.epoch_ms - who.heartbeat_ms
    return f"; that client has written no heartbeat for {age / 1000:.1f} s" if age > SILENT_MS else ""


def _not_here(status: PublicationStatus) -> str:
    if not status.images:
        return ""
    places = ", ".join(f"{i.image.key.registration_id} at {i.consumed:,}" for i in status.images)
    return f" (not the image here: {places})"


def _left_out(status: PublicationStatus) -> str:
    if not status.left_out:
        return ""
    ids = ", ".join(str(s.registration_id) for s in status.left_out)
    return f"; subscription {ids} fell behind and no longer counts (untethered)"
