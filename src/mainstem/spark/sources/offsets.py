"""Offsets in Spark's checkpoint: positions of recordings, and ends of captures.

A recording id is a number in an archive, and an archive may be created again. So an offset holds, for each archive, the
positions and the identities of its recordings: start time in milliseconds since 1970, session and original channel.

Spark writes an offset for each micro-batch, and of ten thousand recordings most have ended and are fully read. Those are
packed: the id, the position (the recording may be extended), and a checksum of the identity.
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
# The size of ten million packed recordings. Anything larger is not an offset.
MAX_PACKED_LENGTH = 200 << 20


class Finished(dict[int, tuple[int, int]]):
    """Recordings that have ended and are read: position and checksum of the identity, by id. Immutable."""

    _text: str | None = None

    @property
    def text(self) -> str:
        """The packed text, cached. Equal contents give equal texts within a version of zlib."""
        if self._text is None:
            self._text = pack(self)
        return self._text


def identity_sum(identity: str) -> int:
    """The checksum of a finished recording's identity."""
    return zlib.crc32(identity.encode())


def pack(finished: Finished) -> str:
    """Pack recordings into a text."""
    ids = sorted(finished)
    steps = array("q", (later - earlier for earlier, later in zip([0, *ids], ids, strict=False)))
    positions = array("q", (finished[each][0] for each in ids))
    sums = array("I", (finished[each][1] for each in ids))
    return b64encode(zlib.compress(b"".join(part.tobytes() for part in (steps, positions, sums)))).decode()


# Most triggers have the same texts as the previous one, one per archive.
@lru_cache(maxsize=256)
def unpack(text: str) -> Finished:
    """Undo ``pack``. Raises ConfigurationError for any other text."""
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
    """Positions in one archive by recording id, and each ``RecordingDescriptor.identity`` if known."""

    url: str = ""
    positions: dict[int, int] = field(default_factory=dict)
    identities: dict[int, str] = field(default_factory=dict)
    finished: Finished = field(default_factory=Finished)

    @property
    def all_positions(self) -> dict[int, int]:
        return {each: position for each, (position, _) in self.finished.items()} | self.positions

    def is_of(self, descriptor: RecordingDescriptor) -> bool:
        """Whether the position is of this recording, not of another one with the same id, if the identity is known."""
        finished = self.finished.get(descriptor.recording_id)
        if finished is not None and descriptor.recording_id not in self.positions:
            return finished[1] == identity_sum(descriptor.identity)
        return self.identities.get(descriptor.recording_id, descriptor.identity) == descriptor.identity

    def as_json(self) -> dict[str, Any]:
        """The part of the offset in Spark's JSON."""
        ids = sorted(self.positions)
        value: dict[str, Any] = {
            "url": self.url,
            "positions": {str(each): self.positions[each] for each in ids},
            "recordings": {str(each): self.identities[each] for each in ids if each in self.identities},
        }
        return value | ({"finished": self.finished.text} if self.finished else {})


@dataclass
class Offset:
    """Positions by archive: its id, or its URL if it has none."""

    archives: dict[str, ArchiveOffset] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The offset in Spark's JSON. Equal offsets give equal texts."""
        return {"version": VERSION, "archives": {key: self.archives[key].as_json() for key in sorted(self.archives)}}

    @property
    def positions(self) -> dict[int, int]:
        """The position of every recording by id, for queries over one archive."""
        positions: dict[int, int] = {}
        for archive in self.archives.values():
            positions |= archive.all_positions
        return positions


def check_version(offset: Mapping[str, Any]) -> None:
    """Raises ConfigurationError unless an offset has this release's version."""
    if offset.get("version") != VERSION:
        raise ConfigurationError(
            f"cannot read the checkpoint: its offsets have version {offset.get('version')}; this release reads version {VERSION}"
        )


def parse_offset(offset: Mapping[str, Any]) -> Offset:
    """Parse what ``Offset.as_json`` returned. Raises ConfigurationError for another version."""
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
    """The current key of each archive of an offset; ``urls`` are the current archives' URLs by key.

    An archive is found by its id, or by its URL if it had no id. If one archive of the offset and one current archive remain,
    they are the same: the directory was renamed or got an id.
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


# -- what a query has committed ----------------------------------------------------------------------------------------
#
# A checkpoint has ``offsets/<batch>``, written before a batch is read, and ``commits/<batch>``, written once its rows are in
# the sink. Data before the offsets of the last committed batch is never read again, so retention may delete it. An offsets file
# has a line with a version, a line of metadata, and a line of JSON for each source, ``-`` if it has none.


VERSION_LINE = "v1"
# An offset has some 100 bytes for each recording.
MAX_OFFSETS_LENGTH = 64 << 20


def committed_positions(checkpoint: Store) -> list[ConsumedPosition]:
    """The committed position of each recording, from a query's checkpoint; none before the first commit.

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
            continue  # not a source of Mainstem, whose offsets are JSON objects
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
        # An archive without an id is named by its location, which differs from where it is shipped to.
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
# File names are reused: capture programs restart, and rings of files wrap around. So an offset holds the end of each file and
# its identity, a hash of its first bytes: the header and the first packets with their times.


Ends = dict[str, int]
"""Bytes read, by file."""


@dataclass
class CaptureOffset:
    """Ends, and each file's ``capture.index.identity`` if known."""

    ends: Ends = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The offset in Spark's JSON. Equal offsets give equal texts."""
        files = sorted(self.ends)
        identities = {file: self.identities[file] for file in files if file in self.identities}
        return {"version": VERSION, "ends": {file: self.ends[file] for file in files}, "identities": identities}


def parse_capture_offset(offset: Mapping[str, Any]) -> CaptureOffset:
    """Parse what ``CaptureOffset.as_json`` returned. Raises ConfigurationError for another version."""
    check_version(offset)
    return CaptureOffset(dict(offset["ends"]), dict(offset["identities"]))
