"""A client and a server in memory, whose packets the test carries. The server's library is qh3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.quic import load_backend
from mainstem.aqueduct.settings import Settings

if TYPE_CHECKING:
    from mainstem.aqueduct.certificates import CertificateFiles
    from mainstem.aqueduct.quic.adapter import QuicAdapter

CLIENT = ("127.0.0.1", 4000)
SERVER = ("127.0.0.1", 4001)
MS = 0.001


class Heard:
    """Records what one side receives: the bytes of each stream, and whether the stream is complete."""

    def __init__(self) -> None:
        self.streams: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.datagrams = 0

    def receive_stream(self, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        assert stream_id not in self.ended, f"stream {stream_id} had ended"
        self.streams[stream_id] = self.streams.get(stream_id, b"") + data
        if fin:
            self.ended.add(stream_id)

    def receive_stream_ends(self, stream_ids: list[int], pieces: list[bytes], now_ns: int) -> None:
        for stream_id, data in zip(stream_ids, pieces, strict=True):
            self.receive_stream(stream_id, data, True, now_ns)

    def receive_datagrams(self, datagrams: list[bytes], now_ns: int) -> None:
        self.datagrams += len(datagrams)

    def handshake_completed(self, now_ns: int) -> None:
        """Do nothing: the connection may start."""

    def connection_lost(self, error: Exception | None, now_ns: int) -> None:
        raise AssertionError(f"the connection was lost: {error}")


class Pair:
    """A client and a server that have completed the handshake, with a clock that the test advances."""

    def __init__(self, files: CertificateFiles, client: str = "qh3") -> None:
        context = load_backend("qh3").server_context(Settings(certificate=files.certificate, key=files.key), None)
        self.client: Any = load_backend(client).client(
            Settings(ca=files.ca), server_name="localhost", sessions=None, origin=""
        )
        self.heard = Heard()
        self.heard_by_client = Heard()
        self.now = 1000.0
        self.client.connect(SERVER, self.now)
        self.server: Any = None
        for _ in range(50):
            self.now += MS
            due = self.client.timer()
            if due is not None and due <= self.now:
                self.client.handle_timer(self.now)
            for data, _ in self.client.transmit(self.now):
                if self.server is None:
                    header = context.parse(data)
                    assert header is not None
                    self.server = context.accept(header)
                self.server.receive([data], CLIENT, self.now)
            self.client.receive([data for data, _ in self.server.transmit(self.now)], SERVER, self.now)
            self.deliver()
        assert self.client.lifecycle.handshake_done

    def deliver(self) -> None:
        self.client.deliver(self.heard_by_client, 0)
        self.server.deliver(self.heard, 0)

    def sent(self, link: QuicAdapter) -> list[bytes]:
        return [data for data, _ in link.transmit(self.now)]

    def exchange(self, turns: int) -> None:
        """Let both sides exchange packets without loss or delay."""
        for _ in range(turns):
            self.now += 30 * MS
            for link in (self.client, self.server):
                due = link.timer()
                if due is not None and due <= self.now:
                    link.handle_timer(self.now)
            self.server.receive(self.sent(self.client), CLIENT, self.now)
            self.now += MS
            self.client.receive(self.sent(self.server), SERVER, self.now)
            self.deliver()
