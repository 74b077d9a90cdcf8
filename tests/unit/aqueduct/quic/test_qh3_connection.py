"""The qh3 library under late acknowledgments: two in-memory connections, with packets lost, delayed and reordered."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING

import pytest
from tests.support.case_selection import long_after
from tests.unit.aqueduct.quic.qh3_pair import CLIENT, MS, SERVER, Pair

from mainstem.aqueduct import make_certificates
from mainstem.aqueduct.events import PauseConnection, SendDatagram, SendStream

if TYPE_CHECKING:
    from mainstem.aqueduct.certificates import CertificateFiles
    from mainstem.aqueduct.events import Command

pytest.importorskip("qh3")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def pair(files: CertificateFiles) -> Pair:
    return Pair(files)


def test_a_stream_can_end_while_a_retransmission_of_it_is_queued(pair: Pair) -> None:
    client, server = pair.client, pair.server
    client.execute(SendStream(2 + 4 * n, b"small %d" % n, True) for n in range(10))
    first = pair.sent(client)
    client.execute(SendStream(2 + 4 * n, bytes(1000), True) for n in range(10, 60))
    while not client.quic.core.pto_total:
        due = client.timer()
        assert due is not None
        pair.now = due
        client.handle_timer(pair.now)
    # The small streams are queued again, behind the large ones, which fill the congestion window.
    second = pair.sent(client)
    pair.now += MS
    server.receive(first, CLIENT, pair.now)
    pair.now += 30 * MS
    client.receive(pair.sent(server), SERVER, pair.now)
    pair.deliver()
    server.receive(pair.sent(client) + second, CLIENT, pair.now)
    pair.exchange(20)
    assert pair.heard.ended == {2 + 4 * n for n in range(60)}
    assert client.quic.may_take
    assert not client.quic.core.has_events


def test_the_end_of_the_connection_is_reported_while_retransmissions_are_queued(pair: Pair) -> None:
    client = pair.client
    client.execute(SendStream(2 + 4 * n, bytes(1000), True) for n in range(60))
    pair.sent(client)
    ends: list[Exception | None] = []
    pair.heard_by_client.connection_lost = lambda error, now_ns: ends.append(error)  # type: ignore[method-assign]
    while not ends:
        due = client.timer()
        assert due is not None
        pair.now = max(due, pair.now)
        client.handle_timer(pair.now)
        pair.sent(client)
        pair.deliver()
    assert client.lifecycle.terminated


def test_a_paused_connection_can_be_closed(pair: Pair) -> None:
    client, server = pair.client, pair.server
    server.execute([PauseConnection(True)])
    client.execute([SendStream(2, bytes(1000), True)])
    server.receive(pair.sent(client), CLIENT, pair.now)
    pair.deliver()
    assert not pair.heard.streams
    ends: list[Exception | None] = []
    pair.heard.connection_lost = lambda error, now_ns: ends.append(error)  # type: ignore[method-assign]
    server.close(1, "had enough")
    pair.sent(server)
    for _ in range(100):
        due = server.timer()
        if server.lifecycle.terminated or due is None:
            break
        pair.now = max(due, pair.now)
        server.handle_timer(pair.now)
        server.deliver(pair.heard, 0)
    assert server.lifecycle.terminated
    assert len(ends) == 1


def test_a_late_retransmission_does_not_reopen_a_stream(pair: Pair) -> None:
    client, server = pair.client, pair.server
    client.execute(SendStream(2 + 4 * n, b"%d" % n, True) for n in range(1500))
    for _ in range(20):
        # The packets are paced and not acknowledged.
        server.receive(pair.sent(client), CLIENT, pair.now)
        pair.deliver()
        pair.now += MS
    assert len(pair.heard.ended) == 1500
    # Therefore the first of them are retransmitted.
    while not client.quic.core.pto_total:
        due = client.timer()
        assert due is not None
        pair.now = max(due, pair.now)
        client.handle_timer(pair.now)
    server.receive(pair.sent(client), CLIENT, pair.now)
    pair.deliver()
    pair.exchange(10)
    assert pair.heard.streams == {2 + 4 * n: b"%d" % n for n in range(1500)}


@pytest.mark.parametrize("seed", long_after(8, range(40)))
def test_every_stream_arrives_once_despite_loss_delay_and_reordering(files: CertificateFiles, seed: int) -> None:
    pair = Pair(files)
    rng = random.Random(seed)
    loss, stalls, total = rng.choice([0, 0.01, 0.05]), rng.choice([0.0, 0.05, 0.3]), rng.choice([50, 300, 1500])
    wire: list[tuple[float, int, bool, bytes]] = []
    stalled_until = {True: 0.0, False: 0.0}
    sent: dict[int, bytes] = {}
    for number in range(60_000):
        if len(sent) < total and rng.random() < 0.3:
            pair.client.execute(_some_streams(rng, sent, total))
        due = []
        while wire and wire[0][0] <= pair.now:
            due.append(heapq.heappop(wire))
        for is_client, link, address in ((True, pair.client, SERVER), (False, pair.server, CLIENT)):
            here = [data for _, _, to_client, data in due if to_client is is_client]
            if stalled_until[is_client] > pair.now:
                for index, data in enumerate(here):
                    heapq.heappush(wire, (stalled_until[is_client], -index, is_client, data))
                continue
            timer = link.timer()
            if timer is not None and timer <= pair.now:
                link.handle_timer(pair.now)
            link.receive(here, address, pair.now)
            if rng.random() < stalls:
                stalled_until[is_client] = pair.now + rng.choice([10, 50, 200]) * MS
            pair.deliver()
            for data in pair.sent(link):
                if rng.random() >= loss:
                    at = pair.now + rng.choice([1, 1, 1, 2, 10, 30]) * MS
                    heapq.heappush(wire, (at, number, not is_client, data))
            pair.deliver()
        if len(pair.heard.ended) == total:
            break
        pair.now += rng.choice([0.5, 1, 5]) * MS
    assert pair.heard.streams == sent
    assert len(pair.heard.ended) == total


def _some_streams(rng: random.Random, sent: dict[int, bytes], total: int) -> list[Command]:
    out: list[Command] = []
    for _ in range(min(rng.choice([1, 5, 50, 400]), total - len(sent))):
        stream_id = 2 + 4 * len(sent)
        sent[stream_id] = bytes([len(sent) & 255]) * rng.choice([5, 30, 200, 1000, 3000])
        out.append(SendStream(stream_id, sent[stream_id], True))
        if rng.random() < 0.1:
            out.append(SendDatagram(bytes(50)))
    return out
