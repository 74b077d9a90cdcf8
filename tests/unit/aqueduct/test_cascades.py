"""Reachability and loss across nested channels, arbitrarily deep and wide."""

from __future__ import annotations

import gc
import sys
import time

import pytest
from aqueduct_pair import Pair
from tests.support.case_selection import long_after

from mainstem.aqueduct.events import Acknowledged, Attach, Lost, Mode, SendDatagram, SenderEnded, SendStream
from mainstem.aqueduct.limits import Limits
from mainstem.aqueduct.state import SenderState

RECEIVER = (Attach.RECEIVER, False)


def lose_root(pair: Pair) -> None:
    """Lose the datagram that carried the root, and let its grace period expire."""
    pair.lose_held()
    pair.wait(1.5)


def test_losing_a_channel_loses_its_messages() -> None:
    pair = Pair()
    pair.hold = lambda end, command: isinstance(command, SendDatagram)
    (inner,) = pair.client.conn.send(0, b"root", mode=Mode.UNRELIABLE, attach=[RECEIVER], tag="root")
    pair.client.conn.send(inner, b"leaf", tag="leaf")
    pair.run()
    assert not pair.client.of(Acknowledged)
    lose_root(pair)
    assert {event.tag for event in pair.client.of(Lost)} == {"root", "leaf"}
    assert [event.state for event in pair.client.of(SenderEnded)] == [SenderState.LOST]
    assert pair.server.conn.live_halves == 1, "the ghost receiver is gone"
    assert pair.client.conn.live_halves == 1


def test_an_acknowledgment_is_reported_only_once_the_channel_is_reachable() -> None:
    pair = Pair()
    pair.hold = lambda end, command: isinstance(command, SendStream) and b"root" in command.data
    (inner,) = pair.client.conn.send(0, b"root", mode=Mode.UNORDERED, attach=[RECEIVER], tag="root")
    pair.run()
    pair.client.conn.send(inner, b"leaf", tag="leaf")
    pair.wait(0.2)
    assert not pair.client.of(Acknowledged), "the leaf is acknowledged, but its channel may still be lost"
    pair.release()
    pair.wait(0.2)
    assert [event.tag for event in pair.client.of(Acknowledged)] == ["root", "leaf"]


def build_chain(pair: Pair, depth: int) -> None:
    channel_id = 0
    for level in range(depth):
        mode = Mode.UNRELIABLE if level == 0 else Mode.ORDERED
        (channel_id,) = pair.client.conn.send(channel_id, b"link", mode=mode, attach=[RECEIVER])


def build_tree(pair: Pair, size: int) -> None:
    channels = list(pair.client.conn.send(0, b"root", mode=Mode.UNRELIABLE, attach=[RECEIVER]))
    count = 1
    for channel_id in channels:
        if count >= size:
            break
        children = min(10, size - count)
        channels.extend(pair.client.conn.send(channel_id, b"node", attach=[RECEIVER] * children))
        count += children


def reclaim(build: object, size: int) -> float:
    """Return the CPU seconds it takes to lose ``size`` channels at their root, excluding the time to build them."""
    pair = Pair(limits=Limits(max_channels=1 << 20, max_open_streams=1 << 20))
    pair.hold = lambda end, command: isinstance(command, SendDatagram)
    pair.client.conn.output.transport_state(uni_streams=1 << 30, bidi_streams=1 << 30, datagrams=10, max_datagram=1100)
    build(pair, size)  # type: ignore[operator]
    pair.run()
    assert pair.client.conn.live_halves == size + 1
    pair.lose_held()
    started = time.process_time()
    pair.wait(1.5)
    elapsed = time.process_time() - started
    assert pair.client.conn.live_halves == 1
    assert pair.server.conn.live_halves == 1
    assert len(pair.client.conn.streams.open) == len(pair.server.conn.streams.open) == 2
    return elapsed


@pytest.mark.parametrize(("build", "size"), long_after(1, [(build_chain, 10_000), (build_tree, 100_000)]))
def test_a_lost_subtree_is_reclaimed_in_linear_time_without_recursion(build: object, size: int) -> None:
    gc.collect()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        part = max(reclaim(build, size // 10), 0.001)
        whole = reclaim(build, size)
    finally:
        sys.setrecursionlimit(limit)
    # Ten times the channels take about ten times as long; quadratic would be a hundred times.
    assert whole < part * 40


def test_a_chain_closed_before_it_was_lost_is_reclaimed_by_notices() -> None:
    pair = Pair()
    pair.hold = lambda end, command: isinstance(command, SendStream) and b"root" in command.data
    (first,) = pair.client.conn.send(0, b"root", mode=Mode.UNORDERED, attach=[RECEIVER])
    (second,) = pair.client.conn.send(first, b"next", attach=[RECEIVER])
    pair.client.conn.send(second, b"last")
    pair.client.conn.finish(first)
    pair.client.conn.finish(second)
    pair.wait(0.5)
    assert [event.state for event in pair.client.of(SenderEnded)] == [SenderState.FINISHED] * 2
    assert pair.server.conn.live_halves == 3, "both receivers have finished and wait to be taken"
    pair.hold = lambda end, command: False
    pair.held.clear()
    # The entrypoint's receiver closes before it has seen the root, so the root is given up.
    pair.server.conn.close_receiver(0)
    pair.run()
    assert pair.server.conn.live_halves == 0
    assert pair.client.conn.live_halves == 0


def test_a_lost_finished_sender_reports_it_on_a_separate_stream() -> None:
    pair = Pair()
    pair.hold = lambda end, command: (
        isinstance(command, SendStream) and (b"root" in command.data or b"late" in command.data)
    )
    (inner,) = pair.client.conn.send(0, b"root", mode=Mode.UNORDERED, attach=[RECEIVER])
    pair.client.conn.send(inner, b"here", mode=Mode.UNORDERED)
    pair.client.conn.send(inner, b"late", mode=Mode.UNORDERED)
    pair.client.conn.finish(inner)
    pair.run()
    assert pair.client.conn.channels.senders[inner].state is SenderState.FINISHING
    pair.lose_held()
    pair.server.conn.close_receiver(0)
    pair.run()
    assert {event.state for event in pair.client.of(SenderEnded)} == {SenderState.LOST, SenderState.NO_RECEIVERS}
    assert pair.server.conn.live_halves == 0
