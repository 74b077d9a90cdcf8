"""Logging of datagrams that sockets receive and send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.tap import TappedTransport
from mainstem._internal.frozen import replaced
from mainstem.aeron.driver.event_log.events import AT_THE_SOCKETS, Event
from mainstem.aeron.driver.event_log.frame_text import nak_text, read_nak
from mainstem.aeron.driver.media.addresses import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem._internal.clock import Clock
    from mainstem.aeron.driver.event_log.log import EventLog
    from mainstem.aeron.driver.media.addresses import InetAddress, NetworkInterface
    from mainstem.aeron.driver.media.transport import BufferLimits, OpenTransport, TransportRequest, Transports


class SocketLogger:
    """A listener that logs the datagrams of one socket. ``peer`` is the packed address of the peer if the socket is connected."""

    def __init__(self, log: EventLog, clock: Clock, channel: str, peer: bytes) -> None:
        self._log = log
        self._clock = clock
        self._channel = channel
        self.peer = peer

    def on_receive(self, source: bytes, datagram: bytes) -> None:
        self._log_frame(Event.FRAME_IN, Event.NAK_RECEIVED, source, datagram)

    def on_send(self, destination: bytes, datagram: bytes) -> None:
        self._log_frame(Event.FRAME_OUT, Event.NAK_SENT, destination or self.peer, datagram)

    def _log_frame(self, event: Event, nak_event: Event, address: bytes, datagram: bytes) -> None:
        now_ns, shown = self._clock.monotonic_ns(), text_of(address)
        self._log.frame(event, shown, datagram, now_ns, address_length=len(address))
        nak = read_nak(datagram)
        if nak is not None:
            self._log.note(nak_event, now_ns, address=shown, nak=nak_text(nak), channel=self._channel)


class LoggedTransports:
    """A wrapper of transports whose sockets log their datagrams."""

    def __init__(self, inner: Transports, log: EventLog, clock: Clock) -> None:
        self._inner = inner
        self._log = log
        self._clock = clock

    def open(self, request: TransportRequest) -> OpenTransport:
        opened = self._inner.open(request)
        peer = b"" if request.connect is None else request.connect.packed
        listener = SocketLogger(self._log, self._clock, request.channel, peer)

        def reconnect(address: InetAddress) -> None:
            opened.reconnect(address)
            listener.peer = address.packed

        tapped = TappedTransport(opened.transport, listener)
        return replaced(opened, transport=tapped, reconnect=reconnect)

    def resolve(self, host: str) -> str:
        return self._inner.resolve(host)

    def interfaces(self) -> Sequence[NetworkInterface]:
        return self._inner.interfaces()

    def buffer_limits(self) -> BufferLimits:
        return self._inner.buffer_limits()


def watched(transports: Transports, log: EventLog | None, clock: Clock) -> Transports:
    """Return ``transports``, wrapped if the log includes events of sockets."""
    if log is None or not log.includes(*AT_THE_SOCKETS):
        return transports
    return LoggedTransports(transports, log, clock)
