"""``archive.catalog``: the list of the recordings in a directory, in Aeron Archive's layout (version 3.1.0).

A catalog has a header of 32 bytes and then an aligned entry for each recording. In catalogs of the older form the header has
alignment 0, which means an alignment of 1024 and the first entry at offset 1024. All integers are little-endian. Every change is
atomic for readers, and stays so if the recorder is killed: a new entry becomes visible when its length is written, as the last four
bytes; a position or a state changes in one aligned store.

After a power failure, each page of the file is either the old or the new one. So a new entry does not cross a page boundary if it
fits into one page: the preceding entry is extended to the end of its page instead. If an entry must cross a boundary, and always in
a durable catalog, its body is on the device before its length is written. If an entry still cannot be read (because another program
wrote it, or the device lost a page), it is reported as a ``CatalogProblem``, and reading continues with the next readable entry.
"""

from __future__ import annotations

import logging
import os
import struct
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_ALIGNMENT
from mainstem._internal.clock import NS_PER_MS
from mainstem._internal.log_throttle import warn_once
from mainstem._internal.regular_files import open_regular
from mainstem.errors import RecordingError, RecordingNotFound
from mainstem.recording.frame_checksums import algorithm_of
from mainstem.recording.identity import RecordingIdentity
from mainstem.recording.life import StreamLife
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping

    from mainstem._core.log.checksums import FrameChecksum

log = logging.getLogger("mainstem.recording")

CATALOG_FILE = "archive.catalog"
CATALOG_VERSION = 3 << 16 | 1 << 8 | 0
HEADER_LENGTH = 32
ENTRY_HEADER_LENGTH = 32
ALIGNMENT = 64
OLD_ALIGNMENT = 1024
MAX_MTU_LENGTH = 65504
# Ids are 64-bit integers, and the header has the id after the last one.
MAX_RECORDING_ID = (1 << 63) - 2
NULL = -1

STATE_INVALID, STATE_VALID, STATE_DELETED = 0, 1, 2
STATE_NAMES = {STATE_INVALID: "invalid", STATE_VALID: "valid", STATE_DELETED: "deleted"}

_HEADER = struct.Struct("<iiqi")
_ENTRY_HEADER = struct.Struct("<iii")
_FIXED = struct.Struct("<7q6i")
_FIXED_FIELDS = (
    "control_session_id", "correlation_id", "recording_id", "start_timestamp", "stop_timestamp", "start_position", "stop_position",
    "initial_term_id", "segment_file_length", "term_buffer_length", "mtu_length", "session_id", "stream_id",
)  # fmt: skip
_TEXT_FIELDS = ("stripped_channel", "original_channel", "source_identity")
_LENGTH = struct.Struct("<i")
_ID = struct.Struct("<q")
_NEXT_ID_OFFSET, _ALIGNMENT_OFFSET = 8, 16
_ENTRY_ID = 16
_CHECKSUM_OFFSET = 8
_START_TIMESTAMP, _STOP_TIMESTAMP, _START_POSITION, _STOP_POSITION = 24, 32, 40, 48
_SESSION_ID = 72

# An archive describes a recording in one message, also over the smallest term (64 KiB), an eighth of which a message can have.
# The rest of the message is its header, its fields and the lengths of the texts.
MAX_DESCRIPTION_LENGTH = 8192
MAX_TEXTS_LENGTH = MAX_DESCRIPTION_LENGTH - 8 - 80 - 12
MAX_SOURCE_LENGTH = 88
# A catalog of a million recordings has 200 MB. A file that is longer than this is not a catalog.
MAX_CATALOG_LENGTH = 1 << 30
MAX_ENTRIES = MAX_CATALOG_LENGTH // ALIGNMENT
MAX_ENTRY_LENGTH = 1 << 20  # three strings: an address and two channels
USUAL_ENTRY_LENGTH = 16 << 10
MAX_ALIGNMENT = 4096
# After a power failure, each page on the device is old or new.
PAGE_LENGTH = 4096
# Limits of the search for the next entry after a corrupt one: bytes to search, offsets to try, and bytes per read.
MAX_SEARCH_LENGTH = 16 << 20
MAX_CANDIDATES = 1_000
SEARCH_LENGTH = 1 << 20
COPY_LENGTH = 256 << 10  # bytes that are copied and flushed at once while an entry is replaced
# Positions and times are 64-bit integers in columns. The catalog has times in ms, and rows have them in ns.
MAX_POSITION = (1 << 63) - 1 - (1 << 31)
MAX_TIMESTAMP = ((1 << 63) - 1) // NS_PER_MS


