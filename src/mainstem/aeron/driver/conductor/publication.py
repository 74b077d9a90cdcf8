"""The common base of IPC and network publications: registration, end and revocation (docs/protocols/aeron.md, 7, 14.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mainstem._core import layout
from mainstem._core.system_counter import SystemCounter
from mainstem._internal.frozen import frozen
from mainstem.aeron.driver.conductor.life_cycle import (
    Stream,
    StreamMemory,
    StreamState,
    StuckPosition,
    check_untethered,
    untethered_limit,
)
from mainstem.aeron.driver.conductor.params import PublicationParams, first_term_ids, pick
from mainstem.aeron.driver.conductor.stream_counters import StreamCounters
from mainstem.aeron.driver.conductor.stream_registry import StreamRegistry
from mainstem.aeron.driver.errors import invalid_channel
from mainstem.aeron.logbuffer import LogParameters, LogType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem._core.driver.block_allocator import BlockAllocator
    from mainstem._core.driver.ipc_path import IpcPath
    from mainstem._core.driver.positions import PositionSet
    from mainstem._core.driver.send_path import SendPath
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.channel import ChannelUri
    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.session_ids import SessionIds
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.media.udp_channel import UdpChannel


# A publication can write up to this many bytes as soon as it is connected, because their blocks are allocated in advance. This is
# the window for the default term length.
FIRST_AHEAD = 8 << 20


@frozen
class PublicationRequest:
    """A client's request. ``uri``, ``udp`` (None for IPC) and ``params`` are parsed from the text of ``channel``."""

    registration_id: int
    client_id: int
    stream_id: int
    channel: str
    uri: ChannelUri
    udp: UdpChannel | None
    params: PublicationParams
    is_exclusive: bool


class Publication(Stream[PublicationParams]):
    """A log that local clients write. ``references`` counts the registrations that keep it active.

    ``path`` moves limits and positions. ``positions`` are those of the subscribers that the path waits for. ``limit`` is the
    counter of the publishers' limit.
    """

    path: IpcPath | SendPath

    def __init__(
        self,
        memory: StreamMemory,
        request: PublicationRequest,
        positions: PositionSet,
        limit: CounterCell,
        resources: Resources,
        now_ns: int,
    ) -> None:
        super().__init__(memory, request.params, positions, resources, now_ns)
        self.is_exclusive = request.is_exclusive
        self.limit = limit
        self.references = 1
        self._stuck = StuckPosition(resources.settings.publication_unblock_timeout_ns, self.furthest_position, now_ns)

    @property
    def source_identity(self) -> str:
        return "aeron:ipc"

    @property
    def channel_status_id(self) -> int:
        raise NotImplementedError

    @property
    def furthest_position(self) -> int:
        """The position of the consumer that is furthest ahead: the sender, or the fastest subscriber of an IPC log."""
        raise NotImplementedError

    def producer_position(self) -> int:
        return self.path.producer_position()

    def release(self, now_ns: int) -> None:
        """Remove one registration. If it was the last, freeze the limit, store the end position, and start draining."""
        self.references -= 1
        if self.references == 0 and self.state is StreamState.ACTIVE:
            self._end_at_producer_position()
            self._move(StreamState.DRAINING, now_ns)

    def revoke(self, now_ns: int) -> None:
        # Store this before the end position: a reader that sees the end then checks whether the stream was revoked.
        self.log.is_publication_revoked = True
        self._end_at_producer_position()
        self._resources.count(SystemCounter.PUBLICATIONS_REVOKED)
        self._move(StreamState.LINGER, now_ns)

    def _on_active(self, now_ns: int, links: ImageLinks) -> None:
        limit = untethered_limit(self.furthest_position, self.params.publication_window_length)
        check_untethered(self, limit, self.params.tether_timeouts, links, now_ns=now_ns)
        if not self.is_exclusive:
            self._unblock_producers(now_ns)

    def _unblock_producers(self, now_ns: int) -> bool:
        return self._unblock(self._stuck, self.furthest_position, self.producer_position(), now_ns)

    def _end_at_producer_position(self) -> None:
        self._hold_limit()
        self.log.end_of_stream_position = self.producer_position()

    def _hold_limit(self) -> None:
        raise NotImplementedError


B = TypeVar("B", bound=Publication)


