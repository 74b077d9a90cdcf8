"""An error that repeats is one line in the driver's log, with a count, as it is one entry in the error log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.aeron.driver.conductor.agent_messages import AgentMessageAdapter
from mainstem.aeron.driver.errors import ErrorRecorder
from mainstem.aeron.driver.messages import AgentFailed, DriverConductorProxy
from mainstem.clock import NS_PER_SECOND

if TYPE_CHECKING:
    import pytest


class Stub:
    """Counts what the recorder does with the error log and the counters."""

    def __init__(self) -> None:
        self.recorded = 0
        self.counted = 0
        self.now_ns = 0

    def record(self, text: str, *, now_ms: int) -> None:
        self.recorded += 1

    def increment(self, counter: object) -> None:
        self.counted += 1

    def __getattr__(self, name: str) -> object:
        """A handler that the test does not call."""
        return name

    def epoch_ms(self) -> int:
        return 0

    def monotonic_ns(self) -> int:
        return self.now_ns


def test_a_client_that_cannot_be_reached_is_one_line_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    stub: Any = Stub()
    recorder = ErrorRecorder(stub, stub, stub)
    for step in range(500):
        stub.now_ns = step * NS_PER_SECOND // 100
        recorder.record("send to 192.0.2.7:9010: [Errno 101] Network is unreachable")
    recorder.close()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("GENERIC_ERROR: send to")
    assert lines[1].endswith("(499 more times in 5 s)")
    # The error log and the counter have every one.
    assert stub.recorded == stub.counted == 500


def test_an_agent_that_fails_in_each_duty_cycle_is_one_traceback_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    stub: Any = Stub()
    stub.errors = ErrorRecorder(stub, stub, stub)
    queue = DriverConductorProxy()
    adapter = AgentMessageAdapter(stub, queue, stub, stub, stub, stub)
    for cycle in range(1000):
        stub.now_ns = cycle * NS_PER_SECOND // 1000
        try:
            raise KeyError(cycle)
        except KeyError as error:
            queue.append(AgentFailed("Sender", error))
        adapter.poll(stub.now_ns)
    stub.errors.close()
    first, last = caplog.records
    assert first.exc_info
    assert "Sender failed in a duty cycle: KeyError: 0" in first.getMessage()
    assert not last.exc_info
    assert last.getMessage().endswith("KeyError: 999 (999 more times in 1 s)")
    assert stub.recorded == stub.counted == 1000
