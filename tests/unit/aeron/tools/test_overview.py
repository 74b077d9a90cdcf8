"""The state of a driver that `mainstem top` and `mainstem web` show."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.live_driver import wait_for
from tests.unit.aeron.tools.driver_files import DriverFiles

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.counters import CounterType, parse_stream_key
from mainstem.aeron.directory import loss_report_path
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.error_log import DistinctErrorLog
from mainstem.aeron.loss_report import LossReport
from mainstem.aeron.tools.overview import HISTORY, DriverMonitor, document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

NS = 1_000_000_000


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DriverFiles]:
    files = DriverFiles(tmp_path)
    yield files
    files.cnc.close()


def test_rates_are_of_the_time_between_two_samples(files: DriverFiles) -> None:
    limit = files.counter(CounterType.PUBLISHER_LIMIT, 7, 4096)
    position = files.counter(CounterType.PUBLISHER_POSITION, 7, 1000)
    naks = files.counter(CounterType.SENDER_NAKS_RECEIVED, 7, 3)
    files.counter(CounterType.SENDER_POSITION, 7, 400)
    monitor = DriverMonitor(files.directory)
    first = monitor.sample(epoch_ms=2_000, now_ns=NS)
    assert (first.streams[0].rate, first.streams[0].lag, first.streams[0].naks) == (0.0, 600, 3)
    files.counters.cell(position).set_release(3000)
    files.counters.cell(naks).set_release(7)
    report = LossReport(files.files.create(loss_report_path(files.directory), 1 << 16))
    report.create_entry(64, now_ms=2_500, session_id=3, stream_id=4, channel="aeron:udp?endpoint=a:1", source="b:1")
    second = monitor.sample(epoch_ms=4_000, now_ns=3 * NS)
    (stream,) = second.streams
    assert (stream.rate, stream.lag, stream.nak_rate, stream.lost) == (1000.0, 2600, 2.0, 64)
    assert (second.lost, second.rates.lost) == (64, 32.0)
    assert limit >= 0
    assert [each.lost for each in monitor.history] == [0.0, 32.0]
    assert list(monitor.stream_history[stream.name]) == [(0.0, 0.0, 600), (1000.0, 2.0, 2600)]
    monitor.close()


def test_streams_are_grouped_once_per_sample(files: DriverFiles) -> None:
    for kind in (CounterType.PUBLISHER_LIMIT, CounterType.PUBLISHER_POSITION, CounterType.SENDER_POSITION):
        files.counter(kind, 7, 4096)
    monitor = DriverMonitor(files.directory)
    parsed = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal parsed
        parsed += event == "call" and frame.f_code is parse_stream_key.__code__

    sys.setprofile(count)
    try:
        for second in range(1, 4):
            (stream,) = monitor.sample(epoch_ms=1000 * second, now_ns=NS * second).streams
            assert monitor.why(stream.session_id, stream.stream_id)
    finally:
        sys.setprofile(None)
    # The reader has parsed each counter too, to find the logs.
    assert parsed == 2 * 3 * 3
    monitor.close()


def test_a_history_is_bounded_and_ends_with_its_stream(files: DriverFiles) -> None:
    counter = files.counter(CounterType.PUBLISHER_LIMIT, 7, 4096)
    monitor = DriverMonitor(files.directory)
    for i in range(HISTORY + 5):
        state = monitor.sample(epoch_ms=2_000 + i, now_ns=NS + i)
    assert len(monitor.history) == HISTORY
    assert len(monitor.stream_history[state.streams[0].name]) == HISTORY
    files.counters.free(counter, now_ms=0)
    monitor.sample(epoch_ms=9_000, now_ns=9 * NS)
    assert monitor.stream_history == {}
    monitor.close()


def test_errors_are_the_newest_first(files: DriverFiles) -> None:
    log = DistinctErrorLog(files.cnc.error_log)
    log.record("older", now_ms=1_000)
    log.record("newer", now_ms=1_500)
    monitor = DriverMonitor(files.directory)
    state = monitor.sample(epoch_ms=2_000, now_ns=NS)
    assert [error.text for error in state.errors] == ["newer", "older"]
    assert (state.pid, state.is_alive, state.heartbeat_age_ms) == (77, True, 1_000)
    monitor.close()


def test_a_missing_driver_is_a_state(tmp_path: Path) -> None:
    monitor = DriverMonitor(str(tmp_path / "none"))
    state = monitor.sample(epoch_ms=2_000, now_ns=NS)
    assert "no media driver in" in state.problem
    assert (state.is_alive, state.streams, monitor.why(1, 1)) == (False, (), ())
    later = DriverFiles(_made(tmp_path / "none"))
    assert monitor.sample(epoch_ms=2_000, now_ns=2 * NS).problem == ""
    later.cnc.close()
    monitor.close()


def _made(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.system
def test_a_live_driver_shows_client_names_and_why_a_stream_is_stalled() -> None:
    with (
        MediaDriver.launch(threads=True) as driver,
        Aeron.connect(driver.directory, client_name="prices") as one,
        Aeron.connect(driver.directory, client_name="orders") as other,
        one.add_subscription("aeron:ipc?term-length=64k", 7) as subscription,
        other.add_publication("aeron:ipc?term-length=64k", 7) as publication,
    ):
        wait_for(lambda: subscription.is_connected and publication.is_connected)
        while publication.offer(bytes(1000)) > 0:
            pass
        monitor = DriverMonitor(driver.directory)
        clock = iter(range(NS, 1000 * NS, NS))

        def sample() -> object:
            state = monitor.sample(epoch_ms=_now_ms(driver.directory), now_ns=next(clock))
            named = {client.name for client in state.clients} == {
                "prices",
                "orders",
            }  # a client writes its name with a delay
            return state if named and state.streams[0].fullness == 1.0 else None

        state = wait_for(sample)
        wait_for(sample)
        assert [(c.name, c.publications, c.subscriptions) for c in state.clients] == [
            ("orders", 1, 0),
            ("prices", 0, 1),
        ]
        (stream,) = state.streams
        assert (stream.publisher, stream.subscribers, stream.is_connected) == ("orders", ("prices",), True)
        assert stream.lag == publication.position
        (diagnosis,) = monitor.why(stream.session_id, stream.stream_id)
        assert diagnosis.is_stalled
        row = json.loads(json.dumps(document(state)))
        assert row["streams"][0]["stages"][-1]["client"] == "prices"
        assert set(row) == {field.name for field in dataclasses.fields(state)}
        monitor.close()


def _now_ms(directory: str) -> int:
    from mainstem._internal.clock import SYSTEM_CLOCK

    assert directory
    return SYSTEM_CLOCK.epoch_ms()
