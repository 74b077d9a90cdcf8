"""A data file below a URL that ``mainstem.store`` opens: written in place on this machine, else here first and then put there."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.errors import StoreError
from mainstem.store.disk import DISK

if TYPE_CHECKING:
    from mainstem.store.base import Store
    from mainstem.store.disk import Disk


class NewFile:
    """One new file of a store. No reader knows its name before it is committed, so it need not appear at once.

    Args:
        store: Where it goes.
        name: Its name there, which no other file has.
        disk: What a file on this machine is written through.
    """

    def __init__(self, store: Store, name: str, disk: Disk = DISK) -> None:
        self._store, self.name, self._disk = store, name, disk
        self._descriptor = -1
        self.size = 0
        path = store.local_path(name)
        self._is_local = path is not None
        if path is None:
            descriptor, text = tempfile.mkstemp(prefix="mainstem-", suffix=".parquet")
            self._path = Path(text)
            self.sink: Any = os.fdopen(descriptor, "wb")
            return
        self._path = path
        try:
            disk.make_directory(path.parent)
            self._descriptor = disk.open(path)
            self.sink = os.fdopen(self._descriptor, "wb", closefd=False)
        except OSError as error:
            raise StoreError(store.url, f"{name}: {error.strerror}") from error

    def close(self) -> None:
        self.sink.flush()
        if self._is_local:
            self._disk.sync(self._descriptor)
        self._close()
        if self._is_local:
            self._disk.sync_path(self._path.parent)
        self.size = self._path.stat().st_size
        if not self._is_local:
            try:
                self._store.put(self.name, self._path)
            finally:
                self._path.unlink()

    def _close(self) -> None:
        self.sink.close()
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        self._close()
        self._path.unlink(missing_ok=True)
        if not self._is_local:
            with suppress(StoreError):
                self._store.delete(self.name)
