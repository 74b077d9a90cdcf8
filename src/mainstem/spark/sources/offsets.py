"""The offsets in Spark's checkpoints: positions in recordings, and ends of captures.

A recording id is only a number within an archive, and an archive may be created again. So for each archive, an offset contains the
positions and the identities of its recordings (``recording.identity``). It also has the session that each recording had, to tell a
recording that was extended from one that was truncated before it was extended.

An offset also keeps how the micro-batch that ends there is divided into tasks. Spark may repeat the micro-batch after a restart
with other options or on another number of cores, and its sinks may depend on the tasks: keys of messages contain their number.

Spark writes an offset for each micro-batch. Out of ten thousand recordings, most have ended and are fully read. Those are packed as
the id, the position (because a recording may be extended), a checksum of the identity, and half of the session id.
"""

from __future__ import annotations

import json
import zlib
from array import array
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from mainstem.errors import ConfigurationError
from mainstem.recording.identity import is_stored_identity, stored_session
from mainstem.recording.shipping.layout import is_archive_id
from mainstem.recording.shipping.shipped_retention import ConsumedPosition
from mainstem.store.base import read_all
from mainstem.store.open_store import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.recording import RecordingDescriptor
    from mainstem.store import Store

VERSION = 1
# The size of ten million packed recordings. A longer text is not an offset.
MAX_PACKED_LENGTH = 200 << 20


def session_mark(session_id: int | None) -> int:
    """Return the half of a session id that offsets have, to recognize the session; 0 if it is unknown."""
    return 0 if session_id is None else session_id & 0xFFFF


class FinishedPosition(NamedTuple):
    """The end of a recording, the checksum of its identity, and the mark of its session."""

    position: int
    checksum: int
    session: int = 0

    @classmethod
    def of(cls, descriptor: RecordingDescriptor) -> FinishedPosition:
        return cls(descriptor.stop_position, descriptor.identity.checksum, session_mark(descriptor.session_id))


class Finished(dict[int, FinishedPosition]):
    """Recordings that have ended and are fully read, by id. Immutable."""

    _text: str | None = None

    @property
    def text(self) -> str:
        """The packed text, cached. Equal contents give equal texts within a version of zlib."""
        if self._text is None:
            self._text = pack(self)
        return self._text


def pack(finished: Finished) -> str:
    """Pack finished recordings into a text."""
    ids = sorted(finished)
    steps = array("q", (later - earlier for earlier, later in zip([0, *ids], ids, strict=False)))
    positions = array("q", (finished[each].position for each in ids))
    sums = array("I", (finished[each].checksum for each in ids))
    sessions = array("H", (finished[each].session for each in ids))
    return b64encode(zlib.compress(b"".join(part.tobytes() for part in (steps, positions, sums, sessions)))).decode()


# Most triggers have the same texts as the previous trigger, one per archive.
@lru_cache(maxsize=256)
def unpack(text: str, *, has_sessions: bool = True) -> Finished:
    """Undo ``pack``. Offsets of earlier releases have no sessions. Raises ConfigurationError for an invalid text."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(b64decode(text, validate=True), MAX_PACKED_LENGTH)
        count, rest = divmod(len(data), 22 if has_sessions else 20)
        if rest or not unpacker.eof:
            raise ValueError("it is truncated")
    except (ValueError, zlib.error) as error:
        raise ConfigurationError(f"cannot read an offset of the checkpoint: {error}") from None
    steps, positions, sums = array("q", data[: 8 * count]), array("q", data[8 * count : 16 * count]), array("I")
    sums.frombytes(data[16 * count : 20 * count])
    sessions = array("H", data[20 * count :] if has_sessions else bytes(2 * count))
    finished, recording = Finished(), 0
    for step, position, total, session in zip(steps, positions, sums, sessions, strict=True):
        recording += step
        finished[recording] = FinishedPosition(position, total, session)
    if has_sessions:
        finished._text = text
    return finished


@dataclass
class ArchiveOffset:
    """The positions in one archive by recording id, and each recording's identity and the mark of its session if they are known."""

    url: str = ""
    positions: dict[int, int] = field(default_factory=dict)
    identities: dict[int, str] = field(default_factory=dict)
    sessions: dict[int, int] = field(default_factory=dict)
    finished: Finished = field(default_factory=Finished)

    @property
    def all_positions(self) -> dict[int, int]:
        return {each: end.position for each, end in self.finished.items()} | self.positions

    def is_of(self, descriptor: RecordingDescriptor) -> bool:
        """Return whether the position is in this recording, not another with the same id. True if the identity is unknown."""
        finished = self.finished.get(descriptor.recording_id)
        if finished is not None and descriptor.recording_id not in self.positions:
            return is_stored_identity(finished.checksum, descriptor)
        stored = self.identities.get(descriptor.recording_id)
        return stored is None or is_stored_identity(stored, descriptor)

    def as_json(self) -> dict[str, Any]:
        """Return this part of the offset for Spark's JSON."""
        ids = sorted(self.positions)
        value: dict[str, Any] = {
            "url": self.url,
            "positions": {str(each): self.positions[each] for each in ids},
            "recordings": {str(each): self.identities[each] for each in ids if each in self.identities},
            "sessions": {str(each): self.sessions[each] for each in ids if each in self.sessions},
        }
        return value | ({"ended": self.finished.text} if self.finished else {})


