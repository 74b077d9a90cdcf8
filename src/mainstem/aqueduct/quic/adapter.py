"""What Aqueduct needs of a QUIC library: one adapter for each connection.

A `QuicAdapter` owns one QUIC connection and does no I/O. It passes the content of datagrams to an `AqueductEngine`, carries out
that engine's commands, and says when its timer is due. `qh3_backend` and `aioquic_backend` have one each. They use the library's
connection through a subclass of it (`qh3_connection`, `aioquic_connection`), the only place that knows the library's private
names. `lifecycle` has the handshake and the end of a connection, which both libraries report alike.

Times are in seconds, on the clock of the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mainstem.aqueduct.engine import AqueductEngine
    from mainstem.aqueduct.events import Command
    from mainstem.aqueduct.quic.lifecycle import Lifecycle
    from mainstem.aqueduct.quic.udp import Address


class QuicAdapter(Protocol):
    """One QUIC connection of a library."""

    @property
    def library_errors(self) -> tuple[type[Exception], ...]:
        """What the library raises if a packet or a call is invalid."""
        ...

    @property
    def lifecycle(self) -> Lifecycle:
        """Whether the handshake is complete, and whether and how the connection has ended."""
        ...

    @property
    def host_cid(self) -> bytes:
        """The first connection id of this side."""
        ...

    @property
    def has_ticket(self) -> bool:
        """Whether a client has a session ticket, and so can send early data."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether an authentic packet has arrived for this connection."""
        ...

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER form; None if it presented none."""
        ...

    @property
    def round_trip(self) -> float | None:
        """The smoothed round-trip time in seconds; None until it has been measured."""
        ...

    @property
    def is_in_flight(self) -> bool:
        """Whether any data is unacknowledged or waiting to be sent, as far as the library reports it."""
        ...

    # Datagrams and time.

    def connect(self, address: Address, now: float) -> None:
        """Begin a client's handshake."""
        ...

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        """Process datagrams from one address. `deliver` has to follow."""
        ...

    def transmit(self, now: float) -> list[tuple[bytes, Address]]:
        """Return the datagrams to send now."""
        ...

    def timer(self) -> float | None:
        """Return when `handle_timer` is due; None for never."""
        ...

    def handle_timer(self, now: float) -> None: ...

    def ping(self) -> None:
        """Send a packet that the peer acknowledges."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close the connection with the next `transmit`, which sends nothing else from then on."""
        ...

    # From the library to the engine.

    def has_events(self) -> bool:
        """Return whether `deliver` may have something to pass on."""
        ...

    def deliver(self, engine: AqueductEngine, now_ns: int) -> bool:
        """Pass all events of the library to the engine; return False if there are none."""
        ...

    # From the engine to the library.

    def update(self, engine: AqueductEngine) -> None:
        """Tell the engine how much it can send and how long a round trip takes."""
        ...

    def execute(self, commands: Iterable[Command]) -> None:
        """Carry out the engine's commands. Raises ConnectionLost if the library fails."""
        ...

    @property
    def watched(self) -> Collection[int]:
        """The streams for which the engine waits until their bytes are delivered."""
        ...

    def check_watched(self, engine: AqueductEngine, now_ns: int) -> bool:
        """Report to the engine the watched streams whose bytes have been delivered; return whether there were any.

        Called after sending.
        """
        ...
