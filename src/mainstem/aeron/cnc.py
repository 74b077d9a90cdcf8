"""The command-and-control file, shared by a driver and its clients (docs/protocols/aeron.md, 2; CnC version 0.2.0).

Theory of operation. ``cnc.dat`` has a metadata section and five others: the to-driver ring buffer, the to-clients broadcast
buffer, the counters' metadata, the counters' values, and the error log.

The driver's conductor creates the file and writes the metadata once. It is the only writer of the to-clients buffer, the metadata
of the counters, and the error log. Clients append to the to-driver buffer and write the values of their own counters, including
their heartbeats. The driver's agents write all other counters.

The driver stores the version last, with release, after everything else is complete and it has written its first heartbeat. A client
that reads version 0 maps the file again later. The heartbeat is 0 before the first one and -1 after a clean shutdown. A restarted
driver creates a new file under the same name. A client that waits for a driver maps the new file; a client of the old driver sees
the old heartbeat stop.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._core.memory.broadcast import BroadcastReceiver, BroadcastTransmitter
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.counters import CountersReader
from mainstem._core.memory.ring_buffer import ManyToOneRingBuffer
from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem._internal.frozen import frozen
from mainstem.aeron.directory import cnc_path
from mainstem.errors import ConfigurationError, DriverTimeout

if TYPE_CHECKING:
    from mainstem.aeron.files import Files

CNC_VERSION_MAJOR = layout.CNC_VERSION >> 16
NOT_READY = 0
DRIVER_SHUT_DOWN = -1  # the value of the consumer heartbeat after a clean shutdown
ATTACH_POLL_INTERVAL_NS = 16 * NS_PER_MS  # the reference client's interval
WORD_LENGTH = 8  # every section begins at a multiple of 64 bits
MAX_CNC_LENGTH = (1 << 31) - 1  # implementations in other languages index the file with signed 32-bit integers


@frozen
class CncLayout:
    """The lengths of the five sections in bytes, including trailers, and the page size of the file."""

    to_driver_length: int = (1 << 20) + layout.RING_TRAILER_LENGTH
    to_clients_length: int = (1 << 20) + layout.BROADCAST_TRAILER_LENGTH
    counters_metadata_length: int = 32 << 20
    counters_values_length: int = 8 << 20
    error_log_length: int = 4 << 20
    page_size: int = 4096

    def __post_init__(self) -> None:
        for name, length, trailer in (
            ("to-driver buffer", self.to_driver_length, layout.RING_TRAILER_LENGTH),
            ("to-clients buffer", self.to_clients_length, layout.BROADCAST_TRAILER_LENGTH),
        ):
            capacity = length - trailer
            if capacity < 64 or capacity & (capacity - 1):
                raise ConfigurationError(f"{name}: {length} is not a power of two (of at least 64) plus {trailer}")
        counters = self.counters_values_length // layout.COUNTER_VALUE_LENGTH
        if counters < 1 or self.counters_metadata_length < counters * layout.COUNTER_METADATA_LENGTH:
            raise ConfigurationError(
                f"counters: {self.counters_metadata_length} bytes of metadata do not cover {counters} counters"
            )
        for name, length in (
            ("counters' metadata", self.counters_metadata_length),
            ("counters' values", self.counters_values_length),
            ("error log", self.error_log_length),
        ):
            if length % WORD_LENGTH:
                raise ConfigurationError(f"{name}: {length} bytes are not a whole number of {WORD_LENGTH}-byte words")
        if self.error_log_length < 0 or self.page_size < 1 or self.page_size & (self.page_size - 1):
            raise ConfigurationError(
                f"page size {self.page_size} is not a power of two, or the error log has no length"
            )
        if self.file_length > MAX_CNC_LENGTH:
            raise ConfigurationError(f"CnC file of {self.file_length} bytes exceeds the maximum of {MAX_CNC_LENGTH}")

    @property
    def sections(self) -> tuple[int, int, int, int, int]:
        return (
            self.to_driver_length,
            self.to_clients_length,
            self.counters_metadata_length,
            self.counters_values_length,
            self.error_log_length,
        )

    @property
    def content_length(self) -> int:
        return layout.CNC_METADATA_LENGTH + sum(self.sections)

    @property
    def file_length(self) -> int:
        return -(-self.content_length // self.page_size) * self.page_size


class CncFile:
    """A mapped CnC file, from `create` (the driver) or `map` (everyone else).

    ``to_driver`` is the ring buffer of commands. The other sections are raw buffers, which methods of this class wrap.
    """

    def __init__(self, files: Files, path: str, buffer: AtomicBuffer, cnc_layout: CncLayout) -> None:
        self.path = path
        self.layout = cnc_layout
        self.buffer = buffer
        self._files = files
        offset = layout.CNC_METADATA_LENGTH
        parts = []
        for length in cnc_layout.sections:
            parts.append(AtomicBuffer(buffer, offset, length))
            offset += length
        self._parts = parts
        to_driver, self.to_clients_buffer, self.counters_metadata, self.counters_values, self.error_log = parts
        self.to_driver = ManyToOneRingBuffer(to_driver)

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        *,
        client_liveness_timeout_ns: int,
        start_timestamp_ms: int,
        pid: int,
        cnc_layout: CncLayout | None = None,
    ) -> CncFile:
        """Create the file with everything but the version. Clients keep waiting until `signal_ready`."""
        cnc_layout = cnc_layout or CncLayout()
        path = cnc_path(directory)
        # The file is 45 MB, mostly space for counters, and few of its pages are ever touched.
        buffer = files.create(path, cnc_layout.file_length, prefault=False)
        for at, value in (
            (layout.CNC_TO_DRIVER_LENGTH_OFFSET, cnc_layout.to_driver_length),
            (layout.CNC_TO_CLIENTS_LENGTH_OFFSET, cnc_layout.to_clients_length),
            (layout.CNC_COUNTERS_METADATA_LENGTH_OFFSET, cnc_layout.counters_metadata_length),
            (layout.CNC_COUNTERS_VALUES_LENGTH_OFFSET, cnc_layout.counters_values_length),
            (layout.CNC_ERROR_LOG_LENGTH_OFFSET, cnc_layout.error_log_length),
            (layout.CNC_PAGE_SIZE_OFFSET, cnc_layout.page_size),
        ):
            buffer.put_i32(at, value)
        buffer.put_i64(layout.CNC_CLIENT_LIVENESS_TIMEOUT_OFFSET, client_liveness_timeout_ns)
        buffer.put_i64(layout.CNC_START_TIMESTAMP_OFFSET, start_timestamp_ms)
        buffer.put_i64(layout.CNC_PID_OFFSET, pid)
        return cls(files, path, buffer, cnc_layout)

    @classmethod
    def map(cls, files: Files, directory: str) -> CncFile | None:
        """Map the file. Return None if it is missing, too short or not ready.

        Raises ConfigurationError if it cannot be opened, has another major version, or has impossible lengths.
        """
        path = cnc_path(directory)
        try:
            if files.size(path) <= layout.CNC_METADATA_LENGTH:
                return None
            buffer = files.map(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}; {_why_unusable(directory)}") from None
        try:
            version = buffer.get_i32_acquire(layout.CNC_VERSION_OFFSET)
            if version == NOT_READY:
                files.unmap(buffer)
                return None
            if version >> 16 != CNC_VERSION_MAJOR:
                text = ".".join(str(version >> shift & 0xFF) for shift in (16, 8, 0))
                raise ConfigurationError(f"{path}: CnC version {text} is not one of {CNC_VERSION_MAJOR}.x.x")
            cnc_layout = CncLayout(
                to_driver_length=buffer.get_i32(layout.CNC_TO_DRIVER_LENGTH_OFFSET),
                to_clients_length=buffer.get_i32(layout.CNC_TO_CLIENTS_LENGTH_OFFSET),
                counters_metadata_length=buffer.get_i32(layout.CNC_COUNTERS_METADATA_LENGTH_OFFSET),
                counters_values_length=buffer.get_i32(layout.CNC_COUNTERS_VALUES_LENGTH_OFFSET),
                error_log_length=buffer.get_i32(layout.CNC_ERROR_LOG_LENGTH_OFFSET),
                page_size=buffer.get_i32(layout.CNC_PAGE_SIZE_OFFSET),
            )
            if buffer.capacity < cnc_layout.content_length:
                files.unmap(buffer)
                return None
            return cls(files, path, buffer, cnc_layout)
        except ConfigurationError:
            files.unmap(buffer)
            raise

    def signal_ready(self) -> None:
        """Store the version so that clients attach. This is the driver's last step, after its first heartbeat."""
        self.buffer.put_i32_release(layout.CNC_VERSION_OFFSET, layout.CNC_VERSION)

    @property
    def version(self) -> int:
        """``major << 16 | minor << 8 | patch``; 0 before the driver is ready."""
        return self.buffer.get_i32_acquire(layout.CNC_VERSION_OFFSET)

    @property
    def client_liveness_timeout_ns(self) -> int:
        return self.buffer.get_i64(layout.CNC_CLIENT_LIVENESS_TIMEOUT_OFFSET)

    @property
    def start_timestamp_ms(self) -> int:
        return self.buffer.get_i64(layout.CNC_START_TIMESTAMP_OFFSET)

    @property
    def pid(self) -> int:
        return self.buffer.get_i64(layout.CNC_PID_OFFSET)

    def transmitter(self) -> BroadcastTransmitter:
        return BroadcastTransmitter(self.to_clients_buffer)

    def receiver(self) -> BroadcastReceiver:
        return BroadcastReceiver(self.to_clients_buffer)

    def counters(self) -> CountersReader:
        return CountersReader(self.counters_metadata, self.counters_values)

    def is_driver_active(self, *, now_ms: int, timeout_ms: int) -> bool:
        """Return whether the driver's heartbeat is younger than ``timeout_ms``; ``now_ms`` is epoch time."""
        heartbeat = self.to_driver.consumer_heartbeat_ms
        return heartbeat > 0 and now_ms - heartbeat <= timeout_ms

    def close(self) -> None:
        """Unmap the file. Later uses of its buffers raise IndexError."""
        if self._parts:
            for part in self._parts:
                part.close()
            self._parts = []
            self._files.unmap(self.buffer)


