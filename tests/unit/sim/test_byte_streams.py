"""The simulated byte stream: its invariants under faults, and the effect of each fault."""

from __future__ import annotations

from random import Random

import pytest

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.errors import ConfigurationError, ConnectionLost
from mainstem.sim.byte_streams import ByteStream, StreamFaults
from mainstem.sim.clock import ManualClock


def stream(faults: StreamFaults, seed: int = 1) -> tuple[ManualClock, ByteStream]:
    clock = ManualClock()
    return clock, ByteStream(Random(seed), clock, there=faults, back=faults)


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_once_and_in_order_under_any_faults(seed: int) -> None:
    rng = Random(seed)
    clock, pipe = stream(StreamFaults.drawn(rng), seed)
    data = rng.randbytes(3_000)
    sent, arrived = bytearray(data), bytearray()
    for _ in range(200_000):
        del sent[: pipe.ends[0].write(sent)]
        arrived += pipe.ends[1].read()
        if len(arrived) == len(data):
            break
        due_ns = pipe.next_due_ns()
        clock.advance_ns(max(0, due_ns - clock.monotonic_ns()) if due_ns is not None else NS_PER_MS)
    assert arrived == data


def test_bytes_take_their_delay() -> None:
    clock, pipe = stream(StreamFaults(delay_ns=NS_PER_MS))
    assert pipe.ends[0].write(b"tide") == 4
    assert pipe.next_due_ns() == clock.monotonic_ns() + NS_PER_MS
    clock.advance_ns(NS_PER_MS - 1)
    assert pipe.ends[1].read() == b""
    clock.advance_ns(1)
    assert pipe.ends[1].read() == b"tide"
    assert pipe.next_due_ns() is None


def test_a_full_direction_takes_no_more_until_it_is_read() -> None:
    clock, pipe = stream(StreamFaults(capacity=3))
    assert [pipe.ends[0].write(b"tide"), pipe.ends[0].write(b"e")] == [3, 0]
    clock.advance_ns(NS_PER_MS)
    assert pipe.ends[1].read(2) == b"ti"
    assert pipe.ends[0].write(b"es") == 2


def test_the_end_comes_after_the_last_byte() -> None:
    clock, pipe = stream(StreamFaults())
    pipe.ends[0].write(b"ebb")
    pipe.ends[0].finish()
    assert not pipe.ends[1].is_at_end
    clock.advance_ns(NS_PER_MS)
    assert pipe.ends[1].read() == b"ebb"
    assert pipe.ends[1].is_at_end
    assert not pipe.ends[0].is_at_end
    assert pipe.ends[1].write(b"flow") == 4


def test_a_reset_drops_bytes_in_flight_and_ends_both_ends() -> None:
    clock, pipe = stream(StreamFaults())
    pipe.ends[0].write(b"ebb")
    pipe.reset()
    clock.advance_ns(NS_PER_MS)
    for end in pipe.ends:
        with pytest.raises(ConnectionLost):
            end.read()
        with pytest.raises(ConnectionLost):
            end.write(b"flow")
        assert not end.is_at_end


def test_a_clogged_direction_continues_once_healed() -> None:
    clock, pipe = stream(StreamFaults())
    pipe.clog(0)
    pipe.ends[0].write(b"ebb")
    pipe.ends[1].write(b"flow")
    clock.advance_ns(NS_PER_SECOND)
    assert (pipe.ends[1].read(), pipe.ends[0].read()) == (b"", b"flow")
    assert pipe.next_due_ns() is None
    pipe.heal()
    assert pipe.ends[1].read() == b"ebb"


def test_a_stall_ends_by_itself() -> None:
    clock, pipe = stream(StreamFaults(stall=1.0, stall_ns=NS_PER_SECOND))
    pipe.ends[0].write(b"tides")
    clock.advance_ns(NS_PER_MS)
    assert pipe.ends[1].read(2) == b"ti"
    assert pipe.ends[1].read() == b""
    clock.advance_ns(NS_PER_SECOND)
    assert pipe.ends[1].read() == b"des"


def test_invalid_faults_are_rejected() -> None:
    for wrong in ({"cut": 1.5}, {"delay_ns": -1}, {"capacity": 0}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            StreamFaults(**wrong)  # type: ignore[arg-type]


def test_half_of_the_draws_leave_a_fault_off() -> None:
    drawn = [StreamFaults.drawn(Random(seed)) for seed in range(200)]
    for name in ("cut", "short", "refuse", "stall"):
        assert 60 < sum(getattr(faults, name) == 0 for faults in drawn) < 140
