"""Snapshots of a driver's directory. Files are mapped privately, so this module never writes to them.

The directory's owner may truncate files while they are being read. In that case, reading raises ConfigurationError.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainstem._core.layout import COUNTER_ALLOCATED
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._internal.guarded_map import GuardedMap
from mainstem.aeron import directory as places
from mainstem.aeron.cnc import CncFile
from mainstem.aeron.counters import CounterSnapshot, CounterType
from mainstem.aeron.error_log import read_errors
from mainstem.aeron.files import MappedFiles
from mainstem.aeron.loss_report import read_losses
from mainstem.aeron.tools.log_state import LogState, read_log_state
from mainstem.aeron.tools.snapshot import Snapshot, stream_key
from mainstem.errors import ConfigurationError, DriverTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem._core.memory.counters import CountersReader
    from mainstem.aeron.error_log import ErrorObservation
    from mainstem.aeron.loss_report import LossEntry


MAX_LOSS_REPORT = 64 << 20  # bytes to read at most; a driver's own loss report is 1 MiB


class ReadingFiles(MappedFiles):
    """Files that are mapped for reading only. Read permission is enough, and stores remain in this process."""

    def map(self, path: str) -> AtomicBuffer:
        """Map a file. The memory shows what other processes write to it. Raises OSError."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Reserve no swap space for pages that are never written.
            flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
            length, prot = os.fstat(descriptor).st_size, mmap.PROT_READ | mmap.PROT_WRITE
            mapping = GuardedMap(descriptor, length, flags=flags, prot=prot)
        except ValueError:
            raise OSError(errno.EIO, "it is empty or was truncated while being opened", path) from None
        finally:
            os.close(descriptor)
        buffer = AtomicBuffer(mapping)
        self._mappings[id(buffer)] = (buffer, mapping)
        return buffer

    @contextmanager
    def reading(self, buffer: AtomicBuffer, path: str) -> Iterator[None]:
        """Raise ConfigurationError if the file was truncated while the block read it, even if the block did not notice."""
        mapping = self._mappings[id(buffer)][1]
        try:
            yield
        finally:
            if isinstance(mapping, GuardedMap) and mapping.was_cut:
                raise ConfigurationError(f"{path} was truncated while being read")


class DirectoryReader:
    """A driver's directory, open for reading. If the driver restarts, the reader follows the new one.

    Raises DriverTimeout if there is no complete CnC file. The directory of a dead driver is readable, too.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._files = ReadingFiles()
        self._identity = (0, 0)
        self._cnc: CncFile | None = None
        self._open()

    def __enter__(self) -> DirectoryReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._cnc is not None:
            self._cnc.close()
            self._cnc = None

    def _open(self) -> CncFile:
        self.close()
        path = places.cnc_path(self.directory)
        try:
            status = os.stat(path)
            cnc = CncFile.map(self._files, self.directory)
        except PermissionError:
            raise DriverTimeout(f"no permission to read {path}") from None
        except FileNotFoundError:
            cnc = None
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}") from None
        if cnc is None:
            raise DriverTimeout(f"no media driver in {self.directory}: {path} does not exist or is not ready")
        self._identity = (status.st_ino, status.st_dev)
        self._cnc = cnc
        return cnc

    @property
    def cnc(self) -> CncFile:
        """The current CnC file, which is mapped again if another driver has replaced it."""
        try:
            status = os.stat(places.cnc_path(self.directory))
        except FileNotFoundError:
            status = None
        if self._cnc is None or (status is not None and (status.st_ino, status.st_dev) != self._identity):
            return self._open()
        return self._cnc

    def snapshot(self, *, epoch_ms: int, now_ns: int, logs: bool = False) -> Snapshot:
        cnc = self.cnc
        with self._files.reading(cnc.buffer, cnc.path):
            counters = read_counters(cnc.counters())
            free = None
            if logs and os.path.isdir(self.directory):
                status = os.statvfs(self.directory)
                free = status.f_bavail * status.f_frsize
            return Snapshot(
                directory=self.directory,
                epoch_ms=epoch_ms,
                now_ns=now_ns,
                version=cnc.version,
                pid=cnc.pid,
                start_ms=cnc.start_timestamp_ms,
                heartbeat_ms=cnc.to_driver.consumer_heartbeat_ms,
                client_liveness_timeout_ns=cnc.client_liveness_timeout_ns,
                counters=counters,
                logs=read_logs(self.directory, counters) if logs else {},
                free_space=free,
            )

    def errors(self, *, since_ms: int = 0) -> list[ErrorObservation]:
        cnc = self.cnc
        with self._files.reading(cnc.buffer, cnc.path):
            return read_errors(cnc.error_log, since_ms=since_ms)

    def losses(self) -> list[LossEntry]:
        path = places.loss_report_path(self.directory)
        try:
            # A mapping would allocate space for pages that the driver never wrote and, on a full file system, end the reading.
            with open(path, "rb") as file:
                report = file.read(MAX_LOSS_REPORT)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}") from None
        if not report:
            raise ConfigurationError(f"{path}: it is empty or was truncated while being opened")
        return read_losses(AtomicBuffer(bytearray(report)))


def read_error_file(path: str, *, offset: int = 0) -> list[ErrorObservation]:
    """Return the distinct errors in any file that has an error log at ``offset``. Raises ConfigurationError."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    errors = read_errors(AtomicBuffer(bytearray(data)))
    if not errors and any(data[:4]):
        raise ConfigurationError(f"{path} is not an error log: at {offset} it begins with {data[:4].hex()}")
    return errors


def read_counters(reader: CountersReader) -> tuple[CounterSnapshot, ...]:
    """Return all allocated counters. The values are read first, so that they are from nearly the same moment."""
    values = [(i, reader.value(i)) for i in reader]
    counters = []
    for counter_id, value in values:
        counter = CounterSnapshot(
            counter_id=counter_id,
            type_id=reader.type_id(counter_id),
            value=value,
            label=reader.label(counter_id),
            key=reader.key(counter_id),
            registration_id=reader.registration_id(counter_id),
            owner_id=reader.owner_id(counter_id),
            reference_id=reader.reference_id(counter_id),
        )
        if reader.state(counter_id) == COUNTER_ALLOCATED:  # it was not freed in the meantime
            counters.append(counter)
    return tuple(counters)


def read_logs(directory: str, counters: tuple[CounterSnapshot, ...]) -> dict[int, LogState]:
    """Return the logs of all streams that the counters name, each with the frame that the stream's first consumer reads next."""
    sent: dict[int, int] = {}
    followed: dict[int, int] = {}
    for counter in counters:
        if counter.type_id == CounterType.SENDER_POSITION:
            sent[counter.registration_id] = counter.value
        elif counter.type_id == CounterType.SUBSCRIBER_POSITION:
            lowest = followed.get(counter.reference_id, counter.value)
            followed[counter.reference_id] = min(lowest, counter.value)
    logs: dict[int, LogState] = {}
    for counter in counters:
        key = stream_key(counter)
        if key is None or key.registration_id in logs:
            continue
        own = key.registration_id
        if counter.type_id == CounterType.PUBLISHER_LIMIT:
            first_consumer = sent.get(own, followed.get(own))
            log = read_log_state(places.publication_path(directory, own), next_position=first_consumer)
        elif counter.type_id == CounterType.RECEIVER_POSITION:
            log = read_log_state(places.image_path(directory, own))
        else:
            continue
        if log is not None:
            logs[own] = log
    return logs
