"""Sockets as the driver opens them, on loopback."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.support.ports import free_port
from tests.support.waiting import wait_for

from mainstem._core.driver.datagram import Address
from mainstem._core.driver.loss_generator import RandomLoss
from mainstem._core.driver.udp import UdpTransport
from mainstem.aeron.driver.media.addresses import InetAddress, wildcard
from mainstem.aeron.driver.media.transport import OpenTransport, SystemTransports, TransportRequest
from mainstem.errors import ConfigurationError

LOOPBACK = InetAddress("127.0.0.1", 0)


def read_one(opened: OpenTransport) -> tuple[bytes, bytes]:
    return next(iter(wait_for(opened.transport.read)))


def test_opens_binds_and_connects_with_the_buffers_that_were_asked_for() -> None:
    transports = SystemTransports()
    receiver = transports.open(TransportRequest(bind=LOOPBACK, so_rcvbuf=100_000, so_sndbuf=50_000))
    assert (receiver.receive_buffer_length, receiver.send_buffer_length) == (100_000, 50_000)
    assert receiver.local_address.port != 0
    sender = transports.open(TransportRequest(bind=wildcard(v6=False), connect=receiver.local_address))
    assert sender.transport.send(b"hello")
    datagram, source = read_one(receiver)
    assert datagram == b"hello"
    assert receiver.transport.send(b"back", Address(source))
    assert read_one(sender)[0] == b"back"
    for each in (receiver, sender):
        each.close()
        each.close()
        assert each.transport.closed


def test_a_peer_of_the_other_ip_version_is_refused_and_no_socket_is_left() -> None:
    opened = SystemTransports().open(TransportRequest(bind=LOOPBACK))
    with pytest.raises(ConfigurationError, match="must have the same IP version"):
        SystemTransports().open(TransportRequest(bind=opened.local_address.with_port(0), connect=InetAddress("::1", 9)))
    with pytest.raises(OSError, match="must have the same IP version"):
        opened.reconnect(InetAddress("::1", 9))
    opened.close()


def test_buffers_that_were_not_asked_for_are_the_systems() -> None:
    transports = SystemTransports()
    opened = transports.open(TransportRequest(bind=LOOPBACK))
    limits = transports.buffer_limits()
    assert (opened.receive_buffer_length, opened.send_buffer_length) == (limits.default_receive, limits.default_send)
    opened.close()


def test_buffers_above_what_a_call_takes_are_what_the_system_allows() -> None:
    transports = SystemTransports()
    opened = transports.open(TransportRequest(bind=LOOPBACK, so_rcvbuf=3 << 30, so_sndbuf=1 << 62))
    limits = transports.buffer_limits()
    assert (opened.receive_buffer_length, opened.send_buffer_length) == (limits.max_receive, limits.max_send)
    opened.close()


def test_a_taken_port_is_refused_by_name_and_a_range_finds_the_next_free_one() -> None:
    transports = SystemTransports()
    first = transports.open(TransportRequest(bind=LOOPBACK))
    taken = first.local_address.port
    try:
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{taken}"):
            transports.open(TransportRequest(bind=first.local_address))
        with pytest.raises(ConfigurationError, match="no available ports in range"):
            transports.open(TransportRequest(bind=LOOPBACK, port_range=(taken, taken)))
        found = transports.open(TransportRequest(bind=LOOPBACK, port_range=(taken, min(65_535, taken + 50))))
        assert found.local_address.port > taken
        found.close()
    finally:
        first.close()


def test_v6_sockets_work_alike() -> None:
    transports = SystemTransports()
    if not any(interface.ip == "::1" for interface in transports.interfaces()):
        pytest.skip("no IPv6 on this machine")
    receiver = transports.open(TransportRequest(bind=InetAddress("::1", 0)))
    sender = transports.open(TransportRequest(bind=InetAddress("::1", 0)))
    assert sender.transport.send(b"six", Address(receiver.local_address.packed))
    datagram, source = read_one(receiver)
    assert datagram == b"six"
    assert InetAddress.unpack(source) == sender.local_address
    receiver.close()
    sender.close()


def test_a_multicast_group_reaches_every_member_on_its_interface() -> None:
    transports = SystemTransports()
    group = InetAddress("224.20.30.41", free_port())
    request = TransportRequest(bind=LOOPBACK.with_port(group.port), group=group, interface_ip="127.0.0.1")
    members = [transports.open(request) for _ in range(2)]
    sender = transports.open(
        TransportRequest(
            bind=LOOPBACK.with_port(group.port + 1),
            group=group._replace(ip="224.20.30.42"),
            interface_ip="127.0.0.1",
            ttl=1,
        )
    )
    try:
        if not sender.transport.send(b"all", Address(group.packed)):
            pytest.skip("no multicast on loopback here")
        assert [read_one(member)[0] for member in members] == [b"all", b"all"]
        assert sender.transport.read() == []
    finally:
        for each in (*members, sender):
            each.close()


def test_multicast_leaves_through_a_port_of_the_systems_choosing() -> None:
    transports = SystemTransports()
    data = InetAddress("224.20.30.43", free_port())
    control = data._replace(ip="224.20.30.44")
    request = TransportRequest(bind=LOOPBACK.with_port(data.port), group=data, interface_ip="127.0.0.1")
    member = transports.open(request)
    sender = transports.open(replace(request, group=control, send_to=data))
    try:
        if not sender.transport.send(b"data"):
            pytest.skip("no multicast on loopback here")
        datagram, source = read_one(member)
        assert datagram == b"data"
        assert sender.local_address.port == data.port
        assert InetAddress.unpack(source).port not in (0, data.port)
        assert member.transport.send(b"status", Address(control.packed))
        assert read_one(sender)[0] == b"status"
    finally:
        for each in (member, sender):
            each.close()


def test_intentional_loss_is_counted_over_all_transports() -> None:
    transports = SystemTransports(outgoing_loss=lambda number: RandomLoss(1.0, number))
    receiver = transports.open(TransportRequest(bind=LOOPBACK))
    sender = transports.open(TransportRequest(bind=LOOPBACK, connect=receiver.local_address))
    assert sender.transport.send(bytes(32))
    assert receiver.transport.send(bytes([0, 0, 0, 0, 0, 0, 3, 0]), Address(sender.local_address.packed))
    assert (transports.dropped_data, transports.dropped_control) == (1, 1)
    assert receiver.transport.read() == []
    receiver.close()
    sender.close()


def test_resolves_names_and_knows_the_loopback_interface() -> None:
    transports = SystemTransports()
    assert transports.resolve("localhost") in ("127.0.0.1", "::1")
    assert transports.resolve("10.1.2.3") == "10.1.2.3"
    with pytest.raises(LookupError):
        transports.resolve("no.such.host.invalid")
    assert any(interface.ip == "127.0.0.1" and interface.is_loopback for interface in transports.interfaces())


def test_the_kernel_notes_when_a_datagram_arrived() -> None:
    transports = SystemTransports()
    receiver = transports.open(TransportRequest(bind=LOOPBACK, timestamps=True))
    assert isinstance(receiver.transport, UdpTransport)
    assert receiver.transport.timestamps
    sender = transports.open(TransportRequest(bind=LOOPBACK, connect=receiver.local_address))
    before_ns = time.time_ns()
    assert sender.transport.send(bytes(64))
    assert read_one(receiver)[0] == bytes(64)
    assert before_ns - 1_000_000_000 < receiver.transport.arrived_ns < time.time_ns() + 1_000_000_000
    receiver.close()
    sender.close()
