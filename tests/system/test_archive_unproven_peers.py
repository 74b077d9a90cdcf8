"""Peers that have not authenticated cost an archive, its driver and third parties little, and keep nobody out."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.support.archive_server import VERSION, ControlClient, RunningArchive
from tests.support.ports import free_port

from mainstem.archive.messages import ResponseCode, encode
from mainstem.archive.server import CredentialTable
from mainstem.archive.server.control_session import MAX_AMPLIFICATION
from mainstem.archive.server.host_lookups import MAX_LOOKUPS_OF_ADDRESS
from mainstem.archive.server.sessions import MAX_SESSIONS_OF_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CREDENTIALS = b"ops:secret"
STRANGER = "127.0.0.9"
TERM_LENGTH, MTU, STREAM = 1 << 16, 1408, 10
_SETUP = struct.Struct("<iBBHiiiiiiii")
_FRAME = struct.Struct("<iBBHiiiiq")


class Stranger:
    """A peer without credentials that sends datagrams by hand, and can forge its address."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((STRANGER, 0))
        self._to = ("127.0.0.1", port)
        self.nbytes = 0
        self._sent: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _send(self, datagram: bytes) -> None:
        self.socket.sendto(datagram, self._to)
        self.nbytes += len(datagram)

    def setup(self, session_id: int) -> None:
        self._send(_SETUP.pack(40, 0, 0, 5, 0, session_id, STREAM, 0, 0, TERM_LENGTH, MTU, 0))

    def connect(self, session_id: int, channel: str) -> None:
        """Send a connect request over the request publication ``session_id``."""
        offset = self._sent.get(session_id, 0)
        message = encode(
            "AuthConnectRequest",
            correlation_id=offset,
            response_stream_id=offset // 32,
            version=VERSION,
            response_channel=channel,
            encoded_credentials=b"",
            client_info="",
        )
        length = _FRAME.size + len(message)
        frame = _FRAME.pack(length, 0, 0xC0, 1, offset, session_id, STREAM, 0, 0) + message + bytes(-length % 32)
        self._send(frame)
        self._sent[session_id] = offset + len(frame)


class UdpClient(ControlClient):
    """A client with credentials that connects over UDP, as clients on other machines do."""

    def __init__(self, archive: RunningArchive, control: str) -> None:
        super().__init__(archive)
        self.responses.close()
        self.requests.close()
        endpoint = f"127.0.0.1:{free_port()}"
        self.channel = f"aeron:udp?endpoint={endpoint}"
        self.responses = archive.aeron.add_subscription(self.channel, self.stream_id)
        self.requests = archive.aeron.add_exclusive_publication(f"{control}|term-length=64k", STREAM)

    def establish(self) -> None:
        self.connect(credentials=CREDENTIALS, channel=self.channel)
        super().establish()


class Archive(RunningArchive):
    """An archive with credentials that listens on UDP."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.port = free_port()
        self.control = f"aeron:udp?endpoint=127.0.0.1:{self.port}"
        super().__init__(
            directory,
            control_channel=self.control,
            authenticator=CredentialTable({CREDENTIALS: b"ops"}),
            **options,
        )

    @property
    def refused(self) -> dict[str, int]:
        refused: dict[str, int] = self.server.stats().refused
        return refused

    @property
    def sessions(self) -> int:
        return int(self.server.stats().control_sessions)

    def images(self) -> int:
        """Return the number of request publications that the archive's driver has received."""
        return sum("rcv-pos" in text for text in self.labels())

    def labels(self) -> list[str]:
        counters = self.aeron.counters
        return [counters.label(each) for each in counters]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path, max_control_sessions=12, max_control_sessions_per_address=4) as running:
        yield running


@pytest.fixture
def stranger(archive: Archive) -> Iterator[Stranger]:
    with Stranger(archive.port) as each:
        yield each


def introduce(archive: Archive, stranger: Stranger, sessions: int) -> None:
    """Let the archive know request publications of a stranger."""
    for session_id in range(sessions):
        before = archive.images()
        stranger.setup(session_id)
        archive.until(lambda: archive.images() > before, "the image of a request publication")  # noqa: B023


