"""A tap in front of a transport: everything passes through it unchanged, and a listener is told."""

from __future__ import annotations

import importlib
import struct
from typing import Any

import pytest
from tests.unit._core import uncompiled
from tests.unit._core.network import RECEIVER_ADDRESS, SENDER_ADDRESS, Modules, Pair, frame, modules

from mainstem._core import layout

MS = 1_000_000


class DatagramListener:
    """Keeps the datagrams it is told about."""

    def __init__(self) -> None:
        self.arrived: list[tuple[bytes, bytes]] = []
        self.sent: list[tuple[bytes, bytes]] = []

    def on_receive(self, source: bytes, datagram: bytes) -> None:
        self.arrived.append((source, datagram))

    def on_send(self, destination: bytes, datagram: bytes) -> None:
        self.sent.append((destination, datagram))


@pytest.fixture(params=[True, False], ids=["compiled", "uncompiled"])
def core(request: pytest.FixtureRequest) -> Modules:
    return modules(compiled=request.param)


def tapped(core: Modules, inner: Any) -> tuple[Any, DatagramListener]:
    compiled = core.datagram.__name__.startswith("mainstem._core")
    tap = importlib.import_module("mainstem._core.driver.tap") if compiled else uncompiled.load("driver.tap")
    listener = DatagramListener()
    return tap.TappedTransport(inner, listener), listener


def test_each_datagram_of_a_stream_is_logged(core: Modules) -> None:
    watchers = []

    def tap(inner: Any) -> Any:
        transport, listener = tapped(core, inner)
        watchers.append(listener)
        return transport

    plain, pair = Pair(core), Pair(core, tap=tap)
    (listener,) = watchers
    for each in (plain, pair):
        each.connect()
        for number in range(5):
            each.writer.append(bytes([number]) * (1000 + (number == 4)))
        each.sender.run_cycle(each.now_ns)
    left = list(pair.sender_transport.sent)
    assert left == list(plain.sender_transport.sent)
    # Runs of equal datagrams go to the network together, but the listener is told about each one.
    assert [datagram for _, datagram in listener.sent][-len(left) :] == [datagram for _, datagram in left]
    assert [datagram[32] for _, datagram in listener.sent[-5:]] == [0, 1, 2, 3, 4]


def test_arriving_frames_are_logged_with_their_source(core: Modules) -> None:
    inner = core.datagram.MemoryTransport()
    transport, listener = tapped(core, inner)
    for number, source in ((1, SENDER_ADDRESS), (2, RECEIVER_ADDRESS)):
        inner.deliver(bytes([number]) * 40, source)
    assert transport.read() == [(b"\1" * 40, SENDER_ADDRESS), (b"\2" * 40, RECEIVER_ADDRESS)]
    assert listener.arrived == [(SENDER_ADDRESS, b"\1" * 40), (RECEIVER_ADDRESS, b"\2" * 40)]
    assert transport.read() == []


def test_sent_frames_are_logged_with_their_destination(core: Modules) -> None:
    inner = core.datagram.MemoryTransport()
    transport, listener = tapped(core, inner)
    assert transport.send(b"one", core.datagram.Address(SENDER_ADDRESS))
    assert transport.send(b"two")
    assert inner.take() == [(SENDER_ADDRESS, b"one"), (None, b"two")]
    assert listener.sent == [(SENDER_ADDRESS, b"one"), (b"", b"two")]
    inner.send_limit = 0
    assert not transport.send(b"three")
    assert len(listener.sent) == 2


def test_incoming_loss_is_not_delivered(core: Modules) -> None:
    inner = core.datagram.MemoryTransport(incoming=core.loss.RandomLoss(1.0))
    transport, listener = tapped(core, inner)
    inner.deliver(frame(bytes(8), term_offset=0), SENDER_ADDRESS)
    assert transport.read() == listener.arrived == []
    assert (transport.dropped_data, transport.dropped_control) == (1, 0)


def test_the_receiver_finds_its_sender_by_the_source(core: Modules) -> None:
    pair = Pair(core)
    transport, listener = tapped(core, pair.receiver_transport)
    pair.receive_endpoint.remove_transport(pair.index)
    index = pair.receive_endpoint.add_transport(transport)
    pair.receive_path.remove_transport(pair.index, pair.now_ns)
    source = core.datagram.Address(SENDER_ADDRESS)
    pair.receive_path.add_connection(transport, index, source, source, pair.now_ns)
    pair.receiver_transport.deliver(frame(bytes(32), term_offset=64), SENDER_ADDRESS)
    pair.receiver.run_cycle(pair.now_ns)
    pair.receiver.run_cycle(pair.now_ns + MS)
    kinds = [struct.unpack_from("<H", datagram, 6)[0] for _, datagram in listener.sent]
    assert layout.TYPE_NAK in kinds
    assert {destination for destination, _ in listener.sent} == {SENDER_ADDRESS}
    # It came from the expected address, so the receiver does not report an unknown session.
    assert layout.EVENT_UNKNOWN_SESSION not in [event[0] for event in pair.receiver.events.take()]


def test_closing_a_tap_closes_the_transport_below_it(core: Modules) -> None:
    inner = core.datagram.MemoryTransport(max_segments=7)
    transport, _ = tapped(core, inner)
    assert transport.max_segments == 7
    assert transport.arrived_ns == inner.arrived_ns
    transport.close()
    assert inner.closed
    assert transport.closed
    assert not transport.send(b"late")
