"""Deliberate loss."""

from __future__ import annotations

import pytest
from tests.unit._core.network import INITIAL_TERM_ID, Modules, frame, modules

from mainstem._core import layout


@pytest.fixture(params=[True, False], ids=["compiled", "uncompiled"])
def core(request: pytest.FixtureRequest) -> Modules:
    return modules(compiled=request.param)


def asks(core: Modules, generator: object, offset: int, **fields: int) -> bool:
    return bool(generator.asks(core.AtomicBuffer(bytearray(frame(bytes(32), term_offset=offset, **fields)))))  # type: ignore[attr-defined]


def test_random_loss_has_its_rate_and_repeats_with_its_seed(core: Modules) -> None:
    runs = []
    for seed in (5, 5, 6):
        generator = core.loss.RandomLoss(0.1, seed)
        runs.append([asks(core, generator, 0) for _ in range(5000)])
        assert 400 < sum(runs[-1]) < 600
        assert generator.dropped_data == sum(runs[-1])
        assert generator.dropped_control == 0
    assert runs[0] == runs[1] != runs[2]


def test_compiled_and_plain_draw_the_same() -> None:
    both = []
    for compiled in (True, False):
        core = modules(compiled=compiled)
        generator = core.loss.RandomLoss(0.5, 42)
        both.append([asks(core, generator, 0) for _ in range(500)])
    assert both[0] == both[1]


def test_a_loss_rate_can_be_zero_or_one(core: Modules) -> None:
    assert not any(asks(core, core.loss.RandomLoss(0.0, 3), 0) for _ in range(100))
    every = core.loss.RandomLoss(1.0, 3)
    assert all(asks(core, every, 0) for _ in range(100))
    with pytest.raises(ValueError, match="rate"):
        core.loss.RandomLoss(1.5)


def test_a_mask_spares_the_other_types(core: Modules) -> None:
    generator = core.loss.RandomLoss(1.0, 1, 1 << layout.TYPE_SM)
    assert not asks(core, generator, 0)
    assert asks(core, generator, 0, kind=layout.TYPE_SM)
    assert (generator.dropped_data, generator.dropped_control) == (0, 1)


def test_a_fixed_gap_is_dropped_once_in_each_stream(core: Modules) -> None:
    generator = core.loss.GapLoss(INITIAL_TERM_ID, 128, 100)
    dropped = [offset for offset in range(0, 512, 64) if asks(core, generator, offset)]
    assert dropped == [128, 192]
    assert not any(asks(core, generator, offset) for offset in range(0, 512, 64))
    assert asks(core, generator, 128, session_id=9)
    assert not asks(core, generator, 128, term_id=INITIAL_TERM_ID + 1, session_id=10)


def test_several_gaps_lie_a_radix_apart(core: Modules) -> None:
    generator = core.loss.GapLoss(INITIAL_TERM_ID, 64, 64, 256, 3)
    dropped = [offset for offset in range(0, 2048, 64) if asks(core, generator, offset)]
    assert dropped == [64, 320, 576]
    assert not any(asks(core, generator, offset) for offset in range(0, 2048, 64))


def test_a_heartbeat_is_not_part_of_a_gap(core: Modules) -> None:
    generator = core.loss.GapLoss(INITIAL_TERM_ID, 0, 64)
    assert not asks(core, generator, 0, length=0)


def test_the_second_generator_is_asked_about_what_the_first_lets_through(core: Modules) -> None:
    second = core.loss.RandomLoss(1.0, 1)
    first = core.loss.GapLoss(INITIAL_TERM_ID, 0, 64, 0, 1, 0xFFFF, second)
    assert asks(core, first, 0)
    assert asks(core, first, 64)
    assert (first.dropped_data, second.dropped_data) == (1, 1)


@pytest.mark.parametrize("direction", ["incoming", "outgoing"])
def test_a_transport_drops_before_delivery(core: Modules, direction: str) -> None:
    generator = core.loss.GapLoss(INITIAL_TERM_ID, 64, 64)
    transport = core.datagram.MemoryTransport(**{direction: generator})
    frames = [frame(bytes(32), term_offset=offset) for offset in (0, 64, 128)]
    for each in frames:
        transport.deliver(each, b"")
        assert transport.send(each)
    received = [datagram for datagram, _ in transport.read()]
    sent = [datagram for _, datagram in transport.take()]
    spared = [frames[0], frames[2]]
    assert (received, sent) == ((spared, frames) if direction == "incoming" else (frames, spared))
    assert transport.dropped_data == 1
