"""Two drivers that stand for two hosts. The test drives both, over real sockets of the loopback interface."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from tests.support.live_driver import message
from tests.support.waiting import StallTimeout, nothing

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType


class Hosts:
    """Two hosts, ``near`` and ``far``, each with a client on its own driver. ``work`` runs everything."""

    def __init__(self, **settings: Any) -> None:
        self._stack = ExitStack()
        values = {"term_buffer_length": 1 << 16, "ipc_term_buffer_length": 1 << 16, **settings}
        self.drivers = [
            self._stack.enter_context(MediaDriver.launch(threading_mode="INVOKER", **values)) for _ in range(2)
        ]
        self.near, self.far = (
            self._stack.enter_context(Aeron.connect(driver.directory, driver_invoker=self.work))
            for driver in self.drivers
        )

    def work(self) -> int:
        """Run one duty cycle of both drivers."""
        return sum(driver.do_work() for driver in self.drivers)

    def until(self, what: Callable[[], object], *, why: str = "", progress: Callable[[], object] = nothing) -> None:
        """Call ``work`` until ``what`` is true; ``progress`` returns a value that changes in the meantime."""
        stall = StallTimeout(why)
        while not what():
            stall.check(progress())
            self.work()

    def deliver(self, publication: Any, subscriptions: Sequence[Any], *, messages: int = 300) -> None:
        """Send messages and check that every subscription receives all of them in order."""
        received: list[list[bytes]] = [[] for _ in subscriptions]
        sent = 0

        def step() -> bool:
            nonlocal sent
            if sent < messages and publication.offer(message(sent)) > 0:
                sent += 1
            for subscription, into in zip(subscriptions, received, strict=True):
                subscription.poll_messages(lambda fragment, into=into: into.append(bytes(fragment)), 10)
            return all(len(into) >= messages for into in received)

        self.until(step, why="not every message arrived", progress=lambda: (sent, [len(into) for into in received]))
        expected = [message(number) for number in range(messages)]
        assert all(into == expected for into in received)

    def naks_sent(self) -> int:
        """Return how many NAKs the two drivers have sent so far."""
        return sum(client.counters.value(SystemCounter.NAKS_SENT) for client in (self.near, self.far))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
