"""A driver's files without a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.memory.counters import CountersManager
from mainstem.aeron import counters as names
from mainstem.aeron.cnc import CncFile
from mainstem.aeron.files import MappedFiles
from mainstem.aeron.logbuffer import LogBuffers, LogParameters, LogType

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.aeron.counters import CounterType

TERM = 1 << 16


class DriverFiles:
    """Files, laid out as a driver would."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.files = MappedFiles()
        for root in ("publications", "images"):
            (directory / root).mkdir(exist_ok=True)
        self.cnc = CncFile.create(
            self.files, self.directory, client_liveness_timeout_ns=10**10, start_timestamp_ms=5, pid=77
        )
        self.cnc.to_driver.consumer_heartbeat_ms = 1_000
        self.counters = CountersManager(self.cnc.counters_metadata, self.cnc.counters_values)
        self.cnc.signal_ready()

    def counter(self, kind: CounterType, registration_id: int, value: int) -> int:
        spec = names.stream_counter(kind, registration_id, session_id=3, stream_id=4, channel="aeron:udp?endpoint=a:1")
        return self.counters.allocate(*spec, now_ms=0, registration_id=registration_id, value=value)

    def log(self, path: str, registration_id: int, log_type: LogType) -> LogBuffers:
        parameters = LogParameters(
            correlation_id=registration_id,
            session_id=3,
            stream_id=4,
            initial_term_id=9,
            term_length=TERM,
            mtu=1408,
            log_type=log_type,
            publication_window_length=4096,
        )
        return LogBuffers.create(self.files.create(path, parameters.log_length), parameters)
