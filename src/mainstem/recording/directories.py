"""From a path or URL to the archive of one directory, whatever its store is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.served import ServedArchive
from mainstem.store.http import HttpStore
from mainstem.store.local import LocalStore
from mainstem.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.recording.archive import Archive


def directory_archive(
    place: Path | str, options: Mapping[str, str] | None = None, *, keeps_listing: bool = False
) -> DirectoryArchive:
    """The archive of the directory at a path or URL."""
    store = open_store(place, options)
    return (
        ServedArchive(store) if isinstance(store, HttpStore) else DirectoryArchive(store, keeps_listing=keeps_listing)
    )


def archive_of(place: Archive | os.PathLike[str] | str) -> Archive:
    """The archive of the directory at a path or URL; an archive is returned as it is."""
    if isinstance(place, os.PathLike):
        return DirectoryArchive(LocalStore(Path(place)))
    return directory_archive(place) if isinstance(place, str) else place