@dataclass(frozen=True, kw_only=True)
class RecordingDescriptor:
    """One recording as its catalog describes it.

    Attributes:
        recording_id: The id of the recording in its archive.
        start_timestamp: When recording began, in epoch milliseconds.
        stop_timestamp: When recording stopped, in epoch milliseconds; -1 while the recording is active.
        start_position: The first recorded position of the stream, in bytes.
        stop_position: The position after the last recorded frame; -1 while the recording is active.
        initial_term_id: The stream's first term id.
        segment_file_length: The size of a segment file in bytes.
        term_buffer_length: The size of the stream's terms in bytes.
        mtu_length: The stream's MTU in bytes.
        session_id: The session id of the stream that was recorded last. An archive that extends the recording replaces it.
        stream_id: The stream id.
        stripped_channel: The channel without the parameters that do not identify it.
        original_channel: The channel as it was subscribed to.
        source_identity: The address that the stream came from.
        control_session_id: The control session that started the recording; -1 if there was none.
        correlation_id: The request that started the recording; -1 if there was none.
    """

    recording_id: int
    start_timestamp: int
    stop_timestamp: int = NULL
    start_position: int = 0
    stop_position: int = NULL
    initial_term_id: int = 0
    segment_file_length: int = 128 << 20
    term_buffer_length: int = 16 << 20
    mtu_length: int = 1408
    session_id: int = 0
    stream_id: int = 0
    stripped_channel: str = ""
    original_channel: str = ""
    source_identity: str = ""
    control_session_id: int = NULL
    correlation_id: int = NULL
    entry_offset: int = field(default=-1, compare=False, repr=False)

    @property
    def identity(self) -> RecordingIdentity:
        """The identity of the recording, which differs for another recording with the same id.

        It stays the same while the recording grows, stops and is extended, also by another session. It differs if the directory
        was recreated.
        """
        return RecordingIdentity(self.start_timestamp, self.stream_id, self.initial_term_id, self.term_buffer_length)

    @property
    def origin(self) -> StreamLife:
        """The life of the stream in which the recording began. An archive that extends the recording replaces it."""
        return StreamLife(self.control_session_id, self.correlation_id)

    def encode(self) -> bytes:
        """Return the descriptor's bytes, little-endian, without the entry header and padding (docs/protocols/recordings.md)."""
        fixed = _FIXED.pack(*(getattr(self, name) for name in _FIXED_FIELDS))
        encoded = [getattr(self, name).encode("ascii", "replace") for name in _TEXT_FIELDS]
        return fixed + b"".join(_LENGTH.pack(len(text)) + text for text in encoded)

    @classmethod
    def decode(cls, data: bytes, entry_offset: int = -1) -> RecordingDescriptor:
        """Return the descriptor in ``data``, the bytes of an entry after its header. ``entry_offset`` is for error messages.

        Raises RecordingError if there are too few bytes, or a string extends past their end.
        """
        try:
            values: dict[str, Any] = dict(zip(_FIXED_FIELDS, _FIXED.unpack_from(data, 0), strict=True))
            at = _FIXED.size
            for name in _TEXT_FIELDS:
                (length,) = _LENGTH.unpack_from(data, at)
                if length < 0 or at + 4 + length > len(data):
                    raise RecordingError(
                        f"catalog entry at {entry_offset}: a text of {length} bytes extends past its end"
                    )
                values[name] = data[at + 4 : at + 4 + length].decode("ascii", "replace")
                at += 4 + length
        except struct.error as error:
            raise RecordingError(f"catalog entry at {entry_offset} has only {len(data)} bytes") from error
        return cls(**values, entry_offset=entry_offset)

    def check(self) -> None:
        """Raise RecordingError if the id, a length, a position or a time is invalid. ``read_catalog`` checks what it returns."""
        if problem := self._problem():
            raise RecordingError(f"recording {self.recording_id}: {problem}")

    def check_new(self) -> None:
        """Raise RecordingError if a catalog must not get this descriptor: it is invalid, or its texts are too long to be listed."""
        check_texts(self.stripped_channel, self.original_channel, self.source_identity)
        self.check()

    def _problem(self) -> str:
        term, segment = self.term_buffer_length, self.segment_file_length
        start, stop = self.start_position, self.stop_position
        if self.recording_id < 0:
            return "the id must not be negative"
        if self.recording_id > MAX_RECORDING_ID:
            return f"the id exceeds {MAX_RECORDING_ID}"
        if term < 65536 or term > 1 << 30 or term & (term - 1):
            return f"term length {term} is not a power of two from 64k to 1g"
        if segment < term or segment % term:
            return f"segment length {segment} is not a multiple of {term}"
        if not DATA_HEADER_LENGTH < self.mtu_length <= MAX_MTU_LENGTH:
            return f"an MTU of {self.mtu_length} is not between 33 and {MAX_MTU_LENGTH}"
        for name, position in (("start", start), ("stop", stop if stop != NULL else start)):
            if not 0 <= position <= MAX_POSITION or position % FRAME_ALIGNMENT:
                return f"{name} position {position} is not a frame boundary"
        if stop != NULL and stop < start:
            return f"it stops at {stop}, before its start at {start}"
        for name, time in (("start", self.start_timestamp), ("stop", self.stop_timestamp)):
            if not NULL <= time <= MAX_TIMESTAMP:
                return f"{name} time {time} is not a time in ms since 1970"
        return ""


