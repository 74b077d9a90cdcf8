"""The CnC file, and how a client waits for its driver."""

from __future__ import annotations

import struct

import pytest

from mainstem._core import layout
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS, CncAttach, CncFile, CncLayout
from mainstem.aeron.files import MappedFiles, MemoryFiles
from mainstem.errors import ConfigurationError, DriverTimeout

DIRECTORY = "/aeron"
SMALL = CncLayout(
    to_driver_length=65536 + 768,
    to_clients_length=65536 + 128,
    counters_metadata_length=64 * 512,
    counters_values_length=64 * 128,
    error_log_length=4096,
)


@pytest.fixture
def files():
    return MemoryFiles()


def create(files, directory=DIRECTORY, cnc_layout=SMALL):
    return CncFile.create(
        files,
        directory,
        client_liveness_timeout_ns=10_000_000_000,
        start_timestamp_ms=1_700_000_000_000,
        pid=4321,
        cnc_layout=cnc_layout,
    )


def attach(files, **changes):
    return CncAttach(files, DIRECTORY, **({"driver_timeout_ms": 10_000, "now_ns": 0} | changes))


def test_the_default_file_is_as_long_as_the_reference_drivers():
    assert CncLayout().file_length == 48_238_592


def test_the_metadata_is_laid_out_as_the_reference_does(files):
    cnc = create(files)
    assert cnc.version == 0
    cnc.signal_ready()
    expected = struct.pack(
        "<6i3qi76x", 0x200, 66304, 65664, 32768, 8192, 4096, 10_000_000_000, 1_700_000_000_000, 4321, 4096
    )
    assert cnc.buffer.get_bytes(0, 128) == expected
    assert cnc.buffer.capacity == -(-(128 + 66304 + 65664 + 32768 + 8192 + 4096) // 4096) * 4096


def test_the_sections_follow_one_another(files):
    cnc = create(files)
    offset = 128
    for n, part in enumerate(
        [cnc.to_driver.buffer, cnc.to_clients_buffer, cnc.counters_metadata, cnc.counters_values, cnc.error_log]
    ):
        part.put_i32(part.capacity - 8, n + 1)
        offset += part.capacity
        assert cnc.buffer.get_i32(offset - 8) == n + 1


def test_a_mapped_file_meets_the_drivers(files):
    driver = create(files)
    driver.signal_ready()
    client = CncFile.map(files, DIRECTORY)
    assert client is not None
    assert (client.pid, client.start_timestamp_ms) == (4321, 1_700_000_000_000)
    assert client.client_liveness_timeout_ns == 10_000_000_000
    got = []
    receiver = client.receiver()
    client.to_driver.write(1, b"command")
    driver.to_driver.read(lambda *record: got.append(record))
    driver.transmitter().transmit(2, b"response")
    receiver.receive(lambda *record: got.append(record))
    assert got == [(1, b"command"), (2, b"response")]
    assert list(client.counters()) == []
    client.close()
    client.close()
    with pytest.raises(IndexError):
        client.to_driver.next_correlation_id()
    driver.close()


def test_a_file_on_disk_can_be_closed_and_mapped_again(tmp_path):
    files = MappedFiles()
    driver = create(files, str(tmp_path))
    driver.signal_ready()
    driver.to_driver.consumer_heartbeat_ms = 5
    driver.close()
    again = CncFile.map(files, str(tmp_path))
    assert again is not None
    assert again.to_driver.consumer_heartbeat_ms == 5
    again.close()


def test_another_major_version_is_refused(files):
    create(files).buffer.put_i32(0, 0x010203)
    with pytest.raises(ConfigurationError, match=r"CnC version 1\.2\.3 is not one of 0\.x\.x"):
        CncFile.map(files, DIRECTORY)


def test_another_minor_version_is_accepted(files):
    create(files).buffer.put_i32(0, 0x000301)
    assert CncFile.map(files, DIRECTORY) is not None


@pytest.mark.parametrize(("offset", "value"), [(4, 1000), (8, -128), (12, 0), (16, 0), (20, -1), (48, 0)])
def test_invalid_lengths_are_rejected(files, offset, value):
    cnc = create(files)
    cnc.buffer.put_i32(offset, value)
    cnc.signal_ready()
    with pytest.raises(ConfigurationError):
        CncFile.map(files, DIRECTORY)


def test_a_file_above_two_gigabytes_is_refused():
    with pytest.raises(ConfigurationError, match="exceeds the maximum"):
        CncLayout(counters_values_length=500 << 20, counters_metadata_length=2000 << 20)


def test_attaching_waits_for_file_version_and_heartbeat(files):
    waiting = attach(files)
    assert waiting.step(0, epoch_ms=1000) is None
    files.write_bytes(f"{DIRECTORY}/cnc.dat", bytes(100))
    assert waiting.step(1, epoch_ms=1000) is None
    files.delete(f"{DIRECTORY}/cnc.dat")
    driver = create(files)
    assert waiting.step(2, epoch_ms=1000) is None
    driver.signal_ready()
    assert waiting.step(3, epoch_ms=1000) is None
    driver.to_driver.consumer_heartbeat_ms = 900
    cnc = waiting.step(4, epoch_ms=1000)
    assert cnc is not None
    assert cnc.path == f"{DIRECTORY}/cnc.dat"


def test_attaching_waits_while_the_file_is_shorter_than_it_says(files):
    driver = create(files)
    driver.signal_ready()
    driver.to_driver.consumer_heartbeat_ms = 900
    whole = files.read_bytes(f"{DIRECTORY}/cnc.dat")
    files.write_bytes(f"{DIRECTORY}/cnc.dat", whole[:-8192])
    waiting = attach(files)
    assert waiting.step(0, epoch_ms=1000) is None
    files.write_bytes(f"{DIRECTORY}/cnc.dat", whole)
    assert waiting.step(1, epoch_ms=1000) is not None


@pytest.mark.parametrize(
    ("heartbeat", "reason"),
    [(-1, "has been shut down"), (0, "not given its first heartbeat"), (1000, "heartbeat is 10001 ms old")],
)
def test_attaching_to_a_dead_driver_fails_once_the_timeout_has_passed(files, heartbeat, reason):
    driver = create(files)
    driver.signal_ready()
    driver.to_driver.consumer_heartbeat_ms = heartbeat
    waiting = attach(files)
    now_ns = 0
    while now_ns < 10_000_000_000:
        assert waiting.step(now_ns, epoch_ms=11_001) is None
        now_ns += 100 * ATTACH_POLL_INTERVAL_NS
    with pytest.raises(DriverTimeout, match=reason) as caught:
        waiting.step(10_000_000_000, epoch_ms=11_001)
    assert caught.value.timeout == 10.0


def test_attaching_maps_the_new_file_of_a_restarted_driver(files):
    old = create(files)
    old.signal_ready()
    old.to_driver.consumer_heartbeat_ms = -1
    waiting = attach(files)
    assert waiting.step(0, epoch_ms=1000) is None
    files.delete(f"{DIRECTORY}/cnc.dat")
    new = create(files)
    new.to_driver.consumer_heartbeat_ms = 1000
    new.signal_ready()
    cnc = waiting.step(1, epoch_ms=1000)
    assert cnc is not None
    assert cnc.is_driver_active(now_ms=11_000, timeout_ms=10_000)
    assert not cnc.is_driver_active(now_ms=11_001, timeout_ms=10_000)


@pytest.mark.parametrize("name", ["counters_metadata_length", "counters_values_length", "error_log_length"])
def test_sections_whose_words_would_not_be_aligned_make_no_file(files, name):
    driver = create(files)
    driver.signal_ready()
    offset = getattr(layout, f"CNC_{name.upper()}_OFFSET")
    path = f"{DIRECTORY}/cnc.dat"
    buffer = files.map(path)
    buffer.put_i32(offset, buffer.get_i32(offset) + 4)
    with pytest.raises(ConfigurationError, match="whole number of 8-byte words"):
        CncFile.map(files, DIRECTORY)
