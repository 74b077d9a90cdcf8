"""Short messages that share a connection with bulk data: how much bulk data is in flight ahead of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.aqueduct.quic.qh3_pair import CLIENT, Pair

from mainstem.aqueduct import make_certificates
from mainstem.aqueduct.events import SendStream
from mainstem.aqueduct.quic.qh3_connection import QUEUED_BYTES, SHARED_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("qh3")

BULK, SHORT = 2, 6  # streams of the client
PIECE = bytes(64 << 10)
WARM_UP = 12


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """A connection whose congestion window has grown, over a path without delay or loss."""
    made = Pair(make_certificates(tmp_path))
    for _ in range(WARM_UP):
        made.client.execute([SendStream(BULK, PIECE * 8, False)])
        made.exchange(8)
    made.client.quic.shortest_trip = 0.0
    assert made.client.quic.core.bytes_in_flight == 0
    return made


def in_flight(pair: Pair) -> int:
    return int(pair.client.quic.core.bytes_in_flight)


def test_bulk_alone_fills_the_window(pair: Pair) -> None:
    pair.client.execute([SendStream(BULK, PIECE * 8, False)])
    pair.sent(pair.client)
    assert in_flight(pair) > 2 * QUEUED_BYTES


def test_a_short_message_goes_out_before_queued_bulk(pair: Pair) -> None:
    pair.client.execute([SendStream(BULK, PIECE * 8, False)])
    pair.client.execute([SendStream(SHORT, b"short", False)])
    datagrams = pair.sent(pair.client)
    assert QUEUED_BYTES <= in_flight(pair) < QUEUED_BYTES + 1500
    # While they are in flight, each round sends one packet, which may carry an acknowledgment.
    assert len(pair.sent(pair.client)) == 1
    pair.server.receive(datagrams, CLIENT, pair.now)
    pair.deliver()
    assert pair.heard.streams[SHORT] == b"short"
    pair.exchange(40)
    assert pair.heard.streams[BULK] == PIECE * 8 * (WARM_UP + 1)


def test_bulk_gets_the_whole_window_back(pair: Pair) -> None:
    pair.client.execute([SendStream(BULK, PIECE, False), SendStream(SHORT, b"short", True)])
    shared_until = pair.now + SHARED_SECONDS
    while pair.now <= shared_until:
        pair.client.execute([SendStream(BULK, PIECE * 8, False)])
        pair.exchange(20)
    pair.client.execute([SendStream(BULK, PIECE * 8, False)])
    pair.sent(pair.client)
    assert in_flight(pair) > 2 * QUEUED_BYTES
