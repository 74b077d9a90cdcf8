"""The life that every stream of the conductor has, and what all of them share.

Three things are streams: an IPC publication, a network publication, and an image (a publication as it is rebuilt by a receiver).
The conductor makes them, links subscriptions to them, and takes each through the same states:

    ACTIVE      producers write, or packets come; subscribers may join
    DRAINING    the end is known; what has been written is sent, and read, up to it
    LINGER      subscribers have lost it; the log stays for those that map it still, and for retransmission
    DONE        nothing needs it: the log and the counters are given back

A stream moves forward only, and only in the conductor's thread, on a command, on a message of another agent, or on a timer tick.
A revoked one skips DRAINING: what has not been read is lost. Each kind of stream decides by itself when it moves:

    ACTIVE -> DRAINING      a publication when its last registration is released; an image when no packet came for its
                            liveness timeout, when no subscriber is left, or when the end of the stream has been rebuilt
    DRAINING -> LINGER      every subscriber that counts has read to the end; a network publication has also sent to it, and
                            an image has announced it in status messages for a while
    LINGER -> DONE          after the linger time; an image at once where no subscriber is left

When a stream enters LINGER its subscribers' clients are notified that the image is unavailable, once, whichever way led there.

What happens per frame is not here. The log is written by clients or by the receiver; the limits, the positions and the cleaning
of a log are moved by a compiled path: ``IpcPath`` in the conductor's own thread, ``SendPath`` in the sender's, ``ReceivePath`` in
the receiver's. The conductor reads the positions of these paths from its own thread and may see them late, never too far
ahead. What it wants changed in a path of another thread it requests by a command (``agent_proxies``), so between a move here
and its effect there lies at most one duty cycle of that agent: a stream that is DRAINING here may still be handed a frame
there, which is why the end is read again from the log's tail on each timer tick. A path of another thread, the log and the counters
under it are given back only after that agent has reported that it let go of them.

Subscribers are the exception: a path's set of subscriber positions is made for one writer, the conductor, and concurrent
readers. A position is stored in its counter before the counter is added to the set.

Untethered subscribers are the other exception: one that falls too far behind no longer counts, and joins again after a rest
(docs/protocols/aeron.md, 19.6).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, TypeVar

from mainstem._core.log import term
from mainstem._internal.frozen import frozen
from mainstem.aeron.driver.conductor.subscription_link import TetherState
from mainstem.aeron.system_counter import SystemCounter
from mainstem.errors import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    StreamState.DRAINING: frozenset({StreamState.LINGER}),
    StreamState.LINGER: frozenset({StreamState.DONE}),
    StreamState.DONE: frozenset[StreamState](),
}


P = TypeVar("P", bound="PublicationParams | SubscriptionParams")


class StuckPosition:
    """Detects that a position has stood still for too long while the producer is ahead of it (docs/protocols/aeron.md, 11.7)."""

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
    """What a stream owns of shared memory: its log, the path of the log's file, and its counters."""

    log: LogBuffers
    log_file: str
    counters: StreamCounters


class Stream(Generic[P]):
    """What the three kinds of streams share: identity, memory, state and subscribers.

    ``channel`` is the text of the client that created it; ``positions`` are the subscribers that its path waits for.
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
        """Whether a new subscription may link to it: to one that drains while another subscriber is still reading it."""
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
        return have_read(self.subscribers, end, self.params.tether_timeouts, draining_ns=now_ns - self.since_ns)

    def _unblock(self, stuck: StuckPosition, position: int, producer_position: int, now_ns: int) -> bool:
        """Turn a claim that its producer never finished into padding, once ``position`` has been stuck at it."""
        log = self.log
        if not stuck.is_stuck(position, producer_position, now_ns):
            return False
        try:
            if not term.unblock(log.buffer, log.term_length, log.initial_term_id, position):
                return False
        except ValueError as error:
            # It stays as it is, and holds up this stream alone.
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
    """Below this an untethered subscriber is eligible for eviction: the last quarter of the window behind the reference."""
    return reference_position - window_length + window_length // 4


def untethered_image_limit(reference_position: int, window_length: int, reported_position: int, mtu: int) -> int:
    """The same at a receiver, which reports to its sender every quarter of the window only.

    A subscriber that is inactive less than a quarter beyond ``reported_position`` keeps the receiver from reporting more: once
    the sender has used up what was reported, down to the last quarter or the last datagram, it is eligible too. By the
    plain limit it would hold the stream up forever.
    """
    limit = untethered_limit(reference_position, window_length)
    quarter = window_length // 4
    if reference_position + max(quarter, mtu) >= reported_position + window_length:
        return max(limit, reported_position + quarter)
    return limit


def have_read(
    subscribers: Iterable[SubscriberPosition], end: int, timeouts: TetherTimeouts, *, draining_ns: int
) -> bool:
    """Whether every subscriber that a draining stream waits for has read to ``end``.

    An untethered subscriber has as long as it may be far behind; an inactive one does not keep a stream from ending.
    """
    patient = draining_ns < timeouts.window_limit_ns
    return all(
        position.cell.get_acquire() >= end
        for position in subscribers
        if position.is_counted and (patient or position.interest.params.tether)
    )


def check_untethered(
    source: StreamSource, limit: int, timeouts: TetherTimeouts, links: ImageLinks, *, now_ns: int
) -> None:
    """Move every untethered subscriber of ``source`` one state on where its time has come."""
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
                rejoin = position.interest.params.rejoin
                _move(position, TetherState.RESTING if rejoin else TetherState.CLOSED, now_ns)
                links.enter_resting(source, position)
        elif state is TetherState.RESTING and now_ns - position.since_ns >= timeouts.resting_ns:
            # Before it counts again: else it would join where it had become inactive.
            position.cell.set_release(source.join_position)
            _move(position, TetherState.ACTIVE, now_ns)
            links.enter_active(source, position)


def _move(position: SubscriberPosition, state: TetherState, now_ns: int) -> None:
    assert state in position.state.successors
    position.state = state
    position.since_ns = now_ns
