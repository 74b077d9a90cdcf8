"""The base class of the registries of IPC publications, network publications and images."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem.aeron.driver.conductor.life_cycle import Stream, StreamState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.life_cycle import StreamMemory
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.subscription_link import SubscriberPosition, SubscriptionLink
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.event_log.events import Event

S = TypeVar("S", bound=Stream[Any])


class StreamRegistry(Generic[S]):
    """The streams of one kind that are not DONE. Images stay until the receiver has released them."""

    def __init__(self, resources: Resources, links: ImageLinks, subscriptions: SubscriptionRegistry) -> None:
        self._resources = resources
        self._links = links
        self._subscriptions = subscriptions
        self.streams: list[S] = []

    def get(self, registration_id: int) -> S | None:
        return next((stream for stream in self.streams if stream.registration_id == registration_id), None)

    def find(self, registration_id: int) -> S | None:
        stream = self.get(registration_id)
        return stream if stream is not None and stream.state is StreamState.ACTIVE else None

    def matching(self, stream: S) -> list[SubscriptionLink]:
        return self._subscriptions.matching(stream)

    def link_subscribers(self, stream: S, now_ns: int) -> None:
        for position in self._link_matching(stream, now_ns):
            self._links.announce(stream, position)

    def _link_matching(self, stream: S, now_ns: int) -> list[SubscriberPosition]:
        """Link matching subscriptions without announcing them, and return their positions.

        All of them must be linked before any client learns of the stream and can advance it. If no counter is left, a subscription
        stays unlinked, and the command still succeeds.
        """
        linked = []
        for subscription in self.matching(stream):
            try:
                linked.append(self._links.link(subscription, stream, now_ns))
            except BufferError as error:
                # Without the session and registration ids of the stream, because a peer could create many different texts.
                text = f"subscription {subscription.registration_id} was not linked to stream {stream.stream_id}"
                self._resources.errors.record(f"{text}: {error}")
        return linked

    def link_all(self, now_ns: int) -> None:
        for stream in self.streams:
            if stream.accepts_subscribers:
                self.link_subscribers(stream, now_ns)

    def on_timer(self, now_ns: int) -> None:
        for stream in list(self.streams):
            before = stream.state
            stream.on_time_event(now_ns, self._links)
            self._on_step(stream, before, now_ns)

    def _on_step(self, stream: S, before: StreamState, now_ns: int) -> None:
        raise NotImplementedError

    @contextmanager
    def _given_back_on_error(self, memory: StreamMemory) -> Iterator[None]:
        """Free the log and the counters if the body of the ``with`` statement raises."""
        try:
            yield
        except BaseException:
            memory.counters.close()
            self._resources.logs.delete(memory.log, memory.log_file)
            raise

    def _give_back(self, stream: S, kind: str, event: Event) -> None:
        assert stream.state is StreamState.DONE
        self._resources.changed(f"{kind} {stream.registration_id}", stream.state.name, "REMOVED")
        self._resources.note(
            event,
            session_id=stream.session_id,
            stream_id=stream.stream_id,
            id=stream.registration_id,
            channel=stream.channel,
        )
        self._links.unlink_all(stream)
        stream.stream_counters.close()
        self._resources.logs.delete(stream.log, stream.log_file)

    def _socket_fields(self, *, sndbuf: int, rcvbuf: int) -> dict[str, Any]:
        """Return the socket buffer fields of a log: the channel's request (0 for none), and the system's defaults and limits."""
        limits = self._resources.buffer_limits
        return {
            "socket_sndbuf_length": sndbuf,
            "os_default_sndbuf_length": limits.default_send,
            "os_max_sndbuf_length": limits.max_send,
            "socket_rcvbuf_length": rcvbuf,
            "os_default_rcvbuf_length": limits.default_receive,
            "os_max_rcvbuf_length": limits.max_receive,
        }
