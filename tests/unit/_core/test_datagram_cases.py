"""The receive path's verdict on each datagram in the table recorded from the reference implementation."""

from __future__ import annotations

import pytest
from tests.support.datagram_cases import CASES, HEARTBEAT, IGNORED, INSERTED, INVALID, OVER_RUN, Case
from tests.unit._core.network import SENDER_ADDRESS, Pair, modules

from mainstem._core import layout
from mainstem._core.system_counter import SystemCounter

TERMS_LENGTH = 3 * layout.TERM_MIN_LENGTH
COUNTED = {
    INVALID: SystemCounter.INVALID_PACKETS,
    OVER_RUN: SystemCounter.FLOW_CONTROL_OVER_RUNS,
    HEARTBEAT: SystemCounter.HEARTBEATS_RECEIVED,
}


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "uncompiled"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_datagram_gets_the_verdict_of_the_table(case: Case, compiled: bool) -> None:
    pair = Pair(modules(compiled=compiled))
    pair.receiver_transport.deliver(case.datagram, SENDER_ADDRESS)
    pair.receiver.run_cycle(pair.now_ns)
    inserted = any(pair.in_log.get_bytes(0, TERMS_LENGTH))
    verdicts = [verdict for verdict, counter in COUNTED.items() if pair.value(counter)] + [INSERTED] * inserted
    assert (verdicts or [IGNORED]) == [case.verdict]
