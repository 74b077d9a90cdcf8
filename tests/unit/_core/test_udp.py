"""Batches of datagrams over real loopback sockets, with and without the kernel's offloads."""

from __future__ import annotations

import errno
import random
import socket
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import StallTimeout
from tests.unit._core.network import Writer, modules, new_log

from mainstem._core.driver.datagram import Address
from mainstem._core.driver.send_path import SendEndpointCore, SendPath
from mainstem._core.driver.udp import UdpTransport
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.driver.media.addresses import InetAddress

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two,
    ):
        for each in (one, two):
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            each.bind(("127.0.0.1", 0))
        yield one, two


def read_all(transport: UdpTransport, length: int) -> list[tuple[bytes, bytes]]:
    """Read until ``length`` bytes have arrived: loopback delivers at once, but a busy machine takes a little longer."""
    result: list[tuple[bytes, bytes]] = []
    stall = StallTimeout(f"{length} bytes")
    while sum(len(datagram) for datagram, _ in result) < length:
        stall.check(len(result))
        result += transport.read()
    return result


@pytest.mark.parametrize("offload", [True, False])
def test_runs_of_a_log_arrive_as_the_datagrams_that_they_are_made_of(
    sockets: tuple[socket.socket, socket.socket], offload: bool
) -> None:
    sender, receiver = sockets
    out, into = UdpTransport(sender.fileno(), offload=offload), UdpTransport(receiver.fileno(), offload=offload)
    core = modules(compiled=True)
    counters = AtomicBuffer(bytearray(128 * 64))
    to = Address(InetAddress(*receiver.getsockname()).packed)
    log = new_log(core)
    path = SendPath(log, counters, 1234, 1001, 7, 65_536, 1408, 32_768, 50, 51, 52, 53, 54)
    cycle = core.send_cycle.SenderCycle(counters)
    endpoint = SendEndpointCore(out, counters, 1, False, to)
    cycle.add_endpoint(endpoint)
    cycle.add_path(path, endpoint)
    path.add_receiver(1, 60_000, 0)
    noise = random.Random(3)
    writer = Writer(log)
    for _ in range(40):
        writer.append(noise.randbytes(noise.choice((1000, 1000, 1000, 37, 1376))))
    for _ in range(10):
        cycle.run_cycle(1)
    assert path.sender_position == writer.position
    assert counters.get_i64(16 * 128) == 0
    got = read_all(into, writer.position)
    data = b"".join(datagram for datagram, _ in got)
    assert data == log.get_bytes(0, writer.position)
    assert all(len(datagram) <= 1408 and len(datagram) % 32 == 0 for datagram, _ in got)
    assert {InetAddress.unpack(source) for _, source in got} == {InetAddress(*sender.getsockname())}


def test_the_kernel_offloads_are_found(sockets: tuple[socket.socket, socket.socket]) -> None:
    with_offload = UdpTransport(sockets[0].fileno())
    without = UdpTransport(sockets[1].fileno(), offload=False)
    assert (without.max_segments, without.coalesces) == (1, False)
    assert with_offload.max_segments in (1, 64)


def test_a_connected_socket_needs_no_address_and_survives_a_refusal(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    sender, receiver = sockets
    sender.connect(receiver.getsockname())
    out = UdpTransport(sender.fileno())
    assert out.send(b"one")
    into = UdpTransport(receiver.fileno())
    assert [datagram for datagram, _ in read_all(into, 3)] == [b"one"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        nobody = gone.getsockname()
    sender.connect(nobody)
    assert all(out.send(b"lost") for _ in range(5))
    assert out.read() == []
    assert out.error_count == 0


def test_refused_sends_are_counted_with_their_reason(sockets: tuple[socket.socket, socket.socket]) -> None:
    out = UdpTransport(sockets[0].fileno())
    to = Address(InetAddress(*sockets[1].getsockname()).packed)
    assert not out.send(bytes(70_000), to)
    assert (out.error_count, out.last_error) == (1, errno.EMSGSIZE)


def test_a_closed_transport_does_nothing(sockets: tuple[socket.socket, socket.socket]) -> None:
    out = UdpTransport(sockets[0].fileno())
    out.close()
    assert not out.send(b"x", Address(InetAddress(*sockets[1].getsockname()).packed))
    assert out.read() == []
