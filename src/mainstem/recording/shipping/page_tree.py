"""The chunks of a recording as a tree of immutable pages: appending is O(1), and a query reads only the pages on its path.

Theory of operation. The entry of a recording in the manifest has the newest chunks, the tail. ``FANOUT`` chunks move into a page,
which is a separate object, and the entry keeps one reference to it. Likewise, ``FANOUT`` references to pages of one level move into
a page of the next level. So an entry has at most ``FANOUT`` items per level. A million chunks need at most 128 items on each of
three levels, and one page per level is read to find a position, time or number of messages.

Pages never change. ``spliced`` (for retention and compaction) writes new pages instead of those that it affects, and returns the
names of the replaced ones. Items are ordered by position: the oldest are in the highest level.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from mainstem.errors import RecordingError
from mainstem.recording.index import ENTRY_LENGTH
from mainstem.recording.shipping.chunks import MALFORMED, UNKNOWN, Chunk, checked_row, put_verified
from mainstem.recording.shipping.layout import page_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainstem.store import Store

# Rows per page, about 20 kB: a commit writes few pages, and a query reads one page per level.
FANOUT = 128
# The maximum size of a page: ``FANOUT`` rows, each with a name of at most 512 bytes and up to 13 numbers, are far smaller.
MAX_PAGE_LENGTH = 1 << 20
# More levels than any recording needs. It limits how deep a corrupt tree can be.
MAX_LEVEL = 8
# The number of decoded pages that a reader caches.
MAX_CACHED_PAGES = 256


@dataclass(frozen=True, slots=True)
class PageRef:
    """A reference to a page, with a summary of the page's contents.

    The summary's fields are named as in ``Chunk``. If it is enough for a query, the page is not read.
    """

    start: int
    end: int
    name: str
    crc32: int
    level: int
    first_entry: int
    entries: int
    before: int
    messages: int
    first_ns: int
    last_ns: int
    count: int
    nbytes: int
    page_length: int

    @property
    def length(self) -> int:
        return self.nbytes - self.entries * ENTRY_LENGTH

    def row(self) -> list[Any]:
        return [getattr(self, each.name) for each in fields(self)]

    @classmethod
    def of(cls, row: object) -> PageRef:
        ref = cls(*checked_row(row, cls))
        if (
            not 1 <= ref.level <= MAX_LEVEL
            or not 0 < ref.page_length <= MAX_PAGE_LENGTH
            or not 0 < ref.length <= ref.end - ref.start
            or not 0 < ref.count <= FANOUT**ref.level
        ):
            raise RecordingError(f"a page of level {ref.level} with {ref.page_length} bytes is invalid")
        return ref


Item = Chunk | PageRef


def check_order(items: Sequence[Item], start: int, end: int) -> None:
    """Raise RecordingError unless the items are in order within ``[start, end)`` and do not overlap.

    This bounds the total number of rows in the pages of a tree, however they refer to one another.
    """
    position, first_entry = start, 0
    for item in items:
        if item.start < position or item.end > end or item.first_entry < first_entry:
            raise RecordingError(f"the range {item.start} to {item.end} is not between {position} and {end}")
        position, first_entry = item.end, item.first_entry + item.entries


@dataclass(frozen=True, slots=True)
class ChunkTree:
    """The items in a recording's entry.

    ``levels[0]`` refers to pages of chunks, ``levels[1]`` to pages of such references, and so on. ``tail`` has the newest chunks.
    """

    levels: tuple[tuple[PageRef, ...], ...] = ()
    tail: tuple[Chunk, ...] = ()

    @property
    def items(self) -> list[Item]:
        """The items in the entry itself, ordered by position."""
        return [item for level in reversed(self.levels) for item in level] + list(self.tail)

    @property
    def count(self) -> int:
        return sum(item.count for item in self.items)

    @property
    def nbytes(self) -> int:
        return sum(item.nbytes for item in self.items)

    def as_json(self) -> dict[str, Any]:
        return {
            "levels": [[ref.row() for ref in level] for level in self.levels],
            "tail": [chunk.row() for chunk in self.tail],
        }

    @classmethod
    def of(cls, value: dict[str, Any]) -> ChunkTree:
        """Decode ``as_json``. Raises RecordingError, KeyError or TypeError."""
        levels = tuple(tuple(PageRef.of(row) for row in level) for level in value["levels"])
        if any(ref.level != height for height, level in enumerate(levels, 1) for ref in level):
            raise RecordingError("a page is not of the level at which it is referred to")
        return cls(levels, tuple(Chunk.of(row) for row in value["tail"]))


class Pages:
    """Reads and writes the pages of one archive. ``written`` has the names of the pages written since the last commit."""

    def __init__(self, store: Store, archive_id: str) -> None:
        self._store, self._archive_id = store, archive_id
        self._cache: OrderedDict[str, tuple[Item, ...]] = OrderedDict()
        self.written: list[str] = []
        self.reads = 0

    def read(self, ref: PageRef) -> tuple[Item, ...]:
        items = self._cache.get(ref.name)
        if items is None:
            self.reads += 1
            items = _decoded(read_checked(self._store, self._archive_id, ref.name, ref.page_length, ref.crc32), ref)
            self._remember(ref.name, items)
        self._cache.move_to_end(ref.name)
        return items

    def write(self, recording_id: int, level: int, items: Sequence[Item]) -> PageRef:
        first, last = items[0], items[-1]
        name = page_name(recording_id, level, first.start, last.end)
        rows = json.dumps({"level": level, "rows": [item.row() for item in items]}, separators=(",", ":")).encode()
        self.written.append(name)
        put_verified(self._store, f"{self._archive_id}/{name}", rows)
        self._remember(name, tuple(items))
        return PageRef(
            start=first.start,
            end=last.end,
            name=name,
            crc32=zlib.crc32(rows),
            level=level,
            first_entry=first.first_entry,
            entries=sum(item.entries for item in items),
            before=first.before,
            messages=sum(item.messages for item in items),
            first_ns=first.first_ns,
            last_ns=UNKNOWN if any(item.last_ns == UNKNOWN for item in items) else max(item.last_ns for item in items),
            count=sum(item.count for item in items),
            nbytes=sum(item.nbytes for item in items),
            page_length=len(rows),
        )

    def discard(self) -> None:
        """Delete the pages written for a change that was not committed."""
        while self.written:
            self._store.delete(f"{self._archive_id}/{self.written.pop()}")

    def _remember(self, name: str, items: tuple[Item, ...]) -> None:
        self._cache[name] = items
        if len(self._cache) > MAX_CACHED_PAGES:
            self._cache.popitem(last=False)


def read_checked(store: Store, archive_id: str, name: str, length: int, crc32: int) -> bytes:
    """Return the bytes of a small object. Raises RecordingError if it is missing or corrupt."""
    whole = f"{archive_id}/{name}"
    try:
        data = bytes(store.read(whole, 0, length))
    except FileNotFoundError:
        raise RecordingError(f"{store.url}: {whole} is missing: it was deleted, or the manifest is too old") from None
    if len(data) != length or zlib.crc32(data) != crc32:
        raise RecordingError(f"{store.url}: {whole} is corrupt: its checksum differs")
    return data


def _decoded(data: bytes, ref: PageRef) -> tuple[Item, ...]:
    try:
        page = json.loads(data)
        level = page["level"]
        kind = Chunk if level == 1 else PageRef
        items: tuple[Item, ...] = tuple(kind.of(row) for row in page["rows"])
    except MALFORMED as error:
        raise RecordingError(f"page {ref.name} cannot be read: {error}") from error
    deeper = [item for item in items if isinstance(item, PageRef) and item.level != ref.level - 1]
    if level != ref.level or not 0 < len(items) <= FANOUT or deeper:
        raise RecordingError(f"page {ref.name} is not of level {ref.level}")
    try:
        check_order(items, ref.start, ref.end)
    except RecordingError as error:
        raise RecordingError(f"page {ref.name}: {error}") from None
    if _summary(items) != (ref.start, ref.end, ref.first_entry, ref.entries, ref.count, ref.nbytes):
        raise RecordingError(f"page {ref.name} does not hold what the reference to it says")
    return items


def _summary(items: Sequence[Item]) -> tuple[int, ...]:
    return (
        items[0].start,
        items[-1].end,
        items[0].first_entry,
        sum(item.entries for item in items),
        sum(item.count for item in items),
        sum(item.nbytes for item in items),
    )


def appended(
    tree: ChunkTree, recording_id: int, chunks: Sequence[Chunk], pages: Pages, most: int = FANOUT
) -> ChunkTree:
    tail, levels = [*tree.tail, *chunks], [list(level) for level in tree.levels]
    while len(tail) >= most:
        if not levels:
            levels.append([])
        levels[0].append(pages.write(recording_id, 1, tail[:FANOUT]))
        tail = tail[FANOUT:]
    height = 0
    while height < len(levels):
        while len(levels[height]) >= FANOUT:
            if height + 1 == len(levels):
                levels.append([])
            levels[height + 1].append(pages.write(recording_id, height + 2, levels[height][:FANOUT]))
            levels[height] = levels[height][FANOUT:]
        height += 1
    return ChunkTree(tuple(tuple(level) for level in levels), tuple(tail))


def between(tree: ChunkTree, start: int, end: int, pages: Pages) -> Iterator[Chunk]:
    """Yield the chunks with bytes of ``[start, end)``, in order. Only the pages on the way are read."""
    yield from _between(tree.items, start, end, pages)


def _between(items: Sequence[Item], start: int, end: int, pages: Pages) -> Iterator[Chunk]:
    for item in items:
        if item.end <= start:
            continue
        if item.start >= end:
            return
        if isinstance(item, Chunk):
            yield item
        else:
            yield from _between(pages.read(item), start, end, pages)


def last_where(tree: ChunkTree, holds: Callable[[Item], bool], pages: Pages) -> Chunk | None:
    """Return the last chunk for which ``holds`` is true; ``holds`` must be monotone."""
    items: Sequence[Item] = tree.items
    while True:
        item = next((each for each in reversed(items) if holds(each)), None)
        if item is None or isinstance(item, Chunk):
            return item
        items = pages.read(item)


@dataclass(slots=True)
class Splice:
    """A tree after chunks were replaced. It no longer refers to ``chunks``, nor to the pages whose names are in ``pages``."""

    tree: ChunkTree
    chunks: list[Chunk] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)


def spliced(
    tree: ChunkTree, recording_id: int, start: int, end: int, replacement: Sequence[Chunk], pages: Pages
) -> Splice:
    """Return the tree with ``replacement`` instead of the chunks in ``[start, end)``."""
    splice, left = Splice(tree), list(replacement)

    def rewritten(items: Sequence[Item]) -> list[Item]:
        result: list[Item] = []
        for item in items:
            if item.end <= start or item.start >= end:
                result.append(item)
            elif isinstance(item, PageRef):
                children = rewritten(pages.read(item))
                splice.pages.append(item.name)
                if children:
                    result.append(pages.write(recording_id, item.level, children))
            elif start <= item.start and item.end <= end:
                splice.chunks.append(item)
                result += left
                left.clear()
            else:
                result.append(item)
        return result

    levels = [tuple(rewritten(level)) for level in reversed(tree.levels)]
    tail = tuple(rewritten(tree.tail))
    splice.tree = ChunkTree(tuple(reversed(levels)), tail)  # type: ignore[arg-type]
    return splice
