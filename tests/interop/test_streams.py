"""Streams between Mainstem and the reference in both directions: clients on each other's drivers, and drivers on one network.

MAINSTEM_INTEROP_MESSAGES sets the number of messages (default 20,000). Their lengths range from zero to the longest that a
64 KiB term allows, so that every test has messages of one fragment and of several.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.modes import NETWORK, Mode, named, table
from tests.support.case_selection import long_after

if TYPE_CHECKING:
    from tests.interop.conftest import DriverFactory, DriverProcess, Peer, PeerFactory

pytestmark = pytest.mark.interop

MESSAGES = int(os.environ.get("MAINSTEM_INTEROP_MESSAGES", "20000"))
FEW = 2_000
TERM = "|term-length=64k"
LARGEST_64K = 8_192
LOSS = {
    "AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss",
    "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": "rate=0.1|seed=42|recv-msg-mask=0xF",
}
# How long until a killed peer is considered gone, instead of five or ten seconds.
IMPATIENT = {
    "AERON_IMAGE_LIVENESS_TIMEOUT": "1s",
    "AERON_PUBLICATION_CONNECTION_TIMEOUT": "1s",
    "AERON_CLIENT_LIVENESS_TIMEOUT": "3s",
    "AERON_PUBLICATION_UNBLOCK_TIMEOUT": "4s",
    "AERON_TIMER_INTERVAL": "500ms",
}


@dataclass
class Line:
    """One stream: its drivers, and how to start a peer at either end."""

    mode: Mode
    ends: tuple[str, str, str, str]
    port: int
    start_driver: DriverFactory
    start_peer: PeerFactory
    settings: dict[str, str]
    publish_suffix: str = ""

    def __post_init__(self) -> None:
        self.sender = self.start_driver(self.ends[1], **self.settings)
        self.receiver = self.sender
        if not self.mode.one_driver:
            self.receiver = self.start_driver(self.ends[2], **self.settings)

    def restart(self, driver: DriverProcess) -> DriverProcess:
        """Kill a driver and start another of its kind."""
        driver.kill()
        return self.start_driver(self.ends[1] if driver is self.sender else self.ends[2], **self.settings)

    def subscribe(self, count: int, **options: Any) -> Peer:
        """Start a subscriber and wait until it is ready."""
        channel = named(self.mode.subscribe, self.port)
        peer = self.start_peer(self.ends[3], "sub", self.receiver, channel, count=count, **options)
        peer.wait_for("ready")
        return peer

    def publish(self, count: int, **options: Any) -> Peer:
        """Start a publisher and wait until it is connected."""
        channel = named(self.mode.publish, self.port)
        channel += ("|" if "?" in channel else "?") + TERM[1:] + self.publish_suffix
        destinations = [named(each, self.port) for each in self.mode.destinations]
        peer = self.start_peer(
            self.ends[0], "pub", self.sender, channel, count=count, destinations=destinations, **options
        )
        peer.wait_for("ready")
        return peer


@pytest.fixture
def line(
    mode: Mode, ends: tuple[str, str, str, str], port: int, start_driver: DriverFactory, start_peer: PeerFactory
) -> Line:
    return Line(mode, ends, port, start_driver, start_peer, IMPATIENT)


def everything(count: int) -> dict[str, Any]:
    return {"count": count, "fault": "", "ended": True}


@pytest.mark.parametrize("exclusive", long_after(1, [False, True]), ids=["concurrent", "exclusive"])
@table()
def test_carries_mixed_messages_to_the_end_of_the_stream(line: Line, exclusive: bool) -> None:
    receiving = line.subscribe(MESSAGES, to_end=True)
    sending = line.publish(MESSAGES, exclusive=exclusive)
    assert receiving.result() == everything(MESSAGES)
    assert sending.result()["sent"] == MESSAGES


@pytest.mark.long
@pytest.mark.parametrize("lossy", ["sender", "receiver"])
@table(*NETWORK, both_ways_only=True)
def test_loses_nothing_while_a_tenth_of_the_datagrams_is_dropped(
    mode: Mode,
    ends: tuple[str, str, str, str],
    port: int,
    start_driver: DriverFactory,
    start_peer: PeerFactory,
    lossy: str,
) -> None:
    line = Line(mode, ends, port, start_driver, start_peer, LOSS if lossy == "sender" else {}, mode.flow_control)
    if lossy == "sender":
        line.receiver.stop()
        line.receiver = start_driver(ends[2])
    else:
        line.receiver.stop()
        line.receiver = start_driver(ends[2], **LOSS)
    receiving = line.subscribe(FEW, to_end=True)
    sending = line.publish(FEW)
    assert receiving.result() == everything(FEW)
    assert sending.result()["sent"] == FEW


@pytest.mark.long
@table(both_ways_only=True)
def test_a_slow_subscriber_stalls_the_publisher(line: Line) -> None:
    line.publish_suffix = line.mode.flow_control
    receiving = line.subscribe(FEW, slow_s=0.002, to_end=True)
    sending = line.publish(FEW)
    assert receiving.result() == everything(FEW)
    assert sending.result()["refused"] > 0


@pytest.mark.long
@table(both_ways_only=True)
def test_a_publisher_that_starts_again_is_heard_again(line: Line) -> None:
    receiving = line.subscribe(FEW, rounds=2, to_end=True)
    for _ in range(2):
        assert line.publish(FEW).result()["sent"] == FEW
        receiving.wait_for("round")
    assert receiving.result() == everything(2 * FEW)


@pytest.mark.long
@table(both_ways_only=True)
def test_a_restarted_subscriber_receives_from_then_on(line: Line) -> None:
    first = line.subscribe(FEW)
    sending = line.publish(FEW, rounds=2)
    assert first.result()["count"] == FEW
    sending.wait_for("gone")
    second = line.subscribe(FEW, to_end=True)
    assert second.result() == everything(FEW)
    assert sending.result()["sent"] == 2 * FEW


@pytest.mark.long
@table(*NETWORK, both_ways_only=True)
def test_a_receiving_host_that_restarts_is_found_again(line: Line) -> None:
    first = line.subscribe(FEW, hold=True)
    sending = line.publish(FEW, rounds=2)
    first.wait_for("round")
    first.kill()
    line.receiver = line.restart(line.receiver)
    sending.wait_for("gone")
    second = line.subscribe(FEW, to_end=True)
    assert second.result() == everything(FEW)
    assert sending.result()["sent"] == 2 * FEW


@pytest.mark.long
@table(*NETWORK, both_ways_only=True)
def test_a_sending_host_that_restarts_is_received_again(line: Line) -> None:
    receiving = line.subscribe(FEW, rounds=2, to_end=True)
    first = line.publish(FEW, hold=True)
    receiving.wait_for("round")
    first.kill()
    line.sender = line.restart(line.sender)
    assert line.publish(FEW).result()["sent"] == FEW
    receiving.wait_for("round")
    assert receiving.result() == everything(2 * FEW)