def test_a_third_party_gets_at_most_three_times_what_the_stranger_sent(
    archive: Archive, stranger: Stranger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "mainstem.archive")
    received = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
        victim.bind(("127.0.0.1", 0))
        victim.setblocking(False)
        channel = f"aeron:udp?endpoint=127.0.0.1:{victim.getsockname()[1]}"
        introduce(archive, stranger, 1)
        for _ in range(MAX_SESSIONS_OF_IMAGE):
            stranger.connect(0, channel)

        def is_over() -> bool:
            nonlocal received
            try:
                while True:
                    received += len(victim.recv(4096))
            except BlockingIOError:
                pass
            # The driver has forgotten the publications, so nothing is sent any longer.
            return received > 0 and not archive.sessions and not any("snd-pos" in each for each in archive.labels())

        archive.until(is_over, "the end of the sessions and their publications")
    assert received <= MAX_AMPLIFICATION * stranger.nbytes
    # One line for the sessions that made way and one for those that ended, whatever their number.
    lines = [each.message for each in caplog.records if each.name == "mainstem.archive"]
    assert 0 < len(lines) <= 3
    # Nor is the request publication rejected, which is repeated for seconds.
    stranger.socket.setblocking(False)
    answers = bytearray()
    while True:
        try:
            answers += stranger.socket.recv(4096)[6:8]
        except BlockingIOError:
            break
    assert 4 not in answers[::2], "an ERR frame"


def test_a_stranger_cannot_keep_clients_with_credentials_out(archive: Archive, stranger: Stranger) -> None:
    introduce(archive, stranger, 3)
    silent = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    served = UdpClient(archive, archive.control)
    served.establish()
    for number in range(2):
        for session_id in range(3):
            for _ in range(6 if number == 0 else 2):
                stranger.connect(session_id, silent)
                archive.work()
        # At most its share, and never more than a second's requests.
        archive.until(lambda: archive.refused.get("connect rate", 0) > 0)
        assert archive.sessions <= 1 + number + 4
        other = UdpClient(archive, archive.control)
        other.establish()
    assert served.ask("StopReplayRequest", replay_session_id=1) == 0


def test_the_oldest_session_that_has_not_authenticated_makes_way(tmp_path: Path) -> None:
    with RunningArchive(tmp_path, max_control_sessions=3, authenticator=CredentialTable({CREDENTIALS: b""})) as archive:
        served = archive.connected(credentials=CREDENTIALS)
        for number in range(5):
            silent = archive.client()
            silent.responses.close()
            archive.until(lambda: archive.server.stats().control_sessions == min(2 + number, 3))  # noqa: B023
        # Two of them hold the other places, and clients with credentials still get in, as long as there is a place.
        second = archive.connected(credentials=CREDENTIALS)
        third = archive.connected(credentials=CREDENTIALS)
        dropped = archive.server.stats().refused["dropped"]
        assert dropped >= 3
        late = archive.client(credentials=CREDENTIALS)
        archive.until(lambda: archive.server.stats().refused.get("sessions", 0) == 1, "a refusal")
        for client in (served, second, third):
            assert client.ask("StopReplayRequest", replay_session_id=1) == 0
        assert archive.server.stats().refused["dropped"] == dropped
        late.close()


def test_names_of_unproven_clients_are_looked_up_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released, threads = threading.Event(), []
    look_up = socket.getaddrinfo

    def slow(host: Any, *arguments: Any, **options: Any) -> Any:
        if host != "client.example":
            return look_up(host, *arguments, **options)
        threads.append(threading.current_thread())
        assert threads[-1] is not threading.main_thread(), "the archive and its driver wait for a name server"
        released.wait()
        return look_up("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with RunningArchive(tmp_path) as archive:
        served = archive.connected()
        clients = []
        try:
            for _ in range(MAX_LOOKUPS_OF_ADDRESS + 1):
                port = free_port()
                clients.append(ControlClient(archive))
                clients[-1].responses.close()
                channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
                clients[-1].responses = archive.aeron.add_subscription(channel, clients[-1].stream_id)
                clients[-1].connect(channel=f"aeron:udp?endpoint=client.example:{port}")
                assert served.ask("StopReplayRequest", replay_session_id=1) == 0
            # One too many.
            archive.until(lambda: archive.server.stats().control_sessions == 1 + MAX_LOOKUPS_OF_ADDRESS)
        finally:
            released.set()
        for client in clients[:MAX_LOOKUPS_OF_ADDRESS]:
            assert client.response().code == ResponseCode.OK
