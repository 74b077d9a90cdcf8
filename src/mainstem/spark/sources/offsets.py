"""The offsets in Spark's checkpoints: positions in recordings, and ends of captures.

A recording id is only a number within an archive, and an archive may be created again. So for each archive, an offset contains the
positions and the identities of its recordings: start time in milliseconds since 1970, session and original channel.

Spark writes an offset for each micro-batch. Out of ten thousand recordings, most have ended and are fully read. Those are packed as
the id, the position (because a recording may be extended), and a checksum of the identity.
"""

from __future__ import annotations

import json
import zlib
from array import array
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError
from mainstem.recording.shipping.layout import is_archive_id
from mainstem.recording.shipping.retention import ConsumedPosition
from mainstem.store.base import read_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.recording import RecordingDescriptor
    from mainstem.store import Store

VERSION = 1
# The size of ten million packed recordings. A longer text is not an offset.
MAX_PACKED_LENGTH = 200 << 20


class Finished(dict[int, tuple[int, int]]):
    """Recordings that have ended and are fully read: the position and the checksum of the identity, by id. Immutable."""

    _text: str | None = None

    @property
    def text(self) -> str:
        """The packed text, cached. Equal contents give equal texts within a version of zlib."""
        if self._text is None:
            self._text = pack(self)
        return self._text


def identity_sum(identity: str) -> int:
    """Return the checksum of a finished recording's identity."""
    return zlib.crc32(identity.encode())


def pack(finished: Finished) -> str:
    """Pack finished recordings into a text."""
    ids = sorted(finished)
    steps = array("q", (later - earlier for earlier, later in zip([0, *ids], ids, strict=False)))
    positions = array("q", (finished[each][0] for each in ids))
    sums = array("I", (finished[each][1] for each in ids))
    return b64encode(zlib.compress(b"".join(part.tobytes() for part in (steps, positions, sums)))).decode()


# Most triggers have the same texts as the previous trigger, one per archive.
@lru_cache(maxsize=256)
def unpack(text: str) -> Finished:
    """Undo ``pack``. Raises ConfigurationError for an invalid text."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(b64decode(text, validate=True), MAX_PACKED_LENGTH)
        count, rest = divmod(len(data), 20)
        if rest or not unpacker.eof:
            raise ValueError("it is truncated")
    except (ValueError, zlib.error) as error:
        raise ConfigurationError(f"cannot read an offset of the checkpoint: {error}") from None
    steps, positions, sums = array("q", data[: 8 * count]), array("q", data[8 * count : 16 * count]), array("I")
    sums.frombytes(data[16 * count :])
    finished, recording = Finished(), 0
    for step, position, total in zip(steps, positions, sums, strict=True):
        recording += step
        finished[recording] = (position, total)
    finished._text = text
    return finished


@dataclass
class ArchiveOffset:
    """The positions in one archive by recording id, and each ``RecordingDescriptor.identity`` if it is known."""

    url: str = ""
    positions: dict[int, int] = field(default_factory=dict)
    identities: dict[int, str] = field(default_factory=dict)
    finished: Finished = field(default_factory=Finished)

    @property
    def all_positions(self) -> dict[int, int]:
        return {each: position for each, (position, _) in self.finished.items()} | self.positions

    def is_of(self, descriptor: RecordingDescriptor) -> bool:
        """Return whether the position is in this recording, not another with the same id. True if the identity is unknown."""
        finished = self.finished.get(descriptor.recording_id)
        if finished is not None and descriptor.recording_id not in self.positions:
            return finished[1] == identity_sum(descriptor.identity)
        return self.identities.get(descriptor.recording_id, descriptor.identity) == descriptor.identity

    def as_json(self) -> dict[str, Any]:
        """Return this part of the offset for Spark's JSON."""
        ids = sorted(self.positions)
        value: dict[str, Any] = {
            "url": self.url,
            "positions": {str(each): self.positions[each] for each in ids},
            "recordings": {str(each): self.identities[each] for each in ids if each in self.identities},
        }
        return value | ({"finished": self.finished.text} if self.finished else {})


@dataclass
class Offset:
    """The positions by archive. The key is the archive's id, or its URL if it has no id."""

    archives: dict[str, ArchiveOffset] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the offset for Spark's JSON. Equal offsets give equal texts."""
        return {"version": VERSION, "archives": {key: self.archives[key].as_json() for key in sorted(self.archives)}}

    @property
    def positions(self) -> dict[int, int]:
        """The position in every recording by id, for queries over one archive."""
        positions: dict[int, int] = {}
        for archive in self.archives.values():
            positions |= archive.all_positions
        return positions


