from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.aeron.tools.driver_files import DriverFiles

from mainstem import cli
from mainstem._core.system_counter import OWN_TYPE_ID
from mainstem.aeron import counters as names
from mainstem.aeron.counters import CounterType
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.metrics.families import families

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHANNEL = 'aeron:udp?endpoint=localhost:20121|alias="tide"'
LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (-?[0-9.e+]+)')


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverFiles]:
    made = DriverFiles(tmp_path)
    made.cnc.to_driver.consumer_heartbeat_ms = time.time_ns() // 1_000_000
    for session, value in ((3, 4096), (4, 9216)):
        position = names.publisher_position(7, session_id=session, stream_id=5, channel=CHANNEL, exclusive=True)
        made.counters.allocate(*position, now_ms=0, registration_id=7, owner_id=9, value=value)
    made.counter(CounterType.SENDER_LIMIT, 7, 1024)
    yield made
    made.cnc.close()


def test_a_page_for_prometheus_holds_every_counter_with_its_labels(
    driver: DriverFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["metrics", "--dir", driver.directory])
    assert end.value.code == 0
    page = capsys.readouterr().out
    values: dict[str, list[tuple[str, float]]] = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            found = LINE.fullmatch(line)
            assert found is not None, line
            values.setdefault(found[1], []).append((found[2] or "", float(found[3])))
    positions = values["mainstem_stream_pub_pos_total"]
    assert [value for _, value in positions] == [4096, 9216]
    assert 'session_id="3"' in positions[0][0]
    assert r"alias=\"tide\"" in positions[0][0]
    ((_, age),) = values["mainstem_driver_heartbeat_age_seconds"]
    assert 0 <= age < 60
    assert "# TYPE mainstem_stream_pub_pos_total counter" in page
    assert "# TYPE mainstem_stream_snd_lmt gauge" in page
    # A name appears once, followed by all its samples.
    typed = re.findall(r"# TYPE (\S+)", page)
    assert len(typed) == len(set(typed))


def test_opentelemetry_observes_the_same_values(driver: DriverFiles) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    from mainstem.metrics.opentelemetry import Collector

    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    with DirectoryReader(driver.directory) as directory:
        collector = Collector(provider.get_meter("mainstem"), directory)
        position = names.publisher_position(8, session_id=6, stream_id=5, channel=CHANNEL, exclusive=True)
        driver.counters.allocate(*position, now_ms=0, registration_id=8, owner_id=9, value=32)
        collector.refresh()
        data: Any = reader.get_metrics_data()
    (scope,) = data.resource_metrics[0].scope_metrics
    found = {
        metric.name: [(p.attributes.get("session_id"), p.value) for p in metric.data.data_points]
        for metric in scope.metrics
    }
    assert sorted(found["mainstem_stream_pub_pos"]) == [("3", 4096), ("4", 9216), ("6", 32)]
    provider.shutdown()


def test_an_applications_counter_of_any_type_is_not_a_system_counter(driver: DriverFiles) -> None:
    for label in ("orders", "orders"):
        driver.counters.allocate(OWN_TYPE_ID, b"", label, now_ms=0, registration_id=7, owner_id=9, value=5)
    with DirectoryReader(driver.directory) as reader:
        metrics = families(reader.snapshot(epoch_ms=1, now_ns=1))
    (others,) = [each for each in metrics if each.name == "mainstem_counter"]
    assert [sample.value for sample in others.samples if sample.labels["label"] == "orders"] == [5, 5]
