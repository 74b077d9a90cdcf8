"""Aqueduct's UDP socket, with and without batched system calls: what it keeps, what it loses, and in what order."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import wait_for

from mainstem.aqueduct.quic import udp
from mainstem.aqueduct.quic.udp import MAX_BACKLOG, UdpSocket

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.system

HERE = "127.0.0.1"


@pytest.fixture(params=["batched", "one by one"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[UdpSocket, UdpSocket]]:
    if request.param == "one by one":
        monkeypatch.setattr(udp, "_batched_state", lambda _: None)
    made = [UdpSocket(host=HERE, port=0, family=socket.AF_INET) for _ in range(2)]
    if request.param == "batched" and made[0]._batched is None:
        pytest.skip("qh3 has no batched system calls here")
    yield made[0], made[1]
    for each in made:
        each.close()


class Full:
    """A socket, or qh3's state of one, whose buffer has space for ``room`` datagrams; then it raises ``blocked``."""

    def __init__(self, inner: Any, room: int, blocked: int = errno.EAGAIN) -> None:
        self._inner = inner
        self.room = room
        self._blocked = blocked

    def sendto(self, data: bytes, address: Any) -> int:
        if not self.room:
            raise OSError(self._blocked, "full")
        self.room -= 1
        return int(self._inner.sendto(data, address))

    def send(self, run: list[bytes], address: Any) -> int:
        taken = run[: self.room]
        if not taken:
            raise OSError(self._blocked, "full")
        self.room -= len(taken)
        return int(self._inner.send(taken, address))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def received(end: UdpSocket, count: int) -> list[bytes]:
    found: list[bytes] = []

    def more() -> bool:
        found.extend(bytes(data) for data, _ in end.receive())
        return len(found) >= count

    wait_for(more)
    return found


def test_datagrams_arrive_in_order_at_their_addresses(ends: tuple[UdpSocket, UdpSocket]) -> None:
    near, far = ends
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as third:
        third.bind((HERE, 0))
        third.setblocking(False)
        datagrams = [(b"%d" % number, far.address) for number in range(200)]
        datagrams[100:100] = [(b"elsewhere", third.getsockname())]
        near.send(datagrams)
        near.send([(b"alone", far.address)])
        assert received(far, 201) == [b"%d" % number for number in range(200)] + [b"alone"]
        assert third.recv(100) == b"elsewhere"
    assert far.receive() == []
    assert not near.backlog


def test_an_unsendable_datagram_is_dropped_without_delay(ends: tuple[UdpSocket, UdpSocket]) -> None:
    near, far = ends
    near.send([(bytes(70_000), far.address)])
    near.send([(b"one", far.address), (bytes(70_000), far.address), (b"two", far.address)])
    assert received(far, 2) == [b"one", b"two"]
    assert not near.backlog


@pytest.mark.parametrize("blocked", [errno.EAGAIN, errno.ENOBUFS])
def test_datagrams_queue_in_order_while_the_socket_is_full(ends: tuple[UdpSocket, UdpSocket], blocked: int) -> None:
    near, far = ends
    part = "_socket" if near._batched is None else "_batched"
    full = Full(getattr(near, part), 2, blocked)
    setattr(near, part, full)
    near.send([(b"%d" % number, far.address) for number in range(5)])
    assert [data for data, _ in near.backlog] == [b"2", b"3", b"4"]
    near.send([(b"5", far.address)])
    full.room = 1
    near.flush()
    assert [data for data, _ in near.backlog] == [b"3", b"4", b"5"]
    near.send([(bytes(1), far.address)] * (MAX_BACKLOG + 10))
    assert len(near.backlog) == MAX_BACKLOG
    full.room = 1 << 20
    near.flush()
    assert not near.backlog
    assert received(far, 6)[:6] == [b"%d" % number for number in range(6)]


def test_an_unreachable_peer_affects_no_other(ends: tuple[UdpSocket, UdpSocket]) -> None:
    near, far = ends
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind((HERE, 0))
        nobody = gone.getsockname()
    near.send([(b"into the void", nobody)])
    near.send([(b"on", far.address)])
    assert received(far, 1) == [b"on"]
    assert near.receive() == []


def test_binding_a_used_port_fails_and_leaves_no_socket(ends: tuple[UdpSocket, UdpSocket]) -> None:
    with pytest.raises(OSError, match="in use"):
        UdpSocket(host=HERE, port=ends[0].address[1], family=socket.AF_INET)
