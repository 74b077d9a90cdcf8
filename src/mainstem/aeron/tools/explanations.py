"""The sentences of the diagnosis: what was observed, with the figures that show it, and no more than they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.group import group_size, incomplete_group
from mainstem.aeron.system_counter import SystemCounter

if TYPE_CHECKING:
    from mainstem.aeron.tools.stream_state import ImageStatus, PublicationStatus
    from mainstem.aeron.tools.streams import Client, Subscriber

SILENT_MS = 2_000  # a client's conductor writes a heartbeat each 500 ms


def count(value: int) -> str:
    """Return a number of bytes, with its thousands apart."""
    return f"{value:,} bytes"


def client(who: Client) -> str:
    """Return a client's id and, where it has one, its name."""
    return f"client {who.client_id} ({who.name})" if who.name else f"client {who.client_id}"


def reader(who: Subscriber) -> str:
    """Return a subscription and its client."""
    return f"subscription {who.registration_id} of {client(who.client)}"


def driver_gone(status: PublicationStatus | ImageStatus) -> str:
    """The driver's heartbeat is old."""
    age = status.snapshot.heartbeat_age_ms
    if age is None:
        return "the driver has shut down: nothing moves"
    return f"the driver (pid {status.snapshot.pid})'s last heartbeat was {age / 1000:.1f} s ago: nothing moves"


def disk_full(status: PublicationStatus | ImageStatus) -> str:
    """How much room is missing."""
    needed = status.log.unallocated if status.log else 0
    return (
        f"the file system of {status.snapshot.directory} is full: {count(status.snapshot.free_space or 0)} are free, and "
        f"this log may still need {count(needed)}; the process that writes the next new page of it is killed"
    )


def channel_broken(status: PublicationStatus) -> str:
    """A send channel in error."""
    return f"the driver could not open {status.publication.key.channel}; `mainstem errors` shows why"


def ended(status: PublicationStatus) -> str:
    """A closed publication."""
    if status.log is not None and status.log.is_revoked:
        return "the publication was revoked"
    left = f": {count(status.backlog)} are still unread" if status.backlog else ""
    return f"the publication was closed and will go{left}"


def no_subscriber(status: PublicationStatus) -> str:
    """IPC without a subscriber."""
    return f"stream {status.publication.key.stream_id} has no IPC subscription here: offers return NOT_CONNECTED"


def group_incomplete(status: PublicationStatus) -> str:
    """A group that is still too small."""
    channel = status.publication.key.channel
    group = incomplete_group(status.publication.receivers or 0, group_size(channel))
    return (
        f"{group}, and the flow control of {channel} waits for more: offers return NOT_CONNECTED until it is complete"
    )


def no_receiver(status: PublicationStatus) -> str:
    """No receiver sends status messages."""
    text = "no receiver has responded within the connection timeout: offers return NOT_CONNECTED"
    if size := group_size(status.publication.key.channel):
        text += f"; flow control waits for {size} receivers, and all subscriptions on one driver are one receiver"
    if status.publication.destinations is not None:
        text += f"; destinations known: {status.publication.destinations}"
    if status.publication.subscribers:
        text += f"; {_number(len(status.publication.subscribers), 'spy listens', 'spies listen')}: none counts without ssc=true"
    return text


def spy(status: PublicationStatus) -> str:
    """A spy behind the sender."""
    slowest = status.slowest
    assert slowest is not None
    behind = status.publication.position - slowest.position
    sent = (status.publication.sender_position or 0) - slowest.position
    return (
        f"{reader(slowest)} spies on this stream and is {count(behind)} behind the publisher, "
        f"{count(sent)} behind the sender: a publisher waits for its spies{_silent(status, slowest.client)}"
    )


def open_claim(status: PublicationStatus) -> str:
    """An unfinished claim."""
    return (
        f"the message at position {status.consumer:,} was claimed but never committed: {count(status.backlog)} behind it "
        f"wait until its producer ({client(status.publication.client)} or another that shares the log) commits it, or the "
        "driver unblocks it"
    )


def loss(status: PublicationStatus) -> str:
    """A gap at the receiver."""
    image = status.limiting_image
    assert image is not None
    return f"{_gap(image)}, and the sender has {count(status.sender_room or 0)} of window left"


def slow_reader(status: PublicationStatus) -> str:
    """The subscriber that the stream waits for."""
    who = status.reader
    assert who is not None
    image = status.limiting_image
    if status.publication.is_ipc or image is None:
        behind = status.publication.position - who.position
        window = status.publication.window
        of = f" of a window of {count(window)}" if window else ""
        return f"{reader(who)} has {count(behind)} unread{of}{_silent(status, who.client)}"
    return (
        f"{reader(who)} has {count(image.unread)} unread of the receiver's window of {count(image.window or 0)}; the "
        f"sender has {count(status.sender_room or 0)} of it left and {count(status.backlog)} waiting"
        f"{_silent(status, who.client)}"
    )


def slow_recorder(status: PublicationStatus) -> str:
    """A recorder that the stream waits for."""
    return f"{slow_reader(status)}; it is a recorder: check its disk first (counters cannot tell a slow disk from a busy CPU)"


