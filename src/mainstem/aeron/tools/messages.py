"""The sentences of the diagnosis: what was seen, with the figures that show it, and no more than they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.system_counter import SystemCounter

if TYPE_CHECKING:
    from mainstem.aeron.tools.stream_state import ImageFacts, PublicationFacts
    from mainstem.aeron.tools.streams import Client, Subscriber

SILENT_MS = 2_000  # a client's conductor gives a heartbeat each 500 ms


def count(value: int) -> str:
    """Bytes, with their thousands apart."""
    return f"{value:,} bytes"


def client(who: Client) -> str:
    """A client by its id and, where it gave itself one, its name."""
    return f"client {who.client_id} ({who.name})" if who.name else f"client {who.client_id}"


def reader(who: Subscriber) -> str:
    """A subscription and whose it is."""
    return f"subscription {who.registration_id} of {client(who.client)}"


def driver_gone(facts: PublicationFacts | ImageFacts) -> str:
    """The driver's last sign of life."""
    age = facts.snapshot.heartbeat_age_ms
    if age is None:
        return "the driver has shut down: nothing moves any more"
    return f"the driver (pid {facts.snapshot.pid}) gave its last heartbeat {age / 1000:.1f} s ago: nothing moves"


def disk_full(facts: PublicationFacts | ImageFacts) -> str:
    """How much room is missing."""
    needed = facts.log.unallocated if facts.log else 0
    return (
        f"the file system of {facts.snapshot.directory} is full: {count(facts.snapshot.free_space or 0)} are free, and "
        f"this log may still need {count(needed)}; whoever writes the next new page of it is killed"
    )


def channel_broken(facts: PublicationFacts) -> str:
    """A send channel in error."""
    return f"the driver could not open {facts.publication.key.channel}; `mainstem errors` shows why"


def ended(facts: PublicationFacts) -> str:
    """A closed publication."""
    if facts.log is not None and facts.log.is_revoked:
        return "the publication was revoked"
    left = f": {count(facts.backlog)} are still to be taken" if facts.backlog else ""
    return f"the publication was closed and will go{left}"


def no_subscriber(facts: PublicationFacts) -> str:
    """IPC without a subscriber."""
    return f"nobody subscribes to stream {facts.publication.key.stream_id} by IPC here: offers answer NOT_CONNECTED"


def group_incomplete(facts: PublicationFacts) -> str:
    """A group that is still too small."""
    answering = _number(facts.publication.receivers or 0, "receiver answers", "receivers answer")
    return (
        f"{answering}, and the flow control of {facts.publication.key.channel} waits for more of them: offers answer "
        "NOT_CONNECTED until the group is complete"
    )


def no_receiver(facts: PublicationFacts) -> str:
    """Nobody answers on the network."""
    text = "no receiver has answered within the connection timeout: offers answer NOT_CONNECTED"
    if facts.publication.destinations is not None:
        text += f"; destinations known: {facts.publication.destinations}"
    if facts.publication.subscribers:
        text += f"; {_number(len(facts.publication.subscribers), 'spy listens', 'spies listen')}: none counts without ssc=true"
    return text


def spy(facts: PublicationFacts) -> str:
    """A spy behind the sender."""
    slowest = facts.slowest
    assert slowest is not None
    behind = facts.publication.position - slowest.position
    sent = (facts.publication.sender_position or 0) - slowest.position
    return (
        f"{reader(slowest)} spies on this stream and is {count(behind)} behind the publisher, "
        f"{count(sent)} behind the sender: a publisher waits for its spies{_silent(facts, slowest.client)}"
    )


def open_claim(facts: PublicationFacts) -> str:
    """An unfinished claim."""
    return (
        f"the message at position {facts.consumer:,} was claimed and never finished: {count(facts.backlog)} behind it "
        f"wait until its producer ({client(facts.publication.client)} or another that shares the log) commits it, or the "
        "driver unblocks it"
    )


def loss(facts: PublicationFacts) -> str:
    """A hole at the receiver."""
    image = facts.holding_image
    assert image is not None
    return f"{_hole(image)}, and the sender has {count(facts.sender_room or 0)} of window left"


def slow_reader(facts: PublicationFacts) -> str:
    """The subscriber that everybody waits for."""
    who = facts.reader
    assert who is not None
    image = facts.holding_image
    if facts.publication.is_ipc or image is None:
        behind = facts.publication.position - who.position
        window = facts.publication.window
        of = f" of a window of {count(window)}" if window else ""
        return f"{reader(who)} has {count(behind)} unread{of}{_silent(facts, who.client)}"
    return (
        f"{reader(who)} has {count(image.unread)} unread of the receiver's window of {count(image.window or 0)}; the "
        f"sender has {count(facts.sender_room or 0)} of it left and {count(facts.backlog)} waiting"
        f"{_silent(facts, who.client)}"
    )


def slow_recorder(facts: PublicationFacts) -> str:
    """A recorder that everybody waits for."""
    return f"{slow_reader(facts)}; it records: look at its disk first (the counters do not tell disk from processor)"


def congestion(facts: PublicationFacts) -> str:
    """A window made small by congestion control."""
    image = facts.holding_image
    assert image is not None
    return (
        f"congestion control has cut the receiver's window to {count(image.image.cubic_window or 0)} of "
        f"{count(image.image.window or 0)}; the subscribers have read all but {count(image.unread)}, and "
        f"{count(facts.backlog)} wait at the sender"
    )


