"""The life of a network publication: active, draining, lingering, done (aeron-behaviour §14.6).

Its sending, limits, cleaning and connection are the compiled ``SendPath``'s; here is what is rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.log import term
from mainstem.aeron.driver.conductor.ipc_publication import IPC_SOURCE_IDENTITY
from mainstem.aeron.driver.conductor.life_cycle import PublicationState, StuckPosition
from mainstem.aeron.driver.conductor.untethered import check_untethered, have_read, untethered_limit
from mainstem.aeron.system_counter import SystemCounter

if TYPE_CHECKING:
    from mainstem._core.driver.send_path import SendPath
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.conductor.endpoints import SendEndpoint
    from mainstem.aeron.driver.conductor.life_cycle import PublicationListener
    from mainstem.aeron.driver.conductor.publication_params import PublicationParams
    from mainstem.aeron.driver.conductor.stream_counters import StreamCounters
    from mainstem.aeron.driver.conductor.subscription_link import SubscriberPosition
    from mainstem.aeron.driver.sender.sender_publication import SenderPublication
    from mainstem.aeron.logbuffer import LogBuffers
    from mainstem.aeron.system_counter import SystemCounters


class NetworkPublication:
    """One log that local clients write and the sender sends. ``channel`` is the text of the client that created it.

    ``references`` counts the registrations that keep it active; ``subscribers`` are spies.
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
        path: SendPath,
        sending: SenderPublication,
        endpoint: SendEndpoint,
        limit: CounterCell,
        stream_counters: StreamCounters,
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
        self.sending = sending
        self.endpoint = endpoint
        self.limit = limit
        self.stream_counters = stream_counters
        self.references = 1
        self.state = PublicationState.ACTIVE
        self.since_ns = now_ns
        self.subscribers: list[SubscriberPosition] = []
        self._system_counters = system_counters
        self._stuck = StuckPosition(unblock_timeout_ns, path.sender_position, now_ns)

    @property
    def channel_status_id(self) -> int:
        """The counter in which the endpoint's state stands."""
        return self.endpoint.status.counter_id

    @property
    def accepts_subscribers(self) -> bool:
        """Whether a new spy may link to it."""
        return self.state is PublicationState.ACTIVE

    @property
    def join_position(self) -> int:
        """Where a new spy begins: what has been sent."""
        return self.path.sender_position

    def add_subscriber(self, position: SubscriberPosition) -> None:
        """The publisher limit waits for this spy from now on."""
        if position not in self.subscribers:
            self.subscribers.append(position)
        self.path.spies.add(position.cell.counter_id)

    def remove_subscriber(self, position: SubscriberPosition) -> None:
        """No longer waits for it."""
        self.path.spies.remove(position.cell.counter_id)
        self.subscribers.remove(position)

    def rest_subscriber(self, position: SubscriberPosition) -> None:
        """No longer waits for it, though it stays known."""
        self.path.spies.remove(position.cell.counter_id)

    def release(self, now_ns: int) -> None:
        """One registration fewer; the last one begins the drain: nothing more can be offered, and the end is known."""
        self.references -= 1
        if self.references == 0 and self.state is PublicationState.ACTIVE:
            self._end_at_producer_position()
            self._move(PublicationState.DRAINING, now_ns)
            if self.path.sender_position >= self.path.producer_position():
                self._announce_end()

    def revoke(self, now_ns: int) -> None:
        """Receivers and spies lose it at once; what they have not read is lost to them."""
        self._end_at_producer_position()
        self.log.is_publication_revoked = True
        self.path.revoked = True
        self.path.end_of_stream = True
        self._system_counters.increment(SystemCounter.PUBLICATIONS_REVOKED)
        self._move(PublicationState.LINGER, now_ns)

    def on_time_event(self, now_ns: int, listener: PublicationListener) -> None:
        """One step of its life, on every timer tick."""
        if self.state is PublicationState.ACTIVE:
            limit = untethered_limit(self.path.sender_position, self.params.window_length)
            check_untethered(self, limit, self.params.tether_timeouts, listener, now_ns=now_ns)
            if not self.is_exclusive:
                self._unblock(now_ns)
        elif self.state is PublicationState.DRAINING:
            self._drain(now_ns, listener)
        elif self.state is PublicationState.LINGER and (
            self.path.received_unicast_eos or now_ns - self.since_ns >= self.params.linger_ns
        ):
            self._move(PublicationState.DONE, now_ns)

    def _drain(self, now_ns: int, listener: PublicationListener) -> None:
        end = self.path.producer_position()
        if self.path.sender_position < end:
            # A claim that its producer never finished holds the rest back; whoever waits gets what lies behind it.
            if self._unblock(now_ns) or self.path.has_receivers:
                return
        else:
            self._announce_end()
        if have_read(self.subscribers, end, self.params.tether_timeouts, draining_ns=now_ns - self.since_ns):
            self._move(PublicationState.LINGER, now_ns)
            listener.on_lingering(self)

    def _announce_end(self) -> None:
        """Heartbeats say from now on that this is the end, unless the channel does not want that said."""
        self.path.end_of_stream = self.params.signal_eos

    def _end_at_producer_position(self) -> None:
        self.path.draining = True
        end = self.path.producer_position()
        self.path.clamp_limit(end)
        self.log.end_of_stream_position = end

    def _unblock(self, now_ns: int) -> bool:
        sent = self.path.sender_position
        if not self._stuck.is_stuck(sent, self.path.producer_position(), now_ns):
            return False
        if not term.unblock(self.log.buffer, self.log.term_length, self.log.initial_term_id, sent):
            return False
        self._system_counters.increment(SystemCounter.UNBLOCKED_PUBLICATIONS)
        return True

    def _move(self, state: PublicationState, now_ns: int) -> None:
        assert state in self.state.successors
        self.state = state
        self.since_ns = now_ns