def check_texts(stripped_channel: str, original_channel: str, source_identity: str = "") -> None:
    """Raise RecordingError if an archive could not describe a recording of a channel to every client."""
    source = max(len(source_identity), MAX_SOURCE_LENGTH)
    if len(stripped_channel) + len(original_channel) + source > MAX_TEXTS_LENGTH:
        longest = max(len(stripped_channel), len(original_channel))
        raise RecordingError(
            f"a channel of {longest} characters is too long: the original and the stripped channel may have "
            f"{MAX_TEXTS_LENGTH - source} characters together (got {len(stripped_channel) + len(original_channel)}), "
            "because clients of an archive could not list the recording; use a shorter channel"
        )


@dataclass(frozen=True, slots=True)
class CatalogProblem:
    """An unreadable entry of ``length`` bytes at ``offset``. Other entries are read."""

    offset: int
    length: int
    text: str
    is_end: bool = False
    """Whether no entry was found after it; there can still be one beyond the searched range."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """An entry in any state, with its recording, or None if the recording cannot be read."""

    offset: int
    length: int
    state: int
    descriptor: RecordingDescriptor | None

    @property
    def recording_id(self) -> int:
        return NULL if self.descriptor is None else self.descriptor.recording_id

    @property
    def state_name(self) -> str:
        return STATE_NAMES.get(self.state, str(self.state))


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    length: int
    state: int
    checksum: int
    body: bytes

    @property
    def id(self) -> int:
        """The recording id, or -1 if the body is too short."""
        return _ID.unpack_from(self.body, _ENTRY_ID)[0] if len(self.body) >= _ENTRY_ID + _ID.size else NULL


def read_catalog(directory: Path | str, *, deleted: bool = False) -> list[RecordingDescriptor]:
    """Read the catalog of a directory.

    Corrupt entries are skipped, with a warning in the log; ``find_catalog_problems`` returns them.

    Args:
        directory: A directory of Mainstem's recorder or of Aeron Archive.
        deleted: Whether to include recordings that are marked as deleted.

    Returns:
        The descriptors in catalog order.

    Raises:
        RecordingError: There is no catalog, or its header is corrupt.

    Example:
        >>> [d.recording_id for d in read_catalog("tides")]
        [0, 1]
    """
    directory = Path(directory)
    states = (STATE_VALID, STATE_DELETED) if deleted else (STATE_VALID,)
    return _readable(_descriptors(_read(directory), states), str(directory / CATALOG_FILE))


def read_entries(directory: Path) -> list[CatalogEntry]:
    """Return the entries of a directory's catalog in any state. Raises RecordingError like ``read_catalog``."""
    entries = []
    for each in _read(directory):
        if isinstance(each, _Entry):
            found = _decoded(each)
            descriptor = found if isinstance(found, RecordingDescriptor) else None
            entries.append(CatalogEntry(each.offset, each.length, each.state, descriptor))
    return entries


def find_catalog_problems(directory: Path) -> list[CatalogProblem]:
    """Return the unreadable entries of a directory's catalog. Raises RecordingError like ``read_catalog``."""
    found = _descriptors(_read(directory), (STATE_VALID, STATE_DELETED))
    return [each for each in found if isinstance(each, CatalogProblem)]


def find_changed_entries(directory: Path) -> list[CatalogProblem]:
    """Return the entries of a directory's catalog that do not match the checksum that Aeron Archive stored, if it stored one."""
    return [
        CatalogProblem(
            each.offset,
            each.length,
            f"the entry at {each.offset} does not have the checksum that the archive stored",
        )
        for each in _read(directory)
        if isinstance(each, _Entry) and each.checksum and algorithm_of(each.body, 0, each.length, each.checksum) is None
    ]


def no_recordings(url: str, directory: Path | None) -> RecordingNotFound:
    """Return the error for a location without a catalog; ``directory`` is its local path, if it has one."""
    if directory is not None and not directory.exists():
        return RecordingNotFound(f"{url} holds no recordings: there is no such directory")
    return RecordingNotFound(f"{url} holds no recordings: there is no {CATALOG_FILE} in it")


def _read(directory: Path) -> list[_Entry | CatalogProblem]:
    path = directory / CATALOG_FILE
    try:
        with open(path, "rb", opener=open_regular) as file:
            return list(_entries(file, str(path), os.fstat(file.fileno()).st_size))
    except FileNotFoundError as error:
        raise no_recordings(str(directory), directory) from error
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror}") from error


def decode_catalog(
    data: bytes, name: str, *, before: bytes = b"", known: Mapping[int, RecordingDescriptor] | None = None
) -> list[RecordingDescriptor]:
    """Decode a catalog's bytes. ``name`` is for error messages.

    Entries that have not changed since ``before`` are taken from ``known``, by ``entry_offset``, because decoding ten thousand
    entries takes a tenth of a second.
    """
    entries = _entries(BytesIO(data), name, len(data))
    return _readable(_descriptors(entries, (STATE_VALID,), before, known), name)


def _readable(found: Iterable[RecordingDescriptor | CatalogProblem], name: str) -> list[RecordingDescriptor]:
    """Return the recordings, and log the problems."""
    descriptors = []
    for each in found:
        if isinstance(each, CatalogProblem):
            warn_once(log, f"{name}: {each.text}; the other recordings are read")
        else:
            descriptors.append(each)
    return descriptors


