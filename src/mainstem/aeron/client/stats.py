"""What ``stats`` returns: what a client has, and how far each of its streams is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublicationStats:
    """One publication.

    Attributes:
        channel: Its channel.
        stream_id: Its stream id.
        session_id: Its session id.
        is_exclusive: Whether it is the only publication of its session.
        is_connected: Whether a subscriber is there.
        position: The position of the stream, in bytes, up to which it was published, by all publications of the session.
        available_window: How many bytes may be published before back pressure.

    Example:
        >>> [publication.available_window for publication in aeron.stats().publications]
    """

    channel: str
    stream_id: int
    session_id: int
    is_exclusive: bool
    is_connected: bool
    position: int
    available_window: int


@dataclass(frozen=True, slots=True)
class ImageStats:
    """One publisher's stream, as a subscription reads it.

    Attributes:
        session_id: The publisher's session id.
        source_identity: Where it comes from: ``ip:port``, or ``aeron:ipc``.
        join_position: The position of the stream, in bytes, at which the subscription joined.
        position: The position, in bytes, up to which the subscription has read.
        is_end_of_stream: Whether the publisher has ended and all was read.

    Example:
        >>> sum(image.position - image.join_position for image in subscription.images)
    """

    session_id: int
    source_identity: str
    join_position: int
    position: int
    is_end_of_stream: bool


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """One subscription.

    Attributes:
        channel: Its channel.
        stream_id: Its stream id.
        images: Its publishers' streams.

    Example:
        >>> [len(subscription.images) for subscription in aeron.stats().subscriptions]
    """

    channel: str
    stream_id: int
    images: tuple[ImageStats, ...]


@dataclass(frozen=True, slots=True)
class ClientStats:
    """What a client has at one moment; ``str`` is some lines for people.

    Attributes:
        client_id: The client's id at the driver.
        name: Its name.
        directory: The driver's directory.
        driver_heartbeat_age_ms: Milliseconds since the driver's last sign of life; -1 after its clean end.
        publications: Its publications.
        subscriptions: Its subscriptions.
        counters: How many counters it has.
        pending: How many commands the driver has not responded to.

    Example:
        >>> print(aeron.stats())
    """

    client_id: int
    name: str
    directory: str
    driver_heartbeat_age_ms: int
    publications: tuple[PublicationStats, ...]
    subscriptions: tuple[SubscriptionStats, ...]
    counters: int
    pending: int

    def __str__(self) -> str:
        head = (
            f"client {self.client_id} {self.name} of {self.directory}: the driver's heartbeat is"
            f" {self.driver_heartbeat_age_ms} ms old, {self.counters} counters, {self.pending} commands pending"
        )
        lines = [head]
        for publication in self.publications:
            connected = "connected" if publication.is_connected else "not connected"
            lines.append(
                f"  publication of stream {publication.stream_id} on {publication.channel}, session {publication.session_id}:"
                f" {connected}, position {publication.position:,}, window {publication.available_window:,}"
            )
        for subscription in self.subscriptions:
            lines.append(f"  subscription of stream {subscription.stream_id} on {subscription.channel}")
            for image in subscription.images:
                end = ", ended" if image.is_end_of_stream else ""
                lines.append(
                    f"    session {image.session_id} from {image.source_identity}: position {image.position:,},"
                    f" joined at {image.join_position:,}{end}"
                )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RequesterStats:
    """What a requester waits for.

    Attributes:
        in_flight: How many requests wait for their responses.
        late_responses: How many responses came after their request had been given up, and were dropped. Responses are read
            while a request waits, so the next request counts them.

    Example:
        >>> requester.stats().in_flight
    """

    in_flight: int
    late_responses: int


@dataclass(frozen=True, slots=True)
class ResponderStats:
    """Who uses a responder.

    Attributes:
        clients: How many requesters have a way back.
        refused_clients: How many publishers were rejected: without a response channel, or beyond ``max_clients``.
        undelivered_responses: How many responses ``serve`` could not deliver: their requester had gone, or did not read.
        handling: How many handlers of ``serve`` run.

    Example:
        >>> responder.stats().clients
    """

    clients: int
    refused_clients: int
    undelivered_responses: int
    handling: int
