"""A repeated error is one line with a count in the driver's log, just as it is one entry in the error log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tests.support.invoked_driver import InvokedDriver, only

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.aeron.command import responses
from mainstem.aeron.driver.conductor.agent_message_adapter import AgentMessageAdapter
from mainstem.aeron.driver.conductor_proxy import AgentFailed, DriverConductorProxy
from mainstem.aeron.driver.errors import ErrorRecorder
from mainstem.aeron.error_log import DistinctErrorLog, read_errors

if TYPE_CHECKING:
    import pytest


class Stub:
    """Stands in for the error log and the counters, and records what reaches them."""

    def __init__(self) -> None:
        self.recorded = 0
        self.counted = 0
        self.now_ns = 0
        self.capacity = 1 << 20

    def record(self, text: str, *, now_ms: int, reserve: int = 0) -> bool:
        self.recorded += 1
        return True

    def increment(self, counter: object) -> None:
        self.counted += 1

    def __getattr__(self, name: str) -> object:
        """Return a handler that the test does not call."""
        return name

    def epoch_ms(self) -> int:
        return 0

    def monotonic_ns(self) -> int:
        return self.now_ns


def test_a_refused_command_is_in_the_exception_the_error_log_and_the_event_log_but_not_on_standard_error(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    driver = InvokedDriver(event_log="GENERIC_MESSAGE")
    refused = only(driver.add_publication("aeron:udp?endpoint=127.0.0.1:20177|mtu=17"), responses.OnError)
    (entry,) = read_errors(driver.cnc.error_log)
    assert entry.text.startswith("(-1) invalid channel: ")  # as in the C driver's log
    driver.close()
    written = capfd.readouterr()
    for text in (entry.text, written.out, caplog.text):
        assert refused.message in text
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert written.err == ""


def test_repeated_errors_are_one_log_line_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stub: Any = Stub()
    recorder = ErrorRecorder(stub, stub, stub)
    for step in range(500):
        stub.now_ns = step * NS_PER_SECOND // 100
        recorder.record("send to 192.0.2.7:9010: [Errno 101] Network is unreachable")
    recorder.close()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("(-11) generic error, see message: send to")
    assert lines[1].endswith("(499 more times in 5 s)")
    # The error log and the counter include every occurrence.
    assert stub.recorded == stub.counted == 500


def test_an_agent_that_fails_in_each_duty_cycle_is_one_traceback_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    stub: Any = Stub()
    stub.errors = ErrorRecorder(stub, stub, stub)
    queue = DriverConductorProxy()
    adapter = AgentMessageAdapter(stub, queue, stub, stub, stub, stub, stub)
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
    assert "Sender failed in its duty cycle: KeyError: 0" in first.getMessage()
    assert not last.exc_info
    assert last.getMessage().endswith("KeyError: 999 (999 more times in 1 s)")
    assert stub.recorded == stub.counted == 1000


def test_a_bug_is_one_error_log_entry_regardless_of_its_text() -> None:
    stub: Any = Stub()
    memory = AtomicBuffer(bytearray(1 << 16))
    recorder = ErrorRecorder(DistinctErrorLog(memory), stub, stub)
    for number in range(1000):
        try:
            raise KeyError(f"session {number}")
        except KeyError as error:
            recorder.record(f"Setup failed: {error}", bug=error)
    (entry,) = read_errors(memory)
    assert "session 0" in entry.text
    assert entry.observation_count == 1000


def test_a_small_log_has_room_for_every_kind_of_error() -> None:
    stub: Any = Stub()
    memory = AtomicBuffer(bytearray(1 << 16))
    recorder = ErrorRecorder(DistinctErrorLog(memory), stub, stub)
    for number in range(1000):
        recorder.record(f"channel {number}: {'x' * 500}")
        for kind, length in (("refusal", 300), ("image", 60), ("options", 20)):
            recorder.record_peer(kind, f"10.0.{number >> 8}.{number & 255}", f"{number:04}" * length)
    try:
        raise KeyError(1)
    except KeyError as error:
        recorder.record("Setup failed", bug=error)
    texts = [entry.text for entry in read_errors(memory)]
    assert texts[-1] == "(-11) generic error, see message: Setup failed"
    assert sum("any other source" in text for text in texts) == 3
    assert sum("further errors" in text for text in texts) == 1
