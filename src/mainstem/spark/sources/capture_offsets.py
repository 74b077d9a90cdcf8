"""Offsets of captures as Spark keeps them: how much of each file was read, and of which files that is said.

A name is used again: a capturing program begins anew, a ring of files comes round. So an offset of version 2 holds beside the end
of each file what identifies it: a hash of its first bytes, the header and the first packets with their times. Offsets of
version 1, which earlier releases wrote, hold ends alone: ``{"/captures/a.pcap": 4096}``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 2
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
    """What ``CaptureOffset.as_json`` made, in this release or an earlier one. Raises ConfigurationError for a later one's."""
    # A file of version 1 may be named as a field is, but has a number there.
    if not isinstance(offset.get("ends"), dict):
        return CaptureOffset({file: int(end) for file, end in offset.items()})
    if offset["version"] != VERSION:
        raise ConfigurationError(
            f"the checkpoint has offsets of version {offset['version']}; this release reads versions 1 to {VERSION}"
        )
    return CaptureOffset(dict(offset["ends"]), dict(offset["identities"]))
