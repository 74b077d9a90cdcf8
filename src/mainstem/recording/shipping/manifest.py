"""The manifest of a shipped archive: the object that describes it, stored as a log of numbered objects.

Theory of operation
-------------------

Each ``<archive>/manifests/<number>.json`` is written once, by put-if-absent. The one with the highest number describes the archive.
An object exists before any manifest refers to it, and is deleted only when no reader can still hold a manifest that does
(``garbage``). So a commit takes effect at one moment, and a process that is killed at any other moment leaves only unreferenced
objects.

The writers are a shipper and, occasionally, ``rm`` and ``compact``. Each reads the highest manifest, derives the next one from it,
and puts that under the next number. If two writers do so at once, one succeeds and the other derives its change again (``commit``).
A shipper first writes its own id into the manifest, and fails if it later finds the id of another shipper there.

Three things need care:

* A put that failed can still be applied later. It is repeated with the same bytes under the same number until its outcome is known.
  If the stored manifest has exactly these bytes, this writer has put it.
* Old manifests are deleted, so a writer with an old view could fill a gap far below the highest number. Each manifest therefore
  names its predecessor. After a put, the writer lists the manifests. If a higher number is not a successor of its own, it has lost.
* A listing can be stale. A writer reads on from the highest listed number until a number does not exist (``probe``).

An entry of a recording stays small (``page_tree``). Ended recordings move into pages of ``RECORDINGS_PER_PAGE``. An entry in the
manifest replaces one in a page, and an entry in a later page replaces one in an earlier page.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._core.layout import FRAME_ALIGNMENT
from mainstem.errors import RecordingError
from mainstem.recording.catalog import MAX_POSITION, NULL, RecordingDescriptor
from mainstem.recording.shipping.chunks import MALFORMED, UNKNOWN, checked_int, checked_text, put_verified
from mainstem.recording.shipping.layout import (
    checked_name,
    garbage_name,
    manifest_name,
    manifest_number,
    manifest_prefix,
    nonce,
    recordings_page_name,
)
from mainstem.recording.shipping.page_tree import ChunkTree, Pages, check_order, read_checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainstem.store import Store

T = TypeVar("T")
FORMAT = "mainstem-archive"
VERSION = 3  # 1: chunks without tables of checksums; 2: manifests without a checksum of their own
FIRST_WITH_CHECKSUM = 3
CHECKSUM = "crc32"
_CHECKSUM_AT_END = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\Z')
# Older manifests are deleted. A few are enough, because readers keep the manifest that they have read. They need an older one only
# between listing and reading it.
RETAINED_MANIFESTS = 32
# An entry has about 1 kB, so a page has 256 kB. For 10,000 recordings, a reader reads 40 pages, once.
RECORDINGS_PER_PAGE = 256
# Enough for a thousand growing recordings with full tails. A larger object is rejected.
MAX_MANIFEST_LENGTH = 256 << 20
MAX_RECORDINGS_PAGE_LENGTH = 64 << 20
# The maximum number of attempts to commit. An attempt fails only if another writer succeeds, so with a few writers this many do not
# fail in a row.
MAX_ATTEMPTS = 100

_DESCRIPTOR_FIELDS = [each.name for each in fields(RecordingDescriptor) if each.name != "entry_offset"]
_DESCRIPTOR_TEXTS = {"stripped_channel", "original_channel", "source_identity"}
_DESCRIPTOR_LONGS = {
    "recording_id", "start_timestamp", "stop_timestamp", "start_position", "stop_position", "control_session_id",
    "correlation_id",
}  # fmt: skip
_INT32, _INT64 = 1 << 31, 1 << 63


def _descriptor(entry: Any) -> RecordingDescriptor:
    values: dict[str, Any] = {}
    for name in _DESCRIPTOR_FIELDS:
        if name in _DESCRIPTOR_TEXTS:
            values[name] = checked_text(entry[name], name)
        else:
            bound = _INT64 if name in _DESCRIPTOR_LONGS else _INT32
            values[name] = checked_int(entry[name], name, minimum=-bound, maximum=bound - 1)
    descriptor = RecordingDescriptor(**values)
    descriptor.check()
    return descriptor


class CommitConflictError(RecordingError):
    """Another process has changed the archive in a way that this one cannot continue from."""


@dataclass(frozen=True, slots=True)
class ShippedRecording:
    """A recording in the store: the bytes ``[start, end)`` of the recording that the descriptor describes, except gaps.

    ``messages`` is the number of messages that end at or before ``end``, ``entries`` the number of index entries before it, and
    ``recorded_ns`` the time at which the last byte was recorded.
    """

    descriptor: RecordingDescriptor
    start: int
    end: int
    tree: ChunkTree = field(default_factory=ChunkTree)
    messages: int = 0
    entries: int = 0
    has_index: bool = True
    recorded_ns: int = UNKNOWN

    @property
    def is_complete(self) -> bool:
        return self.descriptor.stop_position != NULL and self.end >= self.descriptor.stop_position

    def as_json(self) -> dict[str, Any]:
        descriptor = {name: value for name, value in asdict(self.descriptor).items() if name in _DESCRIPTOR_FIELDS}
        names = ("start", "end", "messages", "entries", "has_index", "recorded_ns")
        return {"descriptor": descriptor, **{name: getattr(self, name) for name in names}, **self.tree.as_json()}

    @classmethod
    def of(cls, value: dict[str, Any]) -> ShippedRecording:
        descriptor = _descriptor(value["descriptor"])
        where = f"recording {descriptor.recording_id}"
        start, end = (checked_int(value[name], f"{where}: {name}", maximum=MAX_POSITION) for name in ("start", "end"))
        if start > end or end % FRAME_ALIGNMENT:
            raise RecordingError(f"{where}: positions {start} to {end} are invalid")
        tree = ChunkTree.of(value)
        try:
            check_order(tree.items, 0, end)
        except RecordingError as error:
            raise RecordingError(f"{where}: {error}") from None
        return cls(
            descriptor,
            start,
            end,
            tree,
            checked_int(value["messages"], f"{where}: messages"),
            checked_int(value["entries"], f"{where}: entries"),
            bool(value["has_index"]),
            checked_int(value["recorded_ns"], f"{where}: recorded_ns", minimum=UNKNOWN),
        )


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A reference to a page of recordings: name, checksum and length."""

    name: str
    crc32: int
    length: int