@dataclass(frozen=True)
class TaskPlan:
    """How a micro-batch is divided into tasks: the number of cores, and the options of these names."""

    parallelism: int
    min_partitions: int
    partition_bytes: int
    max_rows_per_partition: int | None = None


@dataclass
class Offset:
    """The positions by archive. The key is the archive's id, or its place if it has no id.

    ``plan`` is the plan of the micro-batch that ends here, if it is known. If a limit ended it, ``last_served`` is the archive and
    the id of the last recording that had its turn.
    """

    archives: dict[str, ArchiveOffset] = field(default_factory=dict)
    plan: TaskPlan | None = None
    last_served: tuple[str, int] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the offset for Spark's JSON. Equal offsets give equal texts."""
        archives = {key: self.archives[key].as_json() for key in sorted(self.archives)}
        value = {"version": VERSION, "archives": archives} | ({"plan": asdict(self.plan)} if self.plan else {})
        return value | ({"last_served": list(self.last_served)} if self.last_served else {})

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
    plan = offset.get("plan")
    archives = {key: _archive(value) for key, value in offset["archives"].items()}
    archive, recording_id = offset.get("last_served") or (None, 0)
    last_served = None if archive is None else (archive, recording_id)
    return Offset(archives, None if plan is None else TaskPlan(**plan), last_served)


def _archive(value: Mapping[str, Any]) -> ArchiveOffset:
    identities: dict[str, str] = value["recordings"]
    sessions = value.get("sessions")
    if sessions is None:  # of an earlier release
        sessions = {key: session_mark(stored_session(identity)) for key, identity in identities.items()}
    finished = Finished()
    if value.get("ended"):
        finished = unpack(value["ended"])
    elif value.get("finished"):
        finished = unpack(value["finished"], has_sessions=False)
    return ArchiveOffset(
        value.get("url", ""),
        {int(key): position for key, position in value["positions"].items()},
        {int(key): identity for key, identity in identities.items()},
        {int(key): mark for key, mark in sessions.items()},
        finished,
    )


def present_keys(offset: Offset, urls: Mapping[str, str]) -> dict[str, str]:
    """Return the current key of each archive in an offset. ``urls`` are the current archives' URLs by key.

    An archive is found by its id, or by its URL or place if it had no id. If one archive of the offset and one current archive are
    left over, they must be the same: the directory was renamed, or the archive got an id.
    """
    by_url = {url: key for key, url in urls.items()}
    by_place: dict[str, str] = {}
    keys: dict[str, str] = {}
    for key, archive in offset.archives.items():
        if key in urls:
            keys[key] = key
        elif archive.url in by_url:
            keys[key] = by_url[archive.url]
        elif archive.url:
            by_place = by_place or {place_of(url): each for each, url in urls.items()}
            if (place := place_of(archive.url)) in by_place:
                keys[key] = by_place[place]
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
    batches = batch_numbers(checkpoint, "offsets/") & batch_numbers(checkpoint, "commits/")
    if not batches:
        if not batch_numbers(checkpoint, "offsets/"):
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


def batch_numbers(checkpoint: Store, directory: str) -> set[int]:
    """Return the numbers of the micro-batches in a directory of a checkpoint, such as ``commits/``."""
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
        for recording_id, end in archive.finished.items():
            result.append(ConsumedPosition(recording_id, end.checksum, end.position, archive_id))
    return result


# -- captures ----------------------------------------------------------------------------------------------------------
#
# File names are reused, because capture programs restart and rings of files wrap around. So an offset contains the end of each file
# and its identity: a hash of its first bytes, which cover the header and the first packets with their times.


Ends = dict[str, int]
"""How many bytes were read, by file."""


@dataclass
class CaptureOffset:
    """The ends, and each file's ``capture.index.identity`` if it is known.

    ``partition_bytes`` is the option with which the micro-batch that ends here is divided into tasks; 0 if that is unknown. If a
    limit ended it, ``next_file`` is the file at which the next one begins.
    """

    ends: Ends = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)
    partition_bytes: int = 0
    next_file: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the offset for Spark's JSON. Equal offsets give equal texts."""
        files = sorted(self.ends)
        identities = {file: self.identities[file] for file in files if file in self.identities}
        value = {"version": VERSION, "ends": {file: self.ends[file] for file in files}, "identities": identities}
        more = {"partition_bytes": self.partition_bytes, "next_file": self.next_file}
        return value | {name: each for name, each in more.items() if each}


def parse_capture_offset(offset: Mapping[str, Any]) -> CaptureOffset:
    """Parse the result of ``CaptureOffset.as_json``. Raises ConfigurationError for another version."""
    check_version(offset)
    part_bytes, next_file = offset.get("partition_bytes", 0), offset.get("next_file", "")
    return CaptureOffset(dict(offset["ends"]), dict(offset["identities"]), part_bytes, next_file)
