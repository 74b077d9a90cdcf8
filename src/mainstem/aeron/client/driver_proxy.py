"""The commands of one client, on their way to the driver."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from mainstem.errors import DriverTimeout

if TYPE_CHECKING:
    from mainstem._core.memory.ring_buffer import ManyToOneRingBuffer
    from mainstem.aeron.command.commands import Command

ATTEMPTS = 3  # writes to a full command buffer before that is an error


class DriverProxy:
    """Writes commands to the buffer that the driver reads, and to which all its clients append."""

    def __init__(self, ring: ManyToOneRingBuffer) -> None:
        self._ring = ring
        self._queued: deque[Command] = deque()
        self.client_id = ring.next_correlation_id()

    def command(self, kind: type[Command], **fields: Any) -> Command:
        """Return a command of this client with a correlation id of its own."""
        return kind(client_id=self.client_id, correlation_id=self._ring.next_correlation_id(), **fields)

    def write(self, command: Command) -> None:
        """Raises DriverTimeout if the buffer stays full."""
        payload = command.encode()
        for _ in range(ATTEMPTS):
            if self._ring.write(command.TYPE, payload):
                return
        raise DriverTimeout("the driver's command buffer is full: the driver has stopped reading it")

    def queue(self, command: Command) -> None:
        """Write a command as soon as the buffer has room. Do not wait for its response."""
        self._queued.append(command)
        self.write_queued()

    def write_queued(self) -> None:
        while self._queued and self._ring.write(self._queued[0].TYPE, self._queued[0].encode()):
            self._queued.popleft()

    def drop_queued(self) -> None:
        self._queued.clear()
