"""Idle strategies, by name and effect."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import pytest

from mainstem._core.log.read import SubscriptionReader
from mainstem._internal.clock import SYSTEM_CLOCK, Deadline
from mainstem.aeron import idle
from mainstem.aeron.client.waiting import Steps, Wait, Waiting, run
from mainstem.errors import ConfigurationError


@pytest.mark.parametrize("name", idle.IDLE_STRATEGIES)
def test_every_strategy_is_made_by_its_name_and_idles(name):
    strategy = idle.idle_strategy(name)
    assert strategy.name == name
    for work in (0, 1, 0):
        strategy.idle(work)
    strategy.reset()


@pytest.mark.parametrize("alias", ["busy-spin", "yielding", "sleep", "no_op"])
def test_other_spellings_are_understood(alias):
    assert idle.idle_strategy(alias).name in idle.IDLE_STRATEGIES


def test_backoff_spins_then_yields_then_parks_for_longer_each_time(monkeypatch):
    done = []
    monkeypatch.setattr(idle.os, "sched_yield", lambda: done.append("yield"))
    monkeypatch.setattr(idle.time, "sleep", lambda seconds: done.append(round(seconds * 1e9)))
    strategy = idle.BackoffIdle()
    for _ in range(10):
        strategy.idle(0)
    assert done == []
    for _ in range(20):
        strategy.idle(0)
    assert done == ["yield"] * 20
    done.clear()
    for _ in range(12):
        strategy.idle(0)
    assert done == [1000 * 2**n for n in range(10)] + [1_000_000] * 2
    done.clear()
    strategy.idle(1)
    strategy.idle(0)
    assert done == []


def test_backoff_takes_its_four_arguments():
    strategy = idle.idle_strategy("backoff", "1-2-3us-4ms")
    assert isinstance(strategy, idle.BackoffIdle)
    assert (strategy.max_spins, strategy.max_yields) == (1, 2)
    assert (strategy.min_park_ns, strategy.max_park_ns) == (3000, 4_000_000)


def test_a_sleeping_strategy_sleeps_only_without_work():
    strategy = idle.idle_strategy("sleep-ns", "20ms")
    took = []
    for _ in range(50):  # a busy machine preempts this process now and then, but not each time
        before = time.monotonic()
        strategy.idle(1)
        took.append(time.monotonic() - before)
    assert min(took) < 0.02
    before = time.monotonic()
    strategy.idle(0)
    assert time.monotonic() - before >= 0.02


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("nap", "", "'nap' is not one of backoff, spin, noop, yield, sleep-ns"),
        ("backoff", "1-2", "takes max spins"),
        ("backoff", "1-2-5us-4us", "shortest park of 5us"),
        ("backoff", "1-2-x-4us", "'x' is not a duration"),
        ("sleep-ns", "1ms-2ms", "takes one duration"),
        ("yield", "3", "takes no arguments"),
    ],
)
def test_a_wrong_strategy_is_refused_in_one_sentence(name, arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        idle.idle_strategy(name, arguments)


@pytest.mark.parametrize("timeout", [sys.maxsize, math.inf, 1e300])
@pytest.mark.parametrize("subscription", [None, SubscriptionReader()])
def test_a_wait_takes_any_timeout(timeout: float, subscription: Any) -> None:
    def steps() -> Steps[bool]:
        yield Wait(Deadline(SYSTEM_CLOCK, timeout).left, subscription)
        return True

    assert run(steps(), Waiting(idle=idle.BusySpinIdle()))
