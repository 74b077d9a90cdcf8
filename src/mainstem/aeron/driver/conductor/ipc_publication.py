"""The life of an IPC publication: active while clients refer to it, drained, lingering, done (aeron-behaviour §14.6).

Its limits, positions and cleaning are the compiled ``IpcPath``'s; here is what is rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.log import term
from mainstem.aeron.driver.conductor.life_cycle import PublicationState, StuckPosition
from mainstem.aeron.driver.conductor.untethered import check_untethered, have_read, untethered_limit
from mainstem.aeron.system_counter import SystemCounter

if TYPE_CHECKING:
    from mainstem._core.driver.ipc_path import IpcPath
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.conductor.life_cycle import PublicationListener
    from mainstem.aeron.driver.conductor.publication_params import PublicationParams
    from mainstem.aeron.driver.conductor.stream_counters import StreamCounters
    from mainstem.aeron.driver.conductor.subscription_link import SubscriberPosition
    from mainstem.aeron.logbuffer import LogBuffers
    from mainstem.aeron.system_counter import SystemCounters

IPC_SOURCE_IDENTITY = "aeron:ipc"


class IpcPublication:
    """One log that local clients write and read. ``channel`` is the text of the client that created it.

    ``references`` counts the registrations that keep it active. After a rejection it takes no subscribers until
    ``cool_down_until_ns``; ``cooled_down`` says that this is just over.
    """

    source_identity = IPC_SOURCE_IDENTITY

    def __init__(
        self,
        *,
        registration_id: int,
        session_id: int,
        stream_id: int,
        channel: str,
        params: PublicationParams,
        is_exclusive: bool,
        log: LogBuffers,
        log_file: str,
        path: IpcPath,
        stream_counters: StreamCounters,
        limit: CounterCell,
        system_counters: SystemCounters,
        unblock_timeout_ns: int,
        now_ns: int,
    ) -> None:
        self.registration_id = registration_id
        self.session_id = session_id
        self.stream_id = stream_id
        self.channel = channel
        self.params = params
        self.is_exclusive = is_exclusive
        self.log = log
        self.log_file = log_file
        self.path = path
        self.limit = limit
        self.stream_counters = stream_counters
        self.references = 1
        self.state = PublicationState.ACTIVE
        self.since_ns = now_ns
        self.subscribers: list[SubscriberPosition] = []
        self.cool_down_until_ns: int | None = None
        self.cooled_down = False
        self._system_counters = system_counters
        self._stuck = StuckPosition(unblock_timeout_ns, path.consumer_position, now_ns)

    @property
    def channel_status_id(self) -> int:
        """IPC has no endpoint, so no channel status."""
        return -1

    @property
    def accepts_subscribers(self) -> bool:
        """Whether a new subscription may link to it."""
        return self.state is PublicationState.ACTIVE and self.cool_down_until_ns is None

    @property
    def join_position(self) -> int:
        """Where a new subscriber begins: where the slowest one is, or the last consumed position when there is none."""
        return self.path.consumer_position

    def add_subscriber(self, position: SubscriberPosition) -> None:
        """The publication's limit waits for ``position`` from now on, and it is connected."""
        if position not in self.subscribers:
            self.subscribers.append(position)
        self.path.subscribers.add(position.cell.counter_id)
        self.path.connected = True

    def remove_subscriber(self, position: SubscriberPosition) -> None:
        """The last consumed position stays the limit when nobody is left."""
        self.path.subscribers.remove(position.cell.counter_id)
        self.subscribers.remove(position)
        self.update_connected()

    def rest_subscriber(self, position: SubscriberPosition) -> None:
        """No longer waits for it, though it stays known."""
        self.path.subscribers.remove(position.cell.counter_id)
        self.update_connected()

    def update_connected(self) -> None:
        """Connected means that somebody's position counts."""
        if not len(self.path.subscribers):
            self.path.connected = False

    def release(self, now_ns: int) -> None:
        """One registration fewer; the last one begins the drain: nothing more can be offered, and the end is known."""
        self.references -= 1
        if self.references == 0 and self.state is PublicationState.ACTIVE:
            self.path.draining = True
            end = self.path.producer_position()
            self.limit.set_release(end)
            self.log.end_of_stream_position = end
            self._move(PublicationState.DRAINING, now_ns)

    def revoke(self, now_ns: int) -> None:
        """Readers lose it at once; what they have not read is lost to them."""
        self.path.draining = True
        end = self.path.producer_position()
        self.limit.set_release(end)
        self.log.end_of_stream_position = end
        self.log.is_publication_revoked = True
        self.path.connected = False
        self._system_counters.increment(SystemCounter.PUBLICATIONS_REVOKED)
        self._move(PublicationState.LINGER, now_ns)

    def on_time_event(self, now_ns: int, listener: PublicationListener) -> None:
        """One step of its life, on every timer tick."""
        if self.state is PublicationState.ACTIVE:
            limit = untethered_limit(self.furthest_position, self.params.window_length)
            check_untethered(self, limit, self.params.tether_timeouts, listener, now_ns=now_ns)
            if not self.is_exclusive:
                self._unblock(now_ns)
            if self.cool_down_until_ns is not None and now_ns >= self.cool_down_until_ns:
                self.cool_down_until_ns = None
                self.cooled_down = True
        elif self.state is PublicationState.DRAINING:
            if self._is_drained(now_ns):
                self._move(PublicationState.LINGER, now_ns)
                listener.on_lingering(self)
            else:
                self._unblock(now_ns)
        elif self.state is PublicationState.LINGER and now_ns - self.since_ns >= self.params.linger_ns:
            self._move(PublicationState.DONE, now_ns)

    def _is_drained(self, now_ns: int) -> bool:
        end, timeouts = self.path.producer_position(), self.params.tether_timeouts
        return have_read(self.subscribers, end, timeouts, draining_ns=now_ns - self.since_ns)

    @property
    def furthest_position(self) -> int:
        """Where the fastest subscriber is, or what was consumed last when there is none."""
        return max(self.path.subscribers.maximum(), self.path.consumer_position)

    def _unblock(self, now_ns: int) -> None:
        position, log = self.furthest_position, self.log
        if not self._stuck.is_stuck(position, self.path.producer_position(), now_ns):
            return
        if term.unblock(log.buffer, log.term_length, log.initial_term_id, position):
            self._system_counters.increment(SystemCounter.UNBLOCKED_PUBLICATIONS)

    def _move(self, state: PublicationState, now_ns: int) -> None:
        assert state in self.state.successors
        self.state = state
        self.since_ns = now_ns
