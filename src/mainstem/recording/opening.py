"""From a URL and its options to an archive: one place, or one with the tail of another (``tail=``)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError
from mainstem.recording.catalog import CATALOG_FILE
from mainstem.recording.directories import directory_archive
from mainstem.recording.shipping.layout import MANIFESTS, is_archive_id
from mainstem.recording.shipping.shipped_archive import ShippedArchive, shipped_archives
from mainstem.recording.tailed import TailedArchive
from mainstem.store.http import HttpStore
from mainstem.store.opening import open_store
from mainstem.store.options import TAIL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mainstem.recording.archive import Archive


def open_archive(
    place: Path | str, options: Mapping[str, str] | None = None, *, keeps_listing: bool = False
) -> Archive:
    """The archive at a path or URL.

    Args:
        place: A directory of Mainstem's recorder or of Aeron Archive, or a place that is shipped to: a path or a URL.
        options: Options of the store. ``tail`` is the URL of the same archive where it grows, with options of its own that start
            with ``tail.``: what is closed is read from ``place``, and what is not there yet from ``tail``.
        keeps_listing: As of ``DirectoryArchive``.

    Returns:
        The archive; the caller closes it.

    Raises:
        ConfigurationError: A URL or an option is not usable, or the place holds several archives.

    Example:
        ``open_archive("s3://bucket/tides", {"tail": "https://recorder-1:8480", "tail.token_file": "/run/secrets/token"})``
    """
    archives = archives_at(place, options, keeps_listing=keeps_listing)
    if len(archives) > 1:
        for archive in archives:
            archive.close()
        urls = ", ".join(archive.url for archive in archives)
        raise ConfigurationError(f"{place} holds several archives: choose one of {urls}")
    if archives:
        return archives[0]
    # It says that there is none when it is read; one may come.
    own, tail, of_tail = _split(options)
    archive = directory_archive(place, own, keeps_listing=keeps_listing)
    with _closing_on_error([archive]):
        return TailedArchive(archive, directory_archive(tail, of_tail)) if tail else archive


def archives_at(
    place: Path | str, options: Mapping[str, str] | None = None, *, keeps_listing: bool = False
) -> list[Archive]:
    """The archives at a path or URL, whatever their layout, each as ``open_archive`` has it; none where there is none.

    A tail is of the archive that has its id, or of the only one.
    """
    own, tail_url, tail_options = _split(options)
    archives = _archives(place, own, keeps_listing=keeps_listing)
    if not tail_url or not archives:
        return archives
    with _closing_on_error([*archives]) as opened:
        tail = directory_archive(tail_url, tail_options)
        opened.append(tail)
        of_tail = (
            archives[0] if len(archives) == 1 else next((a for a in archives if a.archive_id == tail.archive_id), None)
        )
        if of_tail is None:
            raise ConfigurationError(f"{TAIL}={tail.url} is archive {tail.archive_id}, of which {place} has nothing")
        return [TailedArchive(each, tail) if each is of_tail else each for each in archives]


def archives_to_read(place: Path | str, options: Mapping[str, str] | None = None) -> list[Archive]:
    """The archives at a place; where there is none, one that raises RecordingError when it is read."""
    return archives_at(place, options) or [open_archive(place, options)]


def _archives(place: Path | str, options: Mapping[str, str], *, keeps_listing: bool) -> list[Archive]:
    """The archives at a path or URL, whatever their layout; none where there is none.

    A recorder's directory is one. A place that recorders ship to has one for each of them, and each can be named by itself.
    """
    archive = directory_archive(place, options, keeps_listing=keeps_listing)
    with _closing_on_error([archive]):
        try:
            archive.store.size(CATALOG_FILE)
            return [archive]
        except FileNotFoundError:
            pass
        store = archive.store
        if isinstance(store, HttpStore):
            # Such a server lists no directories.
            archive.close()
            return []
        if archives := shipped_archives(store):
            return list(archives)
        parent, _, name = str(place).rstrip("/").rpartition("/")
        is_one = is_archive_id(name) and MANIFESTS in store.directories()
        archive.close()
    return [ShippedArchive(open_store(parent or ".", options), name)] if is_one else []


@contextmanager
def _closing_on_error(archives: list[Archive]) -> Iterator[list[Archive]]:
    """Closes the archives when the block raises."""
    try:
        yield archives
    except BaseException:
        for archive in archives:
            archive.close()
        raise


def _split(options: Mapping[str, str] | None) -> tuple[dict[str, str], str, dict[str, str]]:
    """The options of a place, the URL of its tail, empty where it has none, and the options of that."""
    own, of_tail, tail = {}, {}, ""
    for name, value in (options or {}).items():
        lowered = name.lower()
        if lowered == TAIL:
            tail = value
        elif lowered.startswith(f"{TAIL}."):
            of_tail[name[len(TAIL) + 1 :]] = value
        else:
            own[name] = value
    if of_tail and not tail:
        raise ConfigurationError(f"{TAIL}.{next(iter(of_tail))} is an option of the tail, but there is no {TAIL}=")
    return own, tail, of_tail
