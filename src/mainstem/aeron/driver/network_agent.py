"""The base class of the sender and the receiver: commands, a compiled cycle, its events, and checks once a second.

A compiled loop runs ``cycle``. When the loop returns to Python, ``decide`` does the rest in the same thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem._core.layout import COUNTER_VALUE_LENGTH
from mainstem.aeron.driver.agent_queue import CommandQueue
from mainstem.aeron.driver.conductor_proxy import NetworkFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.driver.datagram import Transport
    from mainstem._core.driver.receive_cycle import ReceiverCycle
    from mainstem._core.driver.send_cycle import SenderCycle
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem._core.system_counter import SystemCounter
    from mainstem.aeron.driver.conductor_proxy import ConductorQueue, Message
    from mainstem.aeron.driver.media.endpoints import ReceiveChannelEndpoint, SendChannelEndpoint
    from mainstem.aeron.driver.media.udp_channel import UdpChannel

# Time between two checks of the endpoints.
CHECK_INTERVAL_NS = 1_000_000_000
# If this many messages wait for the conductor, further messages that peers cause are dropped. The conductor handles this many in a
# few milliseconds.
MAX_REPORTS = 256

C = TypeVar("C", bound="SenderCycle | ReceiverCycle")
E = TypeVar("E", bound="SendChannelEndpoint | ReceiveChannelEndpoint")


class NetworkAgent(Generic[C, E]):
    def __init__(
        self, cycle: C, *, counters: AtomicBuffer, to_conductor: ConductorQueue, resolve_interval_ns: int, now_ns: int
    ) -> None:
        self.cycle = cycle
        self._counters = counters
        self.commands = CommandQueue()
        # Makes datagrams at a socket wake the sleeping thread. In INVOKER mode no thread sleeps.
        self.wake_by: Callable[[int], None] | None = None
        self._to_conductor = to_conductor
        self._endpoints: dict[int, E] = {}
        self._error_counts: dict[tuple[int, int], int] = {}
        self._now_ns = now_ns
        self._resolve_interval_ns = resolve_interval_ns
        self._resolve_due_ns = now_ns
        self._check_due_ns = now_ns + CHECK_INTERVAL_NS
        self.cycle.set_deadline(self._check_due_ns)

    def decide(self, now_ns: int) -> int:
        """Run queued commands and handle the cycle's events at monotonic ``now_ns``; return how many there were."""
        self._now_ns = now_ns
        work = self.commands.run()
        if not self.cycle.due(now_ns):
            return work
        events = self.cycle.events.take()
        self._on_events(events, now_ns)
        if now_ns >= self._check_due_ns:
            self._check_due_ns = now_ns + CHECK_INTERVAL_NS
            self.cycle.set_deadline(self._check_due_ns)
            resolves = now_ns >= self._resolve_due_ns
            if resolves:
                self._resolve_due_ns = now_ns + self._resolve_interval_ns
            self._check(now_ns, resolves=resolves)
        return work + len(events)

    def _count(self, counter: SystemCounter) -> None:
        self._counters.add_i64(counter * COUNTER_VALUE_LENGTH, 1)

    def _on_events(self, events: list[tuple[Any, ...]], now_ns: int) -> None:
        raise NotImplementedError

    def _check(self, now_ns: int, *, resolves: bool) -> None:
        raise NotImplementedError

    def on_close_endpoint(self, endpoint: E) -> None:
        raise NotImplementedError

    def close(self) -> None:
        for endpoint in list(self._endpoints.values()):
            self.on_close_endpoint(endpoint)

    def _watch(self, transport: Transport) -> None:
        if self.wake_by is not None and transport.fd >= 0:
            self.wake_by(transport.fd)

    def _report_socket_errors(self, key: tuple[int, int], transport: Transport, channel: UdpChannel) -> None:
        if transport.error_count != self._error_counts.get(key, 0):
            self._error_counts[key] = transport.error_count
            text = f"{channel.canonical_form}: the system refused to send or receive (errno {transport.last_error})"
            self._send(NetworkFault(text=text))

    def _forget_socket_errors(self, endpoint: E) -> None:
        self._error_counts = {key: count for key, count in self._error_counts.items() if key[0] != endpoint.key}

    def _send(self, message: Message) -> None:
        self._to_conductor.append(message)

    def _report(self, message: Message) -> None:
        """Send a message that peers can cause with any datagram, or drop it if the conductor is behind."""
        if len(self._to_conductor) < MAX_REPORTS:
            self._send(message)
