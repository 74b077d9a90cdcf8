"""The client's conductor: it handles the driver's responses, keeps the client alive, and notices when the driver ends.

See ``registry``. If the broadcast buffer overruns, responses are lost. The client cannot know which, so it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.client.registry import ClientRegistry
from mainstem.aeron.client.response_handlers import handle
from mainstem.aeron.cnc import DRIVER_SHUT_DOWN
from mainstem.aeron.command.responses import decode_response
from mainstem.aeron.counters import CounterType
from mainstem.aeron.heartbeat import HeartbeatWatch
from mainstem.errors import ClientTimeout, DriverTimeout

if TYPE_CHECKING:
    from mainstem.aeron.client.context import ClientContext
    from mainstem.aeron.cnc import CncFile
    from mainstem.aeron.command.commands import Command

HEARTBEAT_INTERVAL_NS = 500 * NS_PER_MS
BUSY_SLEEP_S = 0.001  # how long the conductor sleeps while a command is pending
RESPONSES_PER_CYCLE = 10  # so that a burst of responses to other clients does not delay the heartbeat


class ClientConductor(ClientRegistry):
    """The agent behind an ``Aeron``, and its idle strategy. ``do_work`` runs one duty cycle."""

    name = "conductor"
    role_name = "mainstem-client-conductor"

    def __init__(self, context: ClientContext, cnc: CncFile, now_ns: int) -> None:
        super().__init__(context, cnc, now_ns)
        self._receiver = cnc.receiver()
        self._inter_service_timeout_ns = cnc.client_liveness_timeout_ns
        self._heartbeat_id = -1
        self._driver = HeartbeatWatch(cnc.to_driver.consumer_heartbeat_ms, context.clock.epoch_ms(), now_ns)
        self._last_work_ns = self._next_heartbeat_ns = now_ns

    def do_work(self, now_ns: int) -> int:
        """Run one duty cycle. Raises AgentTerminated once the client has ended."""
        with self.lock:
            if self.closed:
                raise AgentTerminated
            self._now_ns = now_ns
            self._check_inter_service_timeout(now_ns)
            self._last_work_ns = now_ns
            self._cancel_dropped()
            work = self._receiver.receive(self._on_record, RESPONSES_PER_CYCLE)
            if work < 0:
                self._on_overrun()
            if work < RESPONSES_PER_CYCLE:
                self.cycles += 1
            if now_ns >= self._next_heartbeat_ns:
                self._next_heartbeat_ns = now_ns + HEARTBEAT_INTERVAL_NS
                self._check_driver()
                self._write_heartbeat()
                work += 1
            self._expire_operations()
            self._write_queued()
            self._unmap_lingering()
            if self.closed:
                raise AgentTerminated
            return work

    def idle(self, work_count: int) -> None:
        """Sleep, unless there was work, until a command is written or ``client_idle_sleep_duration_ns`` has passed."""
        if work_count <= 0:
            seconds = self._settings.client_idle_sleep_duration_ns / NS_PER_SECOND
            self._written.wait(min(BUSY_SLEEP_S, seconds) if self.pending else seconds)
            self._written.clear()

    def reset(self) -> None: ...

    def on_close(self) -> None:
        """Unmap everything. Runs in the conductor's thread."""
        with self.lock:
            self._close_all()
            for _, buffer in self._lingering:
                self.unmap(buffer)
            self._lingering = []
            self.cnc.close()
            if self.context.on_close is not None:
                self.guard(self.context.on_close)

    def _on_record(self, type_id: int, payload: bytes) -> None:
        if self.closed:
            return
        response = decode_response(type_id, payload)
        if response is not None:
            handle(self, response)

    def _on_overrun(self) -> None:
        # The driver considers this client alive, so its images would block publishers until the client liveness timeout.
        self._announce_end()
        self.terminate(
            ClientTimeout(
                "responses of the driver were lost: it wrote more than the to-clients buffer holds"
                f" ({self._receiver.capacity} bytes) before this client's conductor ran again"
            )
        )

    def _queue_command(self, kind: type[Command], **fields: Any) -> None:
        # A thread of a process that was suspended may get here before the conductor notices. The driver has removed the resource.
        self._check_inter_service_timeout(self.context.clock.monotonic_ns())
        if not self.closed:
            super()._queue_command(kind, **fields)

    def _check_inter_service_timeout(self, now_ns: int) -> None:
        idle_ns = now_ns - self._last_work_ns
        if idle_ns > self._inter_service_timeout_ns:
            limit = self._inter_service_timeout_ns / NS_PER_SECOND
            self.terminate(
                ClientTimeout(
                    f"the client's conductor did not run for {idle_ns / NS_PER_SECOND:.1f} s (limit {limit:g} s):"
                    " the driver may have timed the client out",
                    timeout=limit,
                )
            )

    def _check_driver(self) -> None:
        if self.closed:
            return
        heartbeat = self.cnc.to_driver.consumer_heartbeat_ms
        timeout = self._settings.driver_timeout_ns / NS_PER_SECOND
        if heartbeat == DRIVER_SHUT_DOWN:
            self.terminate(DriverTimeout("the media driver has been shut down", timeout=timeout))
        elif self._driver.is_older(
            self._settings.driver_timeout_ns, heartbeat, self.context.clock.epoch_ms(), self._now_ns
        ):
            self.terminate(
                DriverTimeout(
                    f"the media driver is presumed dead: its last heartbeat is more than {timeout:g} s old",
                    timeout=timeout,
                )
            )

    def _write_heartbeat(self) -> None:
        """Update the heartbeat counter, which the driver allocates when it handles this client's first command."""
        if self.closed:
            return
        kind, counters = CounterType.CLIENT_HEARTBEAT, self.counters
        if self._heartbeat_id < 0:
            self._heartbeat_id = counters.find(kind, self.client_id)
            if self._heartbeat_id < 0:
                return
            name = f" name={self._settings.client_name}" if self._settings.client_name else ""
            counters.append_to_label(self._heartbeat_id, f"{name} version=mainstem")
        elif (
            counters.state(self._heartbeat_id) != 1
            or counters.type_id(self._heartbeat_id) != kind
            or counters.registration_id(self._heartbeat_id) != self.client_id
        ):
            self.terminate(ClientTimeout("the driver timed this client out: its heartbeat counter is gone"))
            return
        counters.cell(self._heartbeat_id).set_release(self.context.clock.epoch_ms())

    def _expire_operations(self) -> None:
        expired = [operation for operation in self.pending.values() if self._now_ns >= operation.deadline_ns]
        for operation in expired:
            timeout = self._settings.driver_timeout_ns / NS_PER_SECOND
            error = DriverTimeout(f"the driver did not answer {operation.what} within {timeout:g} s", timeout=timeout)
            self._abandon(operation, error)
