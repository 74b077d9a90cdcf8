"""An IPC publication: active while clients refer to it, drained, lingering, done (docs/protocols/aeron.md, 14.6).

Its limits, positions and cleaning are the compiled ``IpcPath``'s, which the conductor's own thread drives; here is what is rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.driver.conductor.life_cycle import StuckPosition
from mainstem.aeron.driver.conductor.publication import Publication
from mainstem.aeron.driver.conductor.untethered import check_untethered, untethered_limit

if TYPE_CHECKING:
    from mainstem._core.driver.ipc_path import IpcPath
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.conductor.life_cycle import StreamListener, StreamMemory
    from mainstem.aeron.driver.conductor.publication import PublicationRequest
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.subscription_link import Interest, SubscriberPosition, SubscriptionLink


class IpcPublication(Publication):
    """One log that local clients write and read.

    After a rejection it takes no subscribers until ``cool_down_until_ns``; ``cooled_down`` says that this is just over.
    """

    def __init__(
        self,
        memory: StreamMemory,
        request: PublicationRequest,
        path: IpcPath,
        limit: CounterCell,
        resources: Resources,
        now_ns: int,
    ) -> None:
        super().__init__(memory, request, path.subscribers, limit, resources, now_ns)
        self.path = path
        self.cool_down_until_ns: int | None = None
        self.cooled_down = False
        self._stuck = StuckPosition(resources.settings.publication_unblock_timeout_ns, path.consumer_position, now_ns)

    @property
    def channel_status_id(self) -> int:
        """IPC has no endpoint, so no channel status."""
        return -1

    @property
    def accepts_subscribers(self) -> bool:
        """Whether a new subscription may link to it."""
        return super().accepts_subscribers and self.cool_down_until_ns is None

    @property
    def join_position(self) -> int:
        """Where a new subscriber begins: where the slowest one is, or the last consumed position when there is none."""
        return self.path.consumer_position

    @property
    def furthest_position(self) -> int:
        """Where the fastest subscriber is, or what was consumed last when there is none."""
        return max(self.path.subscribers.maximum(), self.path.consumer_position)

    def producer_position(self) -> int:
        """Where the producers are, from the log's tail."""
        return self.path.producer_position()

    def interest_of(self, subscription: SubscriptionLink) -> Interest | None:
        """Returns the IPC channel through which the subscription reads this session, if any."""
        return subscription.interest_in_ipc(self.session_id)

    def add_subscriber(self, position: SubscriberPosition) -> None:
        """The publication's limit waits for ``position`` from now on, and it is connected."""
        super().add_subscriber(position)
        self.path.connected = True

    def rest_subscriber(self, position: SubscriberPosition) -> None:
        """No longer waits for it. Without subscribers the last consumed position stays the limit."""
        super().rest_subscriber(position)
        if not len(self.path.subscribers):
            self.path.connected = False

    def revoke(self, now_ns: int) -> None:
        """Readers lose it at once; what they have not read is lost to them."""
        super().revoke(now_ns)
        self.path.connected = False

    def _is_being_read(self) -> bool:
        return self._is_read_behind(self.path.producer_position())

    def _hold_limit(self) -> None:
        self.path.draining = True
        self.path.clamp_limit(self.path.producer_position())

    def _on_active(self, now_ns: int, listener: StreamListener) -> None:
        limit = untethered_limit(self.furthest_position, self.params.publication_window_length)
        check_untethered(self, limit, self.params.tether_timeouts, listener, now_ns=now_ns)
        if not self.is_exclusive:
            self._unblock_consumers(now_ns)
        if self.cool_down_until_ns is not None and now_ns >= self.cool_down_until_ns:
            self.cool_down_until_ns = None
            self.cooled_down = True

    def _is_drained(self, now_ns: int) -> bool:
        if self._have_read(self.path.producer_position(), now_ns):
            return True
        self._unblock_consumers(now_ns)
        return False

    def _has_lingered(self, now_ns: int) -> bool:
        return now_ns - self.since_ns >= self.params.linger_ns

    def _unblock_consumers(self, now_ns: int) -> None:
        self._unblock(self._stuck, self.furthest_position, self.path.producer_position(), now_ns)
