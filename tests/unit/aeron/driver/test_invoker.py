"""A driver in INVOKER mode: which calls run the Python code of its agents, and that no call skips required code."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.invoked_driver import CLIENT, InvokedDriver

from mainstem.aeron.command import commands
from mainstem.aeron.driver.conductor.conductor import COMMAND_PAUSE_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

KEEP_ALIVE = commands.ClientKeepalive(client_id=CLIENT, correlation_id=0)


@pytest.fixture
def driver() -> Iterator[InvokedDriver]:
    driver = InvokedDriver()
    driver.write(KEEP_ALIVE)
    driver.cycle()
    yield driver
    driver.core.close()


@pytest.fixture
def decisions(driver: InvokedDriver, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each agent's Python code runs."""
    counted: Counter[str] = Counter()
    for name in ("conductor", "sender", "receiver"):
        agent = getattr(driver.core, name)

        def decide(now_ns: int, *, name: str = name, decide: Any = agent.decide) -> int:
            counted[name] += 1
            return int(decide(now_ns))

        monkeypatch.setattr(agent, "decide", decide)
    return counted


def test_a_call_without_a_reason_runs_the_compiled_cycles_alone(driver: InvokedDriver, decisions: Counter[str]) -> None:
    for _ in range(100):
        assert driver.do_work() == 0
    assert not decisions


def test_a_command_and_a_timer_are_reasons(driver: InvokedDriver, decisions: Counter[str]) -> None:
    driver.write(KEEP_ALIVE)
    assert driver.do_work() == 1
    assert set(decisions.values()) == {1}
    driver.cycle()
    decisions.clear()
    driver.clock.advance_ns(driver.core.conductor.next_timer_ns - driver.clock.monotonic_ns() - 1)
    driver.do_work()
    assert not decisions
    driver.clock.advance_ns(1)
    driver.do_work()
    assert decisions["conductor"] == 1


def test_a_command_between_agents_is_run_in_the_next_call(driver: InvokedDriver, decisions: Counter[str]) -> None:
    ran: list[str] = []
    driver.core.sender.commands.append(lambda: ran.append("sender"))
    driver.core.receiver.commands.append(lambda: ran.append("receiver"))
    assert driver.do_work() == 2
    assert ran == ["sender", "receiver"]


def test_a_command_that_a_client_is_still_writing_is_handled_soon_after(
    driver: InvokedDriver, decisions: Counter[str]
) -> None:
    ring = driver.cnc.to_driver
    at = ring.producer_position % ring.capacity
    assert ring.write(KEEP_ALIVE.TYPE, KEEP_ALIVE.encode())
    length = ring.buffer.get_i32(at)
    # Claimed but unfinished, as between a writer's two stores.
    ring.buffer.put_i32(at, -length)
    assert driver.do_work() == 0
    ring.buffer.put_i32(at, length)
    # Nothing signals the write: the tail had moved before.
    assert driver.do_work() == 0
    driver.clock.advance_ns(COMMAND_PAUSE_NS)
    assert driver.do_work() == 1
