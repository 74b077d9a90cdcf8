"""Opens the archives at a location: a recorder's directory, a store that recorders ship to, a server, or a running archive.

The code that reads an ``Archive`` needs neither the location nor its ``ReadOptions``.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem._internal.entry_points import entry_point
from mainstem.errors import ConfigurationError
from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.catalog import CATALOG_FILE
from mainstem.recording.served_archive import ServedArchive
from mainstem.recording.shipping.layout import MANIFESTS, archive_ids, is_archive_id
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.tiered_archive import TieredArchive
from mainstem.store import open_store
from mainstem.store.http import HttpStore
from mainstem.store.open_store import ARCHIVE_SCHEME, scheme_of
from mainstem.store.options import TAIL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mainstem.recording.archive import Archive
    from mainstem.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to open the archives at a location.

    Attributes:
        store: Options of the store.
        tail: The location where the same archive grows. Shipped data is read from the store, and the rest from there.
        tail_store: Options of the tail's store.
        archive_id: Open only this archive of several.
        keep_listing: Whether segments are listed only once until ``refresh``, for planning over many recordings.
        allow_missing: Whether to return no archive if there is none, instead of one that raises RecordingError when it is read.
    """

    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    tail: str = ""
    tail_store: Mapping[str, str] = field(default_factory=dict, repr=False)
    archive_id: str = ""
    keep_listing: bool = False
    allow_missing: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str] | None) -> ReadOptions:
        """Separate ``tail`` and ``tail.*`` from the store's options.

        Raises ConfigurationError if there is a ``tail.*`` option without ``tail``.
        """
        store, tail_store, tail = {}, {}, ""
        for name, value in (options or {}).items():
            if name.lower() == TAIL:
                tail = value
            elif name.lower().startswith(f"{TAIL}."):
                tail_store[name[len(TAIL) + 1 :]] = value
            else:
                store[name] = value
        if tail_store and not tail:
            raise ConfigurationError(
                f"{TAIL}.{next(iter(tail_store))} is an option of the tail, but there is no {TAIL}="
            )
        return cls(store=store, tail=tail, tail_store=tail_store)


def open_archives(location: Path | str, options: ReadOptions | None = None) -> list[Archive]:
    """Open the archives at a path or URL in any layout. The caller closes them.

    A tail belongs to the archive with the same id, or to the only archive. Raises ConfigurationError if the URL or an option is
    invalid, or if there is more than one archive and none has the tail's id or ``options.archive_id``.
    """
    options = options or ReadOptions()
    if scheme_of(str(location)) == ARCHIVE_SCHEME:
        if options.tail:
            raise ConfigurationError(f"{TAIL}: {location} is the archive that grows; it has no other tail")
        return [entry_point(ARCHIVE_SCHEME)(str(location), options.store)]
    with ExitStack() as stack:
        store = open_store(location, options.store)
        stack.callback(store.close)
        archives = _archives_in(store, location, options)
        for archive in archives:
            stack.callback(archive.close)
        if options.archive_id and len(archives) > 1:
            archives = [each for each in archives if each.archive_id == options.archive_id]
            if not archives:
                raise ConfigurationError(f"{location} has no archive {options.archive_id}")
        if options.tail and archives:
            tail = _directory(open_store(options.tail, options.tail_store), ReadOptions())
            stack.callback(tail.close)
            archives = _with_tail(archives, tail, location)
        if archives:
            stack.pop_all()
    return archives


def _directory(store: Store, options: ReadOptions) -> DirectoryArchive:
    if isinstance(store, HttpStore):
        return ServedArchive(store)
    return DirectoryArchive(store, keep_listing=options.keep_listing)


def _archives_in(store: Store, location: Path | str, options: ReadOptions) -> list[Archive]:
    try:
        store.size(CATALOG_FILE)
    except FileNotFoundError:
        if not isinstance(store, HttpStore):  # a server does not list directories
            if ids := archive_ids(store):
                return [ShippedArchive(store, each) for each in ids]
            parent, _, name = str(location).rstrip("/").rpartition("/")
            if is_archive_id(name) and MANIFESTS in store.directories():
                store.close()
                return [ShippedArchive(open_store(parent or ".", options.store), name)]
        if options.allow_missing:
            return []
    return [_directory(store, options)]


def _with_tail(archives: list[Archive], tail: Archive, location: Path | str) -> list[Archive]:
    grows = next((each for each in archives if len(archives) == 1 or each.archive_id == tail.archive_id), None)
    if grows is None:
        raise ConfigurationError(f"{TAIL}={tail.url} is archive {tail.archive_id}, of which {location} has nothing")
    return [TieredArchive(each, tail) if each is grows else each for each in archives]
