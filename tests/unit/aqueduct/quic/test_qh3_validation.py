"""The qh3 library validates client addresses: two in-memory connections, and a client whose address changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.aqueduct.quic.qh3_pair import CLIENT, MS, SERVER, Pair

from mainstem.aqueduct import make_certificates
from mainstem.aqueduct.events import SendStream
from mainstem.aqueduct.quic.qh3_paths import ANSWER_PACKETS, LATE_PACKETS, VALIDATION_SECONDS
from mainstem.errors import ConnectionLost

if TYPE_CHECKING:
    from mainstem.aqueduct.certificates import CertificateFiles

pytest.importorskip("qh3")

AWAY = ("127.0.0.1", 4002)
THIRD = ("127.0.0.1", 4003)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class Traveler:
    """A client that can change its address, and a log of where the server's packets went."""

    def __init__(self, files: CertificateFiles, library: str) -> None:
        self.pair = Pair(files, library)
        self.at = CLIENT
        self.is_heard = True
        self._streams = 0
        self.received = 0
        self.went: list[tuple[bytes, Any]] = []
        self.turn(10)

    @property
    def active(self) -> Any:
        """The address that the library sends to."""
        return self.pair.server.paths.address(self.pair.server.quic.active_address)

    def say(self) -> None:
        """Let the client and the server each send something."""
        pair = self.pair
        self._streams += 1
        pair.client.execute([SendStream(4 * self._streams - 2, b"there", True)])
        pair.server.execute([SendStream(4 * self._streams - 1, b"back", True)])

    def heard(self) -> bool:
        """Return whether everything sent by `say` has arrived."""
        sides = (self.pair.heard, self.pair.heard_by_client)
        return all(len(side.ended) == self._streams for side in sides)

    def to_server(self) -> int:
        """Deliver the client's pending packets to the server, and return how many bytes they have."""
        pair = self.pair
        datagrams = pair.sent(pair.client)
        self._run_timers(pair.client)
        datagrams += pair.sent(pair.client)
        for data in datagrams:
            pair.server.receive([data], self.at, pair.now)
        pair.deliver()
        return sum(map(len, datagrams))

    def to_client(self) -> None:
        """Send the server's pending packets, and deliver those addressed to the client's current address."""
        pair = self.pair
        self._run_timers(pair.server)
        datagrams = pair.server.transmit(pair.now)
        self.went += datagrams
        pair.client.receive([data for data, to in datagrams if to == self.at and self.is_heard], SERVER, pair.now)
        pair.deliver()

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.pair.now += 20 * MS
            self.to_server()
            self.pair.now += 20 * MS
            self.to_client()

    def _run_timers(self, link: Any) -> None:
        due = link.timer()
        if due is not None and due <= self.pair.now:
            link.handle_timer(self.pair.now)

    def bytes_to(self, address: Any) -> int:
        return sum(len(data) for data, to in self.went if to == address)


@pytest.mark.parametrize("library", ["qh3", "aioquic"])
def test_a_client_that_returns_before_validation_can_move_again(files: CertificateFiles, library: str) -> None:
    pytest.importorskip(library)
    client = Traveler(files, library)
    client.at = AWAY
    client.say()
    client.to_server()
    client.to_client()
    assert client.active == CLIENT
    client.at = CLIENT
    client.turn(10)
    # It answered the challenge from this address, which proves that it was at the other one.
    assert client.active == AWAY
    for at in (CLIENT, AWAY, CLIENT, AWAY):
        client.at = at
        client.say()
        client.turn(10)
        assert client.heard()
        client.went.clear()
        client.say()
        client.turn(2)
        assert {to for _, to in client.went} == {at}


def test_a_path_challenge_is_repeated_if_its_response_is_lost(files: CertificateFiles) -> None:
    pytest.importorskip("aioquic")
    client = Traveler(files, "aioquic")
    client.at = AWAY
    client.say()
    client.to_server()
    client.to_client()
    # aioquic answers a challenge only once.
    lost = client.pair.sent(client.pair.client)
    assert lost
    asked = client.pair.now
    while client.pair.now < asked + VALIDATION_SECONDS - 0.1:
        client.turn()
        client.say()
        assert client.active == CLIENT
    client.turn(20)
    assert client.active == AWAY
    client.turn(20)
    assert client.heard()
    assert {to for _, to in client.went} == {CLIENT, AWAY}
    for at in (CLIENT, AWAY):
        client.at = at
        client.say()
        client.turn(20)
        assert client.heard()


@pytest.mark.parametrize("library", ["qh3", "aioquic"])
def test_an_address_that_never_responds_ends_the_connection(files: CertificateFiles, library: str) -> None:
    pytest.importorskip(library)
    client = Traveler(files, library)
    errors: list[Exception | None] = []
    client.pair.heard.is_ended = False  # type: ignore[attr-defined]
    client.pair.heard.connection_lost = lambda error, now_ns: errors.append(error)  # type: ignore[method-assign]
    client.at, client.is_heard = AWAY, False
    begun, came = client.pair.now, 0
    while not errors:
        client.pair.now += 50 * MS
        came += client.to_server()
        if not errors:
            client.to_client()
            assert client.active == CLIENT
            assert client.bytes_to(AWAY) <= 3 * came
        client.say()
        assert client.pair.now < begun + 6 * VALIDATION_SECONDS
    assert {to for _, to in client.went} <= {CLIENT, AWAY}
    assert isinstance(errors[0], ConnectionLost)
    assert "follows to three new addresses" in str(errors[0])
    assert client.pair.now >= begun + 3 * VALIDATION_SECONDS


@pytest.mark.parametrize("library", ["qh3", "aioquic"])
@pytest.mark.parametrize("end", [CLIENT, THIRD])
def test_abandoned_addresses_do_not_delay_a_client(files: CertificateFiles, library: str, end: tuple[str, int]) -> None:
    pytest.importorskip(library)
    client = Traveler(files, library)
    for at in (AWAY, THIRD):
        client.at, client.is_heard = at, False
        client.say()
        client.to_server()
        client.to_client()
    client.at, client.is_heard = end, True
    for _ in range(60):
        client.turn()
        client.say()
    client.turn(100)
    assert client.heard()
    assert client.active == end


def test_a_copied_packet_from_another_address_does_not_move_the_connection(files: CertificateFiles) -> None:
    client = Traveler(files, "qh3")
    client.say()
    copied = client.pair.sent(client.pair.client)
    client.pair.server.receive(copied, AWAY, client.pair.now)
    client.went.clear()
    for _ in range(100):
        client.turn()
        client.say()
    client.turn(10)
    assert client.heard()
    assert client.active == CLIENT
    assert client.bytes_to(AWAY) <= 3 * 1472 * (len(copied) + ANSWER_PACKETS)
    # Nor is the copy's address trusted later: the server challenges it again.
    client.at = AWAY
    client.say()
    client.to_server()
    assert client.active == CLIENT
    client.went.clear()
    client.turn(10)
    assert client.heard()
    assert client.active == AWAY
    assert {to for _, to in client.went} == {AWAY}


def test_late_packets_from_an_old_address_do_not_move_the_connection_back(files: CertificateFiles) -> None:
    client = Traveler(files, "qh3")
    client.say()
    late = client.pair.sent(client.pair.client)[: LATE_PACKETS - 1]
    client.at = AWAY
    client.say()
    client.turn(10)
    assert client.active == AWAY
    client.pair.server.receive(late, CLIENT, client.pair.now)
    client.went.clear()
    client.say()
    client.turn(10)
    assert client.heard()
    assert {to for _, to in client.went} == {AWAY}
