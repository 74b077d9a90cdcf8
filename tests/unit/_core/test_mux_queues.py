"""The queues of a multiplexer, both compiled and from the uncompiled source."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit._core.uncompiled import load

from mainstem._core.mux import queues as compiled

if TYPE_CHECKING:
    from types import ModuleType

BOTH = [pytest.param(compiled, id="compiled"), pytest.param(load("mux.queues"), id="uncompiled")]
both = pytest.mark.parametrize("module", BOTH)

CHUNKS = st.lists(st.binary(max_size=9000), max_size=8) | st.lists(st.binary(max_size=600), max_size=300)


@both
@given(chunks=CHUNKS, sizes=st.lists(st.integers(1, 5000), max_size=30), mutable=st.booleans())
def test_queued_bytes_leave_in_order(module: ModuleType, chunks: list[bytes], sizes: list[int], mutable: bool) -> None:
    queue = module.OutQueue()
    for chunk in chunks:
        queue.append(bytearray(chunk) if mutable else chunk)
    whole = b"".join(chunks)
    out: list[bytes | memoryview] = []
    for size in sizes:
        queue.take(min(size, queue.size), out)
    taken = b"".join(out)
    assert whole.startswith(taken)
    assert queue.size == len(whole) - len(taken)


@both
@given(chunks=CHUNKS, keep=st.integers(0, 20_000))
def test_a_truncated_queue_keeps_its_beginning(module: ModuleType, chunks: list[bytes], keep: int) -> None:
    queue = module.OutQueue()
    for chunk in chunks:
        queue.append(chunk)
    whole = b"".join(chunks)
    assert queue.truncate(keep) == max(0, len(whole) - keep)
    out: list[bytes | memoryview] = []
    queue.take(queue.size, out)
    assert b"".join(out) == whole[:keep]


@both
@given(
    chunks=st.lists(st.binary(min_size=1, max_size=2000), max_size=8)
    | st.lists(st.binary(min_size=1, max_size=600), max_size=300),
    reads=st.lists(st.integers(1, 3000), max_size=40),
)
def test_a_buffer_returns_the_bytes_that_arrived(module: ModuleType, chunks: list[bytes], reads: list[int]) -> None:
    buffer = module.InBuffer()
    for chunk in chunks:
        buffer.append(chunk)
    assert buffer.received == sum(map(len, chunks))
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
        if index % 5 == 4:  # an interrupted read puts its bytes back
            buffer.prepend(part)
        else:
            got += part
        assert buffer.size == len(whole) - len(got)
    assert got + buffer.read_all() == whole
    assert buffer.clear() == 0


@pytest.mark.parametrize("kind", ["InBuffer", "OutQueue"])
@pytest.mark.parametrize("sizes", [(1,), (2,), (2, 2, 700), (63, 1), (511,)], ids=str)
def test_small_pieces_take_little_more_memory_than_their_bytes(kind: str, sizes: tuple[int, ...]) -> None:
    queue = getattr(compiled, kind)()
    repetitions = (256 << 10) // sum(sizes)
    before = read = 0
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(repetitions):
            for size in sizes:
                queue.append(bytes([number & 0xFF]) * size)
            if kind == "InBuffer" and number % 10 == 0:
                read += len(queue.read_some(1))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert queue.size == repetitions * sum(sizes) - read
    assert after - before < 2 * queue.size + 8192


class Member:
    """A member with ``packets`` packets of ``length`` bytes to send."""

    def __init__(self, module: ModuleType, name: str, packets: int, *, length: int = 10 * 1024) -> None:
        self.name = name
        self.length = length
        self.queue = module.OutQueue()
        self.queue.append(bytes(packets * length))
        self.scheduled = False


class Line:
    """A line of members, and the order of their turns."""

    def __init__(self, module: ModuleType, *members: Member) -> None:
        self.line = module.RoundRobin()
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
        """Run turns for ``packets`` packets of 10 KiB and return the names of the members served, in order."""
        self.order.clear()
        self.line.run(packets * 10 * 1024, [], self.turn)
        return list(self.order)


@both
def test_members_take_turns_and_wait_for_one_turn_at_a_time(module: ModuleType) -> None:
    line = Line(module, Member(module, "bulk", 5), Member(module, "one", 1), Member(module, "two", 2))
    assert line.run(3) == ["bulk", "one", "two"]
    assert line.run(1000) == ["bulk", "two", "bulk", "bulk", "bulk"]
    assert not line.line


@both
def test_members_with_few_bytes_precede_those_with_many(module: ModuleType) -> None:
    line = Line(module, *(Member(module, f"bulk {number}", 9) for number in range(3)))
    line.run(1)
    line.line.add(Member(module, "short", 1, length=10))
    assert line.run(3) == ["short", "bulk 1", "bulk 2", "bulk 0"]


@both
def test_short_turns_leave_half_of_the_bytes_to_the_others(module: ModuleType) -> None:
    """A packet of the others follows every 16 KiB of short turns, however many short turns there are and whenever they come."""
    bulk = Member(module, "bulk", 4)
    line = Line(module, bulk, *(Member(module, "short", 1, length=1024) for _ in range(40)))
    assert line.run(1000) == [*["short"] * 16, "bulk", *["short"] * 16, "bulk", *["short"] * 8, "bulk", "bulk"]
    line = Line(module, Member(module, "bulk", 4))
    served = []
    for _ in range(40):  # one at a time
        line.line.add(Member(module, "short", 1, length=1024))
        line.order.clear()
        line.line.run(1, [], line.turn)
        served += line.order
    assert served.count("bulk") == 2


@both
@pytest.mark.parametrize("data", [5, 1.5, None, "tide", [1]])
def test_only_buffers_are_queued(module: ModuleType, data: Any) -> None:
    queue = module.OutQueue()
    with pytest.raises(TypeError):
        queue.append(data)
    assert queue.size == 0


@both
def test_more_bytes_than_there_are_cannot_be_taken(module: ModuleType) -> None:
    queue, buffer = module.OutQueue(), module.InBuffer()
    queue.append(b"tide")
    buffer.append(b"tide")
    with pytest.raises(AssertionError):
        queue.take(5, [])
    with pytest.raises(AssertionError):
        buffer.read_exactly(5)
    assert queue.size == buffer.size == 4


@both
def test_the_only_member_may_be_taken_out_of_turn(module: ModuleType) -> None:
    one, two = Member(module, "one", 1), Member(module, "two", 1)
    line = Line(module, one)
    assert not line.line.take_only(two)
    assert line.line.take_only(one)
    assert not line.line.take_only(one)
    assert not line.line
    line.line.add(one)
    line.line.add(two)
    assert not line.line.take_only(one)
    assert line.run(9) == ["one", "two"]
