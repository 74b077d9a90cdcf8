"""The proxy that sends responses to clients through the to-clients buffer (docs/protocols/aeron.md, 4, 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.command.responses import MAX_MESSAGE_LENGTH, OnError

if TYPE_CHECKING:
    from mainstem._core.memory.broadcast import BroadcastTransmitter
    from mainstem._internal.clock import Clock
    from mainstem.aeron.command.responses import Response
    from mainstem.aeron.driver.event_log.log import EventLog
    from mainstem.instruments import Instrument


class ClientProxy:
    def __init__(
        self, transmitter: BroadcastTransmitter, clock: Clock, instrument: Instrument, events: EventLog | None = None
    ) -> None:
        self.capacity = transmitter.capacity
        self._transmitter = transmitter
        self._clock = clock
        self._instrument = instrument
        self._events = events

    def send(self, response: Response) -> None:
        self._transmitter.transmit(response.TYPE, response.encode())
        now_ns = self._clock.monotonic_ns()
        self._instrument.command(type(response).__name__, repr(response), now_ns)
        if self._events is not None:
            self._events.record(response, now_ns)

    def send_error(self, correlation_id: int, code: int, text: str) -> None:
        """Send ON_ERROR. The text is truncated to fit a record, because every command must get a response."""
        empty = OnError(offending_correlation_id=correlation_id, error_code=code, message="")
        room = min(MAX_MESSAGE_LENGTH, self._transmitter.max_message_length - len(empty.encode()))
        message = text.encode("utf-8", "surrogateescape")[:room].decode("utf-8", "surrogateescape")
        self.send(OnError(offending_correlation_id=correlation_id, error_code=code, message=message))