def receiver_window(facts: PublicationFacts) -> str:
    """A window too small for the path."""
    image = facts.holding_image
    assert image is not None
    return (
        f"the receiver's window of {count(image.window or 0)} is used up though its subscribers have read all but "
        f"{count(image.unread)}: what is on the way fills it. A larger one (rcv-wnd, with so-rcvbuf to match) lets more "
        f"through; {count(facts.backlog)} wait at the sender"
    )


def late_news(facts: PublicationFacts) -> str:
    """A status message that has not arrived."""
    image = facts.only_image
    assert image is not None
    granted = image.consumed + (image.window or 0)
    return (
        f"the subscribers have read up to {image.consumed:,}, which lets the sender go to {granted:,}, and the sender still "
        f"takes {facts.publication.sender_limit or 0:,} for its limit: the status message is late, lost, or the driver "
        f"does not get to it; {count(facts.backlog)} wait at the sender"
    )


def group_window(facts: PublicationFacts) -> str:
    """The slowest of several receivers elsewhere."""
    return (
        f"the slowest of {facts.publication.receivers} receivers lets the sender go no further: "
        f"{count(facts.sender_room or 0)} of window left, {count(facts.backlog)} waiting. Which one, only the counters "
        f"where the receivers run can tell{_not_here(facts)}"
    )


def remote_window(facts: PublicationFacts) -> str:
    """A receiver elsewhere."""
    return (
        f"the receiver lets the sender go no further: {count(facts.sender_room or 0)} of window left, "
        f"{count(facts.backlog)} waiting. A slow subscriber or too small a window: run this where the receiver is"
        f"{_not_here(facts)}"
    )


def limit_not_raised(facts: PublicationFacts) -> str:
    """A conductor that is late."""
    ahead = facts.consumer - (facts.implied_consumer or 0)
    longest = facts.snapshot.system(SystemCounter.CONDUCTOR_MAX_CYCLE_TIME) / 1e6
    return (
        f"every consumer is {count(ahead)} further than the publisher's limit allows for: the driver's conductor has not "
        f"raised it (longest cycle so far: {longest:.1f} ms)"
    )


def slow_sender(facts: PublicationFacts) -> str:
    """A sender that is late."""
    longest = facts.snapshot.system(SystemCounter.SENDER_MAX_CYCLE_TIME) / 1e6
    text = (
        f"the driver's sender has {count(facts.backlog)} to send and {count(facts.sender_room or 0)} of window to do it: "
        f"it does not get to it (longest cycle so far: {longest:.1f} ms"
    )
    return f"{text}; the socket refused {facts.short_sends} batches)" if facts.short_sends else f"{text})"


def flowing(facts: PublicationFacts) -> str:
    """Nobody holds it."""
    room = max(0, facts.publication.limit - facts.publication.position)
    return f"flows: {count(facts.backlog)} wait, {count(room)} may be written before back pressure{_left_out(facts)}"


def idle(facts: PublicationFacts) -> str:
    """Nothing to do."""
    return f"nothing waits: the publisher may write{_left_out(facts)}"


def image_ended(facts: ImageFacts) -> str:
    """The end of the stream."""
    return f"the stream has ended; {count(facts.unread)} are unread"


def sender_gone(facts: ImageFacts) -> str:
    """No connection."""
    return f"no connection feeds this image: its sender is silent, {count(facts.unread)} that came before are unread"


def image_loss(facts: ImageFacts) -> str:
    """A hole, seen from the receiver."""
    return _hole(facts)


def image_slow(facts: ImageFacts) -> str:
    """A slow subscriber, seen from the receiver."""
    who = facts.slowest
    assert who is not None
    return (
        f"{reader(who)} has {count(facts.unread)} unread of the receiver's window of {count(facts.window or 0)}: its "
        f"sender can hardly send{_silent(facts, who.client)}"
    )


def image_recorder(facts: ImageFacts) -> str:
    """A slow recorder, seen from the receiver."""
    return f"{image_slow(facts)}; it records: look at its disk first (the counters do not tell disk from processor)"


def image_congestion(facts: ImageFacts) -> str:
    """A small congestion window, seen from the receiver."""
    return (
        f"congestion control has cut the window to {count(facts.image.cubic_window or 0)} of "
        f"{count(facts.image.window or 0)}, and it is used up"
    )


def receiving(facts: ImageFacts) -> str:
    """Data comes in."""
    return f"data comes in; the slowest subscriber has {count(facts.unread)} unread"


def quiet(facts: ImageFacts) -> str:
    """Nothing comes."""
    unread = f"; {count(facts.unread)} are unread" if facts.unread else ""
    return f"nothing comes in: the sender sends nothing{unread}"


def _number(value: int, one: str, several: str) -> str:
    return f"{value} {one if value == 1 else several}"


def _hole(image: ImageFacts) -> str:
    return (
        f"data is missing at the receiver from position {image.image.position:,}: up to {count(image.missing)} behind the "
        f"hole wait for its repair ({_number(image.naks_sent, 'NAK', 'NAKs')} since the look before)"
    )


def _silent(facts: PublicationFacts | ImageFacts, who: Client) -> str:
    if who.heartbeat_ms <= 0:
        return ""
    age = facts.snapshot.epoch_ms - who.heartbeat_ms
    return f"; that client has given no heartbeat for {age / 1000:.1f} s" if age > SILENT_MS else ""


def _not_here(facts: PublicationFacts) -> str:
    if not facts.images:
        return ""
    places = ", ".join(f"{i.image.key.registration_id} at {i.consumed:,}" for i in facts.images)
    return f" (not the image here: {places})"


def _left_out(facts: PublicationFacts) -> str:
    if not facts.left_out:
        return ""
    ids = ", ".join(str(s.registration_id) for s in facts.left_out)
    return f"; subscription {ids} was left behind and does not count (untethered)"
