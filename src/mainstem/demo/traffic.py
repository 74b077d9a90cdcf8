"""The traffic: a driver that drops datagrams, a publisher, a subscription, and the recorder."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from mainstem._core.driver.loss_generator import RandomLoss
from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.aeron.client import Aeron, OfferStatus
from mainstem.aeron.client.publication import offer_error_of
from mainstem.aeron.driver.context import DriverContext
from mainstem.aeron.driver.media.transport import SystemTransports
from mainstem.aeron.driver.media_driver import MediaDriver, temporary_directory
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.demo.sampling import Sampler
from mainstem.errors import NotConnected
from mainstem.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mainstem._core.driver.loss_generator import LossGenerator

STREAM_ID = 1001
# Rows to offer at once: one claim in the term buffer, far below an eighth of a term.
BATCH = 256
# Rows to send before the query has seen any, so that the rest arrives while the query is running.
PILOT_ROWS = 500
IDLE_SECONDS = 0.0005
CONNECT_SECONDS = 20.0


def free_port() -> int:
    """Return a UDP port on this host that is currently free."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Traffic:
    """Everything between the encoded rows and the recording. A context manager that ends the driver, the client and the threads."""

    def __init__(self, recordings: Path, *, loss: float, seed: int) -> None:
        self._recordings, self._loss, self._seed = recordings, loss, seed
        self._stop = threading.Event()
        self._reader_runs = threading.Event()
        self._stack = ExitStack()
        self.offered = 0
        self.payload_bytes = 0
        self.final_position = -1
        self.recorded = 0
        self.recorded_position = 0
        self.error: BaseException | None = None
        self.sampler: Sampler

    def __enter__(self) -> Traffic:
        with ExitStack() as stack:
            directory = temporary_directory()
            # Remove the files even if the driver cannot clean up after itself.
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            self._transports = SystemTransports(incoming_loss=self._loss_of)
            settings = DriverSettings.load(dir_delete_on_shutdown=True)
            context = DriverContext(directory=directory, settings=settings, transports=self._transports)
            driver = stack.enter_context(MediaDriver.launch(context=context))
            self.sampler = Sampler(driver.directory, SYSTEM_CLOCK, lambda: self.dropped)
            stack.callback(self.sampler.close)
            aeron = stack.enter_context(Aeron.connect(driver.directory))
            channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
            subscription = stack.enter_context(aeron.add_subscription(channel, STREAM_ID))
            self._recorder = stack.enter_context(Recorder(self._recordings))
            self._recorder.add_subscription(subscription)
            self._publication: Any = stack.enter_context(aeron.add_exclusive_publication(channel, STREAM_ID))
            stack.callback(self._join)
            self._threads: list[threading.Thread] = []
            self._stack = stack.pop_all()
        return self

    def _loss_of(self, transport: int) -> LossGenerator:
        # Each transport drops different datagrams, but the same ones in every run.
        return RandomLoss(self._loss, self._seed + transport)

    @property
    def dropped(self) -> int:
        """The number of datagrams that were dropped on purpose so far, data and control."""
        return self._transports.dropped_data + self._transports.dropped_control

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def go_on(self) -> None:
        self._reader_runs.set()

    def _join(self) -> None:
        self._stop.set()
        self._reader_runs.set()
        for thread in self._threads:
            thread.join()

    def start(self, messages: Iterable[Any]) -> None:
        """Start to publish the arrays of messages and to record."""
        for name, work in (("publisher", lambda: self._publish(messages)), ("recorder", self._record)):
            thread = threading.Thread(target=self._guard, args=(work,), name=f"mainstem-demo-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _guard(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self.error = self.error or error

    def _publish(self, messages: Iterable[Any]) -> None:
        publication = self._publication
        self._await_connection()
        for array in messages:
            first, rows = 0, len(array)
            while first < rows:
                if self.offered >= PILOT_ROWS:
                    self._reader_runs.wait()
                if self._stop.is_set():
                    return
                accepted, status = publication.offer_arrow(array, first=first, count=min(BATCH, rows - first))
                first += accepted
                self.offered += accepted
                if accepted:
                    continue
                if OfferStatus(status).is_final:
                    raise offer_error_of(publication, status, f"offer rows to {publication!r}")
                time.sleep(IDLE_SECONDS)
            self.payload_bytes += sum(buffer.size for buffer in array.buffers()[2:] if buffer is not None)
        self.final_position = publication.position

    def _await_connection(self) -> None:
        deadline = SYSTEM_CLOCK.monotonic_ns() + int(CONNECT_SECONDS * 1e9)
        while not self._publication.is_connected:
            if SYSTEM_CLOCK.monotonic_ns() > deadline:
                raise NotConnected(f"no subscriber connected within {CONNECT_SECONDS:g} s")
            if self._stop.wait(0.005):
                return

    def _record(self) -> None:
        while not self._stop.is_set():
            if not self._recorder.do_work():
                time.sleep(IDLE_SECONDS)
            for writer in self._recorder.writers:
                self.recorded, self.recorded_position = writer.messages, writer.position

    def check(self) -> None:
        error = self.error or self.sampler.error
        if error is not None:
            raise error

    @property
    def is_recorded(self) -> bool:
        """Whether everything was published, and all of it is in the recording."""
        return 0 <= self.final_position <= self.recorded_position
