"""The small parts that both multiplexers stand on: queues, turns, heartbeats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.errors import ConfigurationError
from mainstem.mux.heartbeat import Heartbeat, Verdict
from mainstem.mux.queues import InBuffer, OutQueue, RoundRobin

CHUNKS = st.lists(st.binary(max_size=9000), max_size=8)


@given(chunks=CHUNKS, sizes=st.lists(st.integers(1, 5000), max_size=30), mutable=st.booleans())
def test_what_is_queued_comes_out_in_order_whatever_is_taken(
    chunks: list[bytes], sizes: list[int], mutable: bool
) -> None:
    queue = OutQueue()
    for chunk in chunks:
        queue.append(bytearray(chunk) if mutable else chunk)
    whole = b"".join(chunks)
    out: list[bytes | memoryview] = []
    for size in sizes:
        queue.take(min(size, queue.size), out)
    taken = b"".join(out)
    assert whole.startswith(taken)
    assert queue.size == len(whole) - len(taken)


@given(chunks=CHUNKS, keep=st.integers(0, 20_000))
def test_a_truncated_queue_keeps_its_beginning(chunks: list[bytes], keep: int) -> None:
    queue = OutQueue()
    for chunk in chunks:
        queue.append(chunk)
    whole = b"".join(chunks)
    assert queue.truncate(keep) == max(0, len(whole) - keep)
    out: list[bytes | memoryview] = []
    queue.take(queue.size, out)
    assert b"".join(out) == whole[:keep]


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=2000), max_size=8), reads=st.lists(st.integers(1, 3000), max_size=40)
)
def test_a_buffer_hands_out_what_came_in(chunks: list[bytes], reads: list[int]) -> None:
    buffer = InBuffer()
    for chunk in chunks:
        buffer.append(chunk)
    whole = b"".join(chunks)
    got = b""
    for index, size in enumerate(reads):
        if index % 2 and size <= buffer.size:
            part = buffer.read_exactly(size)
            assert len(part) == size
        else:
            part = buffer.read_some(size)
            assert len(part) <= size
            assert bool(part) == bool(len(whole) - len(got))
        got += part
        assert buffer.size == len(whole) - len(got)
    assert got + buffer.read_all() == whole
    assert buffer.clear() == 0


class Member:
    """Something with so many packets to send."""

    def __init__(self, name: str, packets: int) -> None:
        self.name = name
        self.packets = packets
        self.scheduled = False


def test_members_take_turns_and_stand_in_line_once() -> None:
    line: RoundRobin[Member] = RoundRobin()
    order: list[str] = []

    def turn(member: Member, out: list[bytes | memoryview]) -> int:
        order.append(member.name)
        out.append(b"x" * 10)
        member.packets -= 1
        if member.packets:
            line.add(member)
        return 10

    for member in (Member("bulk", 5), Member("small", 1), Member("two", 2)):
        line.add(member)
        line.add(member)
    assert line.run(25, [], turn) == 30
    assert order == ["bulk", "small", "two"]
    assert line.run(1000, [], turn) == 50
    assert order[3:] == ["bulk", "two", "bulk", "bulk", "bulk"]
    assert not line


def test_a_heartbeat_asks_once_for_each_silence_and_then_gives_up() -> None:
    beat = Heartbeat(interval_ns=10, timeout_ns=5, now_ns=0)
    assert beat.check(9) is Verdict.QUIET
    assert beat.check(10) is Verdict.PING
    assert beat.check(11) is Verdict.QUIET
    assert beat.next_timeout_ns() == 15
    beat.heard(12)
    assert beat.next_timeout_ns() == 22
    assert beat.check(30) is Verdict.PING
    assert beat.check(35) is Verdict.DEAD


def test_a_heartbeat_without_an_interval_is_off() -> None:
    beat = Heartbeat(interval_ns=0, timeout_ns=0, now_ns=0)
    assert beat.next_timeout_ns() is None
    assert beat.check(10**18) is Verdict.QUIET
    with pytest.raises(ConfigurationError):
        Heartbeat(interval_ns=1, timeout_ns=0, now_ns=0)
