"""Where a query reads: paths, URLs and patterns of them, and the archives that are there now."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError
from mainstem.recording.opening import archives_at, open_archive
from mainstem.store import is_url, open_store
from mainstem.store.threads import in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mainstem.recording import RecordingDescriptor
    from mainstem.recording.archive import Archive

WILD = frozenset("*?[")
# A pattern that meets more directories than this at one level is a mistake, and each costs a request.
MAX_DIRECTORIES = 100_000


@dataclass
class Place:
    """An archive that a query reads, and what it held when it was last listed."""

    key: str
    archive: Archive
    url: str
    descriptors: list[RecordingDescriptor] = field(default_factory=list)
    by_id: dict[int, RecordingDescriptor] = field(default_factory=dict)


class Places:
    """The archives of some paths, listed anew by ``refresh``; those that come are opened, those that went are closed."""

    def __init__(self, paths: tuple[str, ...], options: Mapping[str, str]) -> None:
        self._paths, self._options = paths, options
        self._opened: dict[str, list[Archive]] = {}
        self._places: dict[str, Place] = {}

    def refresh(self) -> dict[str, Place]:
        """The places by their archive's key. Those whose recordings changed have another list of descriptors than before."""
        urls: dict[str, bool] = {}
        for path in self._paths:
            if is_pattern(path):
                urls |= dict.fromkeys(matches(path, self._options), False)
            else:
                urls[path] = True
        for url in set(self._opened) - set(urls):
            for archive in self._opened.pop(url):
                archive.close()
        # What a pattern meets may be no archive, or none yet.
        unknown = [url for url in urls if not self._opened.get(url)]
        in_threads(self._open, unknown)
        for url in unknown:
            if urls[url] and not self._opened.get(url):
                # Of a path that is named and has nothing the error comes with the first use.
                self._opened[url] = [open_archive(url, self._options, keeps_listing=True)]
        places: dict[str, Place] = {}
        for url in urls:
            for archive in self._opened.get(url, []):
                key = archive.archive_id
                if key not in places:
                    known = self._places.get(key)
                    places[key] = known if known is not None and known.archive is archive else Place(key, archive, url)
        self._places = places
        for place, descriptors in zip(places.values(), in_threads(_listed, list(places.values())), strict=True):
            if descriptors is not place.descriptors:
                place.descriptors = descriptors
                place.by_id = {each.recording_id: each for each in descriptors}
        return places

    def _open(self, url: str) -> None:
        # Kept at once, so that those of the other paths are closed where one raises.
        if archives := archives_at(url, self._options, keeps_listing=True):
            self._opened[url] = archives

    def close(self) -> None:
        """Closes every archive."""
        for archives in self._opened.values():
            for archive in archives:
                archive.close()
        self._opened.clear()
        self._places.clear()


@contextmanager
def recordings_at(
    paths: tuple[str, ...], options: Mapping[str, str]
) -> Iterator[list[tuple[Archive, RecordingDescriptor]]]:
    """Every recording of some paths with its archive, for the length of a block; no reader is opened."""
    places = Places(paths, options)
    try:
        yield [(place.archive, each) for place in places.refresh().values() for each in place.descriptors]
    finally:
        places.close()


def _listed(place: Place) -> list[RecordingDescriptor]:
    place.archive.refresh()
    return place.archive.recordings()


def is_pattern(path: str) -> bool:
    """Whether a path has wildcards; a local directory that has such a name is itself, and a URL's ``?`` begins its options."""
    if is_url(path):
        return bool(WILD & set(path.partition("?")[0]))
    return bool(WILD & set(path)) and not Path(path).exists()


def matches(pattern: str, options: Mapping[str, str]) -> Iterator[str]:
    """The directories that a pattern matches, level by level: ``*``, ``?`` and ``[...]`` never match a ``/``."""
    path, mark, query = pattern.partition("?") if is_url(pattern) else (pattern, "", "")
    parts = path.rstrip("/").split("/")
    first = next(i for i, part in enumerate(parts) if WILD & set(part))
    if is_url(pattern) and first < 3:
        raise ConfigurationError(f"{path!r}: a pattern matches below one bucket or server, whose name it must have")
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
