"""The driver's counters over time. A thread of its own reads them from the CnC file."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.counters import CounterType
from mainstem.aeron.tools.reading import DirectoryReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._internal.clock import Clock

INTERVAL_SECONDS = 0.05

POSITIONS = {
    "publisher": CounterType.PUBLISHER_POSITION,
    "sender": CounterType.SENDER_POSITION,
    "receiver": CounterType.RECEIVER_POSITION,
    "subscriber": CounterType.SUBSCRIBER_POSITION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The counters at one moment, ``seconds`` after the start."""

    seconds: float
    bytes_sent: int
    bytes_received: int
    naks: int
    retransmits: int
    retransmitted_bytes: int
    dropped: int
    positions: dict[str, int]


class Sampler:
    """Reads a driver's counters until it is closed. ``samples`` are in order of time, which ``restart`` resets to zero.

    ``dropped`` returns the number of datagrams that were dropped on purpose, for which a driver has no counter.
    """

    def __init__(self, directory: str, clock: Clock, dropped: Callable[[], int]) -> None:
        self._reader = DirectoryReader(directory)
        self._clock = clock
        self._dropped = dropped
        self._started_ns = clock.monotonic_ns()
        self._stop = threading.Event()
        self.samples: list[Sample] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="mainstem-demo-sampler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(INTERVAL_SECONDS):
                self.sample()
        except Exception as error:
            self.error = error

    def sample(self) -> Sample:
        now_ns = self._clock.monotonic_ns()
        snapshot = self._reader.snapshot(epoch_ms=self._clock.epoch_ms(), now_ns=now_ns)
        positions = {
            name: max((c.value for c in snapshot.counters if c.type_id == type_id), default=0)
            for name, type_id in POSITIONS.items()
        }
        sample = Sample(
            seconds=(now_ns - self._started_ns) / 1e9,
            bytes_sent=snapshot.system(SystemCounter.BYTES_SENT),
            bytes_received=snapshot.system(SystemCounter.BYTES_RECEIVED),
            naks=snapshot.system(SystemCounter.NAKS_SENT),
            retransmits=snapshot.system(SystemCounter.RETRANSMITS_SENT),
            retransmitted_bytes=snapshot.system(SystemCounter.RETRANSMITTED_BYTES),
            dropped=self._dropped(),
            positions=positions,
        )
        self.samples.append(sample)
        return sample

    def restart(self) -> None:
        """Discard the samples and restart the time at zero."""
        self._started_ns = self._clock.monotonic_ns()
        self.samples.clear()
        self.sample()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._reader.close()
