"""CnC files: whatever another process left in one, it is refused, or each of its parts is read to its end or a named error.

The input changes the file of a driver with counters, errors, commands and responses (patching.py).
"""

from __future__ import annotations

from contextlib import suppress

from patching import patch, patched

from mainstem._core import layout
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.counters import CountersManager
from mainstem.aeron import counters
from mainstem.aeron.cnc import CncFile, CncLayout
from mainstem.aeron.directory import cnc_path
from mainstem.aeron.error_log import DistinctErrorLog, read_errors
from mainstem.aeron.files import MemoryFiles
from mainstem.aeron.loss_report import LossReport, read_losses
from mainstem.errors import ConfigurationError

DIRECTORY = "/driver"
SMALL = CncLayout(
    to_driver_length=1024 + layout.RING_TRAILER_LENGTH,
    to_clients_length=1024 + layout.BROADCAST_TRAILER_LENGTH,
    counters_metadata_length=8 * layout.COUNTER_METADATA_LENGTH,
    counters_values_length=8 * layout.COUNTER_VALUE_LENGTH,
    error_log_length=1024,
)


def _file() -> bytes:
    files = MemoryFiles()
    cnc = CncFile.create(
        files, DIRECTORY, client_liveness_timeout_ns=10**10, start_timestamp_ms=1, pid=2, cnc_layout=SMALL
    )
    manager = CountersManager(cnc.counters_metadata, cnc.counters_values)
    for spec in (
        counters.send_channel_status("aeron:ipc", ""),
        counters.local_address(0, "127.0.0.1:1", receive=False),
        counters.client_heartbeat(7),
    ):
        manager.allocate(*spec, now_ms=0)
    DistinctErrorLog(cnc.error_log).record("an error", now_ms=5)
    cnc.to_driver.write(4, bytes(24))
    cnc.transmitter().transmit(0x0F04, bytes(8))
    cnc.signal_ready()
    return files.read_bytes(cnc_path(DIRECTORY))


def _losses() -> bytes:
    buffer = AtomicBuffer(bytearray(1024))
    LossReport(buffer).create_entry(
        bytes_lost=64, now_ms=5, session_id=1, stream_id=2, channel="aeron:ipc", source="127.0.0.1:1"
    )
    return buffer.get_bytes(0, buffer.capacity)


FILE, LOSSES = _file(), _losses()
SEEDS = [
    patch(offset, value)
    for offset in range(0, 64, 4)
    for value in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f")
] + [patch(len(FILE) // 2, b"\xff" * 8) + patch(200, b"\1\0\0\0"), patch(1024, b"\0\0\0\x80" * 2)]


def target(data: bytes) -> None:
    """Process one input."""
    read_losses(AtomicBuffer(bytearray(patched(LOSSES, data).ljust(1024, b"\0"))))
    files = MemoryFiles()
    files.write_bytes(cnc_path(DIRECTORY), patched(FILE, data))
    try:
        cnc = CncFile.map(files, DIRECTORY)
    except ConfigurationError:
        return
    if cnc is None:
        return
    list(counters.snapshot(cnc.counters()))
    counters.find_local_addresses(cnc.counters(), 0)
    read_errors(cnc.error_log)
    receiver = cnc.receiver()
    for _ in range(64):
        if receiver.receive(lambda *_: None, 10) <= 0:
            break
    # An impossible record length is an error, and so is a head or a tail that is not at the start of a record.
    with suppress(ValueError):
        cnc.to_driver.read(lambda *_: None)
    with suppress(ValueError):
        cnc.to_driver.unblock()
    with suppress(ValueError):
        cnc.to_driver.write(4, b"command")
    cnc.close()