@dataclass(frozen=True, slots=True)
class GarbageRef(ObjectRef):
    """A reference to a list of objects to delete from epoch ``after_ns`` on. Manifests from ``number`` on do not refer to them."""

    after_ns: int
    number: int


@dataclass(frozen=True, slots=True)
class Shipper:
    """The shipper that an archive currently belongs to."""

    id: str
    host: str
    pid: int
    directory: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} with {self.directory}"


def _parsed(kind: type[T], value: dict[str, Any]) -> T:
    """Decode a dataclass of integers and strings. Raises RecordingError, KeyError or TypeError."""

    def checked(name: str, type_name: object) -> Any:
        if name == "name":
            return checked_name(value[name])
        return checked_int(value[name], name) if type_name == "int" else checked_text(value[name], name)

    return kind(**{each.name: checked(each.name, each.type) for each in fields(kind)})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest. ``number`` 0 means that the archive has no manifest yet."""

    archive_id: str
    host: str = ""
    number: int = 0
    commit: str = ""
    previous: str = ""
    time_ns: int = 0
    shipper: Shipper | None = None
    recordings: dict[int, ShippedRecording] = field(default_factory=dict)
    pages: tuple[ObjectRef, ...] = ()
    garbage: tuple[GarbageRef, ...] = ()

    def following(self, time_ns: int, **changes: Any) -> Manifest:
        return replace(self, number=self.number + 1, commit=nonce(), previous=self.commit, time_ns=time_ns, **changes)

    def encode(self) -> bytes:
        value = {
            "format": FORMAT,
            "version": VERSION,
            "archive": self.archive_id,
            "host": self.host,
            "number": self.number,
            "commit": self.commit,
            "previous": self.previous,
            "time_ns": self.time_ns,
            "shipper": asdict(self.shipper) if self.shipper else None,
            "recordings": [self.recordings[key].as_json() for key in sorted(self.recordings)],
            "pages": [asdict(ref) for ref in self.pages],
            "garbage": [asdict(ref) for ref in self.garbage],
        }
        body = json.dumps(value, separators=(",", ":")).encode().removesuffix(b"}")
        return _with_checksum(body)

    @classmethod
    def decode(cls, data: bytes, name: str) -> Manifest:
        try:
            value = json.loads(data)
            if value["format"] != FORMAT:
                raise RecordingError(f"{name} is not a manifest")
            if checked_int(value["version"], "version") > VERSION:
                raise RecordingError(f"{name} has version {value['version']}; this release reads up to {VERSION}")
            # A flipped bit of the version must not turn the check off.
            if value["version"] >= FIRST_WITH_CHECKSUM or CHECKSUM in value:
                _check(data, name)
            entries = [ShippedRecording.of(each) for each in value["recordings"]]
            manifest = cls(
                archive_id=checked_text(value["archive"], "archive"),
                host=checked_text(value["host"], "host"),
                number=checked_int(value["number"], "number"),
                commit=checked_text(value["commit"], "commit"),
                previous=checked_text(value["previous"], "previous"),
                time_ns=checked_int(value["time_ns"], "time_ns"),
                shipper=_parsed(Shipper, value["shipper"]) if value["shipper"] else None,
                recordings={entry.descriptor.recording_id: entry for entry in entries},
                pages=tuple(_parsed(ObjectRef, each) for each in value["pages"]),
                garbage=tuple(_parsed(GarbageRef, each) for each in value["garbage"]),
            )
        except MALFORMED as error:
            raise RecordingError(f"{name} cannot be read: {error}") from error
        if manifest_number(name) != (manifest.archive_id, manifest.number):
            raise RecordingError(f"{name} is the manifest {manifest.number} of archive {manifest.archive_id!r}")
        return manifest


# The checksum is the last member of the object. It covers all bytes before it, and is stored as a string of hexadecimal digits.
def _with_checksum(body: bytes) -> bytes:
    return body + b',"crc32":"%08x"}' % zlib.crc32(body)


def _check(data: bytes, name: str) -> None:
    """Raise RecordingError if a manifest is not the one that was written."""
    found = _CHECKSUM_AT_END.search(data)
    if found is None or int(found[1], 16) != zlib.crc32(data[: found.start()]):
        raise RecordingError(f"{name} is corrupt: its checksum differs")


class ManifestLog:
    """The manifests of one archive: reads the highest one, and puts the next. ``pages`` and ``recording_pages`` are theirs."""

    def __init__(self, store: Store, archive_id: str) -> None:
        self.store, self.archive_id = store, archive_id
        self.pages, self.recording_pages = Pages(store, archive_id), RecordingPages(store, archive_id)

    def numbers(self) -> list[int]:
        names = (manifest_number(file.name) for file in self.store.list(manifest_prefix(self.archive_id)))
        return sorted(match[1] for match in names if match)

    def read(self, number: int) -> Manifest:
        """Return a manifest by number. Raises FileNotFoundError, and RecordingError if the object is not a valid manifest."""
        name = manifest_name(self.archive_id, number)
        return Manifest.decode(self._bytes(name), name)

    def _bytes(self, name: str) -> bytes:
        size = self.store.size(name)
        if size > MAX_MANIFEST_LENGTH:
            raise RecordingError(f"{self.store.url}: {name} has {size} bytes, more than {MAX_MANIFEST_LENGTH}")
        return bytes(self.store.read(name, 0, size))

    def latest(self, *, probe: bool = False) -> Manifest | None:
        """Return the archive's current manifest, or None if there is none.

        With ``probe``, also try the numbers after the listed ones, because a listing can be stale.
        """
        for _ in range(MAX_ATTEMPTS):
            numbers = self.numbers()
            manifest = None
            try:
                if numbers:
                    manifest = self.read(numbers[-1])
                elif not probe:
                    return None
            except FileNotFoundError:
                continue  # deleted since the listing, so there is a later one
            while probe:
                try:
                    manifest = self.read((manifest.number if manifest else 0) + 1)
                except FileNotFoundError:
                    break
            return manifest
        raise RecordingError(f"{self.store.url}: the manifests of {self.archive_id} are listed but cannot be read")

    def put(self, manifest: Manifest) -> bool:
        """Put a manifest under its number, then delete old ones. Return False if the number is taken.

        Raises CommitConflictError if the archive already has later manifests that do not follow this one.
        """
        name, data = manifest_name(self.archive_id, manifest.number), manifest.encode()
        if not self.store.put_if_absent(name, data):
            try:
                if self._bytes(name) != data:
                    return False
            except FileNotFoundError:
                return False
        numbers = self.numbers()
        if numbers and numbers[-1] > manifest.number and not self._is_followed(manifest):
            self.store.delete(name)
            raise CommitConflictError(
                f"{self.store.url}: archive {self.archive_id} is at manifest {numbers[-1]}; {manifest.number} is too late"
            )
        for number in numbers[:-RETAINED_MANIFESTS]:
            if number < manifest.number:
                self.store.delete(manifest_name(self.archive_id, number))
        return True

    def delete_before(self, number: int) -> None:
        """Delete the manifests below ``number``, which must not exceed the highest number."""
        for each in self.numbers():
            if each < number:
                self.store.delete(manifest_name(self.archive_id, each))

    def _is_followed(self, manifest: Manifest) -> bool:
        try:
            return self.read(manifest.number + 1).previous == manifest.commit
        except FileNotFoundError:
            return False

    def commit(self, base: Manifest | None, change: Callable[[Manifest], Manifest | None]) -> Manifest:
        """Apply ``change`` to the current manifest, commit the result, and return it.

        ``base`` is tried first as the current manifest. If another writer has committed in between, ``change`` is called again with
        the newer manifest. It returns None if there is nothing to change. If it raises, the archive stays as it is. Raises
        CommitConflictError after ``MAX_ATTEMPTS`` attempts.
        """
        current = base or self.latest(probe=True) or Manifest(self.archive_id)
        for _ in range(MAX_ATTEMPTS):
            following = change(current)
            if following is None:
                return current
            if self.put(following):
                return following
            current = self.latest(probe=True) or Manifest(self.archive_id)
        raise CommitConflictError(
            f"{self.store.url}: {MAX_ATTEMPTS} commits to {self.archive_id} were lost to other writers"
        )


class RecordingPages:
    """The pages of ended recordings. Each page is read once."""

    def __init__(self, store: Store, archive_id: str) -> None:
        self._store, self._archive_id = store, archive_id
        self._cache: dict[str, tuple[ShippedRecording, ...]] = {}

    def all(self, manifest: Manifest) -> dict[int, ShippedRecording]:
        """Return every recording of a manifest by id. The manifest's own entries replace those in its pages."""
        live = {ref.name for ref in manifest.pages}
        for name in self._cache.keys() - live:
            del self._cache[name]
        recordings: dict[int, ShippedRecording] = {}
        for ref in manifest.pages:
            recordings |= {each.descriptor.recording_id: each for each in self._read(ref)}
        return recordings | manifest.recordings

    def _read(self, ref: ObjectRef) -> tuple[ShippedRecording, ...]:
        if ref.name not in self._cache:
            if not 0 < ref.length <= MAX_RECORDINGS_PAGE_LENGTH:
                raise RecordingError(f"{self._store.url}: {ref.name} cannot have {ref.length} bytes")
            data = read_checked(self._store, self._archive_id, ref.name, ref.length, ref.crc32)
            try:
                self._cache[ref.name] = tuple(ShippedRecording.of(each) for each in json.loads(data)["recordings"])
            except MALFORMED as error:
                raise RecordingError(f"{self._store.url}: {ref.name} cannot be read: {error}") from error
        return self._cache[ref.name]

    def write(self, recordings: Iterable[ShippedRecording]) -> ObjectRef:
        entries = sorted(recordings, key=lambda each: each.descriptor.recording_id)
        first, last = (each.descriptor.recording_id for each in (entries[0], entries[-1]))
        data = json.dumps({"recordings": [each.as_json() for each in entries]}, separators=(",", ":")).encode()
        ref = ObjectRef(recordings_page_name(first, last), zlib.crc32(data), len(data))
        put_verified(self._store, f"{self._archive_id}/{ref.name}", data)
        self._cache[ref.name] = tuple(entries)
        return ref

    def moved(self, manifest: Manifest) -> Manifest:
        ended = [key for key, entry in sorted(manifest.recordings.items()) if entry.is_complete]
        refs, moving = list(manifest.pages), set[int]()
        for first in range(0, len(ended) - RECORDINGS_PER_PAGE + 1, RECORDINGS_PER_PAGE):
            keys = ended[first : first + RECORDINGS_PER_PAGE]
            refs.append(self.write(manifest.recordings[key] for key in keys))
            moving.update(keys)
        rest = {key: entry for key, entry in manifest.recordings.items() if key not in moving}
        return replace(manifest, recordings=rest, pages=tuple(refs))

    def superseded(self, manifest: Manifest) -> list[ObjectRef]:
        """Return the pages whose recordings are all in later pages or in the manifest itself."""
        later, refs = set(manifest.recordings), list[ObjectRef]()
        for ref in reversed(manifest.pages):
            keys = {each.descriptor.recording_id for each in self._read(ref)}
            if keys <= later:
                refs.append(ref)
            later |= keys
        return refs