class CncAttach:
    """A non-blocking wait for a driver (docs/protocols/aeron.md, 2.3).

    Call ``step`` about every ``ATTACH_POLL_INTERVAL_NS``. The wait starts at ``now_ns``; ``timeout_ns`` and the driver timeout
    limit it.
    """

    def __init__(
        self, files: Files, directory: str, *, driver_timeout_ms: int, now_ns: int, timeout_ns: int | None = None
    ) -> None:
        self._files = files
        self._directory = directory
        self._timeout_ms = driver_timeout_ms
        driver_timeout_ns = driver_timeout_ms * NS_PER_MS
        self._wait_ns = driver_timeout_ns if timeout_ns is None else min(timeout_ns, driver_timeout_ns)
        self._deadline_ns = now_ns + self._wait_ns

    def step(self, now_ns: int, *, epoch_ms: int) -> CncFile | None:
        """Return the file once its driver is alive, else None. Raises DriverTimeout when the time is up."""
        cnc = CncFile.map(self._files, self._directory)
        if cnc is None:
            waiting_for = f"{cnc_path(self._directory)} is not there or not ready"
        elif cnc.is_driver_active(now_ms=epoch_ms, timeout_ms=self._timeout_ms):
            return cnc
        else:
            # The next step maps the file again, because a restarted driver creates a new one under the same name.
            waiting_for = _why_inactive(cnc, epoch_ms)
            cnc.close()
        if now_ns >= self._deadline_ns:
            timeout = self._wait_ns / NS_PER_SECOND
            raise DriverTimeout(
                f"no media driver in {self._directory} within {timeout:g} s: {waiting_for}", timeout=timeout
            )
        return None


def _why_unusable(directory: str) -> str:
    if not os.path.isdir(directory):
        return f"{directory} is not a directory"
    return f"{directory} is the directory of another user, or not a driver's"


def _why_inactive(cnc: CncFile, epoch_ms: int) -> str:
    heartbeat = cnc.to_driver.consumer_heartbeat_ms
    if heartbeat == DRIVER_SHUT_DOWN:
        return "the driver has been shut down"
    if heartbeat == 0:
        return "the driver has not given its first heartbeat"
    return f"the driver's last heartbeat is {epoch_ms - heartbeat} ms old"
