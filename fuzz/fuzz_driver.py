"""A whole driver under a client and peers that send anything: it survives, and serves the next client.

The input is a script. Each step is a byte for the action, a byte for the length of its data, and the data: a command's record, a
datagram to a subscription's or a publication's socket, one to the name resolver, or time.
"""

from __future__ import annotations

from ipaddress import ip_address

from tests.support.invoked_driver import InvokedDriver

from mainstem.aeron.command import commands, responses
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.protocol.frames import Data, ErrorFrame, Nak, Resolution, ResolutionEntry, Setup, StatusMessage

SUBSCRIBED, RESOLVER, PEER = InetAddress("127.0.0.1", 40123), InetAddress("127.0.0.1", 40991), 40992
STREAM = 1001
COMMANDS = sorted(commands.COMMANDS)
_IDS = {"session_id": 5, "stream_id": STREAM}
_DATAGRAMS = (
    Setup(**_IDS, initial_term_id=0, active_term_id=0, term_offset=0, term_length=65536, mtu=1408).encode(),
    Data(**_IDS, term_id=0, term_offset=0, payload=b"payload").encode(),
    Data(**_IDS, term_id=0, term_offset=128, payload=b"payload").encode(),
)
_TO_SENDER = (
    StatusMessage(**_IDS, receiver_window=4096, receiver_id=5).encode(),
    Nak(**_IDS, term_id=0, term_offset=0, length=64).encode(),
    ErrorFrame(**_IDS, receiver_id=5, error_code=13, text="no").encode(),
)
_NAMES = Resolution(entries=(ResolutionEntry(name="beta", address=ip_address("127.0.0.1"), port=PEER, is_self=True),))
_COMMANDS = (
    commands.AddPublication(client_id=9, correlation_id=10, stream_id=STREAM, channel="aeron:ipc"),
    commands.AddDestination(client_id=9, correlation_id=11, registration_id=10, channel="aeron:udp?endpoint=h:1"),
    commands.ClientClose(client_id=9, correlation_id=12),
)


def _step(kind: int, body: bytes) -> bytes:
    return bytes([kind, len(body)]) + body


SEEDS = [
    b"".join(_step(1, each) for each in _DATAGRAMS) + _step(4, b"\x09"),
    b"".join(_step(2, each) for each in _TO_SENDER) + _step(4, b"\x02"),
    _step(3, _NAMES.encode()) + _step(4, b"\x20") + _step(3, _NAMES.encode()[:20]),
    b"".join(_step(0, bytes([COMMANDS.index(each.TYPE)]) + each.encode()) for each in _COMMANDS),
]


def target(data: bytes) -> None:
    """Process one input."""
    driver = InvokedDriver(
        name_resolver_supplier="driver",
        driver_resolver_name="alpha",
        driver_resolver_interface=f"127.0.0.1:{RESOLVER.port}",
    )
    try:
        driver.add_subscription(f"aeron:udp?endpoint={SUBSCRIBED}", STREAM)
        driver.add_publication(
            "aeron:udp?endpoint=127.0.0.1:40992|session-id=5|init-term-id=0|term-id=0|term-offset=0", STREAM
        )
        run(driver, data)
        # The driver still serves: a command gets its response.
        seen = driver.add_publication("aeron:ipc", 7)
        assert any(isinstance(each, responses.OnPublicationReady) for each in seen)
    finally:
        driver.close()


def run(driver: InvokedDriver, data: bytes) -> None:
    """Run the script."""
    peer = driver.network.peer(PEER)
    at = 0
    while at + 2 <= len(data):
        kind, size = data[at] % 5, data[at + 1]
        body = data[at + 2 : at + 2 + size]
        at += 2 + size
        if kind == 0 and body:
            driver.cnc.to_driver.write(COMMANDS[body[0] % len(COMMANDS)], body[1:])
        elif kind == 1:
            driver.network.send(peer, SUBSCRIBED, body)
        elif kind == 2:
            for source in {source for source, _ in peer.received}:
                driver.network.send(peer, source, body)
        elif kind == 3:
            driver.network.send(peer, RESOLVER, body)
        elif kind == 4:
            driver.run((body[0] if body else 1) / 64, step=0.05)
        driver.cycle()