# -- garbage: objects that no manifest refers to -----------------------------------------------------------------------
#
# A reader with an older manifest still uses the objects of that manifest, so removed objects are deleted only after a grace period.
# Their names are listed in an object, and the manifest that removes them refers to that object. So the list takes effect at the
# commit.


# If a batch query reads from one manifest for longer than this, a longer grace period must be set.
DEFAULT_GRACE_NS = 3600 * 1_000_000_000
# Names per garbage list: about 1 MB.
NAMES_PER_LIST = 10_000
MAX_LIST_LENGTH = 8 << 20


def listed(chain: ManifestLog, names: Sequence[str], after_ns: int, number: int) -> tuple[GarbageRef, ...]:
    """Write lists of the objects to delete from epoch ``after_ns`` on.

    Returns the references for the manifest with that ``number``.
    """
    refs = []
    for first in range(0, len(names), NAMES_PER_LIST):
        data = json.dumps({"names": names[first : first + NAMES_PER_LIST]}, separators=(",", ":")).encode()
        name = garbage_name()
        put_verified(chain.store, f"{chain.archive_id}/{name}", data)
        refs.append(GarbageRef(name, zlib.crc32(data), len(data), after_ns, number))
    return tuple(refs)


def tidied(chain: ManifestLog, manifest: Manifest, after_ns: int) -> Manifest:
    """Move ended recordings into pages and drop superseded pages. Return the resulting manifest."""
    manifest = chain.recording_pages.moved(manifest)
    dropped = chain.recording_pages.superseded(manifest)
    if not dropped:
        return manifest
    refs = listed(chain, [ref.name for ref in dropped], after_ns, manifest.number)
    pages = tuple(ref for ref in manifest.pages if ref not in dropped)
    return replace(manifest, pages=pages, garbage=(*manifest.garbage, *refs))


def collect_garbage(
    chain: ManifestLog, now_ns: int, base: Manifest | None = None, over: Sequence[GarbageRef] | None = None
) -> tuple[Manifest | None, int]:
    """Delete the objects whose grace period is over. Return the archive's current manifest and the number of deleted objects.

    ``now_ns`` is the wall clock's time. A caller that has watched the periods passes those that are ``over``.
    """
    manifest = base or chain.latest()
    if over is None:
        over = [ref for ref in manifest.garbage if ref.after_ns <= now_ns] if manifest else ()
    due = {ref.name: ref for ref in over}
    if manifest is None or not due:
        return manifest, 0
    # First delete the old manifests, so that no manifest refers to missing objects.
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
        return []  # another process has just deleted it
    try:
        names = json.loads(read_checked(chain.store, chain.archive_id, ref.name, ref.length, ref.crc32))["names"]
    except MALFORMED as error:
        raise RecordingError(f"{chain.store.url}: {ref.name} cannot be read: {error}") from error
    return [checked_name(name) for name in names]
