"""A network publication: active, draining, lingering, done (docs/protocols/aeron.md, 14.6).

Its sending, limits, cleaning and connection are the compiled ``SendPath``'s, which the sender drives; here is what is rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.driver.conductor.life_cycle import StreamState, StuckPosition
from mainstem.aeron.driver.conductor.publication import Publication
from mainstem.aeron.driver.conductor.untethered import check_untethered, untethered_limit

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.conductor.channels import SendChannel
    from mainstem.aeron.driver.conductor.life_cycle import StreamListener, StreamMemory
    from mainstem.aeron.driver.conductor.publication import PublicationRequest
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.subscription_link import Interest, SubscriptionLink
    from mainstem.aeron.driver.sender.sender_publication import SenderPublication


class NetworkPublication(Publication):
    """One log that local clients write and the sender sends; ``subscribers`` are spies.

    ``sender_publication`` is its part in the sender, which alone changes that part and its path.
    """

    def __init__(
        self,
        memory: StreamMemory,
        request: PublicationRequest,
        sender_publication: SenderPublication,
        send_channel: SendChannel,
        limit: CounterCell,
        resources: Resources,
        now_ns: int,
    ) -> None:
        path = sender_publication.path
        super().__init__(memory, request, path.spies, limit, resources, now_ns)
        self.path = path
        self.sender_publication = sender_publication
        self.send_channel = send_channel
        self._is_end_announced = False
        self._stuck = StuckPosition(resources.settings.publication_unblock_timeout_ns, path.sender_position, now_ns)

    @property
    def channel_status_id(self) -> int:
        """The counter in which the channel's state stands."""
        return self.send_channel.status.counter_id

    @property
    def join_position(self) -> int:
        """Where a new spy begins: what has been sent."""
        return self.path.sender_position

    def producer_position(self) -> int:
        """Where the producers are, from the log's tail."""
        return self.path.producer_position()

    def interest_of(self, subscription: SubscriptionLink) -> Interest | None:
        """Returns the channel through which the subscription spies on this publication, if any."""
        return subscription.interest_in_sent(self.send_channel.udp, self.session_id)

    def release(self, now_ns: int) -> None:
        """One registration fewer; the last one begins the drain, and is announced at once where all has been sent."""
        super().release(now_ns)
        if self.state is StreamState.DRAINING and self.path.sender_position >= self.path.producer_position():
            self._announce_end()

    def revoke(self, now_ns: int) -> None:
        """Receivers and spies lose it at once; what they have not read is lost to them."""
        super().revoke(now_ns)
        self._resources.sender.revoke_publication(self.sender_publication)

    def _is_being_read(self) -> bool:
        # What was sent lies before the join position of a spy: only what has not been sent is left for one that joins.
        is_spied = any(position.is_counted for position in self.subscribers)
        return is_spied and self.path.sender_position < self.path.producer_position()

    def _hold_limit(self) -> None:
        self._resources.sender.drain_publication(self.sender_publication)

    def _on_active(self, now_ns: int, listener: StreamListener) -> None:
        limit = untethered_limit(self.path.sender_position, self.params.publication_window_length)
        check_untethered(self, limit, self.params.tether_timeouts, listener, now_ns=now_ns)
        if not self.is_exclusive:
            self._unblock_sender(now_ns)

    def _is_drained(self, now_ns: int) -> bool:
        end = self.path.producer_position()
        # A client that was reaped may have written on until the sender held the limit.
        self.log.end_of_stream_position = end
        if self.path.sender_position < end:
            # A claim that its producer never finished holds the rest back; receivers get what lies behind it.
            if self._unblock_sender(now_ns) or self.path.has_receivers:
                return False
        else:
            self._announce_end()
        return self._have_read(end, now_ns)

    def _has_lingered(self, now_ns: int) -> bool:
        return self.path.received_unicast_eos or now_ns - self.since_ns >= self.params.linger_ns

    def _announce_end(self) -> None:
        """Heartbeats announce the end from now on, unless the channel does not ask for that (``eos=false``)."""
        if self.params.signal_eos and not self._is_end_announced:
            self._is_end_announced = True
            self._resources.sender.end_publication(self.sender_publication)

    def _unblock_sender(self, now_ns: int) -> bool:
        return self._unblock(self._stuck, self.path.sender_position, self.path.producer_position(), now_ns)
