"""The archives that use a driver, and their recordings, replays, clients and writes, according to the driver's counters.

The counters of an archive contain the archive's id. A recording position has the session and stream that the archive records, and
its owner is the client with the subscription. There are no counters for replays: a publication of an archive is a replay if its
channel specifies where the log begins.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.aeron.counters import ArchiveCounterType
from mainstem.aeron.tools.snapshot import stream_key

if TYPE_CHECKING:
    from mainstem.aeron.counters import CounterSnapshot
    from mainstem.aeron.tools.snapshot import Snapshot, StreamKey

_WITH_ARCHIVE_ID = range(ArchiveCounterType.RECORDING_POSITION, ArchiveCounterType.CONTROL_SESSION + 1)
_ID = struct.Struct("<q")
# In the key of a recording position, the ids of recording and session are followed by the length of an address and the address.
_ADDRESS_LENGTH_OFFSET, _ADDRESS_OFFSET = 12, 16
_REPLAY_PARAMETERS = ("init-term-id=", "term-id=", "term-offset=")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRecording:
    """A recording that an archive is making of a stream.

    The write counts and times cover everything that the archive's recorder wrote. They are 0 if the archive does not count them.
    Times are in nanoseconds.
    """

    archive_id: int
    recording_id: int
    position: int
    write_bytes: int
    write_ns: int
    max_write_ns: int

    @property
    def name(self) -> str:
        return f"recording {self.recording_id} of archive {self.archive_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveState:
    """The state of an archive: active recordings and replays, connected clients, and the number of errors so far."""

    archive_id: int
    recordings: int = 0
    replays: int = 0
    control_sessions: int = 0
    errors: int = 0
    late_cycles: int = 0


def archive_id(counter: CounterSnapshot) -> int | None:
    """Return the id of the archive that a counter belongs to, or None if it does not belong to an archive."""
    if counter.type_id not in _WITH_ARCHIVE_ID:
        return None
    offset = 0
    if counter.type_id == ArchiveCounterType.RECORDING_POSITION:
        (length,) = struct.unpack_from("<i", counter.key, _ADDRESS_LENGTH_OFFSET)
        offset = _ADDRESS_OFFSET + length
        if not _ADDRESS_OFFSET <= offset <= len(counter.key) - _ID.size:
            return None
    return int(_ID.unpack_from(counter.key, offset)[0])


def archive_states(snapshot: Snapshot) -> tuple[ArchiveState, ...]:
    """Return the archives that have counters in a driver's directory, sorted by id."""
    values: dict[int, dict[int, int]] = {}
    for counter in snapshot.counters:
        own = archive_id(counter)
        if own is not None:
            of_archive = values.setdefault(own, {})
            # Each agent of an archive has its own counter of late cycles.
            of_archive[counter.type_id] = of_archive.get(counter.type_id, 0) + counter.value
    kinds = ArchiveCounterType
    return tuple(
        ArchiveState(
            archive_id=own,
            recordings=of_archive.get(kinds.RECORDING_SESSIONS, 0),
            replays=of_archive.get(kinds.REPLAY_SESSIONS, 0),
            control_sessions=of_archive.get(kinds.CONTROL_SESSIONS, 0),
            errors=of_archive.get(kinds.ERRORS, 0),
            late_cycles=of_archive.get(kinds.CYCLE_TIME_EXCEEDED, 0),
        )
        for own, of_archive in sorted(values.items())
        if kinds.ERRORS in of_archive
    )


class Archives:
    """The recordings of a snapshot by owner and stream, and the purposes of the archives' publications."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._recordings: dict[tuple[int, int, int], tuple[int, StreamKey, int]] = {}
        self._values: dict[tuple[int, int], int] = {}  # by archive and type
        self._by_owner: dict[int, int] = {}
        self._clients: dict[int, CounterSnapshot] = {}  # by the publication that carries the responses
        for counter in snapshot.counters:
            own = archive_id(counter)
            if own is None:
                continue
            self._values[own, counter.type_id] = counter.value
            if counter.type_id == ArchiveCounterType.RECORDING_POSITION:
                if (key := stream_key(counter)) is not None:
                    self._recordings[counter.owner_id, key.session_id, key.stream_id] = own, key, counter.value
            elif counter.type_id == ArchiveCounterType.CONTROL_SESSION:
                self._clients[counter.reference_id] = counter
            elif counter.type_id == ArchiveCounterType.ERRORS:
                self._by_owner[counter.owner_id] = own

    def recording(self, owner_id: int, key: StreamKey) -> ActiveRecording | None:
        """Return the recording that a client is making of a stream, or None."""
        found = self._recordings.get((owner_id, key.session_id, key.stream_id))
        if found is None:
            return None
        own, recording_key, position = found
        return ActiveRecording(
            archive_id=own,
            recording_id=recording_key.registration_id,
            position=position,
            write_bytes=self._values.get((own, ArchiveCounterType.RECORDER_WRITE_BYTES), 0),
            write_ns=self._values.get((own, ArchiveCounterType.RECORDER_WRITE_TIME), 0),
            max_write_ns=self._values.get((own, ArchiveCounterType.RECORDER_MAX_WRITE_TIME), 0),
        )

    def archive_of(self, owner_id: int) -> int | None:
        """Return the id of the archive that a client is; None for other clients."""
        return self._by_owner.get(owner_id)

    def purpose(self, owner_id: int, key: StreamKey) -> str:
        """Return what an archive's publication is for: a replay, or responses to a client. Return an empty string if unknown."""
        own = self.archive_of(owner_id)
        if own is None:
            return ""
        session = self._clients.get(key.registration_id)
        if session is not None:
            info = session.label.partition(": ")[2].partition(" sourceIdentity=")[0]
            name = info.partition("name=")[2].partition(" version=")[0]
            return f"responses of archive {own}" + (f" to {name}" if name else "")
        return f"replay of archive {own}" if all(each in key.channel for each in _REPLAY_PARAMETERS) else ""
