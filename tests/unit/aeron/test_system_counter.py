"""The table of system counters: an id is an index into the values, and a name is a constant of compiled code."""

from __future__ import annotations

from mainstem._core import system_counter
from mainstem._core.system_counter import REFERENCE_COUNTERS, SystemCounter


def test_no_id_is_left_out() -> None:
    assert list(SystemCounter) == list(range(len(SystemCounter)))


def test_the_references_counters_are_those_of_its_version() -> None:
    assert SystemCounter(REFERENCE_COUNTERS - 1) is SystemCounter.NATIVE_RESOURCE_AGENT_PROXY_FAILS


def test_every_counter_is_a_constant_of_compiled_code() -> None:
    assert all(getattr(system_counter, f"SYSTEM_{each.name}") == each for each in SystemCounter)
