"""A driver with in-memory files and a manual clock; the test plays the clients' side of shared memory."""

from __future__ import annotations

import random
from typing import Any, TypeVar

from tests.support.memory_network import MemoryNetwork

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.aeron.cnc import CncFile
from mainstem.aeron.command import commands, responses
from mainstem.aeron.driver.context import DriverContext
from mainstem.aeron.driver.driver_core import DriverCore
from mainstem.aeron.driver.invoker import Invoker
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.aeron.files import MemoryFiles
from mainstem.aeron.logbuffer import LogBuffers
from mainstem.sim.clock import ManualClock

DIRECTORY = "/memory/driver"
R = TypeVar("R", bound=responses.Response)
CLIENT = 7
# Enough for a command from an agent to the conductor and back, and over the network and back.
CYCLES = 8


def small_settings(**overrides: Any) -> DriverSettings:
    """Return settings with buffers small enough for hundreds of drivers."""
    return DriverSettings(
        **{
            "conductor_buffer_length": (1 << 16) + 768,
            "clients_buffer_length": (1 << 16) + 128,
            "counters_buffer_length": 1 << 20,
            "error_buffer_length": 1 << 16,
            "loss_report_buffer_length": 1 << 16,
            "term_buffer_length": 1 << 16,
            "ipc_term_buffer_length": 1 << 16,
            "threading_mode": "INVOKER",
            **overrides,
        },
    )


class InvokedDriver:
    """The driver and what its clients see of it. ``run`` advances time; responses are collected in ``seen``."""

    def __init__(self, *, files: MemoryFiles | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.files = files or MemoryFiles()
        self.network = MemoryNetwork()
        self.core = DriverCore(
            DriverContext(
                directory=DIRECTORY,
                settings=small_settings(**settings),
                clock=self.clock,
                files=self.files,
                rng=random.Random(42),
                transports=self.network,
                pid=4242,
            )
        )
        self.do_work = Invoker(self.core, self.clock).do_work
        cnc = CncFile.map(self.files, DIRECTORY)
        assert cnc is not None
        self.cnc = cnc
        self.counters = cnc.counters()
        self.records: list[tuple[int, bytes]] = []
        self._receiver = cnc.receiver()

    def next_id(self) -> int:
        """Return a new correlation id, as a client allocates it."""
        return self.cnc.to_driver.next_correlation_id()

    def write(self, command: commands.Command) -> None:
        """Write a command to the ring buffer."""
        assert self.cnc.to_driver.write(command.TYPE, command.encode())

    def cycle(self) -> list[responses.Response]:
        """Run a few duty cycles without advancing time, and return their responses."""
        for _ in range(CYCLES):
            self.do_work()
            self.network.step()
        return self.poll()

    def poll(self) -> list[responses.Response]:
        """Return the responses that have not been read yet."""
        fresh: list[tuple[int, bytes]] = []
        while (count := self._receiver.receive(lambda type_id, payload: fresh.append((type_id, payload)), 100)) > 0:
            pass
        assert count == 0, "the driver wrote more responses than the to-clients buffer holds"
        self.records += fresh
        decoded = [responses.decode_response(*record) for record in fresh]
        return [response for response in decoded if response is not None]

    def ask(self, command: commands.Command) -> list[responses.Response]:
        """Write a command, run a few duty cycles and return the responses."""
        self.write(command)
        return self.cycle()

    def run(self, seconds: float, *, step: float = 0.1, alive: tuple[int, ...] = (CLIENT,)) -> list[responses.Response]:
        """Advance time in steps while the clients ``alive`` send heartbeats; return the responses."""
        found: list[responses.Response] = []
        end = self.clock.monotonic_ns() + int(seconds * NS_PER_SECOND)
        while self.clock.monotonic_ns() < end:
            self.clock.advance_ns(min(int(step * NS_PER_SECOND), end - self.clock.monotonic_ns()))
            for client_id in alive:
                self.heartbeat(client_id)
            found += self.cycle()
        return found

    def heartbeat(self, client_id: int) -> None:
        """Send a heartbeat, as a client does twice a second."""
        counter_id = self.counters.find(11, client_id)
        if counter_id >= 0:
            self.counters.cell(counter_id).set_release(self.clock.epoch_ms())

    def add_publication(
        self, channel: str, stream_id: int = 1001, *, exclusive: bool = False, client_id: int = CLIENT
    ) -> list[responses.Response]:
        """Request a publication; return the responses."""
        kind = commands.AddExclusivePublication if exclusive else commands.AddPublication
        return self.ask(kind(client_id=client_id, correlation_id=self.next_id(), stream_id=stream_id, channel=channel))

    def add_subscription(
        self, channel: str, stream_id: int = 1001, *, client_id: int = CLIENT
    ) -> list[responses.Response]:
        """Request a subscription; return the responses."""
        return self.ask(
            commands.AddSubscription(
                client_id=client_id, correlation_id=self.next_id(), stream_id=stream_id, channel=channel
            )
        )

    def log(self, log_file: str) -> LogBuffers:
        """Map a log as a client does."""
        return LogBuffers(self.files.map(log_file))

    def labels(self) -> dict[int, str]:
        """Return the label of every allocated counter."""
        return {counter_id: self.counters.label(counter_id) for counter_id in self.counters}

    def close(self) -> None:
        self.cnc.close()
        self.core.close()


def only(found: list[responses.Response], kind: type[R]) -> R:
    """Return the one response of a kind."""
    matching = [response for response in found if type(response) is kind]
    assert len(matching) == 1, f"{len(matching)} of {kind.__name__} in {found}"
    return matching[0]


def count(found: list[responses.Response], kind: type[responses.Response]) -> int:
    """Return how many responses of a kind there are."""
    return sum(type(response) is kind for response in found)


__all__ = ["CLIENT", "DIRECTORY", "NS_PER_MS", "InvokedDriver", "count", "only", "small_settings"]