def congestion(status: PublicationStatus) -> str:
    """A window reduced by congestion control."""
    image = status.limiting_image
    assert image is not None
    return (
        f"congestion control has cut the receiver's window to {count(image.image.cubic_window or 0)} of "
        f"{count(image.image.window or 0)}; the subscribers have read all but {count(image.unread)}, and "
        f"{count(status.backlog)} wait at the sender"
    )


def receiver_window(status: PublicationStatus) -> str:
    """A window too small for the path."""
    image = status.limiting_image
    assert image is not None
    return (
        f"the receiver's window of {count(image.window or 0)} is used up though its subscribers have read all but "
        f"{count(image.unread)}: what is on the way fills it. A larger one (rcv-wnd, with so-rcvbuf to match) lets more "
        f"through; {count(status.backlog)} wait at the sender"
    )


def late_status_message(status: PublicationStatus) -> str:
    """A status message that has not arrived."""
    image = status.only_image
    assert image is not None
    granted = image.consumed + (image.window or 0)
    return (
        f"the subscribers have read up to {image.consumed:,}, which lets the sender go to {granted:,}, and the sender still "
        f"takes {status.publication.sender_limit or 0:,} for its limit: the status message is late, lost, or not "
        f"processed yet; {count(status.backlog)} wait at the sender"
    )


def group_window(status: PublicationStatus) -> str:
    """The slowest of several receivers elsewhere."""
    return (
        f"the slowest of {status.publication.receivers} receivers lets the sender go no further: "
        f"{count(status.sender_room or 0)} of window left, {count(status.backlog)} waiting. Which one, only the counters "
        f"where the receivers run show{_not_here(status)}"
    )


def remote_window(status: PublicationStatus) -> str:
    """A receiver elsewhere."""
    return (
        f"the receiver lets the sender go no further: {count(status.sender_room or 0)} of window left, "
        f"{count(status.backlog)} waiting. A slow subscriber or too small a window: run this command where the receiver is"
        f"{_not_here(status)}"
    )


def limit_not_raised(status: PublicationStatus) -> str:
    """A conductor that is late."""
    ahead = status.consumer - (status.implied_consumer or 0)
    longest = status.snapshot.system(SystemCounter.CONDUCTOR_MAX_CYCLE_TIME) / 1e6
    return (
        f"every consumer is {count(ahead)} further than the publisher's limit allows for: the driver's conductor has not "
        f"raised it (longest cycle so far: {longest:.1f} ms)"
    )


def slow_sender(status: PublicationStatus) -> str:
    """A sender that is late."""
    longest = status.snapshot.system(SystemCounter.SENDER_MAX_CYCLE_TIME) / 1e6
    text = (
        f"the driver's sender has {count(status.backlog)} to send and {count(status.sender_room or 0)} of window to do it: "
        f"its duty cycle is late (longest cycle so far: {longest:.1f} ms"
    )
    return f"{text}; the socket did not take {status.short_sends} batches)" if status.short_sends else f"{text})"


def flowing(status: PublicationStatus) -> str:
    """Nothing holds it back."""
    room = max(0, status.publication.limit - status.publication.position)
    return f"flows: {count(status.backlog)} wait, {count(room)} may be written before back pressure{_left_out(status)}"


def idle(status: PublicationStatus) -> str:
    """Nothing to do."""
    return f"nothing waits: the publisher may write{_left_out(status)}"


def image_ended(status: ImageStatus) -> str:
    """The end of the stream."""
    return f"the stream has ended; {count(status.unread)} are unread"


def sender_gone(status: ImageStatus) -> str:
    """No connection."""
    return f"no connection feeds this image: its sender is silent, {count(status.unread)} that came before are unread"


def image_loss(status: ImageStatus) -> str:
    """A gap, seen from the receiver."""
    return _gap(status)


def image_slow(status: ImageStatus) -> str:
    """A slow subscriber, seen from the receiver."""
    who = status.slowest
    assert who is not None
    return (
        f"{reader(who)} has {count(status.unread)} unread of the receiver's window of {count(status.window or 0)}: its "
        f"sender can hardly send{_silent(status, who.client)}"
    )


def image_recorder(status: ImageStatus) -> str:
    """A slow recorder, seen from the receiver."""
    return f"{image_slow(status)}; it is a recorder: check its disk first (counters cannot tell a slow disk from a busy CPU)"


def image_congestion(status: ImageStatus) -> str:
    """A small congestion window, seen from the receiver."""
    return (
        f"congestion control has cut the window to {count(status.image.cubic_window or 0)} of "
        f"{count(status.image.window or 0)}, and it is used up"
    )


def receiving(status: ImageStatus) -> str:
    """Data comes in."""
    return f"data comes in; the slowest subscriber has {count(status.unread)} unread"


def quiet(status: ImageStatus) -> str:
    """Nothing comes."""
    unread = f"; {count(status.unread)} are unread" if status.unread else ""
    return f"nothing comes in: the sender sends nothing{unread}"


def _number(value: int, one: str, several: str) -> str:
    return f"{value} {one if value == 1 else several}"


def _gap(image: ImageStatus) -> str:
    return (
        f"data is missing at the receiver from position {image.image.position:,}: up to {count(image.missing)} behind the "
        f"gap wait for its repair ({_number(image.naks_sent, 'NAK', 'NAKs')} since the sample before)"
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
