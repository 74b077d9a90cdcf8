"""Agents: invoked by the caller, and run in a thread."""

from __future__ import annotations

import threading

import pytest
from tests.support.waiting import STALL_S

from mainstem.aeron.agent import AgentInvoker, AgentRunner, AgentTerminated
from mainstem.aeron.idle import YieldIdle


class Worker:
    """Counts its duty cycles; raises the next error in ``script``."""

    def __init__(self, role_name="worker", script=()):
        self.role_name = role_name
        self.script = list(script)
        self.cycles = 0
        self.closed = 0
        self.threads = set()
        self.busy = threading.Event()

    def do_work(self, now_ns):
        self.cycles += 1
        self.threads.add(threading.current_thread())
        if self.cycles >= 5:
            self.busy.set()
        if self.script and (step := self.script.pop(0)) is not None:
            raise step
        return 1

    def on_close(self):
        self.closed += 1
        self.threads.add(threading.current_thread())


def test_an_invoker_runs_one_cycle_a_call_and_hands_errors_over():
    errors = []
    worker = Worker(script=[None, ValueError("bad")])
    with AgentInvoker(worker, error_handler=errors.append) as invoker:
        assert invoker.invoke() == 1
        assert invoker.invoke() == 0
        assert [str(error) for error in errors] == ["bad"]
    assert invoker.is_closed
    invoker.close()
    assert invoker.invoke() == 0
    assert (worker.cycles, worker.closed) == (2, 1)


def test_an_invoked_agent_can_end_itself():
    worker = Worker(script=[AgentTerminated()])
    invoker = AgentInvoker(worker)
    assert invoker.invoke() == 0
    assert invoker.is_closed
    assert worker.closed == 1


def test_a_runner_works_in_its_own_thread_until_it_is_closed():
    worker = Worker()
    runner = AgentRunner(worker, YieldIdle()).start()
    assert worker.busy.wait(STALL_S)
    assert not runner.is_closed
    assert runner.close()
    assert runner.close()
    assert runner.is_closed
    assert worker.closed == 1
    assert len(worker.threads) == 1
    assert threading.main_thread() not in worker.threads


def test_a_runner_continues_after_an_error():
    errors = []
    worker = Worker(script=[None, ValueError("bad"), KeyError("worse")])
    with AgentRunner(worker, YieldIdle(), error_handler=errors.append):
        assert worker.busy.wait(STALL_S)
    assert [type(error) for error in errors] == [ValueError, KeyError]
    assert worker.closed == 1


def test_a_running_agent_can_end_itself():
    worker = Worker(script=[None, AgentTerminated()])
    runner = AgentRunner(worker, YieldIdle()).start()
    assert runner.join(STALL_S)
    assert (worker.cycles, worker.closed) == (2, 1)
    runner.close()


def test_a_runner_that_never_started_still_closes_its_agent():
    worker = Worker()
    runner = AgentRunner(worker, YieldIdle())
    assert runner.close()
    assert runner.close()
    assert worker.closed == 1


def test_a_runner_starts_once():
    runner = AgentRunner(Worker(), YieldIdle()).start()
    with pytest.raises(RuntimeError, match="started already"):
        runner.start()
    runner.close()


def test_an_error_while_closing_reaches_the_handler():
    errors = []
    worker = Worker()
    worker.on_close = lambda: (_ for _ in ()).throw(ValueError("late"))
    runner = AgentRunner(worker, YieldIdle(), error_handler=errors.append).start()
    assert runner.close()
    assert [str(error) for error in errors] == ["late"]


def test_on_start_runs_in_the_agents_thread():
    seen = []
    worker = Worker()
    with AgentRunner(worker, YieldIdle(), on_start=lambda: seen.append(threading.current_thread())):
        assert worker.busy.wait(STALL_S)
    assert set(seen) == worker.threads
