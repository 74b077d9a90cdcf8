"""The table of system counters: an id is an index into the values, and a name is a constant of compiled code."""

from __future__ import annotations

from mainstem._core import system_counter
from mainstem._core.system_counter import OWN_TYPE_ID, REFERENCE_COUNTERS, SystemCounter


def test_no_id_is_left_out() -> None:
    assert list(SystemCounter) == list(range(len(SystemCounter)))


def test_the_references_counters_are_those_of_its_version() -> None:
    assert SystemCounter(REFERENCE_COUNTERS - 1) is SystemCounter.NATIVE_RESOURCE_AGENT_PROXY_FAILS


def test_every_counter_is_a_constant_of_compiled_code() -> None:
    assert all(getattr(system_counter, f"SYSTEM_{each.name}") == each for each in SystemCounter)


def test_a_counter_is_known_by_its_type_and_label_too() -> None:
    own = SystemCounter.ENDPOINT_FILTER_REFUSALS
    find = system_counter.find_system_counter
    assert find(15, 0, "Errors: version=1.51.0") is SystemCounter.ERRORS
    assert find(own, OWN_TYPE_ID, own.label) is own
    # A newer reference driver's own, and two of an application.
    assert find(own, 0, "Something new") is None
    assert find(own, OWN_TYPE_ID, "orders") is None
    assert find(90, OWN_TYPE_ID, own.label) is None