def check_version(offset: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless this release can read the version of an offset."""
    if offset.get("version") != VERSION:
        raise ConfigurationError(
            f"cannot read the checkpoint: its offsets have version {offset.get('version')}; this release reads version {VERSION}"
        )


def parse_offset(offset: Mapping[str, Any]) -> Offset:
    """Parse the result of ``Offset.as_json``. Raises ConfigurationError for another version."""
    check_version(offset)
    return Offset({key: _archive(value) for key, value in offset["archives"].items()})


def _archive(value: Mapping[str, Any]) -> ArchiveOffset:
    return ArchiveOffset(
        value.get("url", ""),
        {int(key): position for key, position in value["positions"].items()},
        {int(key): identity for key, identity in value["recordings"].items()},
        unpack(value["finished"]) if value.get("finished") else Finished(),
    )


def present_keys(offset: Offset, urls: Mapping[str, str]) -> dict[str, str]:
    """Return the current key of each archive in an offset. ``urls`` are the current archives' URLs by key.

    An archive is found by its id, or by its URL if it had no id. If one archive of the offset and one current archive are left
    over, they must be the same: the directory was renamed, or the archive got an id.
    """
    by_url = {url: key for key, url in urls.items()}
    keys: dict[str, str] = {}
    for key, archive in offset.archives.items():
        if key in urls:
            keys[key] = key
        elif archive.url in by_url:
            keys[key] = by_url[archive.url]
    unmatched = [key for key in offset.archives if key not in keys]
    free = [key for key in urls if key not in keys.values()]
    if len(unmatched) == len(free) == 1:
        keys[unmatched[0]] = free[0]
    return keys


# -- the committed positions of a query --------------------------------------------------------------------------------
#
# A checkpoint contains ``offsets/<batch>``, written before a batch is read, and ``commits/<batch>``, written once its rows are in
# the sink. Data before the offsets of the last committed batch is never read again, so retention may delete it. An offsets file
# has a line with a version, a line of metadata, and a line of JSON for each source, or ``-`` if a source has no offset.


VERSION_LINE = "v1"
# An offset takes about 100 bytes per recording.
MAX_OFFSETS_LENGTH = 64 << 20


def committed_positions(checkpoint: Store) -> list[ConsumedPosition]:
    """Return the committed position in each recording, from a query's checkpoint. Empty before the first commit.

    Raises ConfigurationError if there is no checkpoint, it has another format, or its offsets do not identify recordings.
    """
    batches = _numbers(checkpoint, "offsets/") & _numbers(checkpoint, "commits/")
    if not batches:
        if not _numbers(checkpoint, "offsets/"):
            raise ConfigurationError(f"{checkpoint.url} is not a checkpoint of a streaming query: it has no offsets")
        return []
    name = f"offsets/{max(batches)}"
    lines = read_all(checkpoint, name, limit=MAX_OFFSETS_LENGTH).decode("utf-8", "replace").splitlines()
    if not lines or lines[0].strip() != VERSION_LINE:
        raise ConfigurationError(f"{checkpoint.url}/{name} must have format {VERSION_LINE} (got {lines[:1]})")
    committed = []
    for line in lines[2:]:
        try:
            value = json.loads(line)
        except ValueError:
            continue  # not a Mainstem source: their offsets are JSON objects
        if isinstance(value, dict) and "archives" in value:
            committed += _committed(value, f"{checkpoint.url}/{name}")
    if not committed:
        raise ConfigurationError(f"{checkpoint.url}/{name} has no offsets of recordings")
    return committed


def _numbers(checkpoint: Store, directory: str) -> set[int]:
    names = (file.name.removeprefix(directory) for file in checkpoint.list(directory, recursive=False))
    return {int(name) for name in names if name.isdecimal()}


def _committed(value: dict[str, Any], name: str) -> list[ConsumedPosition]:
    result = []
    for key, archive in parse_offset(value).archives.items():
        # An archive without an id is named by its location, but the store that it is shipped to has another one.
        archive_id = key if is_archive_id(key) else None
        for recording_id, position in archive.positions.items():
            if recording_id not in archive.identities:
                raise ConfigurationError(f"{name}: the position of recording {recording_id} has no identity")
            result.append(ConsumedPosition(recording_id, archive.identities[recording_id], position, archive_id))
        for recording_id, (position, identity_sum) in archive.finished.items():
            result.append(ConsumedPosition(recording_id, identity_sum, position, archive_id))
    return result


# -- captures ----------------------------------------------------------------------------------------------------------
#
# File names are reused, because capture programs restart and rings of files wrap around. So an offset contains the end of each file
# and its identity: a hash of its first bytes, which cover the header and the first packets with their times.


Ends = dict[str, int]
"""How many bytes were read, by file."""


@dataclass
class CaptureOffset:
    """The ends, and each file's ``capture.index.identity`` if it is known."""

    ends: Ends = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the offset for Spark's JSON. Equal offsets give equal texts."""
        files = sorted(self.ends)
        identities = {file: self.identities[file] for file in files if file in self.identities}
        return {"version": VERSION, "ends": {file: self.ends[file] for file in files}, "identities": identities}


def parse_capture_offset(offset: Mapping[str, Any]) -> CaptureOffset:
    """Parse the result of ``CaptureOffset.as_json``. Raises ConfigurationError for another version."""
    check_version(offset)
    return CaptureOffset(dict(offset["ends"]), dict(offset["identities"]))
