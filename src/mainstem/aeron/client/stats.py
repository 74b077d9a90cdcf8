"""The values that the ``stats`` methods return."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublicationStats:
    """The statistics of a publication.

    Attributes:
        channel: Its channel.
        stream_id: Its stream id.
        session_id: Its session id.
        is_exclusive: Whether it is the only publication of its session.
        is_connected: Whether it has a subscriber.
        position: The stream's position in bytes, as published by all publications of the session.
        available_window: How many bytes can be published before back pressure.
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
    """The statistics of one publisher's stream, as a subscription reads it.

    Attributes:
        session_id: The publisher's session id.
        source_identity: Where the stream comes from: ``ip:port``, or ``aeron:ipc``.
        join_position: The position, in bytes, at which the subscription joined.
        position: The position, in bytes, up to which the subscription has read.
        is_end_of_stream: Whether the publisher has ended and everything has been read.
    """

    session_id: int
    source_identity: str
    join_position: int
    position: int
    is_end_of_stream: bool


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """The statistics of a subscription.

    Attributes:
        channel: Its channel.
        stream_id: Its stream id.
        images: Its publishers' streams.
    """

    channel: str
    stream_id: int
    images: tuple[ImageStats, ...]


@dataclass(frozen=True, slots=True)
class ClientStats:
    """The statistics of a client at one moment. ``str`` formats them in a few lines.

    Attributes:
        client_id: The client's id at the driver.
        name: Its name.
        directory: The driver's directory.
        driver_heartbeat_age_ms: Milliseconds since the driver's last heartbeat; -1 after a clean shutdown of the driver.
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
    """The statistics of a requester.

    Attributes:
        in_flight: How many requests are waiting for their responses.
        late_responses: How many responses arrived after their requests had timed out, and were dropped. The requester reads
            responses only while a request waits, so the next request counts them.
    """

    in_flight: int
    late_responses: int


@dataclass(frozen=True, slots=True)
class ResponderStats:
    """The statistics of a responder.

    Attributes:
        clients: How many requesters have a response publication.
        refused_clients: How many publishers were rejected because they had no response channel or exceeded ``max_clients``.
        undelivered_responses: How many responses ``serve`` could not deliver because the requester was gone or did not read.
        handling: How many handlers of ``serve`` are running.
    """

    clients: int
    refused_clients: int
    undelivered_responses: int
    handling: int
