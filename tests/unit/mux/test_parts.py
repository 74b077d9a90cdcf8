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
    """Something with so many packets of 10 KiB to send, or of 10 bytes if it is short."""

    def __init__(self, name: str, packets: int, *, length: int = 10 * 1024) -> None:
        self.name = name
        self.length = length
        self.queue = OutQueue()
        self.queue.append(bytes(packets * length))
        self.scheduled = False


class Line:
    """A line of members, and the order of their turns."""

    def __init__(self, *members: Member) -> None:
        self.line: RoundRobin[Member] = RoundRobin()
        self.order: list[str] = []
        for member in members:
            self.line.add(member)
            self.line.add(member)

    def turn(self, member: Member, out: list[bytes | memoryview]) -> int:
        self.order.append(member.name)
        member.queue.take(member.length, out)
        if member.queue.size:
            self.line.add(member)
        return member.length

    def run(self, packets: int) -> list[str]:
        """Give turns for so many packets of 10 KiB; return whose they were."""
        self.order.clear()
        self.line.run(packets * 10 * 1024, [], self.turn)
        return list(self.order)


def test_members_take_turns_and_stand_in_line_once() -> None:
    line = Line(Member("bulk", 5), Member("one", 1), Member("two", 2))
    assert line.run(3) == ["bulk", "one", "two"]
    assert line.run(1000) == ["bulk", "two", "bulk", "bulk", "bulk"]
    assert not line.line


def test_members_with_few_bytes_go_before_those_with_many() -> None:
    line = Line(*(Member(f"bulk {number}", 9) for number in range(3)))
    line.run(1)
    line.line.add(Member("short", 1, length=10))
    assert line.run(3) == ["short", "bulk 1", "bulk 2", "bulk 0"]


def test_short_turns_leave_half_of_the_bytes_to_the_others() -> None:
    """However many there are, and however they come: a packet of the others follows 16 KiB of short turns."""
    bulk = Member("bulk", 4)
    line = Line(bulk, *(Member("short", 1, length=1024) for _ in range(40)))
    assert line.run(1000) == [*["short"] * 16, "bulk", *["short"] * 16, "bulk", *["short"] * 8, "bulk", "bulk"]
    line = Line(Member("bulk", 4))
    served = []
    for _ in range(40):  # one at a time
        line.line.add(Member("short", 1, length=1024))
        line.order.clear()
        line.line.run(1, [], line.turn)
        served += line.order
    assert served.count("bulk") == 2


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
