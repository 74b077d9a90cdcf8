"""The driver's answers: one record in the to-clients buffer each (aeron-behaviour §4, §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem._core.broadcast import BroadcastTransmitter
    from mainstem.aeron.command.responses import Response
    from mainstem.clock import Clock
    from mainstem.instruments import Instrument


class Responses:
    """Sends responses to every client; each picks its own by the ids in them."""

    def __init__(self, transmitter: BroadcastTransmitter, clock: Clock, instrument: Instrument) -> None:
        self._transmitter = transmitter
        self._clock = clock
        self._instrument = instrument

    def send(self, response: Response) -> None:
        """Broadcasts ``response``; nobody is waited for."""
        self._transmitter.transmit(response.TYPE, response.encode())
        self._instrument.command(type(response).__name__, repr(response), self._clock.monotonic_ns())
