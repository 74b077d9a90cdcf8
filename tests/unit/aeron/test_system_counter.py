"""The ids of the system counters: the compiled part counts in the cells that SystemCounter names."""

from __future__ import annotations

from mainstem._core import layout
from mainstem.aeron.system_counter import SystemCounter

PREFIX = "SYSTEM_"
SHORTER = {
    "UNDER_RUNS": SystemCounter.FLOW_CONTROL_UNDER_RUNS,
    "OVER_RUNS": SystemCounter.FLOW_CONTROL_OVER_RUNS,
    "SENDER_LIMITS": SystemCounter.SENDER_FLOW_CONTROL_LIMITS,
    "GAP_FILLS": SystemCounter.LOSS_GAP_FILLS,
    "RETRANSMIT_OVERFLOWS": SystemCounter.RETRANSMIT_OVERFLOW,
}


def test_the_ids_of_the_compiled_part_are_those_of_the_enumeration() -> None:
    ids = {name.removeprefix(PREFIX): value for name, value in vars(layout).items() if name.startswith(PREFIX)}
    assert ids
    assert ids == {name: int(SHORTER.get(name) or SystemCounter[name]) for name in ids}


def test_no_id_is_left_out() -> None:
    assert list(SystemCounter) == list(range(len(SystemCounter)))
