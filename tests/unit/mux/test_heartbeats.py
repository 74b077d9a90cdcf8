"""When a silent peer is pinged, and when it is presumed dead."""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.bymux import Role
from mainstem.bymux.engine import BymuxEngine
from mainstem.errors import ConfigurationError, Timeout
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.server_engine import ServerEngine
from mainstem.mux.heartbeat import Heartbeat, Verdict

SECOND = 1_000_000_000


def bymux_ends() -> list[Any]:
    return [BymuxEngine(role) for role in Role]


def jmux_ends() -> list[Any]:
    ends = [ClientEngine(), ServerEngine()]
    ends[1].receive_data(ends[0].data_to_send())
    ends[0].receive_data(ends[1].data_to_send())
    return ends


@pytest.mark.parametrize("make_ends", [bymux_ends, jmux_ends])
def test_a_silent_peer_is_pinged_after_10_s_and_presumed_dead_30_s_later(make_ends: Any) -> None:
    for end in make_ends():
        assert end.next_timeout_ns() == 10 * SECOND
        end.handle_timeout(10 * SECOND)
        assert end.data_to_send(), "a ping"
        assert end.next_timeout_ns() == 40 * SECOND
        end.handle_timeout(40 * SECOND - 1)
        with pytest.raises(Timeout, match="did not answer a ping for 30 s"):
            end.handle_timeout(40 * SECOND)


@pytest.mark.parametrize("make_ends", [bymux_ends, jmux_ends])
def test_a_peer_that_answers_pings_stays_connected(make_ends: Any) -> None:
    one, other = make_ends()
    for now_ns in range(10 * SECOND, 1000 * SECOND, 10 * SECOND):
        one.handle_timeout(now_ns)
        other.handle_timeout(now_ns)
        for _ in range(2):
            for source, target in ((one, other), (other, one)):
                if data := source.data_to_send():
                    target.receive_data(data, now_ns)


def test_a_heartbeat_pings_once_when_idle_and_then_times_out() -> None:
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