class PublicationRegistry(StreamRegistry[B]):
    def __init__(
        self, resources: Resources, links: ImageLinks, subscriptions: SubscriptionRegistry, session_ids: SessionIds
    ) -> None:
        super().__init__(resources, links, subscriptions)
        self._session_ids = session_ids

    def find_or_create(self, request: PublicationRequest, now_ns: int) -> tuple[B, bool]:
        """Return the publication for a registration, and whether it is new.

        The subscribers of a new publication are linked, but their clients haven't been told.
        """
        raise NotImplementedError

    def _find_shared(self, request: PublicationRequest, candidates: Iterable[B]) -> B | None:
        for publication in candidates:
            if (
                publication.stream_id == request.stream_id
                and not publication.is_exclusive
                and publication.state is StreamState.ACTIVE
                and publication.params.response_correlation_id == request.params.response_correlation_id
            ):
                _check_same(request, publication)
                return publication
        return None

    def _take_session_id(self, request: PublicationRequest, candidates: Iterable[B]) -> int:
        in_use = {publication.session_id for publication in candidates if publication.stream_id == request.stream_id}
        session_id = request.params.session_id
        if session_id is None:
            return self._session_ids.take(in_use)
        if session_id in in_use:
            raise invalid_channel(
                f"existing publication has clashing sessionId={session_id} for streamId={request.stream_id} "
                f"channel={request.channel}"
            )
        return session_id

    def _allocate(self, memory: StreamMemory, request: PublicationRequest, start: int) -> BlockAllocator | None:
        """Create the allocator of the log's blocks. Raises StorageSpaceError if there is no space.

        Each of several racing publishers can overrun the limit by one claim. So the margin has space for two claims of maximum
        length, or thousands of ordinary ones. Up to ``FIRST_AHEAD`` bytes of the first window are allocated at once.
        """
        log = memory.log
        longest = log.max_message_length + layout.DATA_HEADER_LENGTH * (
            1 + log.max_message_length // max(1, log.max_payload_length)
        )
        margin = min(log.term_length, longest if request.is_exclusive else 2 * longest)
        ahead = min(request.params.publication_window_length, FIRST_AHEAD)
        return self._resources.logs.allocate(log, memory.log_file, start, margin=margin, ahead=ahead)

    def _create_memory(self, request: PublicationRequest, session_id: int) -> StreamMemory:
        resources, params = self._resources, request.params
        initial, first, offset = first_term_ids(params, resources.rng)
        log, log_file = resources.logs.create_publication(
            LogParameters(
                correlation_id=request.registration_id,
                session_id=session_id,
                stream_id=request.stream_id,
                initial_term_id=initial,
                start_term_id=first,
                start_term_offset=offset,
                log_type=LogType.EXCLUSIVE_PUBLICATION if request.is_exclusive else LogType.CONCURRENT_PUBLICATION,
                page_size=resources.settings.file_page_size,
                **params.log_fields(),
                **self._socket_fields(sndbuf=params.so_sndbuf, rcvbuf=params.so_rcvbuf),
            )
        )
        counters = StreamCounters(
            resources.counters,
            request.registration_id,
            client_id=request.client_id,
            session_id=session_id,
            stream_id=request.stream_id,
            channel=request.channel,
        )
        return StreamMemory(log=log, log_file=log_file, counters=counters)


def _check_same(request: PublicationRequest, existing: Publication) -> None:
    log, uri, params = existing.log, request.uri, request.params
    pairs: list[tuple[str, object, object]] = [
        ("session-id", params.session_id, existing.session_id),
        ("mtu", uri.mtu, log.mtu),
        ("term-length", uri.term_length, log.term_length),
    ]
    if params.initial_term_id is not None and params.term_id is not None:
        start = existing.params
        pairs += [
            ("init-term-id", params.initial_term_id, log.initial_term_id),
            ("term-id", params.term_id, pick(start.term_id, log.initial_term_id)),
            ("term-offset", params.term_offset, start.term_offset),
        ]
    if not uri.is_ipc:
        pairs.append(("ssc", params.spies_simulate_connection, existing.params.spies_simulate_connection))
    for key, requested, actual in pairs:
        if requested is not None and requested != actual:
            raise invalid_channel(
                f"existing publication has different {key}: existing={actual} requested={requested} "
                f"existingChannel={existing.channel} channel={uri}"
            )
