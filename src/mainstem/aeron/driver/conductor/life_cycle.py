"""The life cycle of a stream, which is an IPC publication, a network publication, or an image.

The conductor takes each stream through the same states:

    ACTIVE      producers write, or packets arrive; subscribers can join
    DRAINING    the end is known; data before it is still sent and read
    LINGER      the stream is unavailable to subscribers; the log remains for clients that still map it, and for retransmission
    DONE        nothing uses the stream; its log and counters are freed

A stream only moves forward, except that an image that its last subscriber has left is ACTIVE again with the next. The conductor's
thread moves it on a command, a message of another agent, or a timer tick. A revoked stream skips DRAINING, and its unread data is
lost.

    ACTIVE -> DRAINING      a publication, when its last registration is released; an image, when no packet arrived within its
                            liveness timeout, when no subscriber is left, or when it has been rebuilt up to its end
    DRAINING -> LINGER      when every subscriber that counts has read to the end, a network publication has also sent everything,
                            and an image has announced the end in status messages for a while
    LINGER -> DONE          after the linger time, or for an image at once if no subscriber is left

When a stream enters LINGER, the conductor notifies the clients of its subscribers once that the image is unavailable.

Clients or the receiver write the log. Compiled paths move limits and positions, and clean the log: ``IpcPath`` in the conductor's
thread, ``SendPath`` in the sender's, and ``ReceivePath`` in the receiver's. The conductor may see an old position of a path, but
never one that is too high. It changes a path of another thread with a command (``agent_proxies``), which takes up to one duty
cycle. Until then, a stream that the conductor has moved to DRAINING can still get frames, so on each timer tick the conductor
reads the end again from the tail of the log. It frees a path, its log and its counters only after the other agent has reported
that it released them.

A path's set of subscriber positions has one writer, the conductor, and concurrent readers. The conductor stores a position in its
counter before it adds the counter to the set. Untethered subscribers that fall too far behind stop counting, and rejoin after a
rest (docs/protocols/aeron.md, 19.6).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, TypeVar

from mainstem._core.log import term
from mainstem._core.system_counter import SystemCounter
from mainstem._internal.frozen import frozen
from mainstem.aeron.driver.conductor.subscription_link import TetherState
from mainstem.errors import CorruptLogError

if TYPE_CHECKING:
    from mainstem._core.driver.positions import PositionSet
    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.params import PublicationParams, SubscriptionParams, TetherTimeouts
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.stream_counters import StreamCounters
    from mainstem.aeron.driver.conductor.subscription_link import (
        Interest,
        StreamSource,
        SubscriberPosition,
        SubscriptionLink,
    )
    from mainstem.aeron.logbuffer import LogBuffers


class StreamState(Enum):
    """The states of a publication or an image (docs/protocols/aeron.md, 14.6, 15.6)."""

    ACTIVE = auto()
    DRAINING = auto()
    LINGER = auto()
    DONE = auto()

    @property
    def successors(self) -> frozenset[StreamState]:
        return _SUCCESSORS[self]


_SUCCESSORS = {
    StreamState.ACTIVE: frozenset({StreamState.DRAINING, StreamState.LINGER}),
    StreamState.DRAINING: frozenset({StreamState.LINGER, StreamState.ACTIVE}),
    StreamState.LINGER: frozenset({StreamState.DONE}),
    StreamState.DONE: frozenset[StreamState](),
}


P = TypeVar("P", bound="PublicationParams | SubscriptionParams")


class StuckPosition:
    """A detector of a position that hasn't moved for a timeout although the producer is ahead (docs/protocols/aeron.md, 11.7)."""

    __slots__ = ("_position", "_since_ns", "_timeout_ns")

    def __init__(self, timeout_ns: int, position: int, now_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self._position = position
        self._since_ns = now_ns

    def is_stuck(self, position: int, producer_position: int, now_ns: int) -> bool:
        if position != self._position or position >= producer_position:
            self._position = position
            self._since_ns = now_ns
            return False
        if now_ns - self._since_ns < self._timeout_ns:
            return False
        self._since_ns = now_ns
        return True


@frozen
class StreamMemory:
    """The shared memory of a stream: its log, the path of the log file, and its counters."""

    log: LogBuffers
    log_file: str
    counters: StreamCounters


class Stream(Generic[P]):
    """The base class of the three kinds of streams: identity, memory, state and subscribers.

    ``channel`` is the channel as the creating client wrote it. ``positions`` are those of the subscribers that the path waits for.
    """

    is_ipc = False

    def __init__(
        self, memory: StreamMemory, params: P, positions: PositionSet, resources: Resources, now_ns: int
    ) -> None:
        counters = memory.counters
        self.registration_id = counters.registration_id
        self.session_id = counters.session_id
        self.stream_id = counters.stream_id
        self.channel = counters.channel
        self.params = params
        self.log = memory.log
        self.log_file = memory.log_file
        self.stream_counters = counters
        self.state = StreamState.ACTIVE
        self.since_ns = now_ns
        self.subscribers: list[SubscriberPosition] = []
        self._resources = resources
        self._positions = positions

    @property
    def accepts_subscribers(self) -> bool:
        """Whether new subscribers may link. If the stream drains, they may only while another subscriber still reads it."""
        return self.state is StreamState.ACTIVE or (self.state is StreamState.DRAINING and self._is_being_read())

    def _is_being_read(self) -> bool:
        raise NotImplementedError

    def _is_read_behind(self, end: int) -> bool:
        return any(position.is_counted and position.cell.get_acquire() < end for position in self.subscribers)

    def interest_of(self, subscription: SubscriptionLink) -> Interest | None:
        raise NotImplementedError

    def add_subscriber(self, position: SubscriberPosition) -> None:
        try:
            self._positions.add(position.cell.counter_id)
        except ValueError as error:
            raise self._corrupt(error, position.cell.get()) from None
        if position not in self.subscribers:
            self.subscribers.append(position)

    def rest_subscriber(self, position: SubscriberPosition) -> None:
        self._positions.remove(position.cell.counter_id)

    def remove_subscriber(self, position: SubscriberPosition) -> None:
        self.rest_subscriber(position)
        self.subscribers.remove(position)

    def on_unlinked(self, now_ns: int) -> None:
        """Called after a subscription that read the stream was removed."""

    def on_time_event(self, now_ns: int, links: ImageLinks) -> None:
        if self.state is StreamState.ACTIVE:
            self._on_active(now_ns, links)
        elif self.state is StreamState.DRAINING:
            if self._is_drained(now_ns):
                self._move(StreamState.LINGER, now_ns)
                links.on_lingering(self)
        elif self.state is StreamState.LINGER and self._has_lingered(now_ns):
            self._move(StreamState.DONE, now_ns)

    def _on_active(self, now_ns: int, links: ImageLinks) -> None:
        raise NotImplementedError

    def _is_drained(self, now_ns: int) -> bool:
        raise NotImplementedError

    def _has_lingered(self, now_ns: int) -> bool:
        raise NotImplementedError

    @property
    def source_identity(self) -> str:
        raise NotImplementedError

    @property
    def join_position(self) -> int:
        raise NotImplementedError

    def _have_read(self, end: int, now_ns: int) -> bool:
        """Return whether every subscriber that a draining stream waits for has read to ``end``.

        The stream waits for untethered subscribers only within the window limit timeout, and not for those that rest.
        """
        patient = now_ns - self.since_ns < self.params.tether_timeouts.window_limit_ns
        return not any(
            position.cell.get_acquire() < end
            for position in self.subscribers
            if position.is_counted and (patient or position.interest.params.tether)
        )

    def _unblock(self, stuck: StuckPosition, position: int, producer_position: int, now_ns: int) -> bool:
        """Replace an unfinished claim with padding if ``position`` is stuck there; return whether it was replaced."""
        log = self.log
        if not stuck.is_stuck(position, producer_position, now_ns):
            return False
        try:
            if not term.unblock(log.buffer, log.term_length, log.initial_term_id, position):
                return False
        except ValueError as error:
            # The claim stays, and stalls only this stream.
            self._resources.errors.record(str(self._corrupt(error, position)))
            return False
        self._resources.count(SystemCounter.UNBLOCKED_PUBLICATIONS)
        return True

    def _corrupt(self, error: ValueError, position: int) -> CorruptLogError:
        return CorruptLogError(f"{self.log_file}: {error}", log_file=self.log_file, position=position)

    def _move(self, state: StreamState, now_ns: int) -> None:
        assert state in self.state.successors, f"{self.state} -> {state}"
        self.state = state
        self.since_ns = now_ns


def untethered_limit(reference_position: int, window_length: int) -> int:
    """Return the position up to which an untethered subscriber may be evicted: three quarters of a window behind the reference."""
    return reference_position - window_length + window_length // 4


def untethered_image_limit(reference_position: int, window_length: int, reported_position: int, mtu: int) -> int:
    """Return the same as `untethered_limit` for an image, whose receiver reports only every quarter of the window.

    A subscriber that stops less than a quarter of the window beyond ``reported_position`` keeps the receiver from reporting a new
    position. When the sender has used up the reported window, except for the last quarter or datagram, such a subscriber may be
    evicted, too. Otherwise it would stall the stream forever.
    """
    limit = untethered_limit(reference_position, window_length)
    quarter = window_length // 4
    if reference_position + max(quarter, mtu) >= reported_position + window_length:
        return max(limit, reported_position + quarter)
    return limit


def check_untethered(
    source: StreamSource, limit: int, timeouts: TetherTimeouts, links: ImageLinks, *, now_ns: int
) -> None:
    """Move each untethered subscriber of ``source`` to its next state if that is due."""
    for position in list(source.subscribers):
        if position.interest.params.tether:
            continue
        state = position.state
        if state is TetherState.ACTIVE:
            if position.cell.get_acquire() > limit:
                position.since_ns = now_ns
            elif now_ns - position.since_ns >= timeouts.window_limit_ns:
                _move(position, TetherState.LINGER, now_ns)
                links.enter_linger(source, position)
        elif state is TetherState.LINGER:
            if now_ns - position.since_ns >= timeouts.linger_ns:
                if position.interest.params.rejoin:
                    _move(position, TetherState.RESTING, now_ns)
                    links.enter_resting(source, position)
                else:
                    _move(position, TetherState.CLOSED, now_ns)
                    links.enter_closed(source, position)
        elif state is TetherState.RESTING and now_ns - position.since_ns >= timeouts.resting_ns:
            # Set the position before it counts again. Otherwise the subscriber would rejoin at the position where it stopped.
            position.cell.set_release(source.join_position)
            _move(position, TetherState.ACTIVE, now_ns)
            links.enter_active(source, position)


def _move(position: SubscriberPosition, state: TetherState, now_ns: int) -> None:
    assert state in position.state.successors
    position.state = state
    position.since_ns = now_ns
