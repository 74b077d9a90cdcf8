"""A soak of a few seconds; ``python -m tests.faults.soak`` takes two hours."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.faults import soak
from tests.faults.rounds import KINDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

HELD = soak.Sample(memory=20 << 20, descriptors=10, mappings=300, threads=4)


def test_sampling_detects_a_leaked_descriptor() -> None:
    before = soak.Sample.of(os.getpid())
    kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
    try:
        assert soak.Sample.of(os.getpid()).descriptors >= before.descriptors + 20
    finally:
        for descriptor in kept:
            os.close(descriptor)


@pytest.mark.parametrize("what", sorted(soak.BESIDES))
def test_a_slow_steady_rise_is_not_flat(what: str) -> None:
    rising = [replace(HELD, **{what: round(getattr(HELD, what) * (1 + step / 100))}) for step in range(100)]
    flat = {name: soak.is_flat(name, *medians) for name, medians in soak.growth(rising).items()}
    assert flat == {name: name != what for name in soak.BESIDES}


def test_an_initial_or_momentary_rise_is_flat() -> None:
    samples = [replace(HELD, memory=5 << 20)] * 10 + [HELD] * 90
    samples[80] = replace(HELD, descriptors=500)
    assert all(soak.is_flat(name, *medians) for name, medians in soak.growth(samples).items())


def test_every_kind_of_soak_has_long_lived_processes() -> None:
    assert set(soak.STEADY) == set(KINDS)


@pytest.mark.long
def test_long_lived_processes_stay_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "STEP_S", 1.0)
    stays = soak.soak(["udp", "jmux", "recording"], tmp_path, steps=8, seed=1)
    assert [stay.visits for stay in stays] == [8, 8, 0]
    for stay in stays:
        assert stay.messages > 0
        assert {len(samples) for samples in stay.samples.values()} == {8}
