"""A store whose files cannot be mapped, like those of any remote store; it keeps its files in a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstem.store import StoredFile


class RemoteStore(LocalStore):
    """Counts the operations on it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, f"remote://{directory.name}")
        self.reads: list[tuple[str, int, int]] = []
        self.lists = 0

    def read(self, name: str, start: int, end: int) -> bytes:
        self.reads.append((name, start, end))
        return super().read(name, start, end)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        self.lists += 1
        return super().list(prefix, recursive=recursive)

    def local_path(self, name: str = "") -> Path | None:
        return None
