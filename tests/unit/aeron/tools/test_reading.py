"""Snapshots of a real directory, whose files another process maps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.aeron.tools.driver_files import TERM, DriverFiles

from mainstem.aeron.counters import CounterType
from mainstem.aeron.directory import cnc_path, image_path, publication_path
from mainstem.aeron.logbuffer import LogType
from mainstem.aeron.tools.log_state import read_log_state
from mainstem.aeron.tools.reading import DirectoryReader, read_logs
from mainstem.errors import ConfigurationError, DriverTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aeron.counters import CounterSnapshot


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverFiles]:
    made = DriverFiles(tmp_path)
    yield made
    made.cnc.close()


def test_sees_what_changes_after_the_file_was_opened(driver: DriverFiles) -> None:
    counter = driver.counter(CounterType.SENDER_POSITION, 7, 64)
    with DirectoryReader(driver.directory) as reader:
        first = reader.snapshot(epoch_ms=1_500, now_ns=0)
        driver.counters.cell(counter).set_release(128)
        driver.cnc.to_driver.consumer_heartbeat_ms = 2_000
        second = reader.snapshot(epoch_ms=2_100, now_ns=1)
    assert [s.counters[0].value for s in (first, second)] == [64, 128]
    assert [s.heartbeat_age_ms for s in (first, second)] == [500, 100]
    assert (first.pid, first.version_text, first.start_ms) == (77, "0.2.0", 5)


def test_reads_with_read_permission_and_never_writes(driver: DriverFiles) -> None:
    path = cnc_path(driver.directory)
    os.chmod(path, 0o444)
    before = Path(path).read_bytes()
    with DirectoryReader(driver.directory) as reader:
        reader.cnc.buffer.put_i64(0, -1)
        assert Path(path).read_bytes() == before


def test_follows_a_restarted_driver(driver: DriverFiles) -> None:
    with DirectoryReader(driver.directory) as reader:
        os.unlink(cnc_path(driver.directory))
        assert reader.snapshot(epoch_ms=0, now_ns=0).pid == 77  # the old file is still mapped
        second = DriverFiles(Path(driver.directory))
        second.counter(CounterType.SENDER_POSITION, 8, 1)
        assert len(reader.snapshot(epoch_ms=0, now_ns=0).counters) == 1
        second.cnc.close()


def test_reports_a_directory_without_a_driver(tmp_path: Path) -> None:
    with pytest.raises(DriverTimeout, match=r"no media driver in .*: .*/cnc\.dat does not exist or is not ready"):
        DirectoryReader(str(tmp_path))


def test_refuses_a_file_of_another_major_version(driver: DriverFiles) -> None:
    driver.cnc.buffer.put_i32(0, 1 << 16)
    with pytest.raises(ConfigurationError, match=r"CnC version 1\.0\.0"):
        DirectoryReader(driver.directory)


def test_reads_the_last_page_of_each_stream_s_log(driver: DriverFiles) -> None:
    driver.counter(CounterType.PUBLISHER_LIMIT, 7, 4096)
    driver.counter(CounterType.SENDER_POSITION, 7, 0)
    driver.counter(CounterType.RECEIVER_POSITION, 8, 0)
    log = driver.log(publication_path(driver.directory, 7), 7, LogType.CONCURRENT_PUBLICATION)
    log.is_connected = True
    log.buffer.put_i32(0, 100)
    driver.log(image_path(driver.directory, 8), 8, LogType.IMAGE).active_transport_count = 2
    with DirectoryReader(driver.directory) as reader:
        snapshot = reader.snapshot(epoch_ms=0, now_ns=0, logs=True)
    assert snapshot.logs[7].is_connected
    assert snapshot.logs[7].next_frame_length == 100
    assert snapshot.logs[7].publication_window_length == 4096
    assert snapshot.logs[7].producer_position == log.producer_position
    assert not snapshot.logs[7].is_ended
    assert snapshot.logs[8].active_transports == 2
    assert snapshot.free_space


def test_a_missing_or_foreign_log_gives_no_state(tmp_path: Path) -> None:
    assert read_log_state(str(tmp_path / "none")) is None
    for content in (b"short", bytes(3 * TERM + 4096)):
        (tmp_path / "odd").write_bytes(content)
        assert read_log_state(str(tmp_path / "odd")) is None


def test_truncated_files_of_a_directory_raise_instead_of_crashing(driver: DriverFiles) -> None:
    driver.counter(CounterType.SENDER_POSITION, 7, 64)
    cnc = cnc_path(driver.directory)
    with DirectoryReader(driver.directory) as reader:
        assert len(reader.snapshot(epoch_ms=0, now_ns=0).counters) == 1
        os.truncate(cnc, 4096)
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=r"cnc\.dat was truncated while being read"):
                reader.snapshot(epoch_ms=0, now_ns=0)
        with pytest.raises(ConfigurationError, match="was truncated"):
            reader.errors()
    with pytest.raises(DriverTimeout, match="not ready"):
        DirectoryReader(driver.directory)


def test_an_empty_loss_report_raises(driver: DriverFiles) -> None:
    Path(driver.directory, "loss-report.dat").touch()
    with DirectoryReader(driver.directory) as reader, pytest.raises(ConfigurationError, match="it is empty"):
        reader.losses()


class CountedPasses(tuple["CounterSnapshot", ...]):
    """Counters that count how often they are walked."""

    passes = 0

    def __iter__(self) -> Iterator[CounterSnapshot]:
        self.passes += 1
        return super().__iter__()


def test_the_logs_of_many_streams_take_as_many_passes_as_those_of_one(driver: DriverFiles) -> None:
    for own in range(7, 27):
        driver.counter(CounterType.PUBLISHER_LIMIT, own, 4096)
        driver.log(publication_path(driver.directory, own), own, LogType.CONCURRENT_PUBLICATION)
    with DirectoryReader(driver.directory) as reader:
        counters = CountedPasses(reader.snapshot(epoch_ms=0, now_ns=0).counters)
    assert len(read_logs(driver.directory, counters)) == 20
    assert counters.passes == 2


CUTTER = """
import os, random, sys
path, rng = sys.argv[1], random.Random(3)
with open(path, "rb") as file:
    content = file.read()
file = os.open(path, os.O_RDWR)
print("cutting", flush=True)
while os.getppid() != 1:
    length = rng.choice([0, 4096, rng.randrange(len(content))])
    os.ftruncate(file, length)
    os.pwrite(file, content[length:], length)
"""


def test_reading_continues_while_another_process_truncates_the_file(driver: DriverFiles) -> None:
    driver.counter(CounterType.SENDER_POSITION, 7, 64)
    program = [sys.executable, "-c", CUTTER, cnc_path(driver.directory)]
    seen = failed = 0
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as cutter:
        assert cutter.stdout is not None
        cutter.stdout.readline()
        for _ in range(500):
            try:
                with DirectoryReader(driver.directory) as reader:
                    assert len(reader.snapshot(epoch_ms=0, now_ns=0).counters) <= 1
                    reader.errors()
                seen += 1
            except (ConfigurationError, DriverTimeout):
                failed += 1
        cutter.kill()
    assert seen + failed == 500
    assert failed
