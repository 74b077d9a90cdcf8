"""The journal of a shipper: names of objects that it is about to put, in the recorder's directory.

It finds objects that a killed shipper left without a manifest that refers to them. If it is lost, ``mainstem recordings compact
--remove-orphans`` finds them by a listing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mainstem._internal.file_modes import create_file
from mainstem.recording.shipping.garbage import garbage_names
from mainstem.recording.shipping.page_tree import between

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mainstem.recording.shipping.manifest import Manifest, ManifestLog, ShippedRecording
    from mainstem.recording.shipping.page_tree import Pages

JOURNAL_FILE = "mainstem-shipper.pending"
MAX_JOURNAL_LENGTH = 1 << 20

_CHUNK = re.compile(r"(\d+)/(\d{20})-(\d{20})-[0-9a-f]{12}\.seg")


class Journal:
    """The first line is the store's URL; the others are names, added before their objects are put."""

    def __init__(self, directory: Path, url: str) -> None:
        self._path, self._url = directory / JOURNAL_FILE, url

    def add(self, name: str) -> None:
        """Add a name; it is in the file when this returns."""
        with open(self._path, "a", opener=create_file) as file:
            if file.tell() == 0:
                file.write(f"{self._url}\n")
            file.write(f"{name}\n")

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def delete_unreferred(
        self, chain: ManifestLog, manifest: Manifest, recordings: Mapping[int, ShippedRecording], pages: Pages
    ) -> int:
        """Delete the named objects that nothing refers to; return how many.

        Objects that compaction or retention has dropped stay for their readers: they are on a list of garbage.
        """
        try:
            lines = self._path.read_text(errors="replace")[:MAX_JOURNAL_LENGTH].splitlines()
        except FileNotFoundError:
            return 0
        count = 0
        if len(lines) > 1 and lines[0] == self._url:
            dropped = {name for ref in manifest.garbage for name in garbage_names(chain, ref)}
            for match in filter(None, map(_CHUNK.fullmatch, lines[1:])):
                entry = recordings.get(int(match[1]))
                chunks = between(entry.tree, int(match[2]), int(match[3]), pages) if entry is not None else ()
                if match[0] not in dropped and all(chunk.name != match[0] for chunk in chunks):
                    chain.store.delete(f"{chain.archive_id}/{match[0]}")
                    count += 1
        self.clear()
        return count
