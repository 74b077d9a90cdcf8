"""Offsets of recordings as Spark keeps them: positions, and of which recordings they are positions.

A recording id is a number in a directory, and a directory may be made anew. So an offset of version 2 holds beside each position
what identifies the recording: when it began (milliseconds since 1970), its session and its original channel. Offsets of version
1, which earlier releases wrote, hold positions alone: ``{"0": 4096}``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


VERSION = 2
Positions = dict[str, int]
"""A position for each recording id (JSON has only texts for keys)."""


@dataclass
class Offset:
    """Positions, and ``RecordingDescriptor.identity`` of each recording where it is known."""

    positions: Positions = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """What Spark keeps. Equal offsets are equal texts."""
        keys = sorted(self.positions, key=int)
        positions = {key: self.positions[key] for key in keys}
        recordings = {key: self.identities[key] for key in keys if key in self.identities}
        return {"version": VERSION, "positions": positions, "recordings": recordings}


def parse_offset(offset: Mapping[str, Any]) -> Offset:
    """What ``Offset.as_json`` made, in this release or an earlier one. Raises ConfigurationError for a later one's."""
    version = offset.get("version", 1)
    if version == 1:
        return Offset({key: int(value) for key, value in offset.items() if key != "version"})
    if version != VERSION:
        raise ConfigurationError(
            f"the checkpoint has offsets of version {version}; this release reads versions 1 to {VERSION}"
        )
    return Offset(dict(offset["positions"]), dict(offset["recordings"]))