def _descriptors(
    entries: Iterable[_Entry | CatalogProblem],
    states: tuple[int, ...],
    before: bytes = b"",
    known: Mapping[int, RecordingDescriptor] | None = None,
) -> Iterator[RecordingDescriptor | CatalogProblem]:
    for entry in entries:
        if isinstance(entry, CatalogProblem):
            yield entry
        elif entry.state in states:
            at = entry.offset + ENTRY_HEADER_LENGTH
            descriptor = known.get(entry.offset) if known else None
            if descriptor is not None and before[at : at + entry.length] == entry.body:
                yield descriptor
            else:
                yield _decoded(entry)


def _decoded(entry: _Entry) -> RecordingDescriptor | CatalogProblem:
    try:
        descriptor = RecordingDescriptor.decode(entry.body, entry.offset)
        descriptor.check()
    except RecordingError as error:
        text = f"the entry at {entry.offset} is corrupt: {error}"
        return CatalogProblem(entry.offset, ENTRY_HEADER_LENGTH + entry.length, text)
    return descriptor


def _first_entry(file: IO[bytes], name: str, size: int) -> tuple[int, int]:
    """Return the offset of the first entry, and the alignment of entries. Raises RecordingError if the file is not a catalog."""
    if size < HEADER_LENGTH or size > MAX_CATALOG_LENGTH:
        raise RecordingError(f"{name} is not a catalog: it has {size} bytes")
    version, _, _, alignment = _HEADER.unpack_from(file.read(HEADER_LENGTH))
    if version >> 16 not in (2, 3):
        raise RecordingError(
            f"{name} has version {version >> 16}.{version >> 8 & 255}.{version & 255}; 2.x and 3.x are read"
        )
    if alignment < 0 or alignment > MAX_ALIGNMENT or alignment & (alignment - 1):
        raise RecordingError(f"{name}: an alignment of {alignment} is not a power of two up to {MAX_ALIGNMENT}")
    return (HEADER_LENGTH, alignment) if alignment else (OLD_ALIGNMENT, OLD_ALIGNMENT)


def _entries(file: IO[bytes], name: str, size: int) -> Iterator[_Entry | CatalogProblem]:
    """Yield each entry in any state, and each problem. Raises RecordingError if the file is not a catalog."""
    offset, grain = _first_entry(file, name, size)
    candidates = MAX_CANDIDATES
    while offset + ENTRY_HEADER_LENGTH <= size:
        file.seek(offset)
        header = file.read(ENTRY_HEADER_LENGTH).ljust(ENTRY_HEADER_LENGTH, b"\0")
        length, state, checksum = _ENTRY_HEADER.unpack_from(header)
        wrong = _wrong_length(offset, length, size)
        if length and not wrong:
            yield _Entry(offset, length, state, checksum, file.read(length))
            offset += _aligned(length, grain)
            continue
        following, looked_at = _next_entry(file, offset, size, grain, candidates)
        candidates -= looked_at
        if following < 0:
            if wrong:
                yield CatalogProblem(offset, size - offset, wrong, is_end=True)
            return
        text = wrong or f"an entry is missing at {offset}"
        yield CatalogProblem(offset, following - offset, f"{text}; the next one is at {following}")
        offset = following


def _aligned(length: int, grain: int) -> int:
    return (ENTRY_HEADER_LENGTH + length + grain - 1) // grain * grain


def _wrong_length(offset: int, length: int, size: int) -> str:
    """Return why an entry cannot have this length; an empty string if it can, or if there is no entry."""
    if length < 0:
        return f"the entry at {offset} has a length of {length}"
    if offset + ENTRY_HEADER_LENGTH + length > size:
        return f"the entry at {offset} reaches over the end of the file"
    if length > MAX_ENTRY_LENGTH:
        return f"the entry at {offset} has {length} bytes, more than {MAX_ENTRY_LENGTH}"
    return ""


