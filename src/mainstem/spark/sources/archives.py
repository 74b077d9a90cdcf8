"""Opens the archives of a query, which are given as paths, URLs and patterns."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError
from mainstem.recording.open_archives import open_archives
from mainstem.spark.sources.options import WILD, is_pattern
from mainstem.store import is_url, open_store
from mainstem.store.threads import in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mainstem.recording import RecordingDescriptor
    from mainstem.recording.archive import Archive
    from mainstem.spark.sources.options import RecordingOptions

# Each directory costs a request. A pattern that matches more at one level is a mistake.
MAX_DIRECTORIES = 100_000


@dataclass
class OpenArchive:
    """An open archive, and its recordings as of the last refresh."""

    key: str
    archive: Archive
    url: str
    descriptors: list[RecordingDescriptor] = field(default_factory=list)
    by_id: dict[int, RecordingDescriptor] = field(default_factory=dict)


class ArchiveSet:
    """The archives at several locations. ``refresh`` lists them, opens new ones and closes missing ones."""

    def __init__(self, options: RecordingOptions) -> None:
        self._locations, self._options = options.paths, replace(options.read, keep_listing=True)
        self._opened: dict[str, list[Archive]] = {}
        self._archives: dict[str, OpenArchive] = {}

    def refresh(self) -> dict[str, OpenArchive]:
        """Return the archives by key. If the recordings of one have changed, its ``descriptors`` is a new list."""
        urls: dict[str, bool] = {}
        for location in self._locations:
            if is_pattern(location):
                urls |= dict.fromkeys(matches(location, self._options.store), True)
            else:
                urls[location] = False
        for url in set(self._opened) - set(urls):
            for archive in self._opened.pop(url):
                archive.close()

        def open_url(url: str) -> None:
            # Stored at once, so that ``close`` closes it if another location raises. A pattern may not match any archive yet.
            self._opened[url] = open_archives(url, replace(self._options, allow_missing=urls[url]))

        in_threads(open_url, [url for url in urls if not self._opened.get(url)])
        archives: dict[str, OpenArchive] = {}
        for url in urls:
            for archive in self._opened[url]:
                key = archive.archive_id
                if key not in archives:
                    known = self._archives.get(key)
                    is_known = known is not None and known.archive is archive
                    archives[key] = known if is_known and known is not None else OpenArchive(key, archive, url)
        self._archives = archives
        for each, descriptors in zip(archives.values(), in_threads(_listed, list(archives.values())), strict=True):
            if descriptors is not each.descriptors:
                each.descriptors = descriptors
                each.by_id = {descriptor.recording_id: descriptor for descriptor in descriptors}
        return archives

    def close(self) -> None:
        for archives in self._opened.values():
            for archive in archives:
                archive.close()
        self._opened.clear()
        self._archives.clear()


@contextmanager
def recordings_at(options: RecordingOptions) -> Iterator[list[tuple[Archive, RecordingDescriptor]]]:
    """Yield all recordings at the locations with their archives, which are closed after the block."""
    archives = ArchiveSet(options)
    try:
        yield [(each.archive, descriptor) for each in archives.refresh().values() for descriptor in each.descriptors]
    finally:
        archives.close()


def _listed(opened: OpenArchive) -> list[RecordingDescriptor]:
    opened.archive.refresh()
    return opened.archive.recordings()


def matches(pattern: str, options: Mapping[str, str]) -> Iterator[str]:
    """Yield the directories that a pattern matches. ``*``, ``?`` and ``[...]`` never match ``/``."""
    path, mark, query = pattern.partition("?") if is_url(pattern) else (pattern, "", "")
    parts = path.rstrip("/").split("/")
    first = next(i for i, part in enumerate(parts) if WILD & set(part))
    if is_url(pattern) and first < 3:
        raise ConfigurationError(f"{path!r}: the bucket or server of a pattern must not have wildcards")
    root = "/".join(parts[:first]) or ("/" if path.startswith("/") else ".")
    store = open_store(root + mark + query, options)
    try:
        level = [""]
        for part in parts[first:]:
            if not WILD & set(part):
                level = [f"{each}/{part}".lstrip("/") for each in level]
                continue
            following: list[str] = []
            for each in level:
                names = store.directories(each)
                following += (name for name in names if fnmatchcase(name.rpartition("/")[2], part))
                if len(following) > MAX_DIRECTORIES:
                    raise ConfigurationError(f"{path!r} matches more than {MAX_DIRECTORIES} directories")
            level = following
    finally:
        store.close()
    base = "" if root in ("/", ".") else root
    yield from sorted(name if root == "." else f"{base}/{name}{mark}{query}" for name in level)
