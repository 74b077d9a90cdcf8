"""The memory of a server's process while a peer floods it in every way it can, on one connection after another."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.aqueduct_frames import ConnectionControl
from tests.support.waiting import STALL_S, wait_for

from mainstem.aqueduct.frames import MESSAGE, VERSION_BYTES, encode_frame, encode_uint
from mainstem.aqueduct.quic import load_backend
from mainstem.aqueduct.quic.udp import UdpSocket
from mainstem.aqueduct.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system

FLOOD_SECONDS = 1.2
CONNECTIONS = 6
PIECES_WAITING = 2 << 20  # maximum number of bytes that the flooder leaves in its own library
GROWTH = 64 << 20
"""How much the process may grow. At most two connections are still ending, and each costs one and a half times the limit of
8 MiB, the library's own window, and the overhead of small pieces. The allocator keeps some memory as well. The duration of
the flood and the number of earlier floods make no difference."""


class Flooder:
    """A client that obeys QUIC's rules and no others."""

    def __init__(self, port: int, ca: Path) -> None:
        self.link = load_backend("qh3").client(
            Settings(ca=ca), server_name="localhost", sessions=None, origin=f"localhost:{port}"
        )
        self.udp = UdpSocket(host="127.0.0.1", port=0, family=socket.AF_INET)
        self.address = ("127.0.0.1", port)
        self.established = self.over = False
        self.sent = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        # The server's responses do not matter.
        if name.startswith(("receive_", "stream_", "transport_")):
            return lambda *arguments, **keywords: None
        raise AttributeError(name)

    def handshake_completed(self, now_ns: int) -> None:
        self.established = True

    def connection_lost(self, error: Exception | None, now_ns: int) -> None:
        self.over = True

    def turn(self, wait: float) -> None:
        """Send pending data, wait briefly, and receive."""
        datagrams = self.link.transmit(time.monotonic())
        if datagrams:
            self.udp.send(datagrams)
        select.select([self.udp.fileno()], [], [], wait)
        found = self.udp.receive()
        now = time.monotonic()
        if found:
            self.link.receive([data for data, _ in found], self.address, now)
        due = self.link.timer()
        if due is not None and due <= now:
            self.link.handle_timer(now)
        self.link.deliver(self, 0)  # type: ignore[arg-type]

    def flood(self, pieces: Iterator[tuple[str, bytes]], seconds: float) -> None:
        """Connect, shake hands, and send pieces until the time is up or the server disconnects."""
        quic: Any = self.link.quic
        self.link.connect(self.address, time.monotonic())
        wait_for(lambda: self.established, invoke=lambda: self.turn(0.01), poll_s=0)
        quic.send_stream_data(0, VERSION_BYTES + ConnectionControl().encode(), False)
        until = time.monotonic() + seconds
        ordered = quic.get_next_available_stream_id(is_unidirectional=True)
        quic.send_stream_data(ordered, VERSION_BYTES, False)
        while time.monotonic() < until and not self.over:
            try:
                self.push(pieces, ordered)
                self.turn(0.001)
            except self.link.library_errors:
                # The library rejects anything sent after the server's close.
                break
        with contextlib.suppress(*self.link.library_errors):
            self.link.close(0, "")
            self.turn(0.05)
        self.udp.close()

    def push(self, pieces: Iterator[tuple[str, bytes]], ordered: int) -> None:
        """Pass the library as much as it accepts."""
        quic: Any = self.link.quic
        for _ in range(50):
            if quic.get_send_buffer_size() > PIECES_WAITING:
                break
            how, data = next(pieces)
            if how == "datagram":
                quic.send_datagram_frame(VERSION_BYTES + data)
            elif how == "ordered":
                quic.send_stream_data(ordered, data, False)
            else:
                limits = quic.core.stream_limits
                if limits[1] - limits[3] <= 0:
                    break
                stream_id = quic.get_next_available_stream_id(is_unidirectional=True)
                quic.send_stream_data(stream_id, VERSION_BYTES + data, how == "finished")
            self.sent += len(data)


def channels() -> Iterator[tuple[str, bytes]]:
    """Yield messages that attach fifty channels each, of both kinds."""
    index, number = 1, 0
    while True:
        ids = [(index + step) << 3 | (step & 1) for step in range(50)]
        yield "ordered", encode_frame(MESSAGE, (0, number, tuple(ids), b""))
        index, number = index + 50, number + 1


def ghosts() -> Iterator[tuple[str, bytes]]:
    """Yield messages on unknown channels."""
    index = 1
    while True:
        yield "finished", encode_frame(MESSAGE, (index << 3, 0, (), bytes(100)))
        index += 1


def messages() -> Iterator[tuple[str, bytes]]:
    """Yield messages that nobody reads, small and large."""
    number = 0
    while True:
        yield "ordered", encode_frame(MESSAGE, (0, number, (), bytes(100_000 if number % 10 == 9 else 10)))
        number += 1


def unordered() -> Iterator[tuple[str, bytes]]:
    """Yield one stream for each message that nobody reads."""
    number = 0
    while True:
        yield "finished", encode_frame(MESSAGE, (0, number, (), bytes(900)))
        number += 1


def unfinished() -> Iterator[tuple[str, bytes]]:
    """Yield streams that announce sixteen megabytes and then stop."""
    head = b"\x03\x00\x00\x00" + encode_uint(16 << 20)
    while True:
        yield "unfinished", head + bytes(20_000)


def datagrams() -> Iterator[tuple[str, bytes]]:
    """Yield datagrams that nobody reads."""
    number = 0
    while True:
        yield "datagram", encode_frame(MESSAGE, (0, number, (), bytes(900)))
        number += 1


@pytest.fixture(scope="module")
def server(certificates: CertificateFiles) -> Iterator[tuple[int, int]]:
    script = Path(__file__).with_name("flooded_server.py")
    command = [sys.executable, str(script), str(certificates.certificate), str(certificates.key)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(STALL_S)
        process.stdout.close()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("pieces", [channels, ghosts, messages, unordered, unfinished, datagrams])
def test_a_flood_does_not_grow_memory(
    server: tuple[int, int], certificates: CertificateFiles, pieces: Callable[[], Iterator[tuple[str, bytes]]]
) -> None:
    pid, port = server
    warm = Flooder(port, certificates.ca)
    warm.flood(pieces(), 0.1)
    before = resident_bytes(pid)
    most = sent = 0
    for _ in range(CONNECTIONS):
        flooder = Flooder(port, certificates.ca)
        flooder.flood(pieces(), FLOOD_SECONDS)
        most = max(most, resident_bytes(pid) - before)
        sent += flooder.sent
    assert sent > 100_000, "nothing was tried"
    assert most < GROWTH, f"the process grew by {most >> 20} MiB for {sent >> 20} MiB sent"
