"""One engine under attack: a `Victim`, and methods to send it arbitrary bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.aqueduct_frames import ChannelControl, ConnectionControl, Frame, Message, Version

from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.events import ConnectionEnded, Mode, PeerHeaders
from mainstem.aqueduct.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterable

CLIENT_UNI, SERVER_UNI = 2, 3
HELLO = Version().encode() + ConnectionControl().encode()
SMALL = Limits(
    max_channels=50,
    max_open_streams=60,
    max_gaps=8,
    max_payload=4096,
    max_buffered_bytes=20_000,
    receive_messages=4,
    receive_bytes=1 << 20,
    max_filter_ranges=4,
)


class Victim:
    """One engine, and methods to send it arbitrary bytes."""

    def __init__(self, *, is_client: bool, greet: bool = True, limits: Limits = SMALL) -> None:
        self.conn = AqueductEngine(is_client=is_client, peer="mallory", limits=limits)
        self.now = 10**9
        self.error: Exception | None = None
        self.ended = False
        self.commands: list[object] = []
        self.conn.output.transport_state(datagrams=100, max_datagram=1000)
        self._next_uni = SERVER_UNI if is_client else CLIENT_UNI
        self._next_bidi = 1 if is_client else 4
        if is_client:
            self.conn.start(self.now)
        if greet:
            self.stream(0, HELLO)
        self.pump()

    def pump(self) -> None:
        while (event := self.conn.next_event()) is not None:
            if isinstance(event, PeerHeaders) and not self.conn.context.is_client:
                self.conn.accept((), self.now)
            elif isinstance(event, ConnectionEnded):
                self.ended, self.error = True, event.error
        self.commands += self.conn.data_to_send(self.now)

    def stream(self, stream_id: int, data: bytes, fin: bool = False) -> None:
        self.conn.receive_stream(stream_id, data, fin, self.now)
        self.pump()

    def uni(self, *frames: Frame, fin: bool = True) -> None:
        self.stream(self._next_uni, b"".join(frame.encode() for frame in frames), fin)
        self._next_uni += 4

    def bidi(self, *frames: Frame, fin: bool = False) -> int:
        stream_id = self._next_bidi
        self._next_bidi += 4
        self.stream(stream_id, b"".join(frame.encode() for frame in frames), fin)
        return stream_id

    def datagram(self, *frames: Frame) -> None:
        self.conn.receive_datagram(b"".join(frame.encode() for frame in frames), self.now)
        self.pump()

    def reset(self, stream_id: int, code: int) -> None:
        self.conn.receive_reset(stream_id, code, self.now)
        self.pump()

    def stop(self, stream_id: int) -> None:
        self.conn.receive_stop_sending(stream_id, self.now)
        self.pump()

    def send(self, channel_id: int = 0, **options: object) -> tuple[int, ...]:
        ids = self.conn.send(channel_id, b"x", **options)  # type: ignore[arg-type]
        self.pump()
        return ids


def server() -> Victim:
    return Victim(is_client=False)


def client() -> Victim:
    return Victim(is_client=True)


def attached_client(*, mode: Mode = Mode.ORDERED, count: int = 1) -> tuple[Victim, int]:
    """Return a client whose entrypoint has sent ``count`` messages, and the entrypoint's control stream."""
    victim = client()
    for _ in range(count):
        victim.send(mode=mode)
    return victim, victim.bidi(ChannelControl(0))


def message(number: int = 0, *, channel: int = 0, attachments: Iterable[int] = ()) -> Message:
    return Message(channel, number, tuple(attachments), b"hello")
