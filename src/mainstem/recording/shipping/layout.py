"""The names of objects in a store of shipped recordings (docs/protocols/recordings.md, 8.1).

Each name begins with the archive id, so any number of recorders can ship to one store. All names except those of manifests contain
a nonce, so no object is ever written twice with different bytes.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

from mainstem.errors import RecordingError

if TYPE_CHECKING:
    from mainstem.store import Store

MANIFESTS = "manifests"
DIGITS = 20

_ARCHIVE_ID = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"(?:[0-9A-Za-z_-][0-9A-Za-z._-]*/)*[0-9A-Za-z_-][0-9A-Za-z._-]*")
_MANIFEST = re.compile(rf"([0-9a-f]{{32}})/{MANIFESTS}/(\d{{{DIGITS}}})\.json")


def nonce() -> str:
    return uuid.uuid4().hex


def is_archive_id(text: str) -> bool:
    """Return whether a string can be an archive id: 32 hexadecimal digits."""
    return _ARCHIVE_ID.fullmatch(text) is not None


def archive_ids(store: Store) -> list[str]:
    """Return the ids of the archives in a store, in order. They are the names of its directories."""
    return sorted(name for name in store.directories() if is_archive_id(name))


def manifest_prefix(archive_id: str) -> str:
    return f"{archive_id}/{MANIFESTS}/"


def manifest_name(archive_id: str, number: int) -> str:
    return f"{manifest_prefix(archive_id)}{number:0{DIGITS}d}.json"


def manifest_number(name: str) -> tuple[str, int] | None:
    """Return the archive id and the number in a manifest's name, or None if the object is not a manifest."""
    match = _MANIFEST.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def chunk_name(recording_id: int, start: int, end: int) -> str:
    """Return a new name for the frames ``[start, end)`` of a recording."""
    return f"{recording_id}/{start:0{DIGITS}d}-{end:0{DIGITS}d}-{nonce()[:12]}.seg"


def page_name(recording_id: int, level: int, start: int, end: int) -> str:
    """Return a new name for a page of chunks or of pages."""
    return f"pages/{recording_id}/{level}-{start:0{DIGITS}d}-{end:0{DIGITS}d}-{nonce()[:12]}.json"


def recordings_page_name(first: int, last: int) -> str:
    return f"recordings/{first:010d}-{last:010d}-{nonce()[:12]}.json"


def garbage_name() -> str:
    return f"garbage/{nonce()}.json"


def checked_name(name: object) -> str:
    """Return a name from a manifest or a page. Raises RecordingError if it could refer to an object outside the archive."""
    if not isinstance(name, str) or len(name) > 512 or _NAME.fullmatch(name) is None:
        raise RecordingError(f"{name!r} is not a name of an archive's object")
    return name
