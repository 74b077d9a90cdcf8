"""Offsets of captures as Spark keeps them: how much of each file was read, and of which files that is said.

Names are reused: a capturing program restarts, a ring of files wraps around. So an offset holds, beside the end of each file, what
identifies it: a hash of its first bytes, the header and the first packets with their times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
Ends = dict[str, int]
"""Bytes read, by file."""


@dataclass
class CaptureOffset:
    """Ends, and ``capture.index.identity`` of each file where it is known."""

    ends: Ends = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """What Spark keeps. Equal offsets are equal texts."""
        files = sorted(self.ends)
        identities = {file: self.identities[file] for file in files if file in self.identities}
        return {"version": VERSION, "ends": {file: self.ends[file] for file in files}, "identities": identities}


def parse_capture_offset(offset: Mapping[str, Any]) -> CaptureOffset:
    """Parse what ``CaptureOffset.as_json`` returned. Raises ConfigurationError for another version."""
    if offset.get("version") != VERSION:
        raise ConfigurationError(
            f"cannot read the checkpoint: its offsets have version {offset.get('version')}; this release reads version {VERSION}"
        )
    return CaptureOffset(dict(offset["ends"]), dict(offset["identities"]))
