"""A data file below a URL that ``mainstem.store`` opens: written in place on this machine, else here first and then put there."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.errors import StoreError

if TYPE_CHECKING:
    from mainstem.store.base import Store


class NewFile:
    """One new file of a store. No reader knows its name before it is committed, so it need not appear at once.

    Args:
        store: Where it goes.
        name: Its name there, which no other file has.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store, self.name = store, name
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
            path.parent.mkdir(parents=True, exist_ok=True)
            self.sink = path.open("xb")
        except OSError as error:
            raise StoreError(store.url, f"{name}: {error.strerror}") from error

    def close(self) -> None:
        """Ends it: on the device where it is local, else in the store."""
        self.sink.flush()
        if self._is_local:
            os.fsync(self.sink.fileno())
        self.sink.close()
        self.size = self._path.stat().st_size
        if not self._is_local:
            try:
                self._store.put(self.name, self._path)
            finally:
                self._path.unlink()

    def discard(self) -> None:
        """Deletes it, as far as that is possible."""
        self.sink.close()
        self._path.unlink(missing_ok=True)
        if not self._is_local:
            with suppress(StoreError):
                self._store.delete(self.name)
