"""How a server responds to packets that belong to no connection, and what state it keeps for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.aqueduct import make_certificates
from mainstem.aqueduct.admission import MAX_UNPROVEN, SMALLEST_FIRST, Admission, FirstPackets
from mainstem.aqueduct.quic import load_backend
from mainstem.aqueduct.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.aqueduct.certificates import CertificateFiles
    from mainstem.aqueduct.quic.adapter import QuicAdapter

pytest.importorskip("cryptography")

CLIENT, SERVER = ("192.0.2.7", 50000), ("192.0.2.1", 4433)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class Door:
    """Admits connections as a server does, without the server."""

    def __init__(self, library: str, files: CertificateFiles, **options: Any) -> None:
        pytest.importorskip(library)
        self.backend = load_backend(library)
        settings = Settings(certificate=files.certificate, key=files.key, **options)
        self.context = self.backend.server_context(settings, None)
        self.admission: Admission[Any] = Admission(
            max_connections=4, max_connections_per_address=4, drop=lambda connection: None
        )
        self.first_packets = FirstPackets(self.context, self.admission, always_retry=settings.retry)

    def client(self) -> QuicAdapter:
        link = self.backend.client(Settings(verify=False), server_name="localhost", sessions=None, origin="")
        link.connect(SERVER, 0.0)
        return link

    def take(
        self, data: bytes, address: tuple[str, int] = CLIENT
    ) -> tuple[bytes | None, tuple[QuicAdapter, bool] | None]:
        """Return the response to a datagram, or the connection that it starts."""
        header = self.context.parse(data)
        if header is None:
            return None, None
        found = self.first_packets.arrived(data, header, address, 1.0)
        return (found, None) if isinstance(found, bytes) else (None, found)


@pytest.fixture(params=["qh3", "aioquic"])
def door(request: pytest.FixtureRequest, files: CertificateFiles) -> Door:
    return Door(request.param, files)


def garbage(version: bytes = b"\x00\x00\x00\x01", length: int = SMALLEST_FIRST) -> bytes:
    ids = b"\x08" + os.urandom(8) + b"\x08" + os.urandom(8)
    body = length - 26
    return b"\xc3" + version + ids + b"\x00" + (0x4000 + body).to_bytes(2) + os.urandom(body)


def test_a_random_packet_starts_no_connection(door: Door) -> None:
    assert door.take(garbage()) == (None, None)


def test_a_first_packet_starts_a_connection_from_an_unvalidated_address(door: Door) -> None:
    response, begun = door.take(door.client().transmit(0.0)[0][0])
    assert response is None
    assert begun is not None
    assert not begun[1]


def test_many_attempts_are_answered_with_a_retry_whose_token_validates_the_address(door: Door) -> None:
    for _ in range(MAX_UNPROVEN):
        assert door.take(garbage()) == (None, None)
    client = door.client()
    first = client.transmit(0.0)[0][0]
    response, begun = door.take(first)
    assert response is not None
    assert len(response) < len(first) / 4
    assert begun is None
    client.receive([response], SERVER, 0.1)
    again = client.transmit(0.1)[0][0]
    # From another address the token is worthless.
    assert door.take(again, ("192.0.2.8", 50000))[0] is not None
    response, begun = door.take(again)
    assert response is None
    assert begun is not None
    assert begun[1]


def test_an_undersized_packet_gets_no_response(door: Door) -> None:
    unknown = b"\x0a\x1a\x2a\x3a"
    assert door.take(garbage(unknown))[0] is not None
    assert door.take(garbage(unknown, SMALLEST_FIRST - 1)) == (None, None)
    assert door.take(garbage(length=SMALLEST_FIRST - 1)) == (None, None)


@pytest.mark.parametrize("library", ["qh3", "aioquic"])
def test_random_packets_create_no_qlog_file(library: str, files: CertificateFiles, tmp_path: Path) -> None:
    door = Door(library, files, qlog_directory=tmp_path)
    for _ in range(3):
        door.take(garbage())
    assert list(tmp_path.iterdir()) == []
    assert not door.context.configuration.quic_logger.unfinished