def _next_entry(file: IO[bytes], offset: int, size: int, grain: int, candidates: int) -> tuple[int, int]:
    """Return the offset of the next entry after ``offset``, or -1, and the number of offsets that were examined."""
    looked_at = 0
    end = min(size, offset + MAX_SEARCH_LENGTH)
    for begin in range(offset + grain, end, SEARCH_LENGTH):
        file.seek(begin)
        data = file.read(min(SEARCH_LENGTH, end - begin))
        # After the last entry, there are usually only zeros.
        first = len(data) - len(data.lstrip(b"\0"))
        for at in range(first // grain * grain, len(data) - ENTRY_HEADER_LENGTH + 1, grain):
            length, state, _ = _ENTRY_HEADER.unpack_from(data, at)
            if length <= 0 or state not in (STATE_VALID, STATE_DELETED):
                continue
            if (ENTRY_HEADER_LENGTH + length) % grain or _wrong_length(begin + at, length, size):
                continue
            if looked_at == candidates:
                return -1, looked_at
            looked_at += 1
            file.seek(begin + at + ENTRY_HEADER_LENGTH)
            if isinstance(_decoded(_Entry(begin + at, length, state, 0, file.read(length))), RecordingDescriptor):
                return begin + at, looked_at
    return -1, looked_at


def _crosses_a_page(offset: int, length: int) -> bool:
    return offset // PAGE_LENGTH != (offset + length - 1) // PAGE_LENGTH


def _place(last: int, end: int, whole: int, grain: int) -> int:
    """Return where an entry of ``whole`` bytes begins: at ``end``, or at the start of the next page.

    It begins there if that keeps it from crossing a page boundary. The entry at ``last`` is then extended up to the new one.
    """
    if last < 0 or not _crosses_a_page(end, whole):
        return end
    place = end + _aligned(PAGE_LENGTH - end % PAGE_LENGTH - ENTRY_HEADER_LENGTH, grain)
    is_possible = not _crosses_a_page(place, whole) and place - last - ENTRY_HEADER_LENGTH <= MAX_ENTRY_LENGTH
    return place if is_possible else end


class Catalog:
    """The catalog of one directory, opened for writing by the holder of the recorder's lock.

    With ``durable``, each change is on the device when its call returns.
    """

    def __init__(self, directory: Path, *, durable: bool = False, disk: Disk = DISK) -> None:
        self.directory = directory
        self._durable = durable
        self._disk = disk
        self._fd = -1
        # Whether the name of the file may not be on the device yet.
        self._is_name_pending = False
        # While an entry is being replaced: where the file was changed since, and how many bytes.
        self._is_replacing = False
        self._changes: list[tuple[int, int]] | None = None
        # Determined by walking the catalog once, and again after an addition that failed.
        self._next: tuple[int, int, int] | None = None
        self._path = directory / CATALOG_FILE
        header = _HEADER.pack(CATALOG_VERSION, HEADER_LENGTH, 0, ALIGNMENT)
        # Always durable, because without its header no entry can be read. This happens only once per directory.
        self._fd = disk.open_whole(self._path, header.ljust(HEADER_LENGTH, b"\0"), durable=True)

    def _settle(self) -> None:
        if self._durable:
            self.sync()

    def _settle_or(self, undo: Callable[[], object]) -> None:
        if self._durable:
            self._sync_or(undo)

    def close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1

    def recordings(self) -> list[RecordingDescriptor]:
        return read_catalog(self.directory)

    def entry(self, offset: int) -> RecordingDescriptor:
        length, _, _ = _ENTRY_HEADER.unpack(os.pread(self._fd, _ENTRY_HEADER.size, offset))
        return RecordingDescriptor.decode(os.pread(self._fd, length, offset + ENTRY_HEADER_LENGTH), offset)

    def mend(self) -> None:
        """Replace unreadable bytes by an invalid entry, because an Aeron Archive walks the entries by their lengths."""
        for problem in find_catalog_problems(self.directory):
            log.warning("%s: %s; the recording of that entry is left out from now on", self._path, problem.text)
            for offset in range(
                problem.offset, 0 if problem.is_end else problem.offset + problem.length, MAX_ENTRY_LENGTH
            ):
                length = min(MAX_ENTRY_LENGTH, problem.offset + problem.length - offset) - ENTRY_HEADER_LENGTH
                header = _ENTRY_HEADER.pack(length, STATE_INVALID, 0).ljust(ENTRY_HEADER_LENGTH, b"\0")
                self._write(header + _ID.pack(NULL).rjust(_ENTRY_ID + _ID.size, b"\0"), offset)
                self._settle()

    def add(self, descriptor: RecordingDescriptor, *, min_id: int = 0) -> RecordingDescriptor:
        """Append a recording under the next free id, which is at least ``min_id``, and return it with that id."""
        (alignment,) = _LENGTH.unpack(os.pread(self._fd, _LENGTH.size, _ALIGNMENT_OFFSET))
        grain = alignment or OLD_ALIGNMENT
        next_id, last, end = self.find_place()
        self._next = None
        next_id = max(next_id, min_id)
        if next_id > MAX_RECORDING_ID:
            raise RecordingError(f"{self._path} has no id left after {MAX_RECORDING_ID}; record into another directory")
        descriptor = replace(descriptor, recording_id=next_id)
        descriptor.check_new()
        body = descriptor.encode()
        whole = _aligned(len(body), grain)
        if alignment == 0 and whole > OLD_ALIGNMENT:
            raise RecordingError(f"recording {next_id}: its channel is too long for a catalog of the older form")
        place = _place(last, end, whole, grain)
        added = replace(descriptor, entry_offset=place)
        has_grown = self._make_room(place + whole)
        if place > end:
            if has_grown:
                # After a power failure, the extended entry must not reach beyond the end of the file.
                self.sync()
            # This is written before the new entry, because readers walk the entries by their lengths.
            self._write(_LENGTH.pack(place - last - ENTRY_HEADER_LENGTH), last)
        header = _ENTRY_HEADER.pack(0, STATE_VALID, 0).ljust(ENTRY_HEADER_LENGTH, b"\0")
        self._write((header + body).ljust(whole, b"\0"), place)
        self._write(_ID.pack(next_id + 1), _NEXT_ID_OFFSET)
        if self._durable or _crosses_a_page(place, whole):
            self.sync()
        self._write(_LENGTH.pack(whole - ENTRY_HEADER_LENGTH), place)
        self._settle_or(lambda: self._write(_LENGTH.pack(0), place))
        self._next = next_id + 1, place, place + whole
        return added

    @property
    def is_full(self) -> bool:
        next_id, _, end = self.find_place()
        return next_id > MAX_RECORDING_ID or end + USUAL_ENTRY_LENGTH > MAX_CATALOG_LENGTH

    def find_place(self) -> tuple[int, int, int]:
        """Return the next id, the offset of the last entry (-1 if there is none), and the offset of the next one.

        The bytes after the last entry are zeros when this returns. The first call walks the catalog.
        """
        if self._next is not None:
            return self._next
        _, _, next_id, alignment = _HEADER.unpack(os.pread(self._fd, _HEADER.size, 0))
        grain, end = alignment or OLD_ALIGNMENT, HEADER_LENGTH if alignment else OLD_ALIGNMENT
        last = -1
        with self._path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for entry in _entries(file, str(self._path), size):
                if isinstance(entry, CatalogProblem):
                    last, end = -1, entry.offset + (0 if entry.is_end else entry.length)
                else:
                    last, end = entry.offset, entry.offset + _aligned(entry.length, grain)
                    next_id = max(next_id, entry.id + 1)
        # A process that was killed while it added an entry leaves bytes there.
        rest = os.pread(self._fd, size - end, end) if end < size else b""
        if rest.count(0) < len(rest):
            self._write(bytes(len(rest)), end)
        self._next = min(max(next_id, 0), MAX_RECORDING_ID + 1), last, end
        return self._next

    def _make_room(self, needed: int) -> bool:
        """Extend the file if necessary, and return whether it was. It is never shortened, because an archive can have it mapped."""
        size = capacity = os.fstat(self._fd).st_size
        while capacity < needed:
            # The same growth as Aeron Archive's, which reads whole entry headers up to the end of the file.
            capacity = (capacity + capacity // 2 + ALIGNMENT) // ALIGNMENT * ALIGNMENT
        capacity = max(min(capacity, MAX_CATALOG_LENGTH), needed)
        if capacity > MAX_CATALOG_LENGTH:
            raise RecordingError(
                f"{self._path} is full: an entry up to byte {needed} makes it longer than {MAX_CATALOG_LENGTH}; "
                "record into another directory"
            )
        if capacity > size:
            self._disk.resize(self._fd, capacity)
        return capacity > size

    def join(self, source: RecordingDescriptor, target: RecordingDescriptor, *, is_prepended: bool) -> None:
        """Let ``target`` have everything of the recording before or after it, ``source``, which becomes empty.

        The whole file is replaced atomically: whatever happens, each byte belongs to one of the two recordings.
        """
        data = bytearray(self._path.read_bytes())
        if is_prepended:
            _put(data, target, _START_POSITION, _ID.pack(source.start_position))
        else:
            _put(data, target, _STOP_TIMESTAMP, _ID.pack(source.stop_timestamp))
            _put(data, target, _STOP_POSITION, _ID.pack(source.stop_position))
        _put(data, source, _STOP_POSITION, _ID.pack(source.start_position))
        self._replace(bytes(data))

    def _store(self, descriptor: RecordingDescriptor, field_offset: int, value: bytes) -> None:
        at = descriptor.entry_offset + ENTRY_HEADER_LENGTH
        length, _, checksum = _ENTRY_HEADER.unpack(os.pread(self._fd, _ENTRY_HEADER.size, descriptor.entry_offset))
        algorithm = None
        if checksum and 0 < length <= MAX_ENTRY_LENGTH:  # otherwise the file is corrupt
            algorithm = algorithm_of(os.pread(self._fd, length, at), 0, length, checksum)
        self._write(value, at + field_offset)
        if algorithm is not None:
            # An archive that stores checksums rejects an entry with a wrong checksum.
            checksum = algorithm.compute(os.pread(self._fd, length, at), 0, length)
            self._write(_LENGTH.pack(checksum), descriptor.entry_offset + _CHECKSUM_OFFSET)

    def stop(self, descriptor: RecordingDescriptor, stop_position: int, timestamp_ms: int) -> RecordingDescriptor:
        """Mark a recording as ended at ``stop_position``."""
        # Write the time first: a recording that has a stop position also has a stop time.
        self._store(descriptor, _STOP_TIMESTAMP, _ID.pack(timestamp_ms))
        self._store(descriptor, _STOP_POSITION, _ID.pack(stop_position))
        self._settle()
        return replace(descriptor, stop_position=stop_position, stop_timestamp=timestamp_ms)

    def extend(self, descriptor: RecordingDescriptor) -> RecordingDescriptor:
        """Mark an ended recording as active again. It continues where it stopped."""
        # Write the position last: if a write fails, the recording still counts as ended, and the recorder can try again.
        self._store(descriptor, _STOP_TIMESTAMP, _ID.pack(NULL))
        self._store(descriptor, _STOP_POSITION, _ID.pack(NULL))
        self._settle_or(lambda: self._store(descriptor, _STOP_POSITION, _ID.pack(descriptor.stop_position)))
        return replace(descriptor, stop_position=NULL, stop_timestamp=NULL)

    def replace_entry(
        self,
        offset: Callable[[], int],
        change: Callable[[RecordingDescriptor], RecordingDescriptor],
        on_moved: Callable[[int, int], object],
    ) -> Generator[None, None, None]:
        """Replace the entry at ``offset()`` by what ``change`` makes of it, step by step.

        The new entry can be longer, so the others are copied to a new file, which then replaces the old one atomically. Until
        then the catalog can be used and changed. ``on_moved`` is called with an offset, and how far the entries after it move.

        Raises RecordingError if there is no space in the catalog.
        """
        while self._is_replacing:
            yield
        self._is_replacing = True
        try:
            while not (yield from self._try_replace_entry(offset(), change, on_moved)):
                pass
        finally:
            self._is_replacing = False

    def _try_replace_entry(
        self,
        at: int,
        change: Callable[[RecordingDescriptor], RecordingDescriptor],
        on_moved: Callable[[int, int], object],
    ) -> Generator[None, None, bool]:
        """Do what ``replace_entry`` describes. Return False if something else replaced the file meanwhile."""
        before, entry = self._changed_entry(at, change)
        moved = len(entry) - before
        fresh = self._path.with_name(f"{self._path.name}.new")
        fd = self._disk.open(fresh)
        changes = self._changes = []

        def copy(start: int, length: int) -> None:
            # The parts before and after the entry. The entry itself is made from what it is at the end.
            for low, high, shift in ((0, at, 0), (at + before, MAX_CATALOG_LENGTH, moved)):
                first, last = max(start, low), min(start + length, high)
                if first < last:
                    self._disk.write(fd, os.pread(self._fd, last - first, first), first + shift)

        try:
            self._disk.resize(fd, 0)
            start = 0
            while start < self.capacity:
                copy(start, COPY_LENGTH)
                # In each step: to flush a large file at the end could take seconds.
                self._disk.sync(fd)
                start += COPY_LENGTH
                yield
                if self._changes is not changes:
                    self._disk.close(fd)
                    return False
            self._changes, lengths = None, (before, len(entry))
            before, entry = self._changed_entry(at, change)
            if (before, len(entry)) != lengths:  # the entry now also has the rest of its page
                self._disk.close(fd)
                return False
            for start, length in changes:
                copy(start, length)
            self._disk.resize(fd, self.capacity + moved)
            self._disk.write(fd, entry, at)
            self._disk.sync(fd)
            self._disk.rename(fresh, self._path)
        except BaseException:
            if self._changes is changes:
                self._changes = None
            self._disk.close(fd)
            raise
        on_moved(at, moved)
        next_place = self._next
        self._take_over(fd)
        if next_place is not None:
            next_id, last, end = next_place
            self._next = next_id, last + moved * (last > at), end + moved
        self._flush_replaced()
        return True

    def _changed_entry(
        self, at: int, change: Callable[[RecordingDescriptor], RecordingDescriptor]
    ) -> tuple[int, bytes]:
        """Return the length of the entry at ``at``, and the bytes that replace it. Raises RecordingError if they do not fit."""
        descriptor = change(self.entry(at))
        descriptor.check_new()
        (alignment,) = _LENGTH.unpack(os.pread(self._fd, _LENGTH.size, _ALIGNMENT_OFFSET))
        grain = alignment or OLD_ALIGNMENT
        length, state, checksum = _ENTRY_HEADER.unpack(os.pread(self._fd, _ENTRY_HEADER.size, at))
        before = _aligned(length, grain)
        body = descriptor.encode()
        whole = max(_aligned(len(body), grain), before)
        if (
            (alignment == 0 and whole > before)
            or whole > MAX_ENTRY_LENGTH
            or self.capacity + whole > MAX_CATALOG_LENGTH
        ):
            raise RecordingError(f"recording {descriptor.recording_id}: its channel is too long for {self._path}")
        stored = os.pread(self._fd, length, at + ENTRY_HEADER_LENGTH)
        algorithm = algorithm_of(stored, 0, length, checksum) if checksum else None
        body = body.ljust(whole - ENTRY_HEADER_LENGTH, b"\0")
        if algorithm is not None:
            checksum = algorithm.compute(body, 0, len(body))
        header = _ENTRY_HEADER.pack(len(body), state, checksum).ljust(ENTRY_HEADER_LENGTH, b"\0")
        return before, header + body

    def _replace(self, data: bytes) -> None:
        """Write the catalog again and replace the old one atomically."""
        fresh = self._path.with_name(f"{self._path.name}.new")
        fd = self._disk.open(fresh)
        try:
            self._disk.resize(fd, 0)
            self._disk.write(fd, data, 0)
            self._disk.sync(fd)
            self._disk.rename(fresh, self._path)
        except Exception:
            self._disk.close(fd)
            raise
        self._changes = None  # of an entry that is being replaced: that begins again
        self._take_over(fd)
        self._flush_replaced()

    def _take_over(self, fd: int) -> None:
        """Make a new file the catalog, which it stays even if a later step fails."""
        self._replaced, self._fd, self._next = self._fd, fd, None
        self._is_name_pending = True

    def _flush_replaced(self) -> None:
        try:
            self._flush_name()
        finally:
            self._disk.close(self._replaced)

    def _flush_name(self) -> None:
        self._disk.sync_directory(self.directory)
        self._is_name_pending = False

    @property
    def capacity(self) -> int:
        """The size of the file in bytes, including space for more entries."""
        return os.fstat(self._fd).st_size

    def grow(self, capacity: int) -> None:
        """Extend the file to ``capacity`` bytes, so that it has space for more entries. It is never shortened."""
        if not self.capacity <= capacity <= MAX_CATALOG_LENGTH:
            raise RecordingError(
                f"{self._path}: the capacity must be from {self.capacity} to {MAX_CATALOG_LENGTH} bytes (got {capacity})"
            )
        self._disk.resize(self._fd, capacity // ALIGNMENT * ALIGNMENT)
        self.sync()

    def set_state(self, entry: CatalogEntry, state: int) -> None:
        """Set the state of an entry to valid or invalid."""
        self._write(_LENGTH.pack(state), entry.offset + 4)
        self.sync()

    def store_checksum(self, descriptor: RecordingDescriptor, algorithm: FrameChecksum) -> None:
        """Store the checksum of an entry, like an archive that is configured to use checksums."""
        at = descriptor.entry_offset
        (length,) = _LENGTH.unpack(os.pread(self._fd, _LENGTH.size, at))
        checksum = algorithm.compute(os.pread(self._fd, length, at + ENTRY_HEADER_LENGTH), 0, length)
        self._write(_LENGTH.pack(checksum), at + _CHECKSUM_OFFSET)
        self._settle()

    def remove(self, entries: Collection[CatalogEntry]) -> None:
        """Remove entries, and move later entries into their place. The file keeps its length, and ids are not reused."""
        next_id, _, end = self.find_place()
        data = bytearray(self._path.read_bytes())
        (alignment,) = _LENGTH.unpack_from(data, _ALIGNMENT_OFFSET)
        grain, size = alignment or OLD_ALIGNMENT, len(data)
        _ID.pack_into(data, _NEXT_ID_OFFSET, next_id)
        for each in sorted(entries, key=lambda entry: entry.offset, reverse=True):
            del data[each.offset : min(each.offset + _aligned(each.length, grain), end)]
        self._replace(bytes(data).ljust(size, b"\0"))

    def set_start(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Let a recording start elsewhere. Always durable, because segments that may be old are deleted then."""
        self._store(descriptor, _START_POSITION, _ID.pack(position))
        self._sync_or(lambda: self._store(descriptor, _START_POSITION, _ID.pack(descriptor.start_position)))

    def set_session(self, descriptor: RecordingDescriptor, session_id: int) -> RecordingDescriptor:
        self._store(descriptor, _SESSION_ID, _LENGTH.pack(session_id))
        self._settle_or(lambda: self._store(descriptor, _SESSION_ID, _LENGTH.pack(descriptor.session_id)))
        return replace(descriptor, session_id=session_id)

    def delete(self, descriptor: RecordingDescriptor) -> None:
        """Mark a recording as deleted. Always durable, because its files are deleted then."""
        self._write(_LENGTH.pack(STATE_DELETED), descriptor.entry_offset + 4)
        self._sync_or(lambda: self._write(_LENGTH.pack(STATE_VALID), descriptor.entry_offset + 4))

    def truncate(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Mark an ended recording as ended earlier. Always durable, because its segments are deleted then."""
        self._store(descriptor, _STOP_POSITION, _ID.pack(position))
        self._sync_or(lambda: self._store(descriptor, _STOP_POSITION, _ID.pack(descriptor.stop_position)))

    def _sync_or(self, undo: Callable[[], object]) -> None:
        """Call ``sync``. If that fails, the caller's request fails too, so ``undo`` what it has written."""
        try:
            self.sync()
        except Exception:
            with suppress(OSError):
                undo()
            raise

    def _write(self, data: bytes, offset: int) -> None:
        if self._changes is not None:
            self._changes.append((offset, len(data)))
        self._disk.write(self._fd, data, offset)

    def sync(self) -> None:
        """Wait until the catalog is on the device."""
        self._disk.sync(self._fd)
        if self._is_name_pending:
            self._flush_name()


def _put(data: bytearray, descriptor: RecordingDescriptor, field_offset: int, value: bytes) -> None:
    """Replace a field of an entry in a catalog's bytes, and the entry's checksum if it has one."""
    at = descriptor.entry_offset + ENTRY_HEADER_LENGTH
    length, _, checksum = _ENTRY_HEADER.unpack_from(data, descriptor.entry_offset)
    algorithm = algorithm_of(bytes(data[at : at + length]), 0, length, checksum) if checksum else None
    data[at + field_offset : at + field_offset + len(value)] = value
    if algorithm is not None:
        checksum = algorithm.compute(bytes(data[at : at + length]), 0, length)
        _LENGTH.pack_into(data, descriptor.entry_offset + _CHECKSUM_OFFSET, checksum)
