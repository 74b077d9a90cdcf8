"""The identity of an archive (a random id and its host's name, in a file of the recorder's directory), and its shipper's lock."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.errors import RecordingError
from mainstem.recording.archive import IDENTITY_FILE
from mainstem.recording.shipping.chunks import MALFORMED
from mainstem.recording.shipping.layout import is_archive_id, nonce
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from pathlib import Path

LOCK_FILE = "mainstem-shipper.lock"


@dataclass(frozen=True, slots=True)
class ArchiveIdentity:
    """``id`` stays the same wherever the directory is moved; ``host`` created it."""

    id: str
    host: str


def identity_of(directory: Path, disk: Disk = DISK) -> ArchiveIdentity:
    """The identity of a directory, created if missing. Raises RecordingError if the file holds something else."""
    path = directory / IDENTITY_FILE
    if not path.exists():
        fresh = directory / f".{IDENTITY_FILE}.{nonce()}.new"
        fd = disk.open(fresh)
        try:
            disk.write(fd, (json.dumps({"id": nonce(), "host": platform.node()}) + "\n").encode(), 0)
            # Shipped objects use this name, so it must survive a power failure.
            disk.sync(fd)
        finally:
            disk.close(fd)
        try:
            # Of two programs at once one gives the identity, and both read it.
            disk.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            disk.delete(fresh)
        disk.sync_directory(directory)
    try:
        value = json.loads(path.read_text())
        identity = ArchiveIdentity(str(value["id"]), str(value["host"]))
    except MALFORMED as error:
        raise RecordingError(f"{path} is not an archive identity: {error}") from error
    if not is_archive_id(identity.id):
        raise RecordingError(f"{path}: {identity.id!r} is not an archive id")
    return identity


class ShipperLock:
    """Keeps other shippers out of a directory until it closes or the process dies."""

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK_FILE
        self._fd = DISK.open(path)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = os.pread(self._fd, 1024, 0).decode("utf-8", "replace").strip()
            os.close(self._fd)
            raise RecordingError(f"{directory} is already being shipped by {other or 'another process'}") from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
