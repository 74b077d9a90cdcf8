"""Two connection engines back to back: nothing is lost, everything arrives at once, and a test can hold back parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.events import (
    CloseConnection,
    Command,
    ConnectionEnded,
    Event,
    PeerHeaders,
    ResetStream,
    SendDatagram,
    SendStream,
    WatchDelivery,
)
from mainstem.aqueduct.limits import Limits
from mainstem.aqueduct.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aqueduct.halves import Incoming

MS = 1_000_000
SECOND = 1_000_000_000


class End:
    """One side of a `Pair`."""

    def __init__(self, conn: AqueductEngine) -> None:
        self.conn = conn
        self.events: list[Event] = []
        self.sent: list[Command] = []

    def hear(self, now_ns: int) -> None:
        while (event := self.conn.next_event()) is not None:
            self.events.append(event)
            if isinstance(event, PeerHeaders) and not self.conn.context.is_client:
                self.conn.accept((("answer", b"yes"),), now_ns)

    def of(self, kind: type) -> list[object]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def error(self) -> Exception | None:
        ended = self.of(ConnectionEnded)
        return ended[0].error if ended else None  # type: ignore[attr-defined]


class Pair:
    """A client and a server. ``hold`` decides which commands of either side are held back until `release`."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        start: bool = True,
        headers: tuple[tuple[str, bytes], ...] = (),
        max_datagram: int = 1100,
    ) -> None:
        limits = limits or Limits()
        self.now = SECOND
        self.max_datagram = max_datagram
        timing = Timing()
        self.client = End(
            AqueductEngine(is_client=True, headers=headers, limits=limits, timing=timing, peer="the server")
        )
        self.server = End(AqueductEngine(is_client=False, limits=limits, timing=timing, peer="the client"))
        self.hold: Callable[[End, Command], bool] = lambda end, command: False
        self.held: list[tuple[End, Command]] = []
        if start:
            self.client.conn.start(self.now)
            self.run()

    def other(self, end: End) -> End:
        return self.server if end is self.client else self.client

    def run(self) -> None:
        """Exchange until neither side has anything to send."""
        while True:
            busy = False
            for end in (self.client, self.server):
                end.hear(self.now)
                end.conn.output.transport_state(datagrams=1000, max_datagram=self.max_datagram)
                for command in end.conn.data_to_send(self.now):
                    busy = True
                    end.sent.append(command)
                    if self.hold(end, command):
                        self.held.append((end, command))
                    else:
                        self.deliver(end, command)
                end.hear(self.now)
            if not busy:
                return

    def deliver(self, end: End, command: Command) -> None:
        to = self.other(end).conn
        if isinstance(command, SendStream):
            to.receive_stream(command.stream_id, command.data, command.fin, self.now)
        elif isinstance(command, ResetStream):
            to.receive_reset(command.stream_id, command.code, self.now)
        elif isinstance(command, SendDatagram):
            to.receive_datagram(command.data, self.now)
        elif isinstance(command, WatchDelivery):
            end.conn.stream_delivered(command.stream_id, self.now)
        elif isinstance(command, CloseConnection):
            to.connection_lost(None, self.now)

    def release(self) -> None:
        """Deliver everything held back, and stop holding."""
        self.hold = lambda end, command: False
        held, self.held = self.held, []
        for end, command in held:
            self.deliver(end, command)
        self.run()

    def lose_held(self) -> None:
        """Drop everything held back, which must be datagrams, and stop holding."""
        self.hold = lambda end, command: False
        self.held.clear()

    def wait(self, seconds: float) -> None:
        """Advance the time, timer by timer."""
        until = self.now + int(seconds * SECOND)
        self.run()
        while True:
            times = [time for end in (self.client, self.server) if (time := end.conn.next_timeout_ns()) is not None]
            if not times or min(times) > until:
                break
            self.now = max(self.now, *[min(times)])
            for end in (self.client, self.server):
                end.conn.handle_timeout(self.now)
            self.run()
        self.now = until
        self.run()

    def receive(self, end: End, channel_id: int) -> Incoming | None:
        incoming = end.conn.receive(channel_id)
        self.run()
        return incoming

    def payloads(self, end: End, channel_id: int) -> list[bytes]:
        out = []
        while (incoming := self.receive(end, channel_id)) is not None:
            out.append(incoming.payload)
        return out
