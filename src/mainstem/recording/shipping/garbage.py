"""Deletes objects that a manifest no longer refers to, after readers had time to finish.

A reader with an older manifest still uses its objects, so dropped objects are deleted after a grace period. The list of their
names is an object itself, which the manifest that drops them refers to, so it takes effect at that commit.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from mainstem.errors import RecordingError
from mainstem.recording.shipping.chunks import MALFORMED
from mainstem.recording.shipping.layout import checked_name, garbage_name
from mainstem.recording.shipping.manifest import GarbageRef
from mainstem.recording.shipping.page_tree import read_checked
from mainstem.recording.shipping.verified_put import put_verified

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.recording.shipping.manifest import Manifest, ManifestLog, RecordingPages
    from mainstem.store import Store

# A batch query that reads for longer than this from one manifest sets a longer period.
DEFAULT_GRACE_NS = 3600 * 1_000_000_000
# About 1 MB of names.
NAMES_PER_LIST = 10_000
MAX_LIST_LENGTH = 8 << 20


def listed(store: Store, archive_id: str, names: Sequence[str], after_ns: int, number: int) -> tuple[GarbageRef, ...]:
    """Write lists of objects to delete from epoch ``after_ns`` on; return the references for the manifest ``number``."""
    refs = []
    for first in range(0, len(names), NAMES_PER_LIST):
        data = json.dumps({"names": names[first : first + NAMES_PER_LIST]}, separators=(",", ":")).encode()
        name = garbage_name()
        put_verified(store, f"{archive_id}/{name}", data)
        refs.append(GarbageRef(name, zlib.crc32(data), len(data), after_ns, number))
    return tuple(refs)


def tidied(store: Store, recording_pages: RecordingPages, manifest: Manifest, after_ns: int) -> Manifest:
    """The manifest with ended recordings moved into pages, without superseded pages."""
    manifest = recording_pages.moved(manifest)
    dropped = recording_pages.superseded(manifest)
    if not dropped:
        return manifest
    refs = listed(store, manifest.archive_id, [ref.name for ref in dropped], after_ns, manifest.number)
    pages = tuple(ref for ref in manifest.pages if ref not in dropped)
    return replace(manifest, pages=pages, garbage=(*manifest.garbage, *refs))


def collect_garbage(chain: ManifestLog, now_ns: int, base: Manifest | None = None) -> tuple[Manifest | None, int]:
    """Delete what has been garbage for long enough; return the next manifest and the number of objects deleted."""
    manifest = base or chain.latest()
    due = {ref.name: ref for ref in manifest.garbage if ref.after_ns <= now_ns} if manifest else {}
    if manifest is None or not due:
        return manifest, 0
    # No manifest, old ones included, refers to missing objects.
    chain.delete_before(min(max(ref.number for ref in due.values()), manifest.number))
    count = 0
    for ref in due.values():
        for name in garbage_names(chain, ref):
            chain.store.delete(f"{chain.archive_id}/{name}")
            count += 1

    def without(current: Manifest) -> Manifest | None:
        rest = tuple(ref for ref in current.garbage if ref.name not in due)
        return None if rest == current.garbage else replace(current.following(now_ns), garbage=rest)

    manifest = chain.commit(manifest, without)
    chain.delete_before(manifest.number)
    for name in due:
        chain.store.delete(f"{chain.archive_id}/{name}")
    return manifest, count


def garbage_names(chain: ManifestLog, ref: GarbageRef) -> list[str]:
    if not 0 < ref.length <= MAX_LIST_LENGTH:
        raise RecordingError(f"{chain.store.url}: {ref.name} cannot have {ref.length} bytes")
    try:
        chain.store.size(f"{chain.archive_id}/{ref.name}")
    except FileNotFoundError:
        return []  # another program has just done it
    try:
        names = json.loads(read_checked(chain.store, chain.archive_id, ref.name, ref.length, ref.crc32))["names"]
    except MALFORMED as error:
        raise RecordingError(f"{chain.store.url}: {ref.name} cannot be read: {error}") from error
    return [checked_name(name) for name in names]
